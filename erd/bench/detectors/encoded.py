"""Detectors on the features of a frozen encoder, which has learned from other images (`model.encoder`).

The paper's pretrained rows (Fort et al. 2021: max softmax, Mahalanobis, relative Mahalanobis on a ViT) on any encoder,
a transformer from a local file included; and what compares the batch with S in its features, without training a net:

- "neighbours", of erd/statistics/neighbours.py.
- "candidates", of erd/statistics/candidates.py.
- "oodd" keeps a dictionary of the most novel images of the batch, and asks which one an image is nearer to, that or S.
  The paper fills the dictionary as test images come by; here the whole batch is there, and fills it once.
- "s-against-u" is a linear discriminant between S and the batch with a strong ridge (0.9 of the covariance is its mean
  diagonal), in closed form.
"""

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.layers import Gaussians, relative, softmax_layer
from erd.data.feature_store import LEAST_SPREAD
from erd.data.packed import Rows
from erd.statistics.candidates import Candidates, Known, Space
from erd.statistics.neighbours import Index, Whitening, nearness

RIDGE, SHARED_RIDGE = 0.9, 0.1
NEAREST = 20
DICTIONARY = 0.1  # of the batch
PAPER = "Fort et al., NeurIPS 2021"


class Standard:
    """Features, standardised on S."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.train = given.encoder(given.train.images)
        self.mean, self.std = self.train.mean(0), self.train.std(0)
        self.std = self.std.clamp_min(LEAST_SPREAD * float(self.std.median())).clamp_min(1e-6)
        self.train = (self.train - self.mean) / self.std

    def __call__(self, images: Rows) -> Tensor:
        return (self.given.encoder(images) - self.mean) / self.std


@method(
    "neighbours",
    paper="ours",
    formula="mean of the 40 largest ⟨z, z_u⟩, u ∈ U∖{x}, minus that of the 20 largest over S; z whitened features",
    setting="pretrained",
    sees=("train", "batch", "encoder"),
)
def neighbours(given: Given) -> Detector:
    index = Index.of(given.encoder(given.train.images), given.train.labels, given.encoder(given.batch))
    return Detector(lambda images: torch.from_numpy(index.scores(given.encoder(images))))


@method(
    "candidates",
    paper="ours",
    formula="log odds of one more class beside those of S, its centre found by EM in U from many beginnings",
    setting="pretrained",
    sees=("train", "batch", "encoder"),
)
def candidates(given: Given) -> Detector:
    train, batch = given.encoder(given.train.images), given.encoder(given.batch)
    space = Space.of(train, given.train.labels, [batch])
    found = Candidates.of(space(batch), Known.of(space(train), given.train.labels))
    return Detector(lambda images: torch.from_numpy(found.of_any(space(given.encoder(images)))))


@method(
    "oodd",
    paper="Yang et al., CVPR 2025",
    formula="mean of the 20 largest ⟨z, z_d⟩ minus that over S; d ∈ the tenth of U that is farthest from S",
    setting="pretrained",
    sees=("train", "batch", "encoder"),
)
def dictionary(given: Given) -> Detector:
    known = given.encoder(given.train.images)
    whiten = Whitening.of(known, given.train.labels)
    train, batch = whiten(known), whiten(given.encoder(given.batch))
    farthest = nearness(batch, train, NEAREST).argsort()[: max(NEAREST + 1, round(DICTIONARY * len(batch)))]
    kept = batch[farthest]

    def score(images: Rows) -> Tensor:
        asked = whiten(given.encoder(images))
        return nearness(asked, kept, NEAREST) - nearness(asked, train, NEAREST)

    return Detector(score)


@method(
    "s-against-u",
    paper="linear discriminant, Fisher 1936; regularised Friedman, JASA 1989",
    formula="wᵀx,  w = (0.1 Σ + 0.9 tr(Σ)/D · 1)⁻¹ (μ_U − μ_S),  Σ of S ∪ U",
    setting="pretrained",
    sees=("train", "batch", "encoder"),
)
def discriminant(given: Given) -> Detector:
    features = Standard(given)
    batch = features(given.batch)
    seen = torch.cat([features.train, batch]).double()
    width = seen.shape[1]
    seen = seen - seen.mean(0)
    covariance = seen.T @ seen / len(seen)
    ridge = RIDGE * covariance.trace() / width * torch.eye(width).double()
    apart = (batch.mean(0) - features.train.mean(0)).double()
    direction = torch.linalg.solve((1 - RIDGE) * covariance + ridge, apart)
    return Detector(lambda images: features(images).double() @ direction)


@method(
    "encoder-max-softmax",
    paper=PAPER,
    formula="1 − max_y softmax(W h(x) + b)_y,  h of an encoder",
    setting="pretrained",
    sees=("train", "encoder"),
)
def max_softmax(given: Given) -> Detector:
    features = Standard(given)
    unsure = softmax_layer(features.train, given.train.labels, strength=0.01)
    return Detector(lambda images: unsure(features(images)))


@method(
    "encoder-mahalanobis",
    paper=PAPER + "; Lee et al., NeurIPS 2018",
    formula="min_y (h(x) − μ_y)ᵀ Σ⁻¹ (h(x) − μ_y),  h of an encoder",
    setting="pretrained",
    sees=("train", "encoder"),
)
def mahalanobis(given: Given) -> Detector:
    features = Standard(given)
    classes = Gaussians.of(features.train, given.train.labels)
    return Detector(lambda images: classes.nearest(features(images)))


@method(
    "encoder-rmd",
    paper=PAPER + "; Ren et al., 2021",
    formula="min_y (h(x) − μ_y)ᵀ Σ⁻¹ (h(x) − μ_y) − (h(x) − μ)ᵀ Σ₀⁻¹ (h(x) − μ)",
    setting="pretrained",
    sees=("train", "encoder"),
)
def relative_mahalanobis(given: Given) -> Detector:
    features = Standard(given)
    # One ridge for both: each with its own would turn the difference around where images are fewer than features.
    classes, background = (Gaussians.of(features.train, labels, SHARED_RIDGE) for labels in (given.train.labels, None))
    return Detector(lambda images: relative(classes, background, features(images)))
