"""Progress of work that happens elsewhere: members write small files, the parent draws one bar.

Files instead of pipes, because then every runner (serial, processes, a cluster with a shared folder) looks the same.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from erd import files

EVERY = 0.3  # seconds
TELL = 0.05  # share of the work between two calls of `on_progress`, which may be slow


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
    finished = threading.Event()

    def draw() -> None:
        told = 0.0
        with bar(len(paths) * epochs, what) as shown:
            while True:
                last = finished.wait(EVERY)
                done = sum(files.load_json(path)["epoch"] for path in paths if path.exists())
                shown.update(int(done) - shown.n)
                share = done / (len(paths) * epochs)
                if share >= told + TELL or (last and share > told):
                    on_progress(told := share)
                if last:
                    return

    drawer = threading.Thread(target=draw, daemon=True)
    drawer.start()
    try:
        yield
    finally:
        finished.set()
        drawer.join()
        for path in paths:
            path.unlink(missing_ok=True)
