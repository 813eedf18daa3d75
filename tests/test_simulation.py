"""A story in weeks: images arrive as files, answers are given, the labelled images grow, a new class becomes known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from erd import figures, files, simulation
from erd.data import library
from erd.errors import UserError
from erd.params import Settings
from erd.review.answers import Answers
from erd.rundir import RunDir
from erd.scenarios import settings_for
from erd.simulation import Week

FAST = ["pretrain.epochs=12", "finetune.epochs=3", "finetune.members=2"]


def chosen(*more: str) -> Settings:
    return settings_for(scenario="digits-near", runner="serial", overrides=[*FAST, *more])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("story")


@pytest.fixture(scope="module")
def story(workspace: Path) -> list[Week]:
    # An expert who audits everything: then the new class is learned as soon as it is there, however weak the alarm.
    return simulation.simulate(chosen("review.audit=1000", "alarm.looks=4", "data.least=20"), 4, workspace)


def test_the_new_class_comes_grows_and_becomes_known(story: list[Week]) -> None:
    assert [round(week.new_class_share, 2) for week in story] == [0, 0.04, 0.1, 0.2]
    assert story[0].true_share == 0
    assert story[2].true_share == pytest.approx(0.1, abs=0.01), "6 images are too few to be learned"
    assert story[3].true_share == 0, "it has been learned"
    assert story[3].new_class_accuracy is not None
    assert [week.new_class_accuracy for week in story[:3]] == [None] * 3


def test_what_the_expert_labels_is_there_the_week_after(story: list[Week], workspace: Path) -> None:
    assert [week.labeled + week.images for week in story[:3]] == [week.labeled for week in story[1:]]
    assert len(library.read(workspace / "library")) == story[-1].labeled + story[-1].images
    assert len(Answers(RunDir(workspace / "runs" / "week-01").answers).current()) >= story[0].images


def test_the_figures_of_a_week_are_those_of_its_scores(story: list[Week], workspace: Path) -> None:
    run = RunDir(workspace / "runs" / "week-03")
    scores = pd.read_parquet(run.scores)
    assert "truth" not in scores, "the run must not know"
    assert story[2].flagged == scores["flagged"].sum()
    assert story[2].alarm_p == files.load_json(run.decision)["alarm_p"]
    assert story[2].alarm == (story[2].alarm_p <= 0.05 / 4)


def test_no_image_comes_in_twice(story: list[Week], workspace: Path) -> None:
    hashes = pd.concat([pd.read_parquet(path) for path in workspace.glob("runs/*/data/batch.parquet")])["sha256"]
    assert len(hashes) == sum(week.images for week in story)
    assert hashes.is_unique


def test_the_story_is_drawn(story: list[Week], tmp_path: Path) -> None:
    assert figures.save(figures.story(story, 0.01), tmp_path / "story.png").stat().st_size > 10_000


def test_the_seed_draws_the_new_class_among_the_scenarios_novel_ones() -> None:
    drawn = {simulation._images(chosen(f"seed={seed}"))[2] for seed in range(12)}
    assert drawn <= {5, 6, 7, 8, 9}
    assert len(drawn) > 2


def test_too_many_weeks_for_the_images_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="digits-near has too few images for 60 weeks: ask for fewer"):
        simulation.simulate(chosen(), 60, tmp_path)


def test_shares_are_quiet_first_and_end_high() -> None:
    assert simulation._shares(8) == [0, 0, 0.04, 0.1, 0.2, 0.3, 0.3, 0.3]
    assert np.all(np.diff(simulation._shares(20)) >= 0)
