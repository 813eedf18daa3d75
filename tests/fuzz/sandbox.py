"""Commands of erd on copies of a workspace, each in a fork of one process that has everything imported.

    with Forks() as forks:
        outcome = forks.run(["history"], place)          # exit code, what it said, which files are other than before

A fork costs nothing, ends at its time limit, has a memory limit of its own, and shows a crash for what it is. They are
of a process that never does anything itself: threads do not live on in a fork. `python sandbox.py` is that process.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

BUSY = 30  # seconds of computing that no command here needs
SECONDS = 300  # on the clock: a machine with other work takes its time, what waits for nothing takes longer
ROOM = 3 << 30  # bytes that a command may take beyond what its process has
LINES = 12  # on stderr: a sentence, and a few words on what a command does
LONGEST = 2100  # characters of a line there
IN_PLACE = (".jsonl", ".db")  # written into, where all else is replaced: a hard link would be the original
# Of no meaning afterwards, or MLflow's; and records of what is done, which a stage removes before it begins.
PASSING = ("*.lock", ".*", "*/.*", "mlflow.db*", "mlruns/*", "runs/*/stages/*")
# What a command may have done by the time it fails: answers and alarms are added; a stage makes its files one by one.
ENTERED = ("runs/alarms.json", "*/review/answers.jsonl", "*/review/retrospect.json", "*/report.html", "*/data/*",
           "*/members/*")  # fmt: skip
IMPORTED = ("erd.base.torchvision", "erd.cli", "erd.integrations.doctor", "erd.integrations.mlflow_runs",
            "erd.integrations.registry", "erd.review.app", "erd.reporting.week_figures", "erd.weekly.decide",
            "erd.weekly.sensitivity", "erd.bench.run", "timm", "scipy.stats", "small_workspace")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    code: int | None  # None: it had to be ended
    said: str  # on stderr
    changed: tuple[str, ...]  # files that are other than before, or gone

    def complaints(self, may_change: Sequence[str] = ()) -> list[str]:
        """What nobody should see; empty where all is as it should be. A command that fails has changed nothing, but for
        what it had ENTERED by then."""
        changed = [name for name in self.changed if not _any(name, PASSING)]
        lost = [name for name in changed if not (_any(name, may_change) and (self.code == 0 or _any(name, ENTERED)))]
        lines = self.said.splitlines()
        found = {
            "it hangs": self.code is None,
            f"it ends with {self.code}": self.code not in (None, 0, 1, 2),
            "a traceback": "Traceback" in self.said or "fault of erd" in self.said,
            "no sentence": self.code in (1, 2) and not any(line.startswith("erd") for line in lines[-1:]),
            f"{len(lines)} lines": len(lines) > LINES,
            "a line without end": any(len(line) > LONGEST for line in lines),
            f"changed {lost}": bool(lost),
        }
        return [what for what, so in found.items() if so]


def _any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def copied(workspace: Path, target: Path) -> Path:
    """In a moment: what is only ever replaced is the same file."""

    def link(source: str, copy: str) -> None:
        (shutil.copy2 if source.endswith(IN_PLACE) else os.link)(source, copy)

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(workspace, target, copy_function=link)
    return target


class Forks:
    def __enter__(self) -> "Forks":
        here = Path(__file__)
        paths = os.pathsep.join(map(str, (here.parents[2], here.parents[1], here.parent)))
        unset = ("MLFLOW_TRACKING_URI", "ERD_DATA", "PREFECT_API_URL")
        known = {name: value for name, value in os.environ.items() if name not in unset}
        self.process = subprocess.Popen(
            [sys.executable, str(here)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=known | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"},
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def make(self, place: Path) -> Path:
        """The small workspace."""
        place.mkdir(parents=True)
        outcome = self.run([], place)
        assert outcome.code == 0, outcome.said
        return place

    def run(self, arguments: Sequence[str], place: Path) -> Outcome:
        """`erd ARGUMENTS` in `place`."""
        standing = {name: _content(place / name) for name in _files(place)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(place), *arguments]) + "\n")
        self.process.stdin.flush()
        code = json.loads(self.process.stdout.readline())
        changed = tuple(name for name, known in standing.items() if _content(place / name) != known)
        return Outcome(code, _stderr(place).read_text(errors="replace"), changed)


def _stderr(place: Path) -> Path:
    return place.with_name(f"{place.name}.stderr")


def _files(place: Path) -> list[str]:
    return [path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()]


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


# ------------------------------------------------------------------------------------------ the process that forks


def _serve() -> None:
    import importlib

    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        place, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _be_erd(Path(place), arguments)
        print(json.dumps(_wait(child, time.monotonic() + SECONDS)), flush=True)


def _be_erd(place: Path, arguments: Sequence[str]) -> None:
    """Does not return."""
    code = 70
    try:
        for number, path in ((0, Path(os.devnull)), (1, Path(os.devnull)), (2, _stderr(place))):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(place)
        if arguments:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
            resource.setrlimit(resource.RLIMIT_CPU, (BUSY, BUSY))
        code = _erd(arguments)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _erd(arguments: Sequence[str]) -> int:
    if not arguments:
        import small_workspace

        small_workspace.fill()
        return 0
    from erd.cli import main

    try:
        return main(arguments)
    except SystemExit as ended:  # argparse
        return int(ended.code or 0)


def _wait(child: int, until: float) -> int | None:
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    _serve()
