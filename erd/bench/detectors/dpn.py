"""Prior networks: a net that gives a Dirichlet distribution over the class probabilities, flat where it knows nothing.

Malinin & Gales, NeurIPS 2018, with the reverse KL of their NeurIPS 2019 paper, which trains more easily:

    α(x) = exp(f(x)),   loss = [ mean over S of KL(Dir(α(x)) ‖ Dir(1 + β·e_y))
                                 + γ · mean over outliers of KL(Dir(α(x)) ‖ Dir(1)) ] / β

with β = 100 and γ = 10 as in 2019 (there for CIFAR-10). Divided by β it has the size of a cross-entropy, so that the
usual learning rates hold. Score: the mutual information between label and class probabilities, which is large where the
Dirichlet is flat and 0 where it is a point:

    I(x) = −Σ_c α_c/α₀ (ln α_c/α₀ − ψ(α_c + 1) + ψ(α₀ + 1)),   α₀ = Σ_c α_c

Trained from scratch on the pretraining schedule at a learning rate of at most 0.01 (what the ERD paper used for it).
"""

from dataclasses import replace

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import mean_of

PRECISION = 100.0  # β
OUTLIERS = 10.0  # γ
HIGHEST_LR = 0.01


def kl_of_dirichlets(alpha: Tensor, beta: Tensor) -> Tensor:
    """KL(Dir(α) ‖ Dir(β)), row by row."""
    total, target = alpha.sum(1), beta.sum(1)
    return (
        total.lgamma()
        - target.lgamma()
        + (beta.lgamma() - alpha.lgamma()).sum(1)
        + ((alpha - beta) * (alpha.digamma() - total.digamma()[:, None])).sum(1)
    )


def mutual_information(alpha: Tensor) -> Tensor:
    total = alpha.sum(1, keepdim=True)
    mean = alpha / total
    return -(mean * (mean.log() - (alpha + 1).digamma() + (total + 1).digamma())).sum(1)


def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
    known = part == 0
    target = torch.ones_like(outputs)
    target[torch.arange(len(labels), device=labels.device), labels] += PRECISION * known
    divergence = kl_of_dirichlets(outputs.exp(), target) / PRECISION
    return mean_of(divergence, known) + OUTLIERS * mean_of(divergence, ~known)


@method(
    "dpn",
    paper="Malinin & Gales, NeurIPS 2018 and 2019",
    formula="mutual information of label and class probabilities under Dir(exp f(x))",
    setting="known outliers",
    sees=("train", "val", "outliers"),
)
def fit(given: Given) -> Detector:
    nothing = torch.zeros(len(given.outliers), dtype=torch.int64)
    examples = given.examples((given.train.images, given.train.labels), (given.outliers, nothing))
    recipe = given.pretraining
    model = given.fit(given.net(), examples, replace(recipe, lr=min(recipe.lr, HIGHEST_LR)), loss=loss)
    # In float64: for large α the terms are large and nearly cancel.
    return Detector(lambda images: mutual_information(given.outputs(model, images).double().exp()))
