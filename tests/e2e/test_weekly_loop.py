"""Two weeks on one's own files, by the commands a user types: ingest, run, answers, incorporate, run, history."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from PIL import Image
from sklearn.datasets import load_digits

from erd.cli import main
from erd.data import library
from erd.integrations import mlflow_client, mlflow_year
from erd.review import queue
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir

NEW = 6
MLP = ["--scenario", "own", "--set", "model.net=mlp", "--set", "data.image_size=8", "--set", "data.settle=0",
       "--set", "pretrain.epochs=25", "--set", "pretrain.batch_size=32",
       "--set", "finetune.epochs=10", "--set", "finetune.batch_size=32", "--runner", "serial"]  # fmt: skip


def erd(*words: str, cwd: Path) -> dict[str, Any]:
    """The command in this process, which has torch loaded already; what it printed, and what it said meanwhile."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, "--json"])
    assert code == 0, err.getvalue()
    return json.loads(out.getvalue().splitlines()[-1]) | {"said": err.getvalue()}


def digit(image: str) -> str:
    return f"digit {load_digits().target[int(Path(image).stem)]}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of digits 0 to 4, and two inboxes in which there are sixes too."""
    place = tmp_path_factory.mktemp("loop")
    digits, labels = load_digits(return_X_y=True)
    images, rng = (digits.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8), np.random.default_rng(0)

    def put(folder: Path, rows: np.ndarray) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows:
            Image.fromarray(images[row]).save(folder / f"{row:04}.png")

    for label in (*range(5), NEW):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if label != NEW:
            put(place / "scans" / f"digit {label}", rows[:100])
            put(place / "inbox" / "2026-W45", rows[100:120])
            put(place / "inbox" / "2026-W46", rows[120:140])
        else:
            put(place / "inbox" / "2026-W45", rows[:50])
            put(place / "inbox" / "2026-W46", rows[50:80])
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=place, check=True)
    return place


def answer(workspace: Path, batch: str) -> list[str]:
    """An expert who looks at all that is flagged and at the audit, and is always right; the images of the new class."""
    run = RunDir(workspace / "runs" / batch)
    shown = queue.load(run)
    ids = shown.table["id"].to_numpy()
    for_list = {"flagged": ids[shown.lists["flagged"][: shown.cut]], "audit": ids[shown.lists["audit"]]}
    given = [
        Answer(image, "class", digit(image), "ada", which, now()) for which in for_list for image in for_list[which]
    ]
    Answers(run.answers).merge(given)
    return sorted({one.image for one in given if one.label == f"digit {NEW}"})


def test_a_new_class_is_flagged_labelled_learned_and_looked_back_on(workspace: Path) -> None:
    assert erd("ingest", "--labeled", "scans", "--set", "data.image_size=8", cwd=workspace)["images"] == 500
    first = erd("run", *MLP, "--batch", "2026-W45", cwd=workspace)
    assert first["alarm"]
    assert first["flagged"] >= 30, "as many as the class takes to be learned"

    sixes = answer(workspace, "2026-W45")
    done = erd("incorporate", "--batch", "2026-W45", cwd=workspace)
    assert done["new_classes"] == [f"digit {NEW}"]
    assert done["waiting"] == {}
    assert done["data_hash"]
    taken = library.read(workspace / "library").table
    originals = taken.loc[taken["batch"] != "", "original"]
    assert len(originals) == done["added"]
    assert all((workspace / path).is_file() for path in originals), "found again where they are wanted larger"
    assert (workspace / "library" / "images.safetensors.dvc").exists(), "a new version for DVC"
    told = MlflowClient(mlflow_client.location()).get_run(first["mlflow_run_id"]).data
    assert "flow_run_url" not in told.tags, "the temporary server is gone, and so is its page"
    metrics = told.metrics
    assert metrics["review/flag_precision"] >= 0.9
    assert metrics["review/audited"] == 30

    second = erd("run", *MLP, "--batch", "2026-W46", cwd=workspace)
    scores = pd.read_parquet(workspace / second["run_dir"] / "scores.parquet")
    six = scores["id"].map(digit) == f"digit {NEW}"
    assert (scores["predicted"][six] == f"digit {NEW}").mean() >= 0.9, "it knows the new class"
    assert f"digit {NEW}: new → " in second["said"], "old and new accuracy per class"
    figures = MlflowClient(mlflow_client.location()).get_run(second["mlflow_run_id"]).data.metrics
    assert figures[f"per_class/digit {NEW}"] >= 0.8
    assert f"per_class_before/digit {NEW}" not in figures
    assert figures["classifier/accuracy"] > figures["classifier/accuracy_before"]
    assert second["model_version"] == first["model_version"] + 1
    report = (workspace / second["run_dir"] / "report.html").read_text()
    assert "the classifier of 2026-W45" in report

    client = MlflowClient(mlflow_client.location())
    stream = client.get_run(second["mlflow_run_id"]).info.experiment_id
    key = mlflow_year.key_of(workspace / "runs", "own")
    [year] = client.search_runs([stream], f"attributes.run_name = 'the year' and tags.`erd.key` = '{key}'")
    drawn = {
        name: {point.step: point.value for point in client.get_metric_history(year.info.run_id, f"year/{name}")}
        for name in ("alarm", "flagged", "flag_precision", "accuracy")
    }
    assert drawn["flagged"] == {1: first["flagged"], 2: second["flagged"]}, "a point a week"
    assert drawn["alarm"][1] == 1
    assert drawn["flag_precision"][1] == pytest.approx(metrics["review/flag_precision"]), "what experts said since"
    assert drawn["accuracy"].keys() == {1, 2}

    weeks = erd("history", cwd=workspace)["weeks"]
    assert [week["batch"] for week in weeks] == ["2026-W45", "2026-W46"]
    assert weeks[0]["flag_precision"] >= 0.9
    assert "2026-W46" in (workspace / "runs" / "history.html").read_text()

    before = len(sixes)
    assert erd("incorporate", "--batch", "2026-W45", "--undo", cwd=workspace)["removed"] >= before
    assert erd("ingest", "--labeled", "scans", "--set", "data.image_size=8", cwd=workspace)["images"] == 500
