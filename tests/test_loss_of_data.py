"""What once lost a user's data or told them something false, and must not again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from chains import do
from PIL import Image
from sklearn.datasets import load_digits

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.cli import main
from erd.data import library
from erd.data.library import Library
from erd.integrations import doctor, mlflow_client, mlflow_runs
from erd.integrations.mlflow_runs import Tracker
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.settings import schema
from erd.settings.schema import Settings

CONNECT = "from erd.integrations import mlflow_client; mlflow_client.connect()"
SMALL = ("finetune.members=2", "pretrain.epochs=2", "finetune.epochs=2", "run.runner=serial")


def settings(*more: str) -> Settings:
    return configure.resolve(schema.load(None, [*SMALL, *more]))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


# ------------------------------------------------------------------------------------------------- erd reproduce


@pytest.mark.parametrize("run_id", ["..", "../..", "", ".", "runs", "a" * 31, "G" * 32, "0" * 33])
def test_reproduce_takes_nothing_but_an_id_and_removes_nothing(
    run_id: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = workspace / "runs" / "2026-W46" / "scores.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_text("precious")
    assert main(["reproduce", run_id]) == 2
    assert "is no id of a run" in capsys.readouterr().err
    assert main(["reproduce", str(workspace / "runs" / "2026-W46")]) == 2
    assert kept.read_text() == "precious"


def test_reproduce_removes_only_what_it_made_and_only_for_a_run_that_is_known(workspace: Path) -> None:
    mine = workspace / "reproduced" / ("0" * 32) / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    assert main(["reproduce", "0" * 32]) == 2
    assert mine.read_text() == "precious"


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("batch", "/tmp/elsewhere"),
        ("batch", "../elsewhere"),
        ("batch", ""),
        ("data_hashes", json.dumps({"../../outside.txt": "d" * 32})),
        ("data_hashes", json.dumps({"/etc/passwd": "d" * 32})),
        ("data_hashes", json.dumps({"data/batch.safetensors": "../../../x"})),
        ("data_hashes", "{"),
        ("data_hashes", "[]"),
    ],
)
def test_a_record_in_mlflow_does_not_choose_where_reproduce_writes(
    tag: str, value: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mlflow_client.connect()
    experiment = client.get_experiment_by_name("foreign")
    made = experiment.experiment_id if experiment else client.create_experiment("foreign")
    tags = {"batch": "2026-W46", "data_hashes": json.dumps({"data/batch.safetensors": "d" * 32})} | {tag: value}
    run_id = client.create_run(made, tags=tags).info.run_id
    for name in ("settings.json", "metrics.json", "scores.parquet"):
        (workspace / name).write_text("{}")
        client.log_artifact(run_id, str(workspace / name))
    client.set_terminated(run_id)
    with pytest.raises(RunError, match="is damaged"):
        mlflow_runs.recorded(run_id, workspace / "recorded")


# ------------------------------------------------------------------------------------------------- MLflow's database


def test_a_kill_while_mlflow_makes_its_database_leaves_one_that_works(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    maker = subprocess.Popen([sys.executable, "-c", CONNECT], cwd=workspace, start_new_session=True)
    while not [*workspace.glob("mlflow.db*"), *workspace.glob(".mlflow.db*")]:
        assert maker.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)  # in the middle of its tables
    os.killpg(maker.pid, signal.SIGKILL)
    maker.wait()
    assert not (workspace / "mlflow.db").exists(), "there under its name only once it is whole"
    assert mlflow_client.connect().search_experiments(max_results=1)
    assert not list(workspace.glob(".mlflow.db*"))


def test_a_database_that_cannot_be_used_is_an_error_and_doctor_finds_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (workspace / "mlflow.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    run = RunDir(workspace / "runs" / "2026-W46")
    with pytest.raises(RunError, match=r"cannot be used .*: move it away, and a new one is made"):
        Tracker(run).begin(settings(), {})
    assert any("mlflow.db cannot be used" in problem for problem in doctor.examine(None)["problems"])
    (workspace / "mlflow.db").rename(workspace / "moved-away.db")
    subprocess.run([sys.executable, "-c", CONNECT], cwd=workspace, check=True)


def test_a_folder_in_place_of_the_database_is_told_at_once(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (workspace / "mlflow.db").mkdir()
    began = time.monotonic()
    with pytest.raises(RunError, match=r"mlflow\.db is no file\): move it away"):
        mlflow_client.connect()
    assert time.monotonic() - began < 30, "once it was 300 seconds"


# ------------------------------------------------------------------------------------------------- the library


def labelled(count: int, label: str, value: int) -> Library:
    ids = [f"{label}/{number}" for number in range(count)]
    columns = {"id": ids, "sha256": ids, "label": label, "group": ids}
    return Library(np.full((count, 8, 8), value, np.uint8), library.table(columns, count))


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_library_whose_saving_was_killed_has_images_and_labels_of_one_state(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many images before and after: nothing but the state tells them apart."""
    library.save(labelled(20, "cat", 1), tmp_path)
    moved = 0

    def replace(draft: Path | str, target: Path | str) -> None:
        nonlocal moved
        if moved == written:
            raise KeyboardInterrupt
        moved += 1
        os.rename(draft, target)

    with monkeypatch.context() as killed:
        killed.setattr("os.replace", replace)
        killed.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            library.save(labelled(20, "dog", 2), tmp_path)
    found = library.read(tmp_path)
    assert (set(found.table["label"]), set(np.asarray(found.images).flat)) in [({"cat"}, {1}), ({"dog"}, {2})]
    library.save(labelled(5, "cow", 3), tmp_path)
    assert set(library.read(tmp_path).table["label"]) == {"cow"}


