"""MLflow: one run a batch, with a child for pretraining and one for each member.

    tracker = Tracker(run)
    tracker.begin(settings)             # a parent run, RUNNING; what a killed run left open is closed
    tracker.send()                      # now and then: what is complete and was not sent yet
    tracker.end("FINISHED")             # figures, scores, data sets, status

A stopped server stops no run: `send` says False, and `sync` or the next `begin` sends the rest. All that is sent is
derived from the run folder (mlflow_sending.py), and mlflow.json in it says what was sent (mlflow_record.py). Only the
parent process comes here.
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from erd.base import errors, files
from erd.base.errors import RunError, UserError
from erd.base.locks import is_held
from erd.integrations import dvc, mlflow_sending, mlflow_views
from erd.integrations.mlflow_client import (
    Unusable,
    connect,
    flatten,
    log_figures,
    milliseconds,
    now,
    shown,
    unreachable,
    workspace_tags,
)
from erd.integrations.mlflow_record import END, Record, Status, alone_with, mark_killed, read, save
from erd.runs.folder import RunDir
from erd.settings.schema import Settings

log = logging.getLogger("erd")
PAUSE = 60.0  # seconds without another try in the middle of a run when the server does not answer


class Tracker:
    """The MLflow run of a folder, from its beginning to its end."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._quiet_until = 0.0  # time.monotonic() before which `send` does not try a server that did not answer
        self._warned = False  # of a server that does not answer

    def begin(self, settings: Settings, tags: Mapping[str, str] | None = None) -> str | None:
        """Open the run, before its first stage; its id, or None where MLflow cannot be reached.

        The caller holds the folder's lock or is the only one in it: a run that is still RUNNING here was killed.
        """
        run = self.run
        run.root.mkdir(parents=True, exist_ok=True)
        try:
            connect()
        except Unusable:
            raise
        except Exception as error:  # a server that is away stops nothing
            log.debug("MLflow: %s", error)
        with alone_with(run):
            old = read(run)
            if old is not None:
                mark_killed(run, old)
                self._attempt(run, old)
            new = Record(
                uri=shown(),
                experiment=settings.stream,
                name=run.batch_name,
                started=now(),
                params=flatten(settings),
                tags=workspace_tags(settings, run) | dict(tags or {}),
            )
            if old is not None and END not in old.sent:
                new.earlier = [*old.earlier, asdict(old) | {"earlier": []}]
            save(run, new)
            reached = self._attempt(run, new)
        for other in _tracked(run.root.parent):
            if other != run:
                reached = self.tidy(other, reached)
        return new.run_id

    def send(self) -> bool:
        """Send what is complete and not yet there; whether nothing is left. Never raises, and never waits long."""
        if not self.run.tracked.exists() or time.monotonic() < self._quiet_until:
            return False
        with alone_with(self.run):
            record = read(self.run)
            return record is not None and self._attempt(self.run, record)

    def end(self, status: Status, why: str = "", hashes: Mapping[str, str] | None = None) -> bool:
        """Record how the run ended, on disk first; then send everything. `why` is for people, `hashes` are DVC's, by
        path in the run folder (`dvc.save` gives them)."""
        if not self.run.tracked.exists():
            return False
        with alone_with(self.run):
            if (record := read(self.run)) is None:
                return False
            record.end(status, datetime.now(UTC), why)
            record.hashes = dict(hashes or {})
            save(self.run, record)
            return self._attempt(self.run, record)

    def sync(self) -> bool:
        """Send all that an ended run could not send; a run that ended without a word was killed."""
        if not self.run.tracked.exists():
            return False
        with alone_with(self.run):
            if (record := read(self.run)) is None:
                return False
            if not is_held(self.run.root):
                mark_killed(self.run, record)
            return self._attempt(self.run, record)

    def _attempt(self, run: RunDir, record: Record) -> bool:
        """Send; whether all went well. A server that does not answer is told of once."""
        if END in record.sent:
            return True
        try:
            mlflow_sending.send(connect(), run, record)
        except Exception as error:  # tracking must not end a run, whatever goes wrong in it
            later = f"`erd sync {run.root}` or the next run sends what is missing"
            if not unreachable(error):
                log.warning("MLflow did not take all of %s: %s; %s", run.root, errors.why(error), later)
            elif not self._warned:
                log.warning("MLflow at %s does not answer; the run goes on, and %s", shown(), later)
            if unreachable(error):
                self._quiet_until, self._warned = time.monotonic() + PAUSE, True
            return False
        self._quiet_until, self._warned = 0.0, False
        return True

    def tidy(self, other: RunDir, reached: bool) -> bool:
        """Close and send what another folder's run left; whether MLflow (still) answers."""
        with alone_with(other):
            record = read(other)
            if record is None or END in record.sent or (record.status == "RUNNING" and is_held(other.root)):
                return reached
            mark_killed(other, record)
            return reached and self._attempt(other, record)


