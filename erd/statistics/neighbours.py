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
`joined` below. tests/statistics/test_neighbours.py breaks the symmetry and sees the rates fail.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from erd.base import files
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

    whitening: Whitening
    train: Tensor  # S in these directions, float16
    batch: Tensor  # M

    @classmethod
    def of(cls, train: Tensor, labels: Tensor, batch: Tensor) -> "Index":
        """Features N×D of S, its labels, features of M."""
        whitening = Whitening.of(train, labels)
        return cls(whitening, whitening(train), whitening(batch))

    def scores(self, features: Tensor) -> np.ndarray:
        """One an image, in the batch or not: nobody is a neighbour of itself."""
        asked = self.whitening(features)
        return (nearness(asked, self.batch, IN_BATCH) - nearness(asked, self.train, IN_TRAIN)).numpy()


@dataclass(frozen=True)
class Joint:
    """Neighbours and disagreement as one score, and both beside it."""

    index: Index
    within: np.ndarray  # M×2: neighbours and disagreement of the images of M, which rank all others

    @classmethod
    def of(cls, train: Tensor, labels: Tensor, batch: Tensor, disagreement: np.ndarray) -> "Joint":
        """Features of S, its labels; features of M and how much the members disagree on it."""
        index = Index.of(train, labels, batch)
        return cls(index, np.stack([index.scores(batch), disagreement], 1))

    def of_table(self, table: pd.DataFrame, features: Tensor) -> pd.DataFrame:
        """The table with its column `disagreement` joined to a new `score`, and a column `neighbours`."""
        near = self.index.scores(features)
        both = np.stack([near, table["disagreement"].to_numpy()], 1)
        return table.assign(score=joined(both, self.within), neighbours=near)

    def save(self, path: Path) -> None:
        index = self.index
        tensors = {"mean": index.whitening.mean, "matrix": index.whitening.matrix, "train": index.train,
                   "batch": index.batch, "within": torch.from_numpy(self.within)}  # fmt: skip
        files.save_tensors(path, tensors, {})

    @classmethod
    def load(cls, path: Path) -> "Joint | None":
        """None where the scores of a run are not joined."""
        if not (found := files.load_tensors(path)[0]):
            return None
        index = Index(Whitening(found["mean"], found["matrix"]), found["train"], found["batch"])
        return cls(index, found["within"].numpy())


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


def joined(values: np.ndarray, in_batch: np.ndarray) -> np.ndarray:
    """Several scores as one: Σ −log(1 − F(v)), F the share of M below; `values` N×scores, `in_batch` M×scores.

    Each score counts by its ranks in M alone, so none has to be scaled. The logarithm lets the top of a list decide:
    an image that one score puts first among a thousand is not made average by the other one.
    """
    total = np.zeros(len(values))
    for score, known in zip(values.T, np.sort(in_batch, axis=0).T, strict=True):
        below, up_to = (np.searchsorted(known, score, side=side) for side in ("left", "right"))
        total -= np.log(1 + 0.5 / len(known) - (below + up_to) / 2 / len(known))
    return total
