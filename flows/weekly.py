"""The weekly flow: the stages of erd/weekly/chain.py, finetune with a task per label, or one for all heads;
then alarm → version → register → report.

erd run --batch 2026-W46
prefect deployment run 'weekly/weekly' -p batch=2026-W46
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from prefect import flow, runtime
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings
from prefect.task_runners import ThreadPoolTaskRunner

from erd.base.addresses import bare
from erd.base.locks import alone_in
from erd.data import dealing
from erd.data.inbox import has_arrived
from erd.integrations import mlflow_record, mlflow_year, notify
from erd.integrations.mlflow_runs import Tracker
from erd.runs import workspace
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.runs.results import Ingested, Metrics
from erd.settings.schema import Settings
from erd.weekly import sealed
from erd.weekly.chain import CHAIN
from flows import artifacts, tasks
from flows.logs import told_to_prefect

log = logging.getLogger("erd")


def _name() -> str:
    """The flow run's, in the UI: the batch's."""
    said = runtime.flow_run.parameters
    scenario = _scenario(*(said.get(name) for name in ("scenario", "overrides", "params")))
    return said.get("batch") or _scheduled_week(scenario) or "the batch of params.yaml"


@flow(name="weekly", flow_run_name=_name, task_runner=ThreadPoolTaskRunner(max_workers=64))  # type: ignore[arg-type]
def weekly(
    batch: str | None = None,
    scenario: str | None = None,
    inbox: str | None = None,
    data: str | None = None,
    overrides: list[str] | None = None,
    runner: str | None = None,
    params: str | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Flag what is novel in one batch. Parameters left out are those of params.yaml in the working directory.

    `replace` moves another batch of the same name away first. Returns metrics.json, and where the results are: run_dir,
    mlflow_run_id, model_version. A scheduled week without images completes as `Nothing arrived`.
    """
    scenario = _scenario(scenario, overrides, params)
    settings = settings_for(
        batch=batch or _scheduled_week(scenario),
        scenario=scenario,
        inbox=inbox,
        data=data,
        overrides=overrides or [],
        runner=runner,
        params=Path(params) if params else None,
    )
    run = RunDir.of(settings)
    notify.addresses(settings.alarm.notify)  # what is wrong there is said now, and not when the alarm rings
    if _deployed() and settings.data.inbox and inbox is None and not has_arrived(Path(settings.data.inbox)):
        with told_to_prefect():
            return artifacts.nothing_arrived(run.batch_name, settings.data.inbox)  # type: ignore[return-value]
    if replace:
        sealed.check(settings, run, replaced=True)
        with alone_in(run.root):
            moved = run.move_away()
        log.info("the batch that had the name is in %s", moved)
    with told_to_prefect(), alone_in(run.root):
        log.info("%s → %s", settings.data.scenario, run.root)
        _tag("erd", settings.data.scenario)
        first, *others = CHAIN
        tasks.do(first, settings, run)
        _tell_images(run)
        with _tracked(settings, run) as tracker:
            for stage in others:
                tasks.do(stage, settings, run, after=tracker.send)
            tasks.sound(settings, run)
            hashes = tasks.version(settings, run)
            tracker.send()  # a version belongs to a run: one that could not be told before has to be there now
            registered = tasks.register(settings, run)
            tasks.show(run, registered)
            if tracker.end("FINISHED", hashes=hashes):
                mlflow_year.send(run.root.parent, settings.stream)
        record = mlflow_record.read(run)
    where = {"run_dir": run.root.as_posix(), "model_version": registered.version}
    return Metrics.read(run).flat() | where | {"mlflow_run_id": record.run_id if record else None}


def _deployed() -> bool:
    return runtime.deployment.id is not None


def _scenario(said: str | None, overrides: list[str] | None, params: str | None) -> str | None:
    """The one that was said; a deployment's run that names none never falls back on a demo in a workspace."""
    if said or not _deployed() or any(text.startswith("data.scenario") for text in overrides or ()):
        return said
    return workspace.scheduled(Path(params) if params else None)


def _scheduled_week(scenario: str | None) -> str | None:
    """A deployment's run that names no batch is named after the week it was scheduled in, where we are: 2026-W46. Not
    a demo, whose images are of no week."""
    if not _deployed() or scenario not in (None, workspace.OWN):
        return None
    start: datetime = runtime.flow_run.scheduled_start_time
    return f"{start.astimezone(ZoneInfo(os.environ.get('ERD_TIMEZONE') or 'UTC')):%G-W%V}"


def _tag(*tags: str) -> None:
    """The flow run alone; tags of Prefect's `tags` would go to its tasks as well."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(runtime.flow_run.id, tags=tags)


def _tell_images(run: RunDir) -> None:
    found = Ingested.read(run)
    log.info("images: %s", dealing.in_words(found.sizes))
    for warning in found.warnings:
        log.warning("note: %s", warning)


@contextmanager
def _tracked(settings: Settings, run: RunDir) -> Iterator[Tracker]:
    """One MLflow run around the block, which ends it; a failure is recorded as such."""
    tracker = Tracker(run)
    tags = {"flow_run_id": str(runtime.flow_run.id)}
    if get_current_settings().server.ui.enabled:  # a temporary server has no pages, and is gone when anybody looks
        tags["flow_run_url"] = bare(str(runtime.flow_run.ui_url))
    tracker.begin(settings, tags)
    try:
        yield tracker
    except BaseException as error:
        tracker.end("FAILED" if isinstance(error, Exception) else "KILLED", bare(str(error)) or type(error).__name__)
        raise
