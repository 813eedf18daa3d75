"""For an image of the batch, the training images that are most like it to the classifier: by the cosine of features."""

import threading
from collections.abc import Sequence
from typing import Any

from torch.nn import functional as F

from erd.base import files
from erd.review.features import Features

NEAREST = 5


class Neighbours:
    """Kept in neighbours.json; the page works without."""

    def __init__(self, features: Features) -> None:
        self.features, self.queue = features, features.queue
        self.found: dict[int, list[dict[str, Any]]] = {}
        self.failed = ""  # why there is nothing
        self._one = threading.Lock()

    def of(self, row: int) -> list[dict[str, Any]] | None:
        """None while they are not known yet: ask again."""
        if self.failed:
            return []
        if row not in self.found and self._one.acquire(blocking=False):
            try:
                self.found |= self._find([row])
            finally:
                self._one.release()
        return self.found.get(row)

    def prepare(self) -> None:
        """Those of the images that the page begins with."""
        kept, rows = self.queue.run.neighbours, self.queue.begins_with()
        with self._one:
            key = self.features.key(__name__)
            with files.understood(kept):
                if (found := files.load_json_if_whole(kept) or {}).get("key") == key:
                    self.found = {int(row): alike for row, alike in found["neighbours"].items()}
            if missing := [row for row in rows if row not in self.found]:
                self.found |= self._find(missing)
                files.save_json(kept, {"key": key, "neighbours": self.found})

    def _find(self, rows: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
        sample, labels, trained = self.features.trained()
        likeness = F.normalize(self.features.of(rows), dim=1) @ F.normalize(trained, dim=1).T
        cosines, nearest = likeness.topk(min(NEAREST, len(sample)), dim=1)
        return {
            row: [
                {"row": int(sample[j]), "label": self.queue.known[int(labels[j])], "cosine": round(float(cosine), 4)}
                for cosine, j in zip(cosines[i], nearest[i], strict=True)
            ]
            for i, row in enumerate(rows)
        }
