"""A run once more, from its MLflow id alone."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from erd import tracking
from erd.cli import main
from flows import local

ROOT = Path(__file__).parents[1]
SMALL = ["pretrain.epochs=2", "finetune.epochs=2", "finetune.members=2"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A run in a DVC repository with a remote in a folder; the current folder stays there."""
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
        yield local.weekly(batch="2026-W46", overrides=SMALL)


def reproduce(run_id: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    code = main(["reproduce", run_id, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out.splitlines()[-1]) if said.out else {}, said.err


def test_the_same_bytes_from_the_remote_alone(finished: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(".dvc/cache")
    shutil.move("runs", "somewhere-else")
    code, result, told = reproduce(finished["mlflow_run_id"], capsys)
    assert (code, result["identical"]) == (0, True)
    assert result["metrics"]["auroc"] == finished["auroc"]
    assert "note:" not in told, "the code is the run's own"
    shutil.move("somewhere-else", "runs")


def test_what_differs_is_said_and_other_code_is_noted(
    finished: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    client = tracking.connect()
    altered = tmp_path / "metrics.json"
    recorded = Path(client.download_artifacts(finished["mlflow_run_id"], "metrics.json", str(tmp_path))).read_text()
    altered.write_text(recorded.replace(f'"auroc": {finished["auroc"]}', '"auroc": 0.123'))
    client.log_artifact(finished["mlflow_run_id"], str(altered))
    client.set_tag(finished["mlflow_run_id"], "mlflow.source.git.commit", "0123456789abcdef")
    code, result, told = reproduce(finished["mlflow_run_id"], capsys)
    assert (code, result["identical"]) == (1, False)
    assert result["differs"] == [f"auroc: 0.123 then, {finished['auroc']} now"]
    assert "made by commit 0123456789" in told
    assert told.splitlines()[-1].startswith("erd: not the same: auroc: 0.123 then")


def test_what_cannot_be_made_again_is_one_sentence(
    finished: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, told = reproduce("0" * 32, capsys)
    assert code == 2
    assert told.startswith("erd: MLflow at")
    assert f"knows no run '{'0' * 32}'" in told
    client = tracking.connect()
    experiment = client.get_run(finished["mlflow_run_id"]).info.experiment_id
    child = client.search_runs([experiment], "tags.stage = 'pretrain'")[0]
    code, _, told = reproduce(child.info.run_id, capsys)
    assert code == 2
    assert f"give its run's id, {child.data.tags['mlflow.parentRunId']}" in told
