"""The benchmark flow on a real Prefect server: a task a cell, one table, and nothing done twice."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort

from erd import bench, files, methods
from erd.errors import RunError
from erd.methods import Data, Detector, Method
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench.Sending, "flush", lambda self: None)
    fits: list[int] = []

    def fit(data: Data) -> Detector:
        fits.append(data.settings.seed)
        if len(fits) == 2:
            raise ValueError("not this time")
        return Detector(lambda images: images.images.flatten(1).float().mean(1) + torch.zeros(len(images)))

    own = dict(methods.table()) | {"moody": Method("moody", "a test", "–", "unsupervised", (), fit, __name__)}
    monkeypatch.setattr(methods, "table", lambda: own)
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
    kept = files.load_json(Path("bench/results.json"))["rows"]

    rows = benchmark(["digits-near"], ["max-softmax", "moody"], seeds=2, overrides=SMALL)
    assert len(fits) == 3, "the failed one alone was done again"
    assert [row for row in rows if row["method"] == "max-softmax"] == [r for r in kept if r["method"] == "max-softmax"]
    assert not any(row["error"] for row in rows)
    assert rows[0]["auroc"] != rows[2]["auroc"], "a seed is another split"
    [line, _] = json.loads(_artifact("benchmark"))
    mean = (rows[0]["batch_auroc"] + rows[2]["batch_auroc"]) / 2
    assert line["AUROC, batch"].startswith(f"{mean:.3f} ± ".lstrip("0"))
    [last] = ask(lambda client: client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1))
    assert (last.name, last.state_name) == ("2 seeds", "Completed")


def _artifact(key: str) -> str:
    """The newest of that name."""
    found = ask(lambda client: client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key]))))
    return max(found, key=lambda artifact: artifact.created).data
