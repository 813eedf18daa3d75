"""A command of erd on a copy of a workspace, in a fork of this process: what it said, and what is other than before.

A fork costs nothing, ends at its time limit, has a memory limit of its own, and shows a crash for what it is.
"""

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

SECONDS = 60  # a busy machine takes its time; what hangs takes longer
ROOM = 3 << 30  # bytes that a command may take beyond what this process has
LINES = 12  # on stderr: a sentence, and a few words of what a command does
LONGEST = 600  # characters of a line there
PASSING = ("*.lock", "*/.mlflow.lock", ".*", "*/.*", "mlflow.db*", "mlruns/*")  # of no meaning afterwards, or MLflow's
IN_PLACE = (".jsonl", ".db")  # written into, where all else is replaced: a hard link would be the original


@dataclass(frozen=True)
class Outcome:
    code: int | None  # None: it had to be ended
    said: str  # on stderr
    seconds: float
    changed: tuple[str, ...]  # files that are other than before, or gone

    def complaints(self, may_change: Sequence[str] = ()) -> list[str]:
        """What nobody should see; empty where all is as it should be."""
        lost = [name for name in self.changed if not any(fnmatch(name, one) for one in (*may_change, *PASSING))]
        lines = self.said.splitlines()
        found = {
            "it hangs": self.code is None,
            f"it ends with {self.code}": self.code not in (None, 0, 1, 2),
            "a traceback": "Traceback" in self.said or "fault of erd" in self.said,
            "no sentence": self.code in (1, 2) and not any("erd: " in line for line in lines[-2:]),
            f"{len(lines)} lines": len(lines) > LINES,
            "a line without end": any(len(line) > LONGEST for line in lines),
            f"changed {lost}": bool(lost),
        }
        return [what for what, so in found.items() if so]


def copied(workspace: Path, target: Path) -> Path:
    """In a moment: what is only ever replaced is the same file."""

    def link(source: str, copy: str) -> None:
        (shutil.copy2 if source.endswith(IN_PLACE) else os.link)(source, copy)

    shutil.copytree(workspace, target, copy_function=link)
    return target


def run(arguments: Sequence[str], place: Path, like: Path, *, before: Callable[[], None] = lambda: None) -> Outcome:
    """`erd ARGUMENTS` in `place`, whose files are those of `like` but for what was damaged (before this is called)."""
    standing = {name: _print(place / name) for name in _files(place)}
    stdout, stderr = place.parent / "stdout", place.parent / "stderr"
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_erd(arguments, place, stdout, stderr, before)
    code = _wait(child, began + SECONDS)
    seconds = time.monotonic() - began
    changed = tuple(name for name, known in standing.items() if _print(place / name) != known)
    return Outcome(code, stderr.read_text(errors="replace"), seconds, changed)


def _be_erd(arguments: Sequence[str], place: Path, stdout: Path, stderr: Path, before: Callable[[], None]) -> None:
    """Does not return: what the parent has open, such as its tests, is none of the child's business."""
    code = 70
    try:
        for number, path in ((1, stdout), (2, stderr)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdin, sys.stdout, sys.stderr = open(os.devnull), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        os.chdir(place)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
        before()
        from erd.cli import main

        code = main(arguments)
    except SystemExit as ended:  # argparse
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, until: float) -> int | None:
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _files(place: Path) -> list[str]:
    return [path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()]


def _print(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
