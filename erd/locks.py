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
        handle = _take(folder)
    except BlockingIOError:
        raise RunError(f"another run is working in {folder}; wait for it, or give this one another --batch") from None
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise RunError(f"cannot write to {folder}: {why}; check path and rights") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()
        os.close(handle)


def _take(folder: Path) -> int:
    """An open and locked handle of the folder."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that ended between the two calls above may have removed the folder we hold: then once more.
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
