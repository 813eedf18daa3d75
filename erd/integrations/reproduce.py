"""`erd reproduce RUN_ID`: a tracked run once more, from its recorded settings and data, and what differs.

    reproduce("9f1c…").differs          # in words; nothing where all is identical

Its settings, figures and scores come from MLflow, its data from DVC; this machine says only how it is computed.
"""

import logging
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.integrations import dvc, mlflow_client, mlflow_runs
from erd.integrations.mlflow_runs import Recorded
from erd.runs import alarm_ledger, configure
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings.schema import HERE, Settings
from erd.weekly import chain

log = logging.getLogger("erd")
FOLDER = Path("reproduced")
MARK = ".made-by-erd-reproduce"  # in what may be removed again


@dataclass(frozen=True)
class Reproduced:
    run: RunDir
    metrics: dict[str, Any]  # as metrics.json has them
    differs: list[str]  # in words; nothing where all is identical


def reproduce(run_id: str) -> Reproduced:
    """Train and score again in reproduced/RUN_ID/<batch>, from nothing but what MLflow and DVC know."""
    if not re.fullmatch(r"[0-9a-f]{32}", run_id):
        raise UserError(f"'{run_id[:60]}' is no id of a run, which has 32 digits 0-9a-f; `erd run --json` prints it")
    with tempfile.TemporaryDirectory() as scratch:
        found = mlflow_runs.recorded(run_id, Path(scratch))  # nothing here is touched for a run that nobody knows
        place = _cleared(FOLDER / run_id)
        kept = shutil.copytree(scratch, place / ".recorded")  # no batch can have that name
    then = replace(found, files=RunDir(kept))
    settings, metrics = _settings(then), Metrics.read(then.files)
    run = RunDir(place / then.batch)  # named as the batch: that name is in metrics.json
    if not then.hashes:
        raise RunError(f"the data of run {run_id} are not under DVC: it was made outside a DVC repository")
    _note_version(then.commit)
    for name, md5 in then.hashes.items():
        dvc.checkout(run.root / name, md5)
    log.info("data of %s checked out to %s", then.batch, run.root)
    # A batch keeps the alarm's level of its first look, which need not be that of the run's own settings.
    alarm_ledger.enter(run.alarms, settings.stream, run.batch_name, p=1.0, at=metrics.verdict.alarm_level)
    # ingest made the data; and of the library's images a run keeps their features, not a copy of them.
    begun = chain.up_to("encode" if settings.encoder else "ingest")
    for stage in chain.CHAIN[len(begun) :]:
        for done in chain.run(stage, settings, run):
            log.info("%s: done", done.stage)
    return Reproduced(run, Metrics.read(run).flat(), _differs(then.files, run))


def _settings(then: Recorded) -> Settings:
    """The record's say on what, this machine's on how."""
    here = configure.settings_for().run
    return configure.read(then.files).override({f"run.{name}": getattr(here, name) for name in HERE["run"]})


def _cleared(place: Path) -> Path:
    """An empty folder in place of what was made there before; whatever else is there stays, and stops us."""
    mark = place / MARK
    if place.exists() and not mark.exists():
        raise RunError(f"{place} is there and was not made by `erd reproduce`: move it away, then try again")
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    mark.touch()
    return place


def _note_version(commit: str | None) -> None:
    """Other code may give other results: say so before, not after."""
    here = mlflow_client.git_commit()
    if commit is None:
        log.warning("note: the run recorded no code version")
    elif commit != here:
        log.warning("note: the run was made by commit %s, this is %s; `git checkout %s` has its code",
                    commit[:10], (here or "no git repository")[:10], commit[:10])  # fmt: skip


def _differs(then: RunDir, now: RunDir) -> list[str]:
    old, new = Metrics.read(then).flat(), Metrics.read(now).flat()
    found = [f"{key}: {value} then, {new[key]} now" for key, value in old.items() if value != new[key]]
    if not files.load_table(then.scores).equals(files.load_table(now.scores)):
        found.append("scores.parquet")
    return found
