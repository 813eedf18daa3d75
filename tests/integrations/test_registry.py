"""The ensemble in the registry: the same scores wherever it is loaded, and a gate that says why."""

import base64
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.models import Model
from mlflow.pyfunc import PythonModelContext
from PIL import Image
from servers import free_port, wait_for_answer

from erd.base.errors import RunError
from erd.data import packed
from erd.integrations import mlflow_runs, registry
from erd.integrations.mlflow_client import location
from erd.integrations.mlflow_runs import Tracker
from erd.integrations.served_model import Ensemble
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import Sensitivity
from erd.settings import schema
from erd.settings.schema import Settings
from erd.statistics import flags
from erd.weekly import chain

SMALL = ["finetune.members=3", "pretrain.epochs=3", "finetune.epochs=2", "run.runner=serial"]
COLUMNS = ["score", "p_value", "flagged", "predicted"]

LOAD = """
import json, sys
sys.meta_path = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
import importlib.util
assert importlib.util.find_spec("erd") is None, "our repository is out of reach"
import mlflow, numpy
model, images = mlflow.pyfunc.load_model(sys.argv[1]), numpy.load(sys.argv[2])
assert model.predict(images[:0]).empty
print(json.dumps(model.predict(images).to_dict("list")))
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run, chosen = RunDir(tmp_path_factory.mktemp("made") / "week"), settings()
    for stage in chain.CHAIN:
        chain.run(stage, chosen, run)
    return run


@pytest.fixture(autouse=True)
def here(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def name(tmp_path: Path) -> str:
    return tmp_path.name  # of the model: each test has its own


def settings(*more: str) -> Settings:
    return configure.resolve(schema.load(None, [*SMALL, *more]))


def week(finished: RunDir, tmp_path: Path, batch: str, **figures: Any) -> RunDir:
    """The finished run as another batch, with other figures."""
    run = RunDir(tmp_path / "runs" / batch)
    shutil.copytree(finished.root, run.root)
    metrics = json.loads(run.metrics.read_text()) | {"batch": batch} | figures
    run.metrics.write_text(json.dumps(metrics))
    return run


def registered(run: RunDir, name: str, *more: str) -> registry.Registered:
    chosen = settings(f"registry.model={name}", *more)
    tracker = Tracker(run)
    tracker.begin(chosen)
    result = registry.register(chosen, run)
    tracker.end("FINISHED")
    return result


def cleared(run: RunDir) -> None:
    """Its nets are no longer in the workspace: only the registry knows its figures."""
    run.pretrained.unlink()


def images_of(run: RunDir) -> np.ndarray:
    return packed.read(run.batch).images.numpy()


def test_a_version_belongs_to_its_run_once_and_says_what_it_takes(finished: RunDir, tmp_path: Path, name: str) -> None:
    run = week(finished, tmp_path, "2026-W46")
    first = registered(run, name)
    assert (first.model, first.version, first.alias, first.champion) == (name, 1, "champion", True)
    assert registry.register(settings(f"registry.model={name}"), run) == first
    client = MlflowClient(location())
    [version] = client.search_model_versions(f"name = '{name}'")
    parent = client.get_run(version.run_id or "")
    assert parent.info.run_id == json.loads(run.tracked.read_text())["run_id"]
    assert parent.info.status == "FINISHED"
    assert parent.outputs is not None
    [output] = parent.outputs.model_outputs
    assert version.source == f"models:/{output.model_id}"
    assert client.get_logged_model(output.model_id).experiment_id == parent.info.experiment_id
    metrics = json.loads(run.metrics.read_text())
    assert version.tags["batch"] == "2026-W46"
    assert version.tags["val_accuracy"] == f"{metrics['val_accuracy']:.4f}"
    assert version.tags["auroc"] == f"{metrics['auroc']:.4f}"
    assert {alias: int(number) for alias, number in client.get_registered_model(name).aliases.items()} == {
        "champion": 1,
        "challenger": 1,
    }

    folder = Path(download_artifacts(f"models:/{name}@champion", tracking_uri=location()))
    signature = Model.load(str(folder)).signature
    assert signature is not None
    assert signature.inputs is None, "what is taken is ours to say, in a sentence"
    assert signature.outputs.input_names() == COLUMNS
    needed = (folder / "requirements.txt").read_text()
    assert "torch==" in needed
    assert "+cpu" not in needed, "a version that can be installed anywhere"
    assert (folder / "input_example.json").exists()
    assert not list(folder.rglob("*.pkl")), "no pickle anywhere"
    ours, shipped = Path(registry.__file__).parents[1], folder / "code" / "erd"
    assert {path.relative_to(shipped) for path in shipped.rglob("*.py")} == {
        path.relative_to(ours) for path in ours.rglob("*.py")
    }, "all of our code goes along"
    assert os.environ.get("MLFLOW_TRACKING_URI") is None, "nothing is left in the environment"


def test_better_or_about_as_good_becomes_champion_and_worse_stays_challenger(
    finished: RunDir, tmp_path: Path, name: str
) -> None:
    def weekly(batch: str, **figures: Any) -> registry.Registered:
        run = week(finished, tmp_path, batch, **figures)
        result = registered(run, name)
        cleared(run)
        return result

    assert weekly("w1", val_accuracy=0.90, auroc=0.95).champion
    assert weekly("w2", val_accuracy=0.92, auroc=0.95).champion
    worse = weekly("w3", val_accuracy=0.90, auroc=0.99)
    assert not worse.champion
    assert (worse.alias, worse.version) == ("challenger", 3)
    assert "accuracy of the classifier 0.9000, the champion's 0.9200" in worse.reason
    blind = weekly("w4", val_accuracy=0.92, auroc=0.90)
    assert not blind.champion
    assert "AUROC on its batch 0.9000, the champion's 0.9500" in blind.reason
    assert weekly("w5", val_accuracy=0.91, auroc=0.94).champion, "within the allowed drops"
    assert weekly("w6", val_accuracy=0.90, auroc=None).champion, "without truth the accuracy alone decides"

    client = MlflowClient(location())
    assert int(client.get_model_version_by_alias(name, "champion").version) == 6
    third = client.get_model_version(name, "3")
    assert third.tags["reason"] == worse.reason
    assert worse.reason[1:] in (third.description or "")
    assert registry.register(settings(f"registry.model={name}"), RunDir(tmp_path / "runs" / "w3")) == worse


def test_a_version_has_a_model_card_and_the_model_says_what_it_is_for(
    finished: RunDir, tmp_path: Path, name: str
) -> None:
    run = week(finished, tmp_path, "2026-W46", auroc=0.98765432)
    Sensitivity(0.05, []).write(run)
    registered(run, name)
    client = MlflowClient(location())
    card = client.get_model_version(name, "1").description or ""
    assert card.startswith("Champion: there is no other champion.")
    sizes = json.loads(run.metrics.read_text())["sizes"]
    assert f"{sizes['train']} labelled images of 5 classes (0, 1, 2, 3, 4), and the 360 images of the batch" in card
    assert "8×8 pixels, grey" in card
    assert "| AUROC, novel against known, on its batch | 0.988 |" in card
    assert "about 5% are flagged wrongly" in card
    assert "would have been noticed from about 5% of the batch on" in card
    assert "look like the labelled ones" in card, "what the promise rests on"
    assert not re.search(r"\d\.\d{5}", card), "no figure with more digits than anybody reads"
    assert "champion" in client.get_registered_model(name).description


def test_a_champion_without_figures_is_not_replaced(finished: RunDir, tmp_path: Path, name: str) -> None:
    first = week(finished, tmp_path, "w1")
    registered(first, name)
    cleared(first)
    MlflowClient(location()).delete_model_version_tag(name, "1", "val_accuracy")
    second = registered(week(finished, tmp_path, "w2"), name)
    assert not second.champion
    assert "no figures to compare with" in second.reason


def test_where_the_champions_run_is_here_both_classifiers_are_asked_about_the_same_images(
    finished: RunDir, tmp_path: Path, name: str
) -> None:
    registered(week(finished, tmp_path, "w1", val_accuracy=0.99), name)
    same = registered(week(finished, tmp_path, "w2", val_accuracy=0.5), name)
    assert same.champion, "other images were harder, but it is the same classifier"
    said = re.search(r"accuracy of the classifier (0\.\d+), the champion's (0\.\d+)", same.reason)
    assert said is not None
    assert said[1] == said[2]


def test_without_a_server_nothing_is_registered_and_a_later_call_does_it(
    finished: RunDir, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = week(finished, tmp_path, "2026-W46")
    with monkeypatch.context() as down:
        down.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
        nothing = registered(run, name)
        assert (nothing.version, nothing.champion) == (None, False)
        assert "erd sync" in nothing.reason
    assert mlflow_runs.sync(run)
    assert registry.register(settings(f"registry.model={name}"), run).version == 1


def test_the_champion_gives_the_flows_scores_in_a_plain_process_and_when_served(
    finished: RunDir, tmp_path: Path, name: str
) -> None:
    run = week(finished, tmp_path, "2026-W46")
    registered(run, name)
    images = images_of(run)
    flow = pd.read_parquet(run.scores)
    known = pd.read_parquet(run.clean_scores)["score"].to_numpy()
    scores = flow["score"].to_numpy()
    expected = {
        "score": [float(score) for score in scores],
        "p_value": flags.p_values(scores, known).tolist(),
        "flagged": (flags.p_values(scores, known) <= 0.05).tolist(),
        "predicted": flow["predicted"].tolist(),
    }
    binaries = Path(sys.executable).parent  # as in an activated environment: MLflow calls uvicorn by its name
    environment = {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": "",
        "OMP_NUM_THREADS": "1",
        "MLFLOW_TRACKING_URI": location(),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    np.save(elsewhere / "images.npy", images)
    uri, port = f"models:/{name}@champion", free_port()
    serve = [sys.executable, "-m", "mlflow", "models", "serve", "-m", uri, "--env-manager", "local"]
    with (tmp_path / "log").open("w") as output:
        served = subprocess.Popen(
            [*serve, "--host", "127.0.0.1", "--port", str(port)],
            cwd=elsewhere, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        plain = subprocess.run(
            [sys.executable, "-c", LOAD, uri, "images.npy"],
            cwd=elsewhere, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert plain.returncode == 0, plain.stderr
        assert json.loads(plain.stdout.splitlines()[-1]) == expected

        wait_for_answer(f"http://127.0.0.1:{port}/ping", served)
        for key in ("inputs", "instances"):
            rows = pd.DataFrame(ask(port, {key: images.tolist()})["predictions"])
            assert rows[COLUMNS].to_dict("list") == expected
        files = [base64.b64encode(png(image)).decode() for image in images[:3]]
        for body in (
            {"inputs": files},
            {"instances": files},
            {"dataframe_records": [{"image": file} for file in files]},
            {"inputs": [{"image": files[0]}, {"image": images[1].tolist()}, {"image": files[2]}]},
        ):
            scored = [row["score"] for row in ask(port, body)["predictions"]]
            assert scored == pytest.approx(expected["score"][:3], abs=1e-5), "in smaller chunks than the flow's"
        larger = [{"image": images[0].repeat(4, 0).repeat(4, 1).tolist()}, {"image": images[1].tolist()}]
        assert len(ask(port, {"inputs": larger})["predictions"]) == 2
        for bad, sentence in (
            (images[:, :5].tolist(), "image 1 of 360: too small (8×5 pixels; at least 8×8)"),
            ((images.astype(int) + 1000).tolist(), "pixel values must be whole numbers from 0 to 255, as files hold "
             "them; do not normalise"),
            (["cat.png"], "image 1 of 1: 'cat.png…' is text, and no file's content in base64"),
        ):  # fmt: skip
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(port, {"inputs": bad})
            assert refused.value.code == 400
            assert json.load(refused.value)["message"] == sentence, "and nothing else"
    finally:
        os.killpg(served.pid, signal.SIGKILL)
        served.wait()


def png(image: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image).save(content, "PNG")
    return content.getvalue()


def ask(port: int, body: dict) -> dict:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_a_model_whose_files_were_changed_in_the_store_is_not_served(
    finished: RunDir, tmp_path: Path, name: str
) -> None:
    registered(week(finished, tmp_path, "2026-W46"), name)
    stored = Path(download_artifacts(f"models:/{name}@champion", tracking_uri=location()))
    model = Path(shutil.copytree(stored, tmp_path / "model"))
    listed = Model.load(str(model)).flavors["python_function"]["artifacts"]
    artifacts = {key: str(model / found["path"]) for key, found in listed.items()}
    Ensemble().load_context(PythonModelContext(artifacts, None))
    member = next(key for key in artifacts if key.startswith("member-"))
    content = bytearray(Path(artifacts[member]).read_bytes())
    content[-1] ^= 1
    Path(artifacts[member]).write_bytes(content)
    with pytest.raises(RunError, match=f"the model's file '{member}' is not the one that was registered"):
        Ensemble().load_context(PythonModelContext(artifacts, None))


def test_a_net_that_was_changed_since_it_was_trained_is_not_registered(
    finished: RunDir, tmp_path: Path, name: str
) -> None:
    run = week(finished, tmp_path, "2026-W46")
    run.pretrained.write_bytes(run.pretrained.read_bytes()[:-1] + b"!")
    found = registered(run, name)
    assert found.version is None
    assert found.reason.endswith("is not as the run wrote it: its hash is another; run the batch again")
