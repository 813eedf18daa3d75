"""Locks that die with the process that holds them: a killed run leaves nothing to clean up.

    with held(folder / ".ledger.lock"): …              # waits for its turn
    with held(folder / "lock", wait=False): …          # `Busy` where another has it
    with alone_in(run.root): …                         # one run at a time in a folder

A lock is on an open file or folder (flock). A file that is itself replaced when written takes a lock file beside it.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from erd.base import files
from erd.base.errors import RunError


class Busy(Exception):
    """Another process holds the lock, and there is no time to wait."""


@contextlib.contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a folder, or a file that is made where it is not there."""
    try:
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDONLY | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {os.strerror(error.errno or 0).lower()}; check path and rights"
        ) from error
    try:
        _lock(handle, wait)
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Whether a process holds it just now."""
    if not path.exists():
        return False
    try:
        with held(path, wait=False):
            return False
    except Busy:
        return True


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a run's folder. Half files of processes that were killed go, before and after; and so does the folder where
    nothing was written to it."""
    try:
        handle = _take(folder)
    except Busy as busy:
        raise RunError(f"another run is working in {folder}; wait for it, or give this one another --batch") from busy
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise RunError(f"cannot write to {folder}: {why}; check path and rights") from error
    try:
        files.drop_drafts(folder)
        yield
    finally:
        files.drop_drafts(folder)
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
            _lock(handle, wait=False)
            # A run that ended between the two calls above may have removed the folder we hold: then once more.
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int, wait: bool) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise Busy from None
