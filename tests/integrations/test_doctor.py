"""`erd doctor`: what it finds, and that what is wrong is a sentence that says what to do."""

import os
import socket
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import batches_to_review
import numpy as np
import pytest
import servers

from erd.base import files
from erd.data import library
from erd.data.library import Library
from erd.integrations import doctor
from erd.nets import encoders
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir
from erd.runs.stage_records import StageRecord

OWN = "data:\n  scenario: own\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("PREFECT_API_URL", "ERD_TIMEZONE"):  # other tests of the process may have set them
        monkeypatch.delenv(name, raising=False)
    for name in ("PREFECT_PORT", "MLFLOW_PORT"):
        monkeypatch.setenv(name, str(servers.free_port()))
    return tmp_path


def problems() -> list[str]:
    return doctor.examine(None)["problems"]


def one_problem(*parts: str) -> str:
    """The only one, which says all of this."""
    (said,) = problems()
    for part in parts:
        assert part in said
    return said


def labelled(classes: dict[str, int], side: int = 16) -> None:
    """A library with so many images of each class."""
    names = [name for name, count in classes.items() for _ in range(count)]
    ids = [f"{name}/{number}.png" for number, name in enumerate(names)]
    images = np.random.default_rng(0).integers(0, 256, (len(names), side, side), dtype=np.uint8)
    library.save(Library(images, library.table({"id": ids, "sha256": ids, "label": names, "group": ids}, len(names))))


def test_a_machine_on_which_all_is_well() -> None:
    found = doctor.examine(None)
    assert found["problems"] == []
    assert found["notes"] == []
    assert found["torchvision_works"]
    assert found["data"] == {"digits": "bundled"}
    assert found["scenario"] == "digits-near", "the default, where there is no params.yaml"


def test_a_workspace_in_which_all_is_well() -> None:
    Path("params.yaml").write_text(OWN)
    labelled({"cat": 400, "dog": 400})
    assert problems() == []


def test_the_scenario_is_that_of_params_yaml() -> None:
    Path("params.yaml").write_text("data:\n  scenario: fmnist-c5-fog\n")
    assert doctor.examine(None)["scenario"] == "fmnist-c5-fog"


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ("data:\n  scenario: digits-far\n", "unknown scenario 'digits-far': did you mean 'digits-near'?"),
        ("data:\n  scenari: own\n", "unknown setting 'data.scenari' in params.yaml"),
        ("data: [", "params.yaml is not valid YAML at line 1"),
    ],
)
def test_a_params_yaml_that_cannot_be_run_is_a_problem(params: str, problem: str) -> None:
    Path("params.yaml").write_text(params)
    found = doctor.examine(None)
    assert found["scenario"] == "not known"
    (said,) = found["problems"]
    assert problem in said


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ("model:\n  net: resnet21\n", "resnet20"),
        ("model:\n  weights: gone.pt\n", "there is no file of weights at gone.pt; correct model.weights"),
        ("run:\n  device: cuda\n", "torch sees no GPU; set run.device=cpu or auto"),
        (OWN, "there are no labelled images in library: take some in with `erd ingest --labeled DIR`"),
    ],
    ids=["a net", "weights", "a GPU", "a library"],
)
def test_what_params_yaml_asks_for_and_is_not_there_is_a_problem(params: str, problem: str) -> None:
    Path("params.yaml").write_text(params)
    one_problem(problem)


def test_what_does_not_answer_and_what_is_not_there_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    found = doctor.examine(Path("nowhere"))
    assert found["servers"] == {"mlflow": "not reached", "prefect": "not reached"}
    assert any("MLFLOW_TRACKING_URI is http://127.0.0.1:9, which does not answer" in said for said in found["problems"])
    assert any("PREFECT_API_URL is http://127.0.0.1:9/api, which does not" in said for said in found["problems"])
    assert any("the data folder nowhere is not there" in said for said in found["problems"])


def test_a_disk_that_is_nearly_full_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROOM", 1 << 60)  # then this one is
    one_problem("MB of disk are free here; free some or work in another folder")


