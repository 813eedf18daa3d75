"""How far work is that happens elsewhere: who trains writes small files, who waits draws a bar or says a line a minute.

    told = progress.to_file(path, epochs=10)           # in the worker: an `on_epoch`
    with progress.watched({"member c=3": path}, "fine-tune", total=10): …        # in the parent

Files instead of pipes, because then every runner (serial, processes, a cluster with a shared folder) looks the same.
"""

import contextvars
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from erd.base import files

log = logging.getLogger("erd")
EVERY = 0.3  # seconds between two looks
TELL = 0.05  # share of the work between two calls of `on_progress`, which may be slow
SAY = 60.0  # seconds between two lines where there is no terminal to draw on

Record = dict[str, float]  # of an epoch


def to_file(path: Path, epochs: int) -> Callable[[Record], None]:
    """An `on_epoch` that tells a watching parent how far a training is."""
    return lambda record: files.save_json(path, {"epoch": record["epoch"], "epochs": epochs})


def begun(path: Path) -> None:
    """Tell that something is under way, before its first epoch or where it has none."""
    files.save_json(path, {"epoch": 0, "epochs": 0})


def bar(total: float, what: str, unit: str = "epoch") -> tqdm:
    """A bar on stderr where that is a terminal; nothing in a log file."""
    return tqdm(total=total, desc=what, unit=unit, disable=None, leave=True)


@contextmanager
def watched(
    jobs: Mapping[str, Path],
    what: str,
    *,
    total: int | None = None,
    unit: str = "epoch",
    on_progress: Callable[[float], None] = lambda share: None,
) -> Iterator[None]:
    """While the block runs: one bar over all jobs where there is a terminal and their `total` of epochs is known, else
    a line a minute on those under way, with the time that is left. `on_progress` is told the share that is done. `jobs`
    are names, and the files they tell by."""
    for path in jobs.values():
        path.unlink(missing_ok=True)  # of a process that was killed
    began = time.monotonic()
    finished = threading.Event()
    drawn = bar(total, what, unit) if total and sys.stderr.isatty() else None

    def look() -> None:
        told, said = 0.0, began
        while True:
            last = finished.wait(
                EVERY if total else min(SAY, 10 * EVERY)
            )  # thousands of cells tell nothing new so often
            under_way = {name: at for name, path in jobs.items() if (at := files.load_json_if_whole(path))}
            if total:
                done = sum(at["epoch"] for at in under_way.values())
                if drawn is not None:
                    drawn.update(int(done) - drawn.n)
                share = done / total
                if share >= told + TELL or (last and share > told):
                    on_progress(told := share)
            if last:
                return
            if drawn is None and under_way and time.monotonic() - said >= SAY:
                said = time.monotonic()
                each = (f"{name}{_epoch(at, unit)}" for name, at in under_way.items())
                left = f"; about {_left(said - began, share)} left" if total and share else ""
                log.info("%s: after %.0f min at %s%s", what, (said - began) / 60, "; ".join(each), left)

    # In the caller's context: what is logged in a flow belongs to its run.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(look,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        if drawn is not None:
            drawn.close()
        for path in jobs.values():
            path.unlink(missing_ok=True)


def _epoch(at: Record, unit: str) -> str:
    return f", {unit} {at['epoch']:.0f} of {at['epochs']:.0f}" if at["epochs"] else ""


def _left(seconds: float, share: float) -> str:
    """In words, from how long a share of the work has taken."""
    left = seconds * (1 - share) / share
    return f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
