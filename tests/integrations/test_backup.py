"""`erd backup` and `erd restore`: all of a workspace in one file, and on with it elsewhere."""

import contextlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow import MlflowClient

from erd.cli import main
from erd.integrations import backup
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "pretrain.epochs=1", "--set", "finetune.epochs=1", "--set", "finetune.members=2",
         "--runner", "serial"]  # fmt: skip


def erd(*words: str, cwd: Path) -> dict[str, Any]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, "--json"])
    assert code == 0, err.getvalue()
    return json.loads(out.getvalue().splitlines()[-1])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks, tracked, registered and under DVC, one answer of an expert; git, an empty folder, a link elsewhere."""
    place = tmp_path_factory.mktemp("backup") / "workspace"
    for name in ("prefect.yaml", "params.yaml", ".gitignore", ".dvcignore", ".dvc/config"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    (place / "elsewhere").symlink_to(place.parent)
    for folder in ("logs", ".venv", "inbox"):
        (place / folder).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI")
        for batch in ("2026-W45", "2026-W46"):
            erd("run", "--batch", batch, *SMALL, cwd=place)
    run = RunDir(place / "runs" / "2026-W46")
    image = pd.read_parquet(run.scores)["id"][0]
    Answers(run.answers).add(Answer(image, "class", "digit 7", "ann", "flagged", now()))
    return place


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without servers: mlflow.db in the workspace."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def bytes_of(place: Path) -> dict[str, bytes]:
    """All files but databases, and what is made again."""
    found = (
        path.relative_to(place) for path in place.rglob("*") if path.is_file() and path.suffix not in (".db", ".pyc")
    )
    kept = (path for path in found if path.parts[0] not in backup.LEFT_OUT and not path.is_relative_to(backup.SCRATCH))
    return {path.as_posix(): (place / path).read_bytes() for path in kept}


def test_a_lost_workspace_goes_on_elsewhere_with_all_it_had(workspace: Path, tmp_path: Path) -> None:
    before = {"history": erd("history", cwd=workspace), "status": erd("status", cwd=workspace)}
    with sqlite3.connect(workspace / "mlflow.db") as busy:  # a run writes to it just now
        busy.execute("BEGIN IMMEDIATE")
        busy.execute("UPDATE experiments SET name = name || ' half'")
        saved = erd("backup", str(tmp_path / "week.tar"), cwd=workspace)
        busy.rollback()
    assert saved["notes"] == [f"elsewhere is a link to {workspace.parent}, which is not in it"]
    gone = workspace.rename(tmp_path / "gone")  # nothing may find it where it was
    try:
        place = tmp_path / "new machine" / "watch"
        done = erd("restore", str(tmp_path / "week.tar"), str(place), cwd=tmp_path)
        assert done["folder"] == str(place)
        assert done["files"] == saved["files"]
        assert bytes_of(place) == bytes_of(gone)
        assert [path.name for path in place.parent.iterdir()] == ["watch"], "no draft is left"

        for command in ("history", "status"):
            after = erd(command, cwd=place)
            assert {key: after[key] for key in after if key not in ("page", "disk")} == {
                key: value for key, value in before[command].items() if key not in ("page", "disk")
            }
        with contextlib.chdir(place):
            client = MlflowClient(f"sqlite:///{place / 'mlflow.db'}")
            assert {experiment.name for experiment in client.search_experiments()} >= {"digits-near"}
            champion = client.get_model_version_by_alias("erd-digits-near", "champion")
            mlflow.set_tracking_uri(f"sqlite:///{place / 'mlflow.db'}")
            loaded = mlflow.pyfunc.load_model(f"models:/erd-digits-near/{champion.version}")
            assert loaded.metadata is not None
        assert erd("reproduce", champion.run_id or "", cwd=place)["identical"], "from DVC's cache"
        third = erd("run", "--batch", "2026-W47", *SMALL, cwd=place)
        assert third["model_version"] == int(champion.version) + 1
        looks = json.loads((place / "runs" / "alarms.json").read_text())
        assert "2026-W45" in json.dumps(looks)
        assert "2026-W47" in json.dumps(looks)
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
        gone.rename(workspace)


def test_prefects_database_comes_along_and_overwrites_none(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(os.environ["PREFECT_HOME"]) / "prefect.db"
    with contextlib.closing(sqlite3.connect(own)) as database:
        runs = database.execute("SELECT count(*) FROM flow_run").fetchone()
    assert runs[0] >= 2
    erd("backup", str(tmp_path / "week.tar.gz"), cwd=workspace)
    done = erd("restore", str(tmp_path / "week.tar.gz"), str(tmp_path / "new"), cwd=tmp_path)
    assert "put it into ~/.prefect while no server runs there" in " ".join(done["notes"])
    with contextlib.closing(sqlite3.connect(tmp_path / "new" / "prefect.db")) as database:
        assert database.execute("SELECT count(*) FROM flow_run").fetchone() == runs


def test_records_that_are_elsewhere_are_named_without_their_password(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://erd:secret@db:5432/mlflow")
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "postgresql+asyncpg://erd:secret@db:5432/prefect")
    command = [sys.executable, "-m", "erd.cli", "backup", str(tmp_path / "week.tar")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "note: MLflow's records are at postgresql://db:5432/mlflow, and not in it" in done.stderr
    assert "note: Prefect's records are at postgresql+asyncpg://db:5432/prefect, and not in it" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_what_cannot_be_restored_is_one_sentence_and_leaves_nothing(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, place = tmp_path / "week.tar", tmp_path / "new"
    erd("backup", str(good), cwd=workspace)
    whole = good.read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    answers = RunDir(workspace / "runs" / "2026-W46").answers.read_bytes()
    (tmp_path / "changed.tar").write_bytes(whole.replace(answers, answers.replace(b"digit 7", b"digit 1")))
    (tmp_path / "text.tar").write_text("no archive")
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        entry = tarfile.TarInfo("../evil")
        tar.addfile(entry, io.BytesIO())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    for file, folder, code, said in (
        ("cut.tar", place, 1, "cut.tar"),
        ("changed.tar", place, 1, "is damaged: runs/2026-W46/review/answers.jsonl is not what was saved"),
        ("text.tar", place, 1, "cannot be restored"),
        ("evil.tar", place, 1, "cannot be restored"),
        ("none.tar", place, 2, "there is no file"),
        ("week.tar", tmp_path / "full", 2, "is not empty: name a new folder"),
    ):
        capsys.readouterr()
        assert main(["restore", str(tmp_path / file), str(folder)]) == code, file
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
        assert not place.exists()
    assert not (tmp_path / "evil").exists()
    assert not list(tmp_path.glob(".*"))
    with contextlib.chdir(workspace):
        assert main(["backup", str(good)]) == 2
    assert good.read_bytes() == whole


def test_an_archive_in_the_workspace_holds_neither_itself_nor_what_is_made_again(workspace: Path) -> None:
    try:
        erd("backup", "week.tar", cwd=workspace)
        with tarfile.open(workspace / "week.tar") as tar:
            names = tar.getnames()
    finally:
        (workspace / "week.tar").unlink()
    assert not [name for name in names if "week.tar" in name or name.split("/")[0] in backup.LEFT_OUT]
    assert "inbox" in names, "also an empty folder"
