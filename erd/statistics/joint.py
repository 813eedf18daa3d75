"""The score where there is an encoder: candidate classes, neighbours in the batch and the members' disagreement as one.

Each finds what the others miss: candidates a class that is rare, neighbours one that is frequent and of many looks,
members what is spread out. They are joined by their ranks among the images they learned from, so none has to be scaled.
All three treat those images as a set, and score any other image, of the batch or of C, by the same function. What they
are held against is S, and further images that are known: V, and C as far as it is not hidden among the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from erd.base import files
from erd.statistics.candidates import Candidates, Known, Space
from erd.statistics.neighbours import Index, Whitening

# How much each counts. Candidates count twice: they are what finds a class at 3% (docs/decisions.md).
WEIGHTS = {"candidates": 2.0, "neighbours": 1.0, "disagreement": 1.0}
COUNTS = tuple(WEIGHTS.values())


@dataclass(frozen=True)
class Joint:
    """All that it takes to score an image."""

    space: Space
    index: Index
    candidates: Candidates
    within: np.ndarray  # M×3, in the order of WEIGHTS: those of the images it was made with, which rank all others

    @classmethod
    def of(
        cls, train: Tensor, labels: Tensor, batch: Tensor, disagreement: np.ndarray, space: Space | None = None
    ) -> "Joint":
        """Features of S, its labels; features of M and how much the members disagree on it. `space` where others than
        these images were looked at for it."""
        space = space or Space.of(train, labels, [batch])
        return cls.of_seen(space, space(train), labels, space(batch), disagreement)

    @classmethod
    def of_seen(
        cls,
        space: Space,
        train: Tensor,
        labels: Tensor,
        batch: Tensor,
        disagreement: np.ndarray,
        further: Sequence[Tensor] = (),
    ) -> "Joint":
        """The same, of images that are in the directions of the space already: several fits share them. `further`
        images are held against the batch as S is, without their labels."""
        known = Known.of(train, labels, further)
        index = Index(space, known.background, batch)
        candidates = Candidates.of(batch, known)
        own = [candidates.within.numpy(), index.of_seen(batch), disagreement]
        return cls(space, index, candidates, np.stack(own, 1))

    @property
    def learned(self) -> np.ndarray:
        """The score of the images it was made with, none of them compared with itself."""
        return joined(self.within, self.within, COUNTS)

    def of_table(self, table: pd.DataFrame, features: Tensor) -> pd.DataFrame:
        """The table with its column `disagreement` joined to a new `score`, and columns of its other parts."""
        return self.of_table_seen(table, self.space(features))

    def of_table_seen(self, table: pd.DataFrame, seen: Tensor) -> pd.DataFrame:
        parts = self._parts(seen)
        values = np.stack([*parts.values(), table["disagreement"].to_numpy()], 1)
        return table.assign(score=joined(values, self.within, COUNTS), **parts)

    def parts(self, features: Tensor) -> dict[str, np.ndarray]:
        """Candidates and neighbours; of an image that it was made with, as if it had been made without it."""
        return self._parts(self.space(features))

    def _parts(self, seen: Tensor) -> dict[str, np.ndarray]:
        return {"candidates": self.candidates.of_any(seen), "neighbours": self.index.of_seen(seen)}

    def save(self, path: Path) -> None:
        space, found = self.space, self.candidates
        tensors = {"mean": space.whitening.mean, "matrix": space.whitening.matrix, "middle": space.mean,
                   "axes": space.axes, "background": self.index.background, "batch": self.index.batch,
                   "known": found.known.centres, "candidates": found.centres,
                   "within": torch.from_numpy(self.within)}  # fmt: skip
        files.save_tensors(path, tensors, {"strength": list(found.strength)})

    @classmethod
    def load(cls, path: Path) -> "Joint | None":
        """None where the scores of a run are not joined."""
        found, facts = files.load_tensors(path)
        if not found:
            return None
        with files.understood(path):
            # Copies: where in a file a tensor begins must not decide which last bits a product has.
            found = {name: tensor.clone() for name, tensor in found.items()}
            space = Space(Whitening(found["mean"], found["matrix"]), found["middle"], found["axes"])
            known = Known(found["background"], found["known"])
            within = found["within"]
            none = torch.zeros(len(found["candidates"]), 0)
            batch, strength = found["batch"], tuple(facts["strength"])
            candidates = Candidates(known, batch, found["candidates"], strength, within[:, 0], none)
            return cls(space, Index(space, known.background, batch), candidates, within.numpy())


def joined(values: np.ndarray, in_batch: np.ndarray, weights: Sequence[float] | None = None) -> np.ndarray:
    """Several scores as one: Σ −w log(1 − F(v)), F the share of M below; `values` N×scores, `in_batch` M×scores.
    Without weights all count alike.

    The logarithm lets the top of a list decide: an image that one score puts first among a thousand is not made
    average by the others.
    """
    total = np.zeros(len(values))
    weights = np.ones(values.shape[1]).tolist() if weights is None else weights
    for weight, score, known in zip(weights, values.T, np.sort(in_batch, axis=0).T, strict=True):
        below, up_to = (np.searchsorted(known, score, side=side) for side in ("left", "right"))
        total -= weight * np.log(1 + 0.5 / len(known) - (below + up_to) / 2 / len(known))
    return total
