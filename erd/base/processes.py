"""Cores this process may use, and processes that end when the one that started them does, also by SIGKILL."""

import os
import threading
import time


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
