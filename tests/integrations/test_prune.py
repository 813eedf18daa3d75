"""`erd prune`: old weeks give their nets and features up, and nothing that anybody still looks at changes."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pictures_of_shapes
import pytest
from chains import tracked
from fastapi.testclient import TestClient

from erd.base import files, locks
from erd.cli import main
from erd.data import library
from erd.integrations import dvc, mlflow_client, registry, status
from erd.reporting import history, report
from erd.review import app, queue
from erd.runs.answers import Answer, Answers, now
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir

ROOT = Path(__file__).parents[2]
SMALL = ["data.scenario=own", "data.least=10", "data.settle=0", "data.calibration=20", "data.window=2",
         "model.input_size=32", "pretrain.epochs=3", "finetune.epochs=2", "finetune.members=2", "review.audit=5",
         "registry.model=erd-of-test-prune", "run.runner=serial"]  # fmt: skip
WEEKS = ("W1", "W2", "W3")
GONE, KEPT, NEXT = "W1", "W3", "W4"  # of W2 stays what W3 is compared and looked at with


def weekly(name: str) -> str:
    """A registered week with its pages; the run's id in MLflow."""
    settings = settings_for(batch=name, overrides=SMALL)
    with tracked(settings) as week:
        week.tracker.send()
        assert registry.register(settings, week.run).version is not None
        report.write(week.run)
        history.write()
    return week.run_id


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DVC repository with a library and three weeks, and a fourth in the inbox."""
    workspace = tmp_path_factory.mktemp("made")
    for name in ("params.yaml", "dvc.yaml", ".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        (workspace / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, workspace / name)
    with pytest.MonkeyPatch.context() as there:
        there.chdir(workspace)
        subprocess.run(["git", "init", "-q"], check=True)
        library.take_in(pictures_of_shapes.files(Path("labelled"), {"rings": 40, "stripes": 40}), None)
        for number, name in enumerate([*WEEKS, NEXT]):
            pictures_of_shapes.inbox(Path("inbox") / name, {"rings": 10, "stripes": 10}, seed=10 + number)
        for name in WEEKS:
            weekly(name)
    return workspace


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy for each test."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "workspace"))
    return Path()


def run_of(name: str) -> RunDir:
    return RunDir(Path("runs") / name)


def prune(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["prune", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def bytes_of(*places: str) -> int:
    every = (path for place in places for path in Path(place).rglob("*"))
    return sum(path.stat().st_size for path in every if path.is_file() and path.suffix == ".safetensors")


def all_files() -> dict[str, str]:
    """What is where, by hash."""
    return {path.as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in Path().rglob("*")
            if path.is_file() and not path.is_relative_to(".git")}  # fmt: skip


def test_nets_and_features_of_old_weeks_go_and_all_else_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, large, weeks = all_files(), bytes_of("runs", "library"), history.weeks()
    said = prune(capsys, "--keep", "1")
    after = all_files()
    assert said["batches"] == ["W1", "W2"]
    assert said["bytes"] == sum(said["freed"].values()) == pytest.approx(large - bytes_of("runs", "library"), abs=2000)
    assert {"members", "classifiers", "features"} <= said["freed"].keys()
    gone = before.keys() - after.keys()
    assert all(path.endswith(".safetensors") for path in gone)
    assert not [path for path in gone if path.startswith(("inbox", "library/images", ".dvc", f"runs/{KEPT}"))]
    assert list(run_of(GONE).root.rglob("*.safetensors")) == [run_of(GONE).batch], "but for the images of the batch"
    changed = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    assert changed == {"runs/W1/report.html", "runs/W2/report.html", "runs/history.html", "runs/.weeks.json"}
    assert "were cleared away" in run_of(GONE).report.read_text()
    assert "were cleared away" not in run_of(KEPT).report.read_text()
    assert "Of 2 batches the nets and features were cleared away" in Path("runs/history.html").read_text()
    assert [week | {"pruned": False} for week in history.weeks()] == weeks
    assert [one["batch"] for one in status.look()["last"]] == list(reversed(WEEKS))
    again = prune(capsys, "--keep", "1")
    assert (again["batches"], again["bytes"]) == ([], 0)


def test_the_next_week_is_the_same_as_if_nothing_had_gone(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(Path(), tmp_path / "not-pruned")
    prune(capsys, "--keep", "1")
    assert run_of("W2").pretrained.exists(), "the classifier that the week that stays is compared with"
    weekly(NEXT)
    now = {name: files.sha256(run_of(NEXT).root / name) for name in ("scores.parquet", "metrics.json", "learned.json")}
    monkeypatch.chdir(other)
    weekly(NEXT)
    assert now == {name: files.sha256(run_of(NEXT).root / name) for name in now}
    assert files.load_facts(run_of(NEXT).older)["batches"] == [KEPT]


def test_weeks_are_reproduced_as_long_as_dvcs_cache_has_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = {name: json.loads(run_of(name).tracked.read_text()) for name in WEEKS}
    prune(capsys, "--keep", "1")
    assert main(["reproduce", records[GONE]["run_id"]]) == 0, capsys.readouterr().err
    said = prune(capsys, "--keep", "1", "--cache")
    assert said["freed"].keys() == {"DVC's cache"}
    assert main(["reproduce", records[KEPT]["run_id"]]) == 0, "also with the week before, which it was looked at with"
    assert main(["reproduce", records[GONE]["run_id"]]) == 1
    assert "is not in DVC's cache" in capsys.readouterr().err
    dvc.checkout(Path("again"), records[GONE]["hashes"]["data/batch.safetensors"])
    assert files.sha256(Path("again")) == files.sha256(run_of(GONE).batch), "the images that people judged"


def test_a_dry_run_says_the_same_and_touches_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--keep", "1", "--dry-run"]) == 0
    assert " of 2 batches would be free" in capsys.readouterr().out
    before = all_files()
    would = prune(capsys, "--keep", "1", "--cache", "--dry-run")
    assert all_files() == before
    did = prune(capsys, "--keep", "1", "--cache")
    assert (would["dry_run"], did["dry_run"]) == (True, False)
    assert would["freed"] == did["freed"]
    assert main(["prune", "--keep", "1", "--dry-run"]) == 0
    assert capsys.readouterr().out == "nothing to clear away\n"


def test_what_is_not_finished_or_at_work_is_not_touched(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of("W1").metrics.unlink()
    run_of("W1").checkpoint(run_of("W1").pretrained).write_bytes(b"of a run that goes on")
    before = all_files()
    with locks.alone_in(run_of("W2").root):
        said = prune(capsys, "--keep", "1")
        assert main(["prune", "--keep", "1", "--cache"]) == 1
        assert "W2 is at work" in capsys.readouterr().err
    assert said["batches"] == []
    assert said["stays"] == {"W1": "it is not finished", "W2": "a run is at work in it"}
    record = json.loads(run_of("W2").tracked.read_text())
    run_of("W2").tracked.write_text(json.dumps(record | {"sent": []}))
    assert "erd sync runs/W2" in prune(capsys, "--keep", "1")["stays"]["W2"]
    run_of("W2").tracked.write_text(json.dumps(record | {"run_id": "0" * 32}))
    assert "no version of a model" in prune(capsys, "--keep", "1")["stays"]["W2"]
    changed = {path for path, code in all_files().items() if before.get(path) != code}
    assert changed == {"runs/W2/mlflow.json"}, "by us"


def test_the_folder_that_dvc_yaml_describes_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("batch: digits-near", "batch: W1         ", 1))
    said = prune(capsys, "--keep", "1")
    assert said["stays"] == {"W1": "dvc.yaml describes it"}
    assert run_of("W1").pretrained.exists()


def test_the_champions_classifier_stays_for_the_gate(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = mlflow_client.connect()
    [first] = client.search_model_versions(f"run_id = '{json.loads(run_of(GONE).tracked.read_text())['run_id']}'")
    before = client.get_registered_model("erd-of-test-prune").aliases["champion"]
    client.set_registered_model_alias("erd-of-test-prune", "champion", str(first.version))
    try:
        prune(capsys, "--keep", "1")
    finally:
        client.set_registered_model_alias("erd-of-test-prune", "champion", str(before))
    assert run_of(GONE).pretrained.exists()
    assert not list(run_of(GONE).members.glob("*.safetensors"))


def test_a_pruned_week_is_still_reviewed_and_incorporated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prune(capsys, "--keep", "1")
    shown = queue.load(run_of(GONE))
    application = app.make(shown, 8600)
    application.state.prepare()
    page = TestClient(application, base_url="http://127.0.0.1:8600")
    assert any("were cleared away" in text for text in page.get("/api/batch").json()["findings"])
    assert page.get("/image/0/large.png").status_code == 200
    assert page.get("/api/neighbours/0").json() == {"neighbours": []}
    assert "cleared away by `erd prune`" in page.get("/api/map").json()["failed"]
    image = pd.read_parquet(run_of(GONE).scores)["id"][0]
    Answers(run_of(GONE).answers).add(Answer(image, "class", "rings", "ada", "flagged", now()))
    assert main(["incorporate", "--batch", GONE]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["decide", "--set", "detect.fdr=0.2"], ["sensitivity"], ["run", "--scenario", "own"]]
)
def test_what_needs_the_nets_says_where_they_are(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    prune(capsys, "--keep", "1")
    before = all_files()
    code = main([*words, "--batch", GONE])
    [*_, told] = capsys.readouterr().err.splitlines()
    assert code == 2
    assert told.startswith(f"erd: the nets and features of {GONE} were cleared away by `erd prune` on 20")
    assert "`erd reproduce " in told
    assert all_files() == before


def test_a_number_that_makes_no_sense_is_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("0", "-3"):
        assert main(["prune", "--keep", number]) == 2
        [told] = capsys.readouterr().err.splitlines()
        assert told == f"erd: --keep is {number}: keep one batch or more, the next one is compared with the last"
    assert prune(capsys, "--keep", "1" + "0" * 30)["batches"] == []
