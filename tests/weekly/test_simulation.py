"""A story in weeks: images arrive as files, answers are given, the labelled images grow, a new class becomes known."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from erd.base import files
from erd.base.errors import UserError
from erd.data import library
from erd.reporting import figures, week_figures
from erd.runs.answers import Answers
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.runs.results import Week
from erd.settings.schema import Settings
from erd.weekly import simulation

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
    assert story[2].alarm_level == 0.05 / 4, "one false alarm in twenty such stories"
    assert story[2].alarm == (story[2].alarm_p <= story[2].alarm_level)


def made(*weeks: tuple[float, bool]) -> list[Week]:
    """(share of the new class, alarm)"""
    first = Week("", 80, 0.0, 0.5, False, 0.01, None, 0, None, None, 0.9, 0.0, None, 300)
    return [replace(first, new_class_share=share, alarm=alarm) for share, alarm in weeks]


@pytest.mark.parametrize(
    ("weeks", "waited", "since_a_tenth", "wrong"),
    [
        (made((0, False), (0.04, False), (0.1, False), (0.2, True)), 2, 1, 0),
        (made((0, False), (0.04, True), (0.1, True)), 0, 0, 0),
        (made((0, True), (0, False), (0.1, False)), None, None, 1),
        (made((0, False), (0.04, True)), 0, None, 0),
        (made((0, True), (0, True)), None, None, 2),
    ],
)
def test_the_weeks_until_the_alarm_are_counted_from_the_new_class_on(
    weeks: list[Week], waited: int | None, since_a_tenth: int | None, wrong: int
) -> None:
    assert simulation.weeks_until_alarm(weeks) == waited
    assert simulation.weeks_until_alarm(weeks, 0.0999) == since_a_tenth
    assert simulation.false_alarms(weeks) == wrong


def test_no_image_comes_in_twice(story: list[Week], workspace: Path) -> None:
    hashes = pd.concat([pd.read_parquet(path) for path in workspace.glob("runs/*/data/batch.parquet")])["sha256"]
    assert len(hashes) == sum(week.images for week in story)
    assert hashes.is_unique


def test_the_story_is_drawn(story: list[Week], tmp_path: Path) -> None:
    assert figures.save(week_figures.story(story, 4), tmp_path / "story.png").stat().st_size > 10_000


def test_too_many_weeks_for_the_images_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="digits-near has too few images for 60 weeks: ask for fewer"):
        simulation.simulate(chosen(), 60, tmp_path)


def test_another_seed_may_have_another_new_class_and_always_a_novel_one_of_the_scenario(tmp_path: Path) -> None:
    quick = ["pretrain.epochs=1", "finetune.epochs=1", "pretrain.batch_size=256", "finetune.batch_size=256"]
    new = set()
    for seed in range(4):
        place = tmp_path / str(seed)
        simulation.simulate(chosen(f"seed={seed}", *quick), 2, place)
        first = library.read(place / "library").table.query("batch == ''")
        [missing] = set("0123456789") - set(first["label"])
        new.add(missing)
    assert new <= set("56789")
    assert len(new) > 1
