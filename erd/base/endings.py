"""How a command ends when it is asked to, or has to: with one sentence, and in time whatever hangs.

    with terminable(): …                   # SIGTERM is like Ctrl-C
    end_within(10, "the server is gone")   # from any thread: say so, and be gone by then

What is finished is on disk, and what a killed run leaves the next one tidies up: to end hard loses nothing.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN = "run the same command again to go on where it was"
GRACE = 30.0  # seconds to tell MLflow and Prefect
_asked = threading.Event()  # to stop, in the block


class Stopped(KeyboardInterrupt):
    """Asked to end, and the sentence is said already."""


@contextmanager
def terminable() -> Iterator[None]:
    """In the block SIGTERM raises `Stopped`; in the main thread, the only one that can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _asked.clear()
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
        if _asked.is_set():  # and it was raised where a library took it for an error of its own
            raise Stopped
    finally:
        signal.signal(signal.SIGTERM, before)


def stop(number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
    """What SIGTERM does; libraries that take the signal for themselves are given this instead."""
    _asked.set()
    end_within(GRACE, f"stopped by {signal.Signals(number).name}; {AGAIN}")
    raise Stopped(f"stopped by {signal.Signals(number).name}")


def end_within(seconds: float, sentence: str) -> None:
    """Say it, and end this process with 1 at that time where it has not ended by itself. Nothing is said after it: what
    libraries tell when half of what they need is gone is of use to nobody."""
    print(f"erd: {sentence}", file=sys.stderr, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    end = threading.Timer(seconds, os._exit, (1,))
    end.daemon = True
    end.start()
