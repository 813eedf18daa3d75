"""`erd reproduce RUN_ID`: a tracked run once more, from its recorded settings and data, and what differs."""

import logging
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erd import files, params, stages, tracking, versioning
from erd.errors import RunError, UserError
from erd.rundir import RunDir
from erd.scenarios import settings_for

log = logging.getLogger("erd")
FOLDER = Path("reproduced")
MARK = ".made-by-erd-reproduce"  # in what may be removed again


@dataclass(frozen=True)
class Reproduced:
    run: RunDir
    metrics: dict[str, Any]
    differs: list[str]  # in words; nothing where all is identical


def reproduce(run_id: str) -> Reproduced:
    """Train and score again in reproduced/RUN_ID/<batch>, from nothing but what MLflow and DVC know."""
    if not re.fullmatch(r"[0-9a-f]{32}", run_id):
        raise UserError(f"'{run_id[:60]}' is no id of a run, which has 32 digits 0-9a-f; `erd run --json` prints it")
    with tempfile.TemporaryDirectory() as scratch:
        tracking.recorded(run_id, Path(scratch))  # nothing here is touched for a run that nobody knows
    place = _cleared(FOLDER / run_id)
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
    if not files.load_table(then.folder / run.scores.name).equals(files.load_table(run.scores)):
        differs.append("scores.parquet")
    return Reproduced(run, metrics, differs)


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
    here = tracking.git_commit()
    if commit is None:
        log.warning("note: the run recorded no code version")
    elif commit != here:
        log.warning("note: the run was made by commit %s, this is %s; `git checkout %s` has its code",
                    commit[:10], (here or "no git repository")[:10], commit[:10])  # fmt: skip


def _compared(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    keys = [*then, *(key for key in now if key not in then)]
    return [f"{key}: {then.get(key)} then, {now.get(key)} now" for key in keys if then.get(key) != now.get(key)]
