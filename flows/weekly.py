"""The weekly flow: ingest → pretrain → finetune, one task per label, in parallel → score → evaluate → compare → alarm →
version → register → report.

erd run --batch 2026-W46
prefect deployment run 'weekly/weekly' -p batch=2026-W46
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from prefect import flow, runtime
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.logging.handlers import APILogHandler
from prefect.task_runners import ThreadPoolTaskRunner

from erd import files, stages, tracking
from erd.compute import Workers
from erd.locks import locked
from erd.params import HERE, Settings
from erd.rundir import RunDir
from erd.scenarios import settings_for
from flows import tasks

log = logging.getLogger("erd")


def _name() -> str:
    """The flow run's, in the UI: the batch's."""
    return runtime.flow_run.parameters.get("batch") or _scheduled_week() or "the batch of params.yaml"


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

    Returns metrics.json, and where the results are: run_dir, mlflow_run_id, model_version.
    """
    settings = settings_for(
        batch=batch or _scheduled_week(),
        scenario=scenario,
        inbox=inbox,
        data=data,
        overrides=overrides or [],
        runner=runner,
        params=Path(params) if params else None,
    )
    run = RunDir.of(settings)
    if replace:
        with locked(run.root):
            moved = run.move_away()
        log.info("the batch that had the name is in %s", moved)
    with _told_to_prefect(), locked(run.root):
        log.info("%s → %s", settings.data.scenario, run.root)
        _tag("erd", settings.data.scenario)
        tasks.ingest(settings, run)
        with _tracked(settings, run):
            tasks.pretrain(settings, run)
            tracking.send(run)
            _finetune(settings, run)
            tasks.score(settings, run)
            tasks.evaluate(settings, run)
            tasks.compare(settings, run)
            tasks.sound(settings, run)
            hashes = tasks.version(settings, run)
            registered = tasks.register(settings, run)
            tasks.show(run, registered)
            tracking.end(run, "FINISHED", hashes=hashes)
        record = tracking.read(run)
    where = {"run_dir": run.root.as_posix(), "model_version": registered.version}
    return files.load_json(run.metrics) | where | {"mlflow_run_id": record.run_id if record else None}


def _scheduled_week() -> str | None:
    """A deployment's run that names no batch is named after the week it was scheduled in, where we are: 2026-W46."""
    if runtime.deployment.id is None:
        return None
    start: datetime = runtime.flow_run.scheduled_start_time
    return f"{start.astimezone(ZoneInfo(os.environ.get('ERD_TIMEZONE') or 'UTC')):%G-W%V}"


def _tag(*tags: str) -> None:
    """The flow run alone; tags of Prefect's `tags` would go to its tasks as well."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(runtime.flow_run.id, tags=tags)


@contextmanager
def _told_to_prefect() -> Iterator[None]:
    """What the stages log is shown with the flow run too."""
    handler = APILogHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def _tracked(settings: Settings, run: RunDir) -> Iterator[None]:
    """One MLflow run around the block, which ends it; a failure is recorded as such."""
    files.save_json(run.settings, settings.model_dump(exclude=HERE))
    tags = {"flow_run_id": str(runtime.flow_run.id), "flow_run_url": str(runtime.flow_run.ui_url)}
    tracking.begin(settings, run, tags)
    try:
        yield
    except BaseException as error:
        tracking.end(run, "FAILED" if isinstance(error, Exception) else "KILLED", str(error) or type(error).__name__)
        raise


def _finetune(settings: Settings, run: RunDir) -> None:
    """All members at once, as tasks; their progress as an artifact of the flow run."""
    labels = stages.member_labels(settings, run)
    classes = stages.known_classes(run)
    artifact = create_progress_artifact(0.0, key="fine-tuning", description="epochs of all members")
    shown = threading.Lock()

    def show(share: float) -> None:
        with shown:
            update_progress_artifact(artifact, round(100 * share, 1))  # type: ignore[arg-type]

    with (
        Workers(settings.run, len(labels)) as workers,
        tasks.using(workers),
        stages.members_underway(settings, run, labels, on_progress=show),
    ):
        futures = [
            tasks.finetune.submit(settings, run, label, member, classes[label]) for member, label in enumerate(labels)
        ]
        for future in futures:
            future.result()
            tracking.send(run)
