"""The weekly flow: ingest → pretrain → finetune, one task per label, in parallel → score → evaluate → report.

erd run --batch 2026-W46
prefect deployment run 'weekly/weekly' -p batch=2026-W46
"""

import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from prefect import flow, runtime
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.task_runners import ThreadPoolTaskRunner

from erd import files, stages
from erd.compute import Workers
from erd.locks import locked
from erd.params import Settings
from erd.rundir import RunDir
from erd.scenarios import settings_for
from flows import tasks

SHOWN = 50  # rows of the flag list in the UI; all of them are in scores.parquet


@flow(name="weekly", flow_run_name="{batch}", task_runner=ThreadPoolTaskRunner(max_workers=64), retries=0)  # type: ignore[arg-type]
def weekly(
    batch: str | None = None,
    scenario: str | None = None,
    inbox: str | None = None,
    data: str | None = None,
    overrides: list[str] | None = None,
    runner: str | None = None,
    params: str | None = None,
) -> dict[str, Any]:
    """Flag what is novel in one batch. Parameters left out are those of params.yaml in the working directory."""
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
    with locked(run.root):
        tasks.ingest(settings, run)
        tasks.pretrain(settings, run)
        _finetune(settings, run)
        tasks.score(settings, run)
        tasks.evaluate(settings, run)
        _show(run)
    return files.load_json(run.metrics)


def _scheduled_week() -> str | None:
    """A deployment's run that names no batch is about the week it was scheduled in: 2026-W46."""
    if runtime.deployment.id is None:
        return None
    start: datetime = runtime.flow_run.scheduled_start_time
    return f"{start:%G-W%V}"


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


def _show(run: RunDir) -> None:
    """What a person wants to see of the run in the UI."""
    metrics = files.load_json(run.metrics)
    table = pd.read_parquet(run.scores).sort_values("score", ascending=False)
    flagged = table[table["flagged"]].head(SHOWN)
    create_table_artifact(
        flagged.round({"score": 4, "p_value": 5}).to_dict("records"),
        key="flagged",
        description=f"the {len(flagged)} highest-scoring of {metrics['flagged']} flagged images",
    )
    figures = {name: value for name, value in metrics.items() if isinstance(value, float)}
    lines = [f"**{metrics['flagged']} of {metrics['images']} images** of batch {metrics['batch']} are flagged.", ""]
    lines += ["| figure | value |", "|---|---|", *(f"| {name} | {value:.4f} |" for name, value in figures.items())]
    create_markdown_artifact("\n".join(lines), key="summary", description=f"batch {metrics['batch']}")
