"""How far the nearest known images are: the distance to the k-th neighbour in S among normalised features.

k is a thousandth of S: the paper's 50 of CIFAR's 50,000 images and 1,000 of ImageNet's 1.28 million. Nothing is
tuned here.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.data.packed import Rows
from erd.training.features import penultimate

CHUNK = 1 << 24  # similarities at once: 64 MB, whatever the size of S


@method(
    "knn",
    paper="Sun et al., ICML 2022",
    formula="‖z − z₍ₖ₎‖,  z = h(x)/‖h(x)‖, z₍ₖ₎ its k-th nearest in S",
    setting="unsupervised",
    sees=("train", "classifier"),
)
def fit(given: Given) -> Detector:
    stored = F.normalize(penultimate(given.classifier, given.train.images, given.device))
    k = max(1, round(len(stored) / 1000))

    def score(images: Rows) -> Tensor:
        return kth_distance(F.normalize(penultimate(given.classifier, images, given.device)), stored, k)

    return Detector(score)


def kth_distance(asked: Tensor, stored: Tensor, k: int) -> Tensor:
    """Of unit vectors. Their products find the neighbour; the distance is then taken directly, without cancellation."""
    found = []
    for part in asked.split(max(1, CHUNK // len(stored))):
        neighbour = (part @ stored.T).topk(k, dim=1).indices[:, -1]
        found.append((part - stored[neighbour]).norm(dim=1))
    return torch.cat(found)
