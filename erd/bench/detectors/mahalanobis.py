"""Mahalanobis distances to the nearest class in every stage of the net, combined by what is told to be novel.

In each stage the known classes are Gaussians with one covariance; an image is first moved by a little noise to where
that stage's distance shrinks. A logistic regression of told novel images against V weighs the stages, and the noise is
the one that tells held-back halves of the two apart best. So this is an oracle: it has seen the novelty it looks for.
Score: the log odds of being novel.

Lee et al. take the stages of a ResNet or DenseNet; here they are those of the bench's net, of an MLP all hidden layers.
Covariances are shrunk a little (`shared.layers.Gaussians`), distances standardised before the regression, and the noise
is chosen by AUROC where the authors' code takes TNR@95.
"""

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.layers import LayerDistances, some
from erd.statistics import metrics

NOISES = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)  # of the authors' code, of pixel values 0..1
TOLD = 1000  # images of each kind to choose and weigh with, as in their code: each costs a gradient a stage and noise


@method(
    "mahalanobis",
    paper="Lee et al., NeurIPS 2018",
    formula="Σ_l w_l min_y (h_l(x̂) − μ_ly)ᵀ Σ_l⁻¹ (h_l(x̂) − μ_ly),  w from novel images",
    setting="oracle",
    sees=("train", "val", "classifier", "novel"),
)
def fit(given: Given) -> Detector:
    distances = LayerDistances.of(given, given.classifier, given.train)
    known, novel = (
        some(rows, TOLD, given.generator(name))[0] for name, rows in (("val", given.val.images), ("novel", given.novel))
    )
    told = {noise: (distances(known, noise), distances(novel, noise)) for noise in NOISES}
    noise = max(NOISES, key=lambda noise: held_back_auroc(*told[noise]))
    log_odds = Combiner(*told[noise])
    return Detector(lambda images: log_odds(distances(images, noise)))


class Combiner:
    """Logistic regression on standardised distances: N×stages → N log odds of being novel."""

    def __init__(self, known: Tensor, novel: Tensor) -> None:
        from sklearn.linear_model import LogisticRegression  # slow to import

        both = torch.cat([known, novel]).double()
        self.mean, self.std = both.mean(0), both.std(0).clamp_min(1e-12)
        truth = torch.arange(len(both)) >= len(known)
        model = LogisticRegression(max_iter=1000).fit(((both - self.mean) / self.std).numpy(), truth.numpy())
        self.weights, self.bias = torch.from_numpy(model.coef_[0]), torch.from_numpy(model.intercept_)

    def __call__(self, distances: Tensor) -> Tensor:
        return (distances.double() - self.mean) / self.std @ self.weights + self.bias


def held_back_auroc(known: Tensor, novel: Tensor) -> float:
    """Fitted to every second image, measured on the others."""
    log_odds = Combiner(known[::2], novel[::2])
    return metrics.auroc(log_odds(known[1::2]).numpy(), log_odds(novel[1::2]).numpy())
