"""Detectors on the features of a frozen encoder, which has learned from other images (`bench.encoder`).

"neighbours" asks whether an image has nearer neighbours in this week's batch than among the labelled images: what is
new looks like other new images and like nothing that is labelled. z are the features, standardised on S, whitened by
the within-class covariance of S (shrunk by 0.3) and scaled to length 1:

    s(x) = mean of the 20 largest ⟨z, z_u⟩, u ∈ U∖{x}  −  mean of the 20 largest ⟨z, z_s⟩, s ∈ S

It estimates a density ratio, as nets that tell S from U do, without training. "encoder-max-softmax" is the paper's
first pretrained row (Fort et al. 2021) on any encoder: a softmax layer on its features.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.layers import Gaussians, softmax_layer
from erd.data.packed import Rows

NEAREST = 20
SHRINKAGE = 0.3
ITSELF = 1 - 1e-5  # cosine above which a neighbour is the image itself, or a copy
CHUNK = 1 << 24  # similarities at once: 64 MB, whatever the sizes of S and U
PAPER = "Fort et al., NeurIPS 2021"


class Standard:
    """Features, standardised on S."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.train = given.encoder(given.train.images)
        self.mean, self.std = self.train.mean(0), self.train.std(0).clamp_min(1e-6)
        self.train = (self.train - self.mean) / self.std

    def __call__(self, images: Rows) -> Tensor:
        return (self.given.encoder(images) - self.mean) / self.std


@method(
    "neighbours",
    paper="ours",
    formula="mean of the 20 largest ⟨z, z_u⟩, u ∈ U∖{x}, minus that over S; z whitened features of an encoder",
    setting="pretrained",
    sees=("train", "batch", "encoder"),
)
def neighbours(given: Given) -> Detector:
    features = Standard(given)
    whitening = Gaussians.of(features.train, given.train.labels, SHRINKAGE).whitening.float()

    def directions(seen: Tensor) -> Tensor:
        return F.normalize(seen @ whitening)

    known, batch = directions(features.train), directions(features(given.batch))

    def score(images: Rows) -> Tensor:
        asked = directions(features(images))
        return nearness(asked, batch) - nearness(asked, known)

    return Detector(score)


def nearness(asked: Tensor, others: Tensor) -> Tensor:
    """Mean cosine to the nearest of the others, without the image itself."""
    count = min(NEAREST + 1, len(others))
    found = []
    for part in asked.split(max(1, CHUNK // len(others))):
        nearest = (part @ others.T).topk(count, dim=1).values
        itself = nearest[:, :1] > ITSELF
        kept = torch.where(itself, nearest[:, 1:], nearest[:, :-1]) if count > 1 else nearest
        found.append(kept.mean(1))
    return torch.cat(found)


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
