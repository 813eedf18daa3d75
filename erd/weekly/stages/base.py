"""What a stage is: a few jobs, the settings that decide what they do, the files they read and write.

Each stage is a file beside this one, and a line of CHAIN (erd/weekly/chain.py). From that the flow, `erd stage`, `erd
simulate`, `erd reproduce`, dvc.yaml and the tests take what there is to do, and in which order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erd.runs.folder import RunDir
from erd.runs.stage_records import Done
from erd.settings.schema import Settings


@dataclass(frozen=True)
class Job:
    """A part of a stage. Its arguments can be pickled, and what it does it leaves in files: it can be done anywhere."""

    name: str  # "c=3": as people see it
    function: Callable[..., Done]
    arguments: tuple[Any, ...]
    told: Path | None = None  # the file by which it tells how far it is …
    epochs: int = 0  # … of so many, or images where the stage counts those
    here: bool = False  # takes less time than a process to start: done in this one, whatever the runner


@dataclass(frozen=True)
class Stage:
    name: str
    about: str  # in a line
    settings: tuple[str, ...]  # blocks, or single settings, that decide what it does
    reads: Callable[[RunDir], list[Path]]
    writes: Callable[[RunDir], list[Path]]
    jobs: Callable[[Settings, RunDir], list[Job]]
    side_by_side: bool = False  # its jobs are for the runner of the settings; else for this process, one after another
    finish: Callable[[Settings, RunDir], Done] | None = None  # in this process, when all jobs have ended
    unit: str = "epoch"  # what its jobs count

    @property
    def module(self) -> str:
        """Where its code is."""
        return f"{__package__}.{self.name}"


def one(function: Callable[[Settings, RunDir], Done]) -> Callable[[Settings, RunDir], list[Job]]:
    """The jobs of a stage that has a single one."""
    return lambda settings, run: [Job(function.__name__, function, (settings, run))]
