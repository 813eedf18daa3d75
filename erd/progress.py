"""Progress of work that happens elsewhere: workers write small files, the parent draws a bar or says a line a minute.

Files instead of pipes, because then every runner (serial, processes, a cluster with a shared folder) looks the same.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from tqdm import tqdm

from erd import files

EVERY = 0.3  # seconds
TELL = 0.05  # share of the work between two calls of `on_progress`, which may be slow
SAY = 60.0  # seconds between two lines of `saying`
_told: ContextVar[Path | None] = ContextVar("where what is trained here tells how far it is", default=None)


def reporter(path: Path, epochs: int) -> Callable[[dict[str, float]], None]:
    """An `on_epoch` that tells a watching parent how far this member is."""
    return lambda record: files.save_json(path, {**record, "epochs": epochs})


def bar(total: float, what: str, unit: str = "epoch") -> tqdm:
    """A bar on stderr where that is a terminal; nothing in a log file."""
    return tqdm(total=total, desc=what, unit=unit, disable=None, leave=True)


@contextmanager
def watching(
    paths: Sequence[Path], epochs: int, what: str, on_progress: Callable[[float], None] = lambda share: None
) -> Iterator[None]:
    """Draw one bar over all members while the block runs, and tell `on_progress` the share that is done."""
    for path in paths:
        path.unlink(missing_ok=True)

    def draw(finished: threading.Event) -> None:
        told = 0.0
        with bar(len(paths) * epochs, what) as shown:
            while True:
                last = finished.wait(EVERY)
                done = sum(record["epoch"] for path in paths if (record := files.load_json_if_whole(path)))
                shown.update(int(done) - shown.n)
                share = done / (len(paths) * epochs)
                if share >= told + TELL or (last and share > told):
                    on_progress(told := share)
                if last:
                    return

    try:
        with _beside(draw):
            yield
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Whatever is trained within the block tells there how far it is."""
    token = _told.set(path)
    files.save_json(path, {})
    try:
        yield
    finally:
        _told.reset(token)
        path.unlink(missing_ok=True)


def tell(epoch: int, epochs: int) -> None:
    """Called after each epoch of whatever is trained; costs nothing where nobody listens."""
    if path := _told.get():
        files.save_json(path, {"epoch": epoch, "epochs": epochs})


@contextmanager
def saying(paths: Mapping[str, Path], say: Callable[[str], None]) -> Iterator[None]:
    """Every minute, while the block runs, a line on what is under way: the names whose paths are being told to."""
    for path in paths.values():
        path.unlink(missing_ok=True)  # of a process that was killed
    began = time.monotonic()

    def look(finished: threading.Event) -> None:
        while not finished.wait(SAY):
            found = []
            for name, path in paths.items():
                if (at := files.load_json_if_whole(path)) is not None:
                    found.append(name + (f", epoch {at['epoch']} of {at['epochs']}" if at else ""))
            if found:
                say(f"after {(time.monotonic() - began) / 60:.0f} min at {'; '.join(found)}")

    with _beside(look):
        yield


@contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """`work` in a thread while the block runs; it is told when that is over, and waited for."""
    finished = threading.Event()
    thread = threading.Thread(target=work, args=(finished,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