@pytest.mark.parametrize(("content", "state"), [(b"cut", "altered"), (None, "not installed")])
def test_weights_of_the_encoder_that_are_damaged_or_missing_are_a_problem(
    content: bytes | None, state: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = encoders.BUNDLED[encoders.DEFAULT]
    file = here / "packages" / bundle.package / bundle.file
    file.parent.mkdir(parents=True)
    (here / "packages" / bundle.package / "__init__.py").touch()
    if content:
        file.write_bytes(content)
    monkeypatch.syspath_prepend(here / "packages")
    one_problem(f"the weights of {encoders.DEFAULT} are {state}; run make install")


def test_a_port_that_another_program_has_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("MLFLOW_PORT", str(port))
        one_problem(f"port {port}, which `make up` wants for MLflow, is taken", f"`make up MLFLOW_PORT={port + 1}`")


def test_a_tracking_database_that_was_cut_off_is_a_problem(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "mlflow.db"
    with sqlite3.connect(path) as database:
        database.execute("create table experiments (name text)")
        database.executemany("insert into experiments values (?)", [(f"experiment {n}",) for n in range(5000)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    one_problem("mlflow.db cannot be used", "move it away, and a new one is made")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("remote = storage\n['remote \"storage\"']\n    url = /nowhere/share\n", "DVC's remote /nowhere/share is not"),
        ("remote = storage\n", "DVC's default remote is 'storage', which it does not know: `dvc remote add storage"),
    ],
    ids=["no such folder", "no such name"],
)
def test_a_remote_of_dvc_that_is_not_there_is_a_problem(config: str, problem: str) -> None:
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text(f"[core]\n    no_scm = true\n    {config}")
    one_problem(problem)


def test_without_a_remote_the_data_are_on_one_disk_which_is_worth_a_note() -> None:
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core]\n    no_scm = true\n")
    found = doctor.examine(None)
    assert found["problems"] == []
    (note,) = found["notes"]
    assert "on this disk alone: `dvc remote add -d" in note


def test_a_time_zone_that_nobody_knows_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERD_TIMEZONE", "Mars/Olympus")
    one_problem("ERD_TIMEZONE is 'Mars/Olympus', which is no time zone: set it to one such as Europe/Zurich")


def test_results_from_the_future_tell_that_the_clock_is_wrong() -> None:
    later = (datetime.now(UTC) + timedelta(days=40)).isoformat()
    files.save_json(RunDir(Path("runs/2026-W46")).record("score"), asdict(StageRecord("key", {}, later, later)))
    one_problem("this machine's clock says", "set the clock, weeks are named after it")


def test_too_few_labelled_images_and_what_that_means_for_flags() -> None:
    Path("params.yaml").write_text(OWN)
    labelled({"cat": 200, "dog": 12})
    few, flags = problems()
    assert few.startswith("class 'dog' has 12 labelled images, fewer than 30 (data.least): it is not learned yet")
    assert flags.startswith("212 labelled images leave 67 to compare a batch with: a new class of less than about 29%")
    assert "for a tenth of a batch have 632" in flags
    labelled({"cat": 400, "dog": 232})
    assert problems() == [], "as was said"
    labelled({"cat": 40, "dog": 30})
    one_problem("leave 22 to compare a batch with: a new class of less than about 87% of a batch cannot be flagged")


def test_a_library_of_another_size_than_is_asked_for_is_a_problem() -> None:
    Path("params.yaml").write_text(f"{OWN}  image_size: 32\n")
    labelled({"cat": 400, "dog": 400}, side=16)
    one_problem("the labelled images in library are 16 pixels wide and data.image_size is 32", "`erd ingest --labeled")


def test_a_reviewed_batch_of_another_size_than_the_library_is_a_problem(here: Path) -> None:
    labelled({"cat": 400, "dog": 400}, side=16)
    run = batches_to_review.make(here)  # 8 pixels
    image = batches_to_review.ids(run)[0]
    Answers(run.answers).add(Answer(image, "class", "new", "ann", "flagged", now()))
    one_problem("the images of runs/2026-W46 are 8 pixels wide and those in library 16", "`erd run --batch 2026-W46`")


def test_records_that_cannot_be_read_are_problems(here: Path) -> None:
    run = batches_to_review.make(here)
    run.metrics.write_text('{"batch": "2026-')
    one_problem("runs/2026-W46/metrics.json cannot be read", "delete it and run again")
    run = batches_to_review.make(here)
    run.review.mkdir()
    run.answers.write_text("what?\n")
    one_problem("line 1 of runs/2026-W46/review/answers.jsonl is no answer", "correct or delete it")
    run.answers.unlink()
    run.alarms.write_text('{"own": ')
    one_problem("runs/alarms.json cannot be read", "restore it, or delete it to begin a new one")


def test_a_library_that_is_half_written_is_a_problem() -> None:
    Path("params.yaml").write_text(OWN)
    labelled({"cat": 400, "dog": 400})
    whole = library.packed(library.PLACE).read_bytes()
    library.packed(library.PLACE).write_bytes(whole[: len(whole) // 2])
    one_problem("library/images.safetensors cannot be read")


# ------------------------------------------------------------------------------------------------------------- Prefect


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Prefect]:
    with servers.prefect_server(tmp_path_factory.mktemp("prefect"), servers.free_port()) as server:
        yield server


def test_a_server_without_a_schedule_for_this_folder_is_a_problem(
    prefect: servers.Prefect, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect.api)
    one_problem("has no schedule for this folder", "`prefect deploy --all` here")
    prefect.deploy(here / "elsewhere")
    one_problem(f"no schedule for this folder (it has one of {here / 'elsewhere'})")
    prefect.deploy(here, cron=None)
    one_problem("has no schedule for this folder: ")


def test_a_schedule_that_nobody_does_or_that_runs_a_demo_is_a_problem(
    prefect: servers.Prefect, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect.api)
    prefect.deploy(here)
    nobody, demo = problems()
    assert "nobody takes the runs" in nobody
    assert "`prefect worker start --pool local`" in nobody
    assert "the schedule runs the demo digits-near every week, not your images" in demo
    prefect.worker_is_there()
    Path("params.yaml").write_text(OWN)
    labelled({"cat": 400, "dog": 400})
    assert problems() == []
    monkeypatch.setenv("ERD_TIMEZONE", "Asia/Tokyo")
    one_problem("the schedule goes by Europe/Zurich and ERD_TIMEZONE is Asia/Tokyo: `prefect deploy --all`")


def test_a_server_at_the_usual_place_is_found_also_where_nobody_names_it(
    prefect: servers.Prefect, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_PORT", str(prefect.port))
    assert problems() == [], "it is no trouble, and not ours"
    prefect.deploy(here)
    assert any("runs the demo digits-near" in said for said in problems())
    assert os.environ.get("PREFECT_API_URL") is None
