"""What there is to do: which methods, where, and with which settings."""

from pathlib import Path

import pytest

from erd.base.errors import UserError
from erd.bench import detectors, plan
from erd.bench.plan import Asked


def test_all_are_all_and_none_is_planned_twice() -> None:
    assert [method.name for method in plan.choose([])] == list(detectors.table())
    assert [method.name for method in plan.choose(["knn", "energy", "knn"])] == ["knn", "energy"]


def test_own_images_need_a_class_that_is_played_as_novel() -> None:
    with pytest.raises(UserError, match="name classes of yours to be played as novel"):
        plan.of(["own"], ["energy"], 1)
    todo = plan.of(["own"], ["energy"], 1, Asked(overrides=("data.novel=[cat, 7]",)))
    assert todo.places[0].run.root == Path("bench/own/cat+7/seed0"), "other classes are other results"


def test_groups_are_planned_one_by_one_and_nothing_twice() -> None:
    todo = plan.of(["digits-near", "digits-c5", "digits-c5-fog"], ["energy", "energy"], seeds=2)
    assert len(todo.cells) == 2 * (1 + 15)
    assert len({cell.name for cell in todo.cells}) == len(todo.cells)
    assert todo.places[0].run.root == Path("bench/digits-near/seed0")


def test_what_is_asked_reaches_every_place() -> None:
    Path("other.yaml").write_text("finetune:\n  epochs: 7\n")
    asked = Asked("images", ("pretrain.epochs=3",), "serial", Path("other.yaml"), Path("elsewhere"))
    for place in plan.of(["digits-near", "mnist-near"], ["energy"], 2, asked).places:
        settings = place.settings
        assert (settings.data.root, settings.pretrain.epochs, settings.run.runner) == ("images", 3, "serial")
        assert (settings.finetune.epochs, settings.detect.calibration) == (7, "paper")
        assert place.run.root.parts[0] == "elsewhere"


def test_a_place_says_what_is_set_otherwise_than_usual() -> None:
    assert plan.otherwise(plan.place("digits-near", 3, Asked(runner="serial"))) == {}, (
        "a seed or a runner is no setting"
    )
    net = plan.place("digits-near", 0, Asked(overrides=("model.net=resnet20", "finetune.epochs=3")))
    assert plan.otherwise(net) == {"model.net": "resnet20", "finetune.epochs": 3}, "another net has its own recipe"


def test_a_variant_has_a_folder_of_its_own_where_images_or_classifier_differ() -> None:
    usual = plan.place("digits-near", 0)
    scored = plan.place("digits-near", 0, variant={"score.distance": "kl"})
    smaller = plan.place("digits-near", 0, variant={"data.batch_novel": 9})
    assert scored.run == usual.run
    assert scored.record("erd") != usual.record("erd")
    assert smaller.run != usual.run
    assert (smaller.name, smaller.settings.data.batch_novel) == ("digits-near seed 0@batch_novel=9", 9)


@pytest.mark.parametrize(("seeds", "asked"), [(0, Asked()), (1, Asked(overrides=("seed=3",)))])
def test_seeds_are_counted_and_not_set(seeds: int, asked: Asked) -> None:
    with pytest.raises(UserError, match="seed"):
        plan.of([], ["energy"], seeds, asked)
