"""The benchmark flow on a real Prefect server: a task a cell, one table, and nothing done twice."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort
from small_bench import brightness

from erd.base.errors import RunError
from erd.bench.detectors import Detector, Given
from erd.bench.rows import read_rows
from flows import local
from flows.benchmark import benchmark

SMALL = ["pretrain.epochs=2", "run.runner=serial"]


def ask(question: Any) -> Any:
    """Something only the API knows; `question` is a coroutine function of a client."""

    async def answer() -> Any:
        async with get_client() as client:
            return await question(client)

    return asyncio.run(answer())


def test_cells_are_tasks_a_failed_one_fails_the_flow_and_the_rest_is_kept(
    enter: Callable[..., None],
) -> None:
    fits: list[int] = []

    def fit(given: Given) -> Detector:
        fits.append(given.settings.seed)
        if len(fits) == 2:
            raise ValueError("not this time")
        return Detector(brightness)

    enter("moody", fit)
    with local.connected():
        pass
    with pytest.raises(RunError, match="1 of 4 cells failed, such as moody: method 'moody' fails with ValueError"):
        benchmark(["digits-near"], ["max-softmax", "moody"], seeds=2, overrides=SMALL)
    tasks = ask(lambda client: client.read_task_runs(sort=TaskRunSort.EXPECTED_START_TIME_DESC, limit=6))
    assert sorted((task.name, task.state_name) for task in tasks if "moody" not in task.name) == [
        ("digits-near seed 0", "Completed"),
        ("digits-near seed 0 max-softmax", "Completed"),
        ("digits-near seed 1", "Completed"),
        ("digits-near seed 1 max-softmax", "Completed"),
    ]
    assert sorted(task.state_name for task in tasks if "moody" in task.name) == ["Completed", "Failed"]
    shown = json.loads(_artifact("benchmark"))
    assert [line["method"] for line in shown] == ["max-softmax", "moody"]
    kept = read_rows(Path("bench/results.json"))

    rows = benchmark(["digits-near"], ["max-softmax", "moody"], seeds=2, overrides=SMALL)
    assert len(fits) == 3, "the failed one alone was done again"
    assert [row for row in rows if row.method == "max-softmax"] == [r for r in kept if r.method == "max-softmax"]
    assert not any(row.error for row in rows)
    assert rows[0].auroc != rows[2].auroc, "a seed is another split"
    [line, _] = json.loads(_artifact("benchmark"))
    mean = sum(row.batch_auroc or 0 for row in (rows[0], rows[2])) / 2
    assert line["AUROC, batch"].startswith(f"{mean:.3f} ± ".lstrip("0"))
    [last] = ask(lambda client: client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1))
    assert (last.name, last.state_name) == ("2 seeds", "Completed")


def _artifact(key: str) -> str:
    """The newest of that name."""
    found = ask(lambda client: client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key]))))
    return max(found, key=lambda artifact: artifact.created).data
