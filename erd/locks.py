"""One run at a time in a run folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from erd.errors import RunError


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; a folder that is still empty at the end (nothing was written) goes away again.

    The lock is on the folder itself and dies with the process: a killed run leaves nothing to clean up.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {os.strerror(error.errno or 0).lower()}; check path and rights"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RunError(f"another run is working in {folder}; wait for it, or give this one another --batch") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()
        os.close(handle)
