"""A run once more, from its MLflow id alone."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from chains import tracked

from erd.cli import main
from erd.integrations import dvc, mlflow_client
from erd.runs.configure import settings_for
from erd.runs.results import Metrics

ROOT = Path(__file__).parents[2]
SMALL = ["pretrain.epochs=2", "finetune.epochs=2", "finetune.members=2"]


@pytest.fixture(scope="module", autouse=True)
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A DVC repository with a remote in a folder; the current folder stays there."""
    workspace = tmp_path_factory.mktemp("workspace")
    for name in ("params.yaml", "dvc.yaml", ".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        (workspace / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, workspace / name)
    params = workspace / "params.yaml"
    params.write_text(params.read_text().replace("runner: process", "runner: serial "))
    remote = tmp_path_factory.mktemp("remote")
    with chdir(workspace):
        Path(".dvc/config").write_text(f"[core]\n    remote = storage\n['remote \"storage\"']\n    url = {remote}\n")
        commit = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all"]
        for words in (["git", "init", "-q"], ["git", "add", "-A"], commit):
            subprocess.run(words, check=True)
        yield workspace


def weekly(batch: str, *overrides: str) -> tuple[str, Metrics]:
    """The run's id, and its figures; its data is in DVC's remote."""
    with tracked(settings_for(batch=batch, overrides=[*SMALL, *overrides])) as week:
        dvc.push(week.hashes.values())
    return week.run_id, Metrics.read(week.run)


@pytest.fixture(scope="module")
def finished(workspace: Path) -> tuple[str, Metrics]:
    return weekly("2026-W46")


def reproduce(run_id: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    code = main(["reproduce", run_id, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out.splitlines()[-1]) if said.out else {}, said.err


def test_the_same_bytes_from_the_remote_alone(
    finished: tuple[str, Metrics], capsys: pytest.CaptureFixture[str]
) -> None:
    run_id, metrics = finished
    shutil.rmtree(".dvc/cache")
    shutil.move("runs", "somewhere-else")
    code, result, told = reproduce(run_id, capsys)
    assert (code, result["identical"]) == (0, True)
    assert result["metrics"] == metrics.flat()
    assert "note:" not in told, "the code is the run's own"
    shutil.move("somewhere-else", "runs")


def test_a_batch_whose_level_is_of_an_earlier_look_is_reproduced_with_that_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The level is in no settings: the ledger has it, and the figures."""
    _, first = weekly("2026-W47")
    run_id, second = weekly("2026-W47", "alarm.looks=10")
    assert second.verdict.alarm_level == first.verdict.alarm_level != 0.05 / 10
    code, result, _ = reproduce(run_id, capsys)
    assert (code, result["identical"], result["differs"]) == (0, True, [])
    assert result["metrics"]["alarm_level"] == first.verdict.alarm_level


def test_a_batch_that_is_named_as_our_own_folder_is_compared_with_its_record(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_id, metrics = weekly("recorded")
    alter(run_id, metrics, tmp_path)
    code, result, _ = reproduce(run_id, capsys)
    assert (code, result["differs"]) == (1, [f"auroc: 0.123 then, {metrics.on_batch.auroc} now"])


def test_what_differs_is_said_and_other_code_is_noted(
    finished: tuple[str, Metrics], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_id, metrics = finished
    alter(run_id, metrics, tmp_path)
    mlflow_client.connect().set_tag(run_id, "mlflow.source.git.commit", "0123456789abcdef")
    code, result, told = reproduce(run_id, capsys)
    assert (code, result["identical"]) == (1, False)
    assert result["differs"] == [f"auroc: 0.123 then, {metrics.on_batch.auroc} now"]
    assert "made by commit 0123456789" in told
    assert told.splitlines()[-1].startswith("erd: not the same: auroc: 0.123 then")


def alter(run_id: str, metrics: Metrics, scratch: Path) -> None:
    """Another figure in the record."""
    client = mlflow_client.connect()
    path = Path(client.download_artifacts(run_id, "metrics.json", str(scratch)))
    path.write_text(path.read_text().replace(f'"auroc": {metrics.on_batch.auroc}', '"auroc": 0.123'))
    client.log_artifact(run_id, str(path))


def test_what_cannot_be_made_again_is_one_sentence(
    finished: tuple[str, Metrics], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, told = reproduce("0" * 32, capsys)
    assert code == 2
    assert told.startswith("erd: MLflow at")
    assert f"knows no run '{'0' * 32}'" in told
    client = mlflow_client.connect()
    experiment = client.get_run(finished[0]).info.experiment_id
    child = client.search_runs([experiment], "tags.stage = 'pretrain'")[0]
    code, _, told = reproduce(child.info.run_id, capsys)
    assert code == 2
    assert f"give its run's id, {child.data.tags['mlflow.parentRunId']}" in told
