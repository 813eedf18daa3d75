"""Normal and abnormal: with an encoder one known class is enough. Images are compared, and need not be classified."""

import json
from pathlib import Path

import chains
import numpy as np
import pandas as pd
import pictures_of_shapes
import pytest

from erd.base.errors import UserError
from erd.data import packed
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import Ingested
from erd.settings.schema import Settings
from erd.weekly import sensitivity
from erd.weekly.scorer import Scorer


def trial(folder: Path, *more: str) -> Settings:
    words = ("data.scenario=own", "data.source=folder", f"data.path={folder}", "data.novel=[stripes]",
             "model.input_size=64")  # fmt: skip
    return chains.small(*words, *more)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures_of_shapes.files(tmp_path_factory.mktemp("labelled"), {"rings": 90, "stripes": 60})


@pytest.fixture(scope="module")
def run(labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    settings, run = trial(labelled), RunDir(tmp_path_factory.mktemp("runs") / "trial")
    chains.do(settings, run)
    return run


def test_a_trial_with_one_known_class_finds_the_other(run: RunDir) -> None:
    assert Ingested.read(run).classes == ["rings"]
    metrics = json.loads(run.metrics.read_text())
    assert metrics["auroc"] > 0.95
    assert metrics["holdout_auroc"] > 0.95
    assert metrics["disagreement_auroc"] == 0.5, "there is nothing to disagree about"
    assert any("one known class, rings: there is nothing to classify" in note for note in metrics["warnings"])


def test_the_ensemble_scores_further_images_as_the_run_did(run: RunDir) -> None:
    images = packed.read(run.holdout).images.numpy()
    np.testing.assert_array_equal(
        Scorer.of_run(run).score(images)["score"], pd.read_parquet(run.holdout_scores)["score"]
    )


def test_the_sensitivity_needs_a_second_class_and_says_so(run: RunDir) -> None:
    with pytest.raises(UserError, match="plays known classes as new in turn, and rings is the only one"):
        sensitivity.measure(configure.read(run), run)


def test_without_an_encoder_it_is_one_sentence_that_says_what_works(labelled: Path, tmp_path: Path) -> None:
    settings = trial(labelled, "model.encoder=none", "model.net=mlp", "model.input_size=null")
    with pytest.raises(UserError, match=r"1 known class; a classifier needs two or more, or one with an encoder"):
        chains.do(settings, RunDir(tmp_path / "trial"))
    assert not (tmp_path / "trial").exists()
