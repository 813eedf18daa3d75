"""For an image of the batch, the training images that are most like it to the classifier.

Alike means: the cosine of what goes into the classifier's last layer; for a head these are an encoder's features. At
most 5,000 training images are compared with.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from erd.base import files
from erd.base.seeds import derive
from erd.data import packed
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.review.queue import Queue
from erd.training.features import penultimate
from erd.training.members import load_net

log = logging.getLogger("erd")
NEAREST = 5
COMPARED = 5000
CHUNK = 256  # images through the net at once: the page must stay quick meanwhile


class Neighbours:
    """Found in the background, kept in neighbours.json; the page works without."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.run = queue, queue.run
        self.found: dict[int, list[dict[str, Any]]] = {}
        self._one = threading.Lock()
        self._trained: tuple[Classifier, Tensor, Tensor] | None = None

    def start(self) -> threading.Thread:
        rows = [*self.queue.lists["flagged"][: self.queue.shown], *self.queue.lists["audit"]]
        thread = threading.Thread(target=self._at_start, args=(rows,), daemon=True)
        thread.start()
        return thread

    def of(self, row: int) -> list[dict[str, Any]] | None:
        """None while they are not known yet: ask again."""
        if row not in self.found and self._one.acquire(blocking=False):
            try:
                self.found |= self._find([row])
            finally:
                self._one.release()
        return self.found.get(row)

    def _at_start(self, rows: Sequence[int]) -> None:
        try:
            with self._one:
                key = files.digest([files.sha256(path) for path in (self.run.pretrained, self.run.labeled)])
                key = files.digest([key, files.sha256(self.run.batch), self.queue.settings.seed])
                if self.run.neighbours.exists() and (kept := files.load_json(self.run.neighbours))["key"] == key:
                    self.found = {int(row): found for row, found in kept["neighbours"].items()}
                if missing := [int(row) for row in dict.fromkeys(rows) if int(row) not in self.found]:
                    self.found |= self._find(missing)
                    files.save_json(self.run.neighbours, {"key": key, "neighbours": self.found})
        except Exception as error:  # a thread's error would be lost, and the page is of use without
            log.warning("no neighbours can be shown: %s", error)

    def _find(self, rows: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
        labeled, batch = (
            packed.read(self.run.seen(path, self.queue.settings)) for path in (self.run.labeled, self.run.batch)
        )
        assert labeled.labels is not None
        if self._trained is None:
            model, _ = load_net(self.run.pretrained)
            everything = labeled.rows("train").rows
            assert everything is not None
            drawn = np.random.default_rng(derive(self.queue.settings.seed, "neighbours")).permutation(len(everything))
            sample = everything[torch.from_numpy(np.sort(drawn[:COMPARED]))]
            self._trained = model, sample, _features(model, Rows(labeled.images, sample))
        model, sample, trained = self._trained
        asked = _features(model, batch.some(torch.tensor(rows)))
        likeness, nearest = (asked @ trained.T).topk(min(NEAREST, len(sample)), dim=1)
        return {
            row: [
                {"row": (there := int(sample[j])), "label": self.queue.known[int(labeled.labels[there])],
                 "cosine": round(float(cosine), 4)}
                for cosine, j in zip(likeness[i], nearest[i], strict=True)
            ]
            for i, row in enumerate(rows)
        }  # fmt: skip


def _features(model: Classifier, rows: Rows) -> Tensor:
    """What goes into the last layer, at length 1."""
    return F.normalize(penultimate(model, rows, batch=CHUNK), dim=1)