def close_dead(runs: Path) -> list[RunDir]:
    """Close and send all that killed runs left open in that folder; those of which MLflow knows it now."""
    open_ones = [run for run in _tracked(runs) if (record := read(run)) and END not in record.sent]
    return [run for run in open_ones if Tracker(run).tidy(run, True) and (end := read(run)) and END in end.sent]


def _tracked(runs: Path) -> list[RunDir]:
    return [RunDir(path.parent) for path in sorted(runs.glob(f"*/{RunDir(runs).tracked.name}"))]


def sync(run: RunDir) -> bool:
    """`erd sync`: whether all of an ended run is in MLflow now."""
    return Tracker(run).sync()


def send_review(run: RunDir) -> bool:
    """What experts said of a batch's flags (`history.keep`), as metrics of its run; whether they arrived."""
    if not run.retrospect.exists():
        return False
    if (found := files.load_json_if_whole(run.retrospect)) is None:
        return False
    at = found.pop("at", None) or now()  # the last answer's: sent again it is the same point
    return _send_later(run, {f"review/{name}": value for name, value in found.items()}, at, "the review's figures")


def send_sensitivity(run: RunDir) -> bool:
    """From which share on a new class would have been noticed (`erd sensitivity`); whether it arrived."""
    return _send_later(run, mlflow_sending.sensitivity(run), now(), "the sensitivity")


def _send_later(run: RunDir, figures: Mapping[str, float | None], at: str, what: str) -> bool:
    """What is known only after a run has ended."""
    record = read(run)
    if record is None or record.run_id is None:
        return False
    try:
        log_figures(connect(), record.run_id, figures, milliseconds(at))
    except Exception as error:
        log.warning("MLflow at %s did not take %s (%s); `erd sync %s` tries again",
                    shown(), what, "no answer" if unreachable(error) else errors.why(error), run.root)  # fmt: skip
        return False
    return True


def address(run: RunDir, artifact: str = "") -> str | None:
    """Where a browser shows the run, or a file of it; None where there is no server, or none that knows the run."""
    record = read(run)
    if record is None or record.run_id is None or not record.uri.startswith("http"):
        return None
    place = f"{record.uri.rstrip('/')}/#/experiments/{record.experiment_id}/runs/{record.run_id}"
    return f"{place}{'/artifacts/' if artifact else ''}{artifact}?{mlflow_views.MODE}"


def overview(run: RunDir) -> str | None:
    """Where a browser shows all batches of the run's stream beside each other; None as for `address`."""
    record = read(run)
    if record is None or record.run_id is None or not record.uri.startswith("http"):
        return None
    return mlflow_views.address(record.uri, record.experiment_id, mlflow_views.WEEKS)


# ------------------------------------------------------------------------------------------------ back from MLflow


@dataclass(frozen=True)
class Recorded:
    """What it takes to make a finished run again."""

    batch: str
    files: RunDir  # with its settings.json, metrics.json and scores.parquet, and nothing else
    hashes: dict[str, str]  # of its data, by path in the run folder
    commit: str | None  # of its code


def recorded(run_id: str, folder: Path) -> Recorded:
    """A run as MLflow knows it, its small files downloaded to `folder`."""
    from mlflow.exceptions import MlflowException

    try:
        client = connect()
        found = client.get_run(run_id)
    except Exception as error:
        if unreachable(error):
            raise RunError(f"MLflow at {shown()} does not answer; start it, or correct MLFLOW_TRACKING_URI") from None
        if not isinstance(error, MlflowException):
            raise
        raise UserError(f"MLflow at {shown()} knows no run '{run_id}'; `erd run --json` prints the id") from None
    tags = found.data.tags
    if parent := tags.get("mlflow.parentRunId"):
        raise UserError(f"{run_id} is the record of one training; give its run's id, {parent}")
    if found.info.status != "FINISHED":
        raise UserError(f"run {run_id} is {found.info.status}, not FINISHED: there is nothing to compare with")
    folder.mkdir(parents=True, exist_ok=True)
    there = RunDir(folder)
    for path in (there.settings, there.metrics, there.scores):
        client.download_artifacts(run_id, path.name, str(folder))
    batch, hashes = _believed(run_id, tags)
    return Recorded(batch, there, hashes, tags.get("mlflow.source.git.commit"))


def _believed(run_id: str, tags: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Name of the batch and hashes of its data. Whoever may write to the server has written these: they choose which
    of our own files are made, and never a path of their own."""
    batch, said = tags.get("batch", ""), tags.get("data_hashes", "{}")
    try:
        Settings().override({"data.batch": batch})
        hashes = json.loads(said)
    except (UserError, ValueError, RecursionError):
        batch, hashes = "", None
    blank = RunDir(Path())
    names = {path.as_posix() for path in dvc.data_files(blank, encoded=True)}
    sound = isinstance(hashes, dict) and all(
        name in names and isinstance(md5, str) and re.fullmatch(r"[0-9a-f]{32}", md5) for name, md5 in hashes.items()
    )
    if not batch or not sound:
        raise RunError(f"the record of run {run_id} at {shown()} is damaged (its tags batch and data_hashes)")
    return batch, hashes
