"""`erd reproduce RUN_ID`: a tracked run once more, from its recorded settings and data, and what differs."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from erd import files, params, stages, tracking, versioning
from erd.errors import RunError
from erd.rundir import RunDir
from erd.scenarios import settings_for

log = logging.getLogger("erd")
FOLDER = Path("reproduced")


@dataclass(frozen=True)
class Reproduced:
    run: RunDir
    metrics: dict[str, Any]
    differs: list[str]  # in words; nothing where all is identical


def reproduce(run_id: str) -> Reproduced:
    """Train and score again in reproduced/RUN_ID/<batch>, from nothing but what MLflow and DVC know."""
    place = FOLDER / run_id
    shutil.rmtree(place, ignore_errors=True)
    then = tracking.recorded(run_id, place / "recorded")
    here = settings_for().run  # this machine's say on how, the record's on what
    how = {f"run.{name}": getattr(here, name) for name in ("runner", "workers", "device")}
    settings = params.read(then.folder / "settings.json").override(how)
    run = RunDir(place / then.batch)  # named as the batch: that name is in metrics.json
    if not then.hashes:
        raise RunError(f"the data of run {run_id} are not under DVC: it was made outside a DVC repository")
    _note_version(then.commit)
    for name, md5 in then.hashes.items():
        versioning.checkout(run.root / name, md5)
    log.info("data of %s checked out to %s", then.batch, run.root)
    for done in (stages.pretrain(settings, run), *stages.finetune_all(settings, run), stages.score(settings, run)):
        log.info("%s: done", done.stage)
    stages.evaluate(settings, run)
    metrics = files.load_json(run.metrics)
    differs = _compared(files.load_json(then.folder / run.metrics.name), metrics)
    if not pd.read_parquet(then.folder / run.scores.name).equals(pd.read_parquet(run.scores)):
        differs.append("scores.parquet")
    return Reproduced(run, metrics, differs)


def _note_version(commit: str | None) -> None:
    """Other code may give other results: say so before, not after."""
    here = tracking.git_commit()
    if commit is None:
        log.warning("note: the run recorded no code version")
    elif commit != here:
        log.warning("note: the run was made by commit %s, this is %s; `git checkout %s` has its code",
                    commit[:10], (here or "no git repository")[:10], commit[:10])  # fmt: skip


def _compared(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    keys = [*then, *(key for key in now if key not in then)]
    return [f"{key}: {then.get(key)} then, {now.get(key)} now" for key in keys if then.get(key) != now.get(key)]
