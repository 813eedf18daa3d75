"""Transductive neighbours: has an image nearer neighbours in this week's batch than among the labelled images?

    index = Index.of(train, labels, batch)           # features of S, its labels, features of M = U ∪ C
    index.scores(asked)                              # N; larger means more novel

What is new looks like other new images of the batch and like nothing that is labelled. z are features, standardised on
S, whitened by the within-class covariance of S (0.4 Σ + 0.6 tr(Σ)/D · 1) and scaled to length 1:

    s(x) = mean of the 40 largest ⟨z, z_m⟩, m ∈ M∖{x}  −  mean of the 20 largest ⟨z, z_s⟩, s ∈ S

It estimates a density ratio, as nets that tell S from U do, without training: it finds a compact new class that members
see late, and members find what is spread out. More neighbours in M than in S: a new class is the denser one here.

Validity: S is fixed, and M enters as a set. So with C hidden in M (`detect.calibration: mixed`) the scores of C and of
U's known images are exchangeable, as the members' are; and so is any function of both that treats M as a set, such as
`erd.statistics.joint.joined`. tests/statistics/test_neighbours.py breaks the symmetry and sees the rates fail.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from erd.data.feature_store import LEAST_SPREAD

IN_BATCH, IN_TRAIN = 40, 20  # neighbours
SHRINKAGE = 0.6
ITSELF = 1 - 1e-3  # cosine above which a neighbour is the image itself, or a copy: others have less than 0.9
ROWS = 256  # images asked about at once
CHUNK = 1 << 13  # images whose features are looked at once
BLOCK = 1 << 13  # images they are compared with at once: some 60 MB


@dataclass(frozen=True)
class Whitening:
    """Directions of features in which the classes of S spread alike."""

    mean: Tensor  # D
    matrix: Tensor  # D×D, float32

    @classmethod
    def of(cls, train: Tensor, labels: Tensor, shrinkage: float = SHRINKAGE) -> "Whitening":
        """In double precision, some thousand images at a time."""
        width, classes = train.shape[1], int(labels.max()) + 1
        counts = torch.bincount(labels, minlength=classes).double().clamp_min(1)
        sums = torch.zeros(classes, width, dtype=torch.float64)
        for part, label in zip(train.split(CHUNK), labels.split(CHUNK), strict=True):
            sums.index_add_(0, label, part.double())
        mean, means = sums.sum(0) / len(train), sums / counts[:, None]
        covariance, square = torch.zeros(width, width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
        for part, label in zip(train.split(CHUNK), labels.split(CHUNK), strict=True):
            within = part.double() - means[label]
            covariance += within.T @ within
            square += ((part.double() - mean) ** 2).sum(0)
        std = (square / len(train)).sqrt()
        std = std.clamp_min(LEAST_SPREAD * float(std.median())).clamp_min(1e-12)
        covariance = covariance / len(train) / std / std[:, None]
        spread = covariance.trace() / width
        covariance = (1 - shrinkage) * covariance + shrinkage * spread.clamp_min(1e-12) * torch.eye(width).double()
        root = torch.linalg.cholesky(covariance)
        white = torch.linalg.solve_triangular(root, torch.eye(width).double(), upper=False).T
        return cls(mean.float(), (white / std[:, None]).float())

    def __call__(self, features: Tensor) -> Tensor:
        """Of length 1, as float16: half the memory, and the same whether they are kept in a file or not."""
        parts = [F.normalize((part.float() - self.mean) @ self.matrix).half() for part in features.split(CHUNK)]
        return torch.cat(parts) if parts else torch.empty(0, len(self.mean), dtype=torch.float16)


@dataclass(frozen=True)
class Index:
    """All that it takes to score an image."""

    whitening: Callable[[Tensor], Tensor]  # or another that leads to vectors of length 1
    background: Tensor  # S in these directions, float16, and further images that the batch is held against
    batch: Tensor  # M

    @classmethod
    def of(cls, train: Tensor, labels: Tensor, batch: Tensor) -> "Index":
        """Features N×D of S, its labels, features of M."""
        whitening = Whitening.of(train, labels)
        return cls(whitening, whitening(train), whitening(batch))

    def scores(self, features: Tensor) -> np.ndarray:
        """One an image, in the batch or not: nobody is a neighbour of itself."""
        return self.of_seen(self.whitening(features))

    def of_seen(self, asked: Tensor) -> np.ndarray:
        """The same, of images that are in these directions already."""
        return (nearness(asked, self.batch, IN_BATCH) - nearness(asked, self.background, IN_TRAIN)).numpy()


def nearness(asked: Tensor, others: Tensor, count: int) -> Tensor:
    """Mean cosine to the nearest of the others, without the image itself. Memory is bounded whatever their numbers."""
    if not len(others):
        return torch.zeros(len(asked))
    found = []
    for rows in asked.split(ROWS):
        rows = rows.float()
        best = torch.empty(len(rows), 0)
        for part in others.split(BLOCK):
            similar = rows @ part.float().T
            best = torch.cat([best, similar.topk(min(count + 1, similar.shape[1]), dim=1).values], 1)
            best = best.topk(min(count + 1, best.shape[1]), dim=1).values
        itself = best[:, :1] > ITSELF
        kept = torch.where(itself, best[:, 1:], best[:, :-1]) if best.shape[1] > 1 else best
        found.append(kept[:, :count].mean(1))
    return torch.cat(found) if found else torch.zeros(0)


def itself(asked: Tensor, others: Tensor) -> Tensor:
    """For each image its place among the others, where it is one of them; −1 where it is not."""
    found = []
    for rows in asked.split(ROWS):
        best, place = torch.full((len(rows),), -1.0), torch.full((len(rows),), -1)
        for start in range(0, len(others), BLOCK):
            cosine, row = (rows.float() @ others[start : start + BLOCK].float().T).max(1)
            place = torch.where(cosine > best, row + start, place)
            best = torch.maximum(best, cosine)
        found.append(torch.where(best > ITSELF, place, -1))
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64)
