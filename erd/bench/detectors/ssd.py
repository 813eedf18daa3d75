"""SSD's score on the classifier's features: the distance to the nearest class, each measured by its own covariance.

The paper learns the features by contrasting augmented images and finds clusters in them. That takes hundreds of epochs
and augmentations that suit the images, so here the features are the classifier's, normalised to length 1 as theirs, and
the clusters are the known classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.layers import Gaussians
from erd.data.packed import Rows
from erd.training.features import penultimate


@method(
    "ssd",
    paper="Sehwag et al., ICLR 2021 (its score, on the classifier's features)",
    formula="min_y (z − μ_y)ᵀ Σ_y⁻¹ (z − μ_y),  z = h(x)/‖h(x)‖",
    setting="unsupervised",
    sees=("train", "classifier"),
)
def fit(given: Given) -> Detector:
    seen = F.normalize(penultimate(given.classifier, given.train.images, given.device))
    clusters = [Gaussians.of(seen[given.train.labels == label]) for label in given.train.labels.unique()]

    def score(images: Rows) -> Tensor:
        asked = F.normalize(penultimate(given.classifier, images, given.device))
        return torch.stack([cluster.nearest(asked) for cluster in clusters]).amin(0)

    return Detector(score)
