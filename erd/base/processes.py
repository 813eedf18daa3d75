"""Cores this process may use, processes that end when the one that started them does, also by SIGKILL, and memory that
a process keeps."""

import ctypes
import functools
import os
import threading
import time
from contextlib import suppress

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of mallopt


def cores() -> int:
    """In a container or under a scheduler they are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with(parent: int) -> None:
    """From now on this process ends within a second of `parent`, the process that started it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@functools.cache
def keep_memory() -> None:
    """What this process has freed it uses again, and does not give back. A net in inference takes and frees the same
    tens of megabytes layer after layer; to get them from the system each time takes longer than to compute with them.
    Where the C library is not GNU's nothing happens."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
