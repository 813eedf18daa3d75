"""mlflow.json of a run folder: which MLflow run is its own, and what of it was sent.

    with alone_with(run):               # who changes a record
        record = read(run)              # None where the run was never tracked
        record.status = "FINISHED"
        save(run, record)

Who only reads takes no lock: the file is replaced as a whole.
"""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from erd.base import files
from erd.base.addresses import bare
from erd.base.errors import UserError
from erd.base.locks import held
from erd.base.records import Moment, made
from erd.runs.folder import RunDir

log = logging.getLogger("erd")
Status = Literal["FINISHED", "FAILED", "KILLED"]  # of a run that has ended
RESULTS, END = "results", "end"  # steps of `Record.sent`; the others are stages


@dataclass
class Record:
    """All that is not elsewhere in the run folder, and what MLflow has of it."""

    uri: str  # as people may see it
    experiment: str
    name: str
    started: Moment
    params: dict[str, str]
    tags: dict[str, str]
    key: str = field(default_factory=lambda: uuid.uuid4().hex)  # finds the run again whose answer was lost
    experiment_id: str | None = None
    run_id: str | None = None
    status: str = "RUNNING"
    ended: Moment | None = None
    why: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)  # stages, RESULTS, END
    earlier: list[dict[str, Any]] = field(default_factory=list)  # of runs in this folder that could not be closed yet

    def __post_init__(self) -> None:
        self.uri = bare(self.uri)  # earlier versions kept the password in it

    def end(self, status: Status, when: datetime, why: str = "") -> None:
        """No run ends before it starts: where the clock was set back meanwhile it ends at once."""
        ended = max(when, datetime.fromisoformat(self.started)).isoformat()
        self.status, self.ended, self.why = status, ended, why


def read(run: RunDir) -> Record | None:
    """None where the run was never tracked, or its record is cut off: then it begins anew."""
    found = files.load_json_if_whole(run.tracked)
    try:
        return None if found is None else made(Record, found, run.tracked)
    except UserError:
        log.warning("note: %s is passed over: it is no record of a run", run.tracked)
        return None


def save(run: RunDir, record: Record) -> None:
    files.save_json(run.tracked, asdict(record))


def mark_killed(run: RunDir, record: Record) -> None:
    """A RUNNING record of a run that is no more ended when it last wrote something."""
    if record.status == "RUNNING":
        last = max(path.stat().st_mtime for path in run.root.rglob("*") if path.is_file())
        record.end("KILLED", datetime.fromtimestamp(last, UTC))
        save(run, record)


@contextmanager
def alone_with(run: RunDir) -> Iterator[None]:
    """One at a time with a run's record: its own run, a `sync` by hand, and other runs that tidy up."""
    with held(run.root / ".mlflow.lock"):
        yield
