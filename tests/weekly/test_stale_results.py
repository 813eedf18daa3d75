"""A result is kept only as long as everything it was made of is the same: the code too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from erd.base.errors import RunError
from erd.runs import configure, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings import schema
from erd.weekly import chain

ROOT = Path(__file__).parents[2]
SMALL = ("finetune.members=2", "pretrain.epochs=2", "finetune.epochs=2", "run.runner=serial")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a place where it can be changed, and a run that was made by it."""
    place = tmp_path_factory.mktemp("code")
    shutil.copytree(ROOT / "erd", place / "erd", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("ingest", "pretrain", "finetune", "score", "evaluate"):
        stage(place, name)
    return place


def stage(place: Path, name: str) -> str:
    """`erd stage NAME`, by the code in `place`."""
    words = [sys.executable, "-m", "erd.cli", "stage", name, *(part for text in SMALL for part in ("--set", text))]
    environment = os.environ | {"PYTHONPATH": str(place)}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def edited(place: Path, file: str, old: str, new: str) -> None:
    path = place / "erd" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def finished(run: RunDir, name: str) -> str:
    record = stage_records.read(run, name)
    assert record is not None
    return record.finished


def test_an_inverted_score_gives_other_scores_and_only_what_uses_it_is_done_again(copied: Path, tmp_path: Path) -> None:
    place = shutil.copytree(copied, tmp_path / "copy")
    run = RunDir(place / "runs" / "digits-near")
    before, trained = pd.read_parquet(run.scores)["score"], finished(run, "pretrain")
    labels = [path.stem for path in run.members.glob("*.safetensors")]
    members = {label: finished(run, f"finetune-{label}") for label in labels}
    edited(
        place, "statistics/disagreement.py", "return total.sum(-1).div_(pairs)", "return 1 - total.sum(-1).div_(pairs)"
    )
    for name in ("pretrain", "finetune", "score"):
        stage(place, name)
    assert pd.read_parquet(run.scores)["score"].tolist() == pytest.approx((1 - before).tolist(), abs=1e-6)
    assert finished(run, "pretrain") == trained, "the classifier has nothing to do with it"
    assert {label: finished(run, f"finetune-{label}") for label in labels} == members


def test_a_training_that_learns_nothing_is_not_covered_up_by_an_older_one(copied: Path, tmp_path: Path) -> None:
    place = shutil.copytree(copied, tmp_path / "copy")
    run = RunDir(place / "runs" / "digits-near")
    before = {path.name: path.read_bytes() for path in run.members.glob("*.safetensors")}
    edited(place, "training/loop.py", "return self.lr * self.gamma", "return 0 * self.lr * self.gamma")
    for name in ("pretrain", "finetune"):
        stage(place, name)
    assert all((run.members / name).read_bytes() != content for name, content in before.items())


def test_another_net_under_the_same_name_is_another_net(copied: Path, tmp_path: Path) -> None:
    """A net is found by its name, and imported by nobody."""
    place = shutil.copytree(copied, tmp_path / "copy")
    run = RunDir(place / "runs" / "digits-near")
    before = finished(run, "pretrain")
    edited(place, "nets/mlp.py", "image_size**2, 100, 100, 100]", "image_size**2, 90, 100, 100]")
    stage(place, "pretrain")
    assert finished(run, "pretrain") != before


def test_a_comment_makes_nothing_again(copied: Path, tmp_path: Path) -> None:
    place = shutil.copytree(copied, tmp_path / "copy")
    run = RunDir(place / "runs" / "digits-near")
    before = finished(run, "score")
    edited(
        place,
        "statistics/disagreement.py",
        "return total.sum(-1).div_(pairs)",
        "return total.sum(-1).div_(pairs)  # so",
    )
    stage(place, "score")
    assert finished(run, "score") == before


def test_a_run_made_stage_by_stage_has_its_settings(copied: Path) -> None:
    run = RunDir(copied / "runs" / "digits-near")
    assert configure.read(run).finetune.members == 2
    assert Metrics.read(run).members == 2


def test_settings_that_change_between_stages_are_those_of_the_last(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "digits-near")
    first = configure.resolve(schema.load(None, SMALL))
    chain.run(chain.BY_NAME["ingest"], first, run)
    later = first.override({"finetune.epochs": 1})
    with configure.kept_again(later, run):
        pass
    assert configure.read(run).finetune.epochs == 1


def test_settings_of_a_stage_that_fails_do_not_stay(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "digits-near")
    first = configure.resolve(schema.load(None, SMALL))
    chain.run(chain.BY_NAME["ingest"], first, run)
    before = run.settings.read_bytes()
    with pytest.raises(RunError), configure.kept_again(first.override({"finetune.epochs": 1}), run):
        raise RunError("no")
    assert run.settings.read_bytes() == before
