"""`erd run` in a process of its own, and what belongs to it: to be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

SERVER, WORKER = "flows.local", "spawn_main"  # in the command lines of what a flow starts


class Running:
    """A run in `folder`; what it says on stderr is in a file beside it, `said()`."""

    def __init__(self, folder: Path, *words: str, **environment: str | None) -> None:
        folder.mkdir(exist_ok=True)
        env = {name: value for name, value in (os.environ | environment).items() if value is not None}
        env.pop("PREFECT_API_URL", None)  # it starts a server of its own
        self.stderr = folder.with_suffix(".stderr")
        with self.stderr.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "erd", "run", *words],
                cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=output, start_new_session=True,
            )  # fmt: skip

    def children(self, kind: str = "") -> list[int]:
        found = []
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children():
                with suppress(psutil.Error):  # ended meanwhile
                    if kind in " ".join(child.cmdline()):
                        found.append(child.pid)
        return found

    def ended(self, seconds: float = 300) -> int:
        """Its exit code. What it started is gone soon after, whoever was killed."""
        started = self.children()
        code = self.process.wait(seconds)
        until(lambda: not any(map(alive, started)), 60)
        return code

    def said(self) -> str:
        return self.stderr.read_text()


def until(condition: Callable[[], Any], seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pid: int) -> bool:
    """Whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
