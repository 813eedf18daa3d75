"""A fit that is written down, so that whoever asks for the same one plays it back instead of training again.

The points of a sweep and the kinds of average train the same members and keep other epochs of them. A tape is a folder
with weights, record and generator after every epoch, and the optimizer after the last one: a longer fit goes on where
the tape ends, a shorter one stops earlier. Played or trained, the bits are the same.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from erd import files
from erd.optimizers import Optimizer


class Busy(Exception):
    """Another process is training for this tape just now."""


class Tape:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.saved = 0.0  # seconds of training that were played back
        self._since = time.perf_counter()

    def play(
        self, epoch: int, model: nn.Module, optimizer: Optimizer, generator: torch.Generator
    ) -> dict[str, float] | None:
        """All as it was after that epoch, and its record; None where the tape is not as long."""
        if not self._weights(epoch).exists():
            self._since = time.perf_counter()
            return None
        tensors, facts = files.load_tensors(self._weights(epoch))
        generator.set_state(tensors.pop("generator").clone())
        model.load_state_dict(tensors)
        if not self._weights(epoch + 1).exists():  # the fit may go on from here
            optimizer.load(files.load_tensors(self._optimizer(epoch))[0])
        self.saved += facts["seconds"]
        return dict(facts["record"])

    def write(
        self,
        record: dict[str, float],
        model: nn.Module,
        optimizer: Optimizer,
        generator: torch.Generator,
    ) -> None:
        epoch = int(record["epoch"])
        files.save_tensors(self._optimizer(epoch), optimizer.state(), {})
        facts = {"record": record, "seconds": time.perf_counter() - self._since}
        files.save_tensors(self._weights(epoch), model.state_dict() | {"generator": generator.get_state()}, facts)
        self._optimizer(epoch - 1).unlink(missing_ok=True)
        self._since = time.perf_counter()

    def _weights(self, epoch: int) -> Path:
        return self.folder / f"epoch{epoch}.safetensors"

    def _optimizer(self, epoch: int) -> Path:
        return self.folder / f"optimizer{epoch}.safetensors"


@contextmanager
def taken(folder: Path, *, wait: bool) -> Iterator[Tape]:
    """The tape in `folder`, for this process alone; `Busy` where another has it and there is no time to wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(folder) from None
        yield Tape(folder)
