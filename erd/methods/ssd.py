"""SSD's score on the classifier's features: the distance to the nearest class, each measured by its own covariance.

The paper learns the features by contrasting augmented images and finds clusters in them. That takes hundreds of epochs
and augmentations that suit the images, so here the features are the classifier's, normalised to length 1 as theirs, and
the clusters are the known classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.data.batches import Rows
from erd.methods import Data, Detector, method
from erd.methods._features import Gaussians, penultimate


@method(
    "ssd",
    paper="Sehwag et al., ICLR 2021 (its score, on the classifier's features)",
    formula="min_y (z − μ_y)ᵀ Σ_y⁻¹ (z − μ_y),  z = h(x)/‖h(x)‖",
    setting="unsupervised",
    sees=("train", "classifier"),
)
def fit(data: Data) -> Detector:
    seen = F.normalize(penultimate(data, data.classifier, data.train.images))
    clusters = [Gaussians.of(seen[data.train.labels == label]) for label in data.train.labels.unique()]

    def score(images: Rows) -> Tensor:
        asked = F.normalize(penultimate(data, data.classifier, images))
        return torch.stack([cluster.nearest(asked) for cluster in clusters]).amin(0)

    return Detector(score)
