"""The batch as a whole: a map of it, and the most useful images, which differ from each other as much as can be.

Both compare images in the directions of `erd.statistics.candidates.Space`. The map is the two principal directions of
the batch, with training images for a ground. The most useful ones are chosen farthest first (the greedy k-centre)
among the most novel: each next one is the least like all that were chosen, so that few answers tell of many classes.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from erd.base import files
from erd.base.records import made
from erd.review.features import Features
from erd.statistics.candidates import Space
from erd.statistics.joint import Joint

GROUND = 1500  # training images on the map, at most
AMONG = 2  # the most useful are chosen from so many times as many of the most novel


@dataclass(frozen=True)
class Layout:
    points: list[list[float]]  # x, y of each image of the batch, in the order of its rows
    ground: list[list[float]]  # x, y of training images
    classes: list[int]  # their classes, an index into the known ones
    useful: list[int]  # rows of the batch


class Overview:
    """Kept in overview.json; the page works without."""

    def __init__(self, features: Features) -> None:
        self.features, self.queue = features, features.queue
        self.found: Layout | None = None
        self.failed = ""  # why there is nothing

    def prepare(self) -> None:
        kept = self.queue.run.overview
        key = files.digest([self.features.key(__name__), self.queue.key, self.queue.budget])
        if (found := files.load_json_if_whole(kept) or {}).get("key") == key:
            self.found = made(Layout, found.get("layout"), kept)
            return
        self.found = self._find()
        files.save_json(kept, {"key": key, "layout": asdict(self.found)})

    def _find(self) -> Layout:
        _, labels, trained = self.features.trained()
        batch = self.features.of(range(len(self.queue.table)))
        space = self._space() or Space.of(trained, labels, [batch])
        seen, ground = space(batch).float(), space(trained[:: len(trained) // GROUND + 1]).float()
        middle = seen.mean(0)
        _, _, axes = torch.linalg.svd(seen - middle, full_matrices=False)
        pool = torch.from_numpy(self.queue.lists["flagged"][: max(AMONG * self.queue.budget, self.queue.shown)].copy())
        return Layout(
            _rounded((seen - middle) @ axes[:2].T),
            _rounded((ground - middle) @ axes[:2].T),
            labels[:: len(trained) // GROUND + 1].tolist(),
            pool[farthest_first(seen[pool], self.queue.budget)].tolist(),
        )

    def _space(self) -> Space | None:
        """That of the score, where it has one."""
        index = self.queue.run.neighbour_index
        joint = Joint.load(index) if index.exists() else None
        return joint.space if joint else None


def farthest_first(seen: Tensor, count: int) -> list[int]:
    """From the first on, each next one the least like any before; `seen` of length 1."""
    chosen: list[int] = []
    nearest = torch.full((len(seen),), -torch.inf)
    for _ in range(min(count, len(seen))):
        chosen.append(int(nearest.argmin()) if chosen else 0)
        nearest = torch.maximum(nearest, seen @ seen[chosen[-1]])
        nearest[chosen] = torch.inf
    return chosen


def _rounded(points: Tensor) -> list[list[float]]:
    return [[round(float(x), 4), round(float(y), 4)] for x, y in points]
