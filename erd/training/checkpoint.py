"""A fit on disk: where it stopped, so that a killed one goes on; or all of it, so that nobody has to train it again.

A checkpoint is the state after the last epoch. A recording is the state after every epoch: the points of a sweep and
the kinds of average train the same members and keep other epochs of them. Played back or trained, the bits are equal.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from erd.base import files, locks
from erd.base.errors import RunError
from erd.training.optimizers import Optimizer

log = logging.getLogger("erd")
State = dict[str, Tensor]


def save(
    path: Path,
    model: nn.Module,
    optimizer: Optimizer,
    generator: torch.Generator,
    kept: list[State],
    facts: dict[str, Any],
) -> None:
    """All that it takes to go on: weights, optimizer, generator, and the snapshots that are kept so far."""
    tensors: State = {"generator": generator.get_state()}
    tensors |= {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for number, snapshot in enumerate(kept):
        tensors |= {f"kept/{number}/{name}": tensor for name, tensor in snapshot.items()}
    tensors |= {f"optimizer/{name}": tensor for name, tensor in optimizer.state().items()}
    files.save_tensors(path, tensors, facts)


def resume(
    path: Path, fingerprint: str, model: nn.Module, optimizer: Optimizer, generator: torch.Generator
) -> tuple[list[State], dict[str, Any]] | None:
    """Take up a fit where it stopped; its snapshots and facts. One of other data or settings is passed over, and so is
    one that cannot be read."""
    try:
        tensors, facts = files.load_tensors(path, "generator")
    except RunError as error:
        log.warning("note: training begins anew: %s", error)
        return None
    if facts.get("fingerprint") != fingerprint:
        return None

    def of(kind: str) -> State:
        return {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}

    model.load_state_dict(of("model/"))
    optimizer.load(of("optimizer/"))
    generator.set_state(tensors["generator"].clone())
    count = len({name.partition("/")[0] for name in of("kept/")})
    return [{name: t.clone() for name, t in of(f"kept/{number}/").items()} for number in range(count)], facts


class Recording:
    """A folder with weights, record and generator after every epoch, and the optimizer after the last one: a longer fit
    goes on where the recording ends, a shorter one stops earlier."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.saved = 0.0  # seconds of training that were played back
        self._since = time.perf_counter()

    def play(
        self, epoch: int, model: nn.Module, optimizer: Optimizer, generator: torch.Generator
    ) -> dict[str, float] | None:
        """All as it was after that epoch, and its record; None where the recording is not as long."""
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
        self, record: dict[str, float], model: nn.Module, optimizer: Optimizer, generator: torch.Generator
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
def recorded(folder: Path, *, wait: bool) -> Iterator[Recording]:
    """The recording in `folder`, for this process alone; `locks.Busy` where another is training for it just now."""
    with locks.held(folder / "lock", wait=wait):
        yield Recording(folder)
