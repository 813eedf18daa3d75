"""How far long work is, and how long it still takes: a bar on a terminal, else a plain line a minute.

    with progress.bar(len(files), "images", unit="image") as shown: …shown.update()          # work of this process
    for week in progress.each(weeks, "simulate", unit="week"): …
    told = progress.to_file(path, epochs=10)           # in a worker: an `on_epoch`
    with progress.watched({"member c=3": path}, "fine-tune", total=10): …        # in the parent
    with progress.watched({}, "version"): …            # work that counts nothing
    with progress.hidden(): …                          # no bars; who hides lines does that where they are logged

Files instead of pipes, because then every runner (serial, processes, a cluster with a shared folder) looks the same.
"""

import contextvars
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from erd.base import files

log = logging.getLogger("erd")
EVERY = 0.3  # seconds between two looks
TELL = 0.05  # share of the work between two calls of `on_progress`, which may be slow
SAY = 60.0  # seconds between two lines where there is no terminal to draw on

T = TypeVar("T")
Record = dict[str, float]  # of an epoch
_hidden = contextvars.ContextVar("hidden", default=False)
_within: contextvars.ContextVar[list["Shown"]] = contextvars.ContextVar("within")  # what is counted in a watched block


def to_file(path: Path, epochs: int, before: int = 0) -> Callable[[Record], None]:
    """An `on_epoch` that tells a watching parent how far a training is; `before`: epochs of trainings before it, where
    several are one job."""
    return lambda record: files.save_json(path, {"epoch": before + record["epoch"], "epochs": epochs})


def begun(path: Path) -> None:
    """Tell that something is under way, before its first epoch or where it has none."""
    files.save_json(path, {"epoch": 0, "epochs": 0})


@contextmanager
def hidden() -> Iterator[None]:
    """No bar is drawn in this block."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


class Shown:
    """A bar on stderr where that is a terminal, with the time that is left; in a log file a line a minute."""

    def __init__(self, total: float, what: str, unit: str) -> None:
        self.n, self.total, self.what, self.unit = 0.0, total, what, unit
        self.began = self.said = time.monotonic()
        drawn = sys.stderr.isatty() and not _hidden.get()
        self.drawn = tqdm(total=total, desc=what, unit=unit, leave=True) if drawn else None
        self.within = _within.get([])
        self.within.append(self)

    def update(self, by: float = 1) -> None:
        self.to(self.n + by)

    def to(self, done: float) -> None:
        """Also where nothing was done since: that is worth a line too."""
        self.n = done
        if self.drawn is not None:
            self.drawn.update(int(done) - self.drawn.n)
        elif (now := time.monotonic()) - self.said >= SAY:
            self.said = now
            after, units = now - self.began, f"{self.unit}es" if self.unit.endswith("s") else f"{self.unit}s"
            log.info("%s: %s of %s %s after %.0f min%s", self.what, f"{done:,.0f}", f"{self.total:,.0f}", units,
                     after / 60, left(after, done, self.total))  # fmt: skip

    def close(self) -> None:
        self.within.remove(self)
        if self.drawn is not None:
            self.drawn.close()


@contextmanager
def bar(total: float, what: str, unit: str = "epoch") -> Iterator[Shown]:
    """`update` it while the block runs."""
    shown = Shown(total, what, unit)
    try:
        yield shown
    finally:
        shown.close()


def each(things: Sequence[T], what: str, unit: str) -> Iterator[T]:
    """The things, one after another, while it is shown how many are done."""
    with bar(len(things), what, unit) as shown:
        for thing in things:
            yield thing
            shown.update()


@contextmanager
def watched(
    jobs: Mapping[str, Path],
    what: str,
    *,
    total: int | None = None,
    unit: str = "epoch",
    usual: float | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Iterator[None]:
    """While the block runs: a bar over all jobs where their `total` of epochs is known (a line a minute where there is
    no terminal), else a line a minute on those under way. `on_progress` is told the share that is done. `jobs` are
    names, and the files they tell by; without any `usual` says how many seconds such work took before."""
    for path in jobs.values():
        path.unlink(missing_ok=True)  # of a process that was killed
    began = time.monotonic()
    finished = threading.Event()
    shown = Shown(total, what, unit) if total else None
    within: list[Shown] = []  # they speak for this one
    token = _within.set(within)

    def look() -> None:
        told, said = 0.0, began
        while True:
            last = finished.wait(EVERY if total else min(SAY, 10 * EVERY))  # thousands of cells tell seldom
            under_way = {name: at for name, path in jobs.items() if (at := files.load_json_if_whole(path))}
            if shown is not None:
                done = sum(at["epoch"] for at in under_way.values())
                shown.to(done)
                share = done / shown.total
                if share >= told + TELL or (last and share > told):
                    on_progress(told := share)
            if last:
                return
            if shown is None and (under_way or not jobs) and not within and time.monotonic() - said >= SAY:
                said = time.monotonic()
                log.info("%s: after %.0f min%s", what, (said - began) / 60, _at(under_way, unit, said - began, usual))

    # In the caller's context: what is logged in a flow belongs to its run.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(look,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        _within.reset(token)
        finished.set()
        thread.join()
        if shown is not None:
            shown.close()
        for path in jobs.values():
            path.unlink(missing_ok=True)


def left(after: float, done: float, total: float) -> str:
    """The end of a sentence: how long it still takes, where so much has taken so many seconds; nothing at the ends."""
    if not 0 < done < total:
        return ""
    more = after * (total - done) / done
    text = f"{more / 3600:.1f} h" if more >= 6000 else f"{more / 60:.0f} min" if more >= 90 else f"{more:.0f} s"
    return f"; about {text} left"


def _at(under_way: Mapping[str, Record], unit: str, after: float, usual: float | None) -> str:
    """What is under way; of work that counts nothing, how long it still takes if it is as long as before."""
    if under_way:
        each = (f"{name}, {unit} {at['epoch']:.0f} of {at['epochs']:.0f}" if at["epochs"] else name
                for name, at in under_way.items())  # fmt: skip
        return f" at {'; '.join(each)}"
    return f"{left(after, after, usual)}, by the batch before" if usual and usual > after else ""
