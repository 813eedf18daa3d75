"""What the classifier's last layer is given of images; for a head these are an encoder's features.

Of training images a sample, drawn once. Neighbours, the map and the order of the most useful images rest on it.
"""

import threading
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from erd.base import code_digest, files
from erd.base.seeds import derive
from erd.data import packed
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.review.queue import Queue
from erd.runs import pruned, stage_records
from erd.training.features import penultimate
from erd.training.members import load_net

SAMPLED = 5000
CHUNK = 256  # images through the net at once: the page must stay quick meanwhile


class Features:
    def __init__(self, queue: Queue) -> None:
        self.queue, self.run = queue, queue.run
        self._lock = threading.Lock()
        self._model: Classifier | None = None
        self._trained: tuple[Tensor, Tensor, Tensor] | None = None

    def key(self, made_by: str) -> str:
        """Of what a module makes of them: another one where any of it would be."""
        pruned.check(self.run)
        inputs = [files.sha256(path) for path in (self.run.pretrained, self.run.labeled, self.run.batch)]
        code = [code_digest.of(name)[name] for name in (made_by, __name__)]
        return files.digest([*inputs, *code, self.queue.settings.seed])

    def of(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """Of images of the batch."""
        batch = packed.read(self.run.seen(self.run.batch, self.queue.settings))
        return penultimate(self._net(), batch.some(torch.as_tensor(np.asarray(rows, np.int64))), batch=CHUNK)

    def trained(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows in the labelled set, their labels, their features."""
        with self._lock:
            if self._trained is None:
                labeled = packed.read(self.run.seen(self.run.labeled, self.queue.settings))
                assert labeled.labels is not None
                assert labeled.part is not None
                every = torch.nonzero(labeled.part == packed.PARTS.index("train"))[:, 0]
                drawn = np.random.default_rng(derive(self.queue.settings.seed, "neighbours")).permutation(len(every))
                rows = every[torch.from_numpy(np.sort(drawn[:SAMPLED]))]
                shown: Rows = labeled.some(rows)
                self._trained = rows, labeled.labels[rows], penultimate(self._net(), shown, batch=CHUNK)
            return self._trained

    def _net(self) -> Classifier:
        if self._model is None:
            stage_records.verify(self.run, self.run.pretrained)
            self._model, _ = load_net(self.run.pretrained)
        return self._model