def test_a_table_of_another_state_is_told(tmp_path: Path) -> None:
    library.save(labelled(20, "dog", 2), tmp_path / "other")
    library.save(labelled(20, "cat", 1), tmp_path / "library")
    files.copy(library.manifest(tmp_path / "other"), library.manifest(tmp_path / "library"))
    with pytest.raises(RunError, match="mixed up: get it again with `dvc checkout`"):
        library.read(tmp_path / "library")


@pytest.mark.parametrize("labeled", ["", ".", "..", "../here"])
def test_the_workspace_is_not_taken_for_class_folders(
    labeled: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library.save(labelled(20, "cat", 1))
    before = library.packed(Path("library")).read_bytes()
    (workspace / "scans" / "a.png").parent.mkdir()
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(workspace / "scans" / "a.png")
    assert main(["ingest", "--labeled", labeled]) == 2
    assert "is the workspace itself" in capsys.readouterr().err
    assert library.packed(Path("library")).read_bytes() == before


# ------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("cut", ["", "{", '{"key": "', "[1, 2", "\x00\x00"])
def test_a_cut_record_is_no_record_and_stops_no_run(
    cut: str, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs, chosen = workspace / "runs", settings("track.experiment=cut")
    other, mine = RunDir(runs / "OLD"), RunDir(runs / "NEW")
    for run in (other, mine):
        for path in (run.tracked, run.record("pretrain")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(cut)
    do(chosen, mine, "ingest")
    do(chosen, mine, "pretrain")
    assert do(chosen, mine, "pretrain")[0].reused, "what is whole again is kept"
    assert Tracker(mine).begin(chosen, {})
    said = [message for message in caplog.messages if "is passed over" in message]
    assert any("OLD" in message for message in said)
    assert any("NEW" in message for message in said)


# ------------------------------------------------------------------------------------------------- results of two runs


def fill(inbox: Path, count: int = 60) -> Path:
    inbox.mkdir()
    for number, pixels in enumerate(load_digits().images[:count]):
        Image.fromarray((pixels * 15).astype("uint8")).save(inbox / f"{number:03}.png")
    return inbox


def test_figures_of_a_run_that_knew_the_truth_do_not_stay(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "2026-W46")
    do(settings(), run)
    assert (run.figures / "roc.png").exists()
    inbox = fill(tmp_path / "inbox")
    (run.root / "settings.json").unlink(missing_ok=True)  # as a run made by an earlier version
    do(settings(f"data.inbox={inbox}", "data.settle=0"), run)
    assert not (run.figures / "roc.png").exists()
    assert files.load_json(run.metrics)["auroc"] is None


def test_a_folder_of_another_scenario_or_inbox_is_not_written_into(tmp_path: Path) -> None:
    run, chosen = RunDir(tmp_path / "runs" / "2026-W46"), settings()
    do(chosen, run, "ingest")
    before = run.batch.read_bytes()
    inbox = fill(tmp_path / "inbox")
    for other in ([f"data.inbox={inbox}", "data.settle=0"], ["data.scenario=own", f"data.path={tmp_path}"]):
        with pytest.raises(UserError, match="holds another batch, of digits-near: give this one another name"):
            do(settings(*other), run, "ingest")
    assert run.batch.read_bytes() == before
    moved = run.move_away()
    assert moved is not None
    assert (moved / "data" / "batch.safetensors").read_bytes() == before
    do(settings(f"data.inbox={inbox}", "data.settle=0"), run, "ingest")
