"""The table of scenarios, and what is left open in params.yaml decided from it."""

from typing import Any

import pytest

from erd.base.errors import UserError
from erd.nets import registry
from erd.runs.configure import resolve, settings_for
from erd.settings.families import get
from erd.settings.scenarios import SCENARIOS, SIZES, Scenario
from erd.settings.schema import Settings, Training

NAMES = {
    "digits-near", "mnist-near", "fmnist-near", "mnist-fmnist", "fmnist-mnist", "cifar10-near", "cifar100-near",
    "svhn-near", "cifar10-svhn", "svhn-cifar10", "cifar100-svhn", "cifar10-cifar100", "cifar100-cifar10", "xray-viral",
    "own",
    *(f"{source}-6v4-{draw}" for source in ("cifar10", "svhn") for draw in range(5)),
}  # fmt: skip
CLASSES = {"digits": 10, "mnist": 10, "fashion_mnist": 10, "cifar10": 10, "cifar100": 100, "svhn": 10, "chestxray64": 3}
DRAWN = {
    "cifar10": ["234579", "012348", "012357", "134678", "235678"],
    "svhn": ["013468", "013678", "156789", "023678", "125679"],
}
EVERY = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


def resolved(**values: Any) -> Settings:
    """`resolved(data__scenario="own")`: the settings with data.scenario set, then resolved."""
    return resolve(Settings().override({key.replace("__", "."): value for key, value in values.items()}))


def sizes(scenario: str) -> tuple[int | None, ...]:
    return tuple(getattr(get(scenario), size) for size in ("train", "val", "batch_known", "batch_novel"))


def test_every_scenario_of_the_paper_is_there() -> None:
    assert set(SCENARIOS) == NAMES


@EVERY
def test_no_class_is_both_known_and_novel(scenario: Scenario) -> None:
    for classes, source in ((scenario.known, scenario.known_source), (scenario.novel, scenario.novel_source)):
        if classes is not None:
            assert len(classes) == len(set(classes)) > 0
            assert set(classes) <= set(range(CLASSES[source]))
    if scenario.name != "own" and scenario.known_source == scenario.novel_source:  # of `own` the user says which
        assert scenario.known is not None
        assert scenario.novel is not None
        assert not set(scenario.known) & set(scenario.novel)


@EVERY
def test_there_are_never_more_members_than_known_classes_to_label_them_with(scenario: Scenario) -> None:
    if scenario.name == "own":
        assert scenario.members is None  # as many as the user's classes allow
    else:
        assert scenario.members is not None
        assert 2 <= scenario.members <= (len(scenario.known or ()) or CLASSES[scenario.known_source])


@pytest.mark.parametrize(
    ("scenario", "known", "novel"),
    [
        ("fmnist-near", (0, 2, 3, 7, 8), (1, 4, 5, 6, 9)),
        ("mnist-near", (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
        ("cifar10-near", (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
        ("svhn-near", (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
        ("cifar100-near", tuple(range(50)), tuple(range(50, 100))),
        ("xray-viral", (0, 1), (2,)),
        ("cifar10-svhn", None, None),
    ],
)
def test_the_classes_are_the_papers(
    scenario: str, known: tuple[int, ...] | None, novel: tuple[int, ...] | None
) -> None:
    assert (get(scenario).known, get(scenario).novel) == (known, novel)


@pytest.mark.parametrize("source", ["cifar10", "svhn"])
def test_six_against_four_are_five_different_fixed_draws(source: str) -> None:
    draws = [get(f"{source}-6v4-{draw}") for draw in range(5)]
    assert len({draw.known for draw in draws}) == 5
    for draw in draws:
        assert draw.known is not None
        assert draw.novel is not None
        assert len(draw.known) == 6
        assert sorted(draw.known + draw.novel) == list(range(10))
    drawn = ["".join(map(str, draw.known or ())) for draw in draws]
    assert drawn == DRAWN[source], "numbers once measured belong to these classes: no version of Python may change them"


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("fmnist-near", (25_000, 5_000, 5_000, 5_000)),
        ("mnist-near", (25_000, 5_000, 5_000, 5_000)),
        ("mnist-fmnist", (50_000, 10_000, 10_000, 10_000)),
        ("fmnist-mnist", (50_000, 10_000, 10_000, 10_000)),
        ("cifar10-near", (20_000, 5_000, 2_500, 2_500)),
        ("cifar100-near", (20_000, 5_000, 2_500, 2_500)),
        ("svhn-near", (20_000, 5_000, 2_500, 2_500)),
        ("cifar10-svhn", (40_000, 10_000, 5_000, 5_000)),
        ("svhn-cifar10", (40_000, 10_000, 5_000, 5_000)),
        ("cifar100-svhn", (40_000, 10_000, 5_000, 5_000)),
        ("cifar10-6v4-0", (24_000, 6_000, 3_000, 2_000)),
        ("own", (None, None, None, None)),
    ],
)
def test_the_sizes_are_the_papers(scenario: str, expected: tuple[int | None, ...]) -> None:
    assert sizes(scenario) == expected


def test_the_papers_training_settings() -> None:
    grey, colour = resolved(data__scenario="fmnist-near"), resolved(data__scenario="cifar10-near")
    dense = resolved(data__scenario="cifar10-near", model__net="densenet121")
    assert (grey.model.net, grey.finetune.members, grey.finetune.optimizer, grey.finetune.lr) == (
        "mlp",
        5,
        "adam",
        1e-3,
    )
    assert (grey.pretrain.epochs, grey.finetune.epochs, grey.finetune.augment) == (10, 10, False)
    pretrain, finetune = colour.pretrain, colour.finetune
    assert (colour.model.net, finetune.members) == ("resnet20", 3)
    assert (pretrain.epochs, pretrain.lr, pretrain.milestones, pretrain.gamma) == (100, 0.1, [50, 70, 90], 0.2)
    assert (pretrain.optimizer, pretrain.momentum, pretrain.weight_decay) == ("sgd", 0.9, 5e-4)
    assert (finetune.epochs, finetune.lr, finetune.milestones, finetune.batch_size) == (10, 1e-3, [], 128)
    assert pretrain.augment
    assert finetune.augment
    assert (dense.pretrain.batch_size, dense.finetune.batch_size, dense.finetune.lr) == (32, 32, 1e-5)


def test_every_net_has_a_recipe_that_decides_everything() -> None:
    left_open = {name for name, value in Training().model_dump().items() if value is None}
    for net in registry.table().values():
        assert set(net.recipes.pretrain) == set(net.recipes.finetune) == left_open - {"balance", "threads"}


@EVERY
@pytest.mark.parametrize("init", ["pretrained", "random"])
@pytest.mark.parametrize("net", [None, "mlp", "densenet121"])
def test_nothing_about_training_stays_open(scenario: Scenario, init: str, net: str | None) -> None:
    settings = resolved(data__scenario=scenario.name, finetune__init=init, model__net=net)
    for block in (settings.pretrain, settings.finetune):
        assert [name for name in Training.model_fields if getattr(block, name) is None] == []
    assert settings.model.net is not None
    assert settings.data.image_size is not None or settings.data.largest is not None
    if scenario.name != "own":  # how many images and classes those are is not known yet
        assert settings.finetune.members is not None
        assert [size for size in SIZES if getattr(settings.data, size) is None] == []
    assert resolve(settings) == settings


def test_what_the_user_sets_wins_over_the_scenario() -> None:
    mine: dict[str, Any] = {
        "finetune.epochs": 3, "finetune.lr": 0.5, "finetune.patience": 0, "finetune.members": 2, "data.train": 100,
        "data.batch_novel": 0, "data.image_size": 16, "pretrain.milestones": [], "pretrain.augment": False,
        "pretrain.threads": 2,
    }  # fmt: skip
    for scenario in ("own", "xray-viral", "digits-near"):
        settings = resolve(Settings().override(mine | {"data.scenario": scenario})).model_dump()
        for key, value in mine.items():
            block, _, name = key.partition(".")
            assert settings[block][name] == value, (scenario, key)


def test_a_scenario_departs_from_the_recipe_of_its_net() -> None:
    digits, xray = resolved(data__scenario="digits-near"), resolved(data__scenario="xray-viral")
    assert (digits.pretrain.epochs, digits.finetune.epochs, digits.finetune.batch_size) == (40, 20, 32)
    assert (xray.finetune.lr, xray.pretrain.milestones) == (1e-2, [15, 21, 27])


def test_another_net_brings_its_own_recipe() -> None:
    settings = resolved(data__scenario="digits-near", model__net="resnet20")
    assert settings.pretrain.model_dump() | registry.get("resnet20").recipes.pretrain == settings.pretrain.model_dump()
    assert settings.finetune.model_dump() | registry.get("resnet20").recipes.finetune == settings.finetune.model_dump()
    assert settings.data.train == get("digits-near").train


def test_naming_the_scenarios_own_net_changes_nothing() -> None:
    assert resolved(model__net="mlp") == resolved()


def test_what_is_kept_of_a_member_by_default_is_what_won_on_all_sets() -> None:
    small, large = (
        resolved(data__scenario="digits-near"),
        resolved(data__scenario="cifar10-near", model__net="resnet18"),
    )
    assert (small.finetune.keep, large.finetune.keep) == ("softmax-average", "weight-average")
    scratch = {"finetune__init": "random"}
    assert resolved(data__scenario="digits-near", **scratch).finetune.keep == "softmax-average"
    assert resolved(data__scenario="cifar10-near", model__net="resnet18", **scratch).finetune.keep == "best"


@pytest.mark.parametrize("scenario", ["cifar10-near", "xray-viral", "own", "digits-near"])
def test_members_from_random_weights_follow_the_pretraining_schedule(scenario: str) -> None:
    settings = resolved(data__scenario=scenario, finetune__init="random")
    schedule = set(Training.model_fields)
    assert settings.finetune.model_dump(include=schedule) == settings.pretrain.model_dump(include=schedule)
    assert settings.pretrain == resolved(data__scenario=scenario).pretrain


def test_members_from_random_weights_follow_the_pretraining_schedule_as_the_user_set_it() -> None:
    mine: dict[str, Any] = {"pretrain__epochs": 7, "pretrain__milestones": [3], "pretrain__lr": 0.3}
    random = resolved(data__scenario="cifar10-near", finetune__init="random", finetune__lr=0.2, **mine)
    assert (random.finetune.epochs, random.finetune.milestones, random.finetune.lr) == (7, [3], 0.2)
    assert random.pretrain.lr == 0.3
    pretrained = resolved(data__scenario="cifar10-near", **mine)
    assert (pretrained.finetune.epochs, pretrained.finetune.milestones, pretrained.finetune.lr) == (10, [], 1e-3)


def test_the_papers_threshold_takes_no_calibration_images() -> None:
    assert resolved(detect__calibration="paper").data.calibration == 0
    assert resolved(detect__calibration="holdout").data.calibration == get("digits-near").calibration
    assert resolved(detect__calibration="mixed").data.calibration == get("digits-near").calibration


def test_a_batch_of_ones_own_images_is_in_the_inbox_of_its_name_unless_another_is_given() -> None:

    def inbox(*overrides: str, given: str | None = None) -> str | None:
        return settings_for(scenario="own", batch="2026-W46", inbox=given, overrides=overrides).data.inbox

    assert inbox() == "inbox/2026-W46"
    assert inbox(given="elsewhere") == "elsewhere"
    assert inbox("data.source=folder") is None
    assert inbox("data.novel=[dog]") is None, "a trial with known classes"


def test_as_many_members_as_labels_are_named() -> None:
    assert resolved(finetune__labels=["0", "3"]).finetune.members == 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data__scenario": "fmnist-neer"}, "unknown scenario 'fmnist-neer': did you mean 'fmnist-near'?"),
        ({"data__scenario": "cifar10-6v4-5"}, "unknown scenario 'cifar10-6v4-5': did you mean 'cifar10-6v4-"),
        ({"data__scenario": "?"}, "unknown scenario '?': known are cifar10-6v4-0, "),
        ({"model__net": "resnet21"}, "unknown net 'resnet21' in model.net: did you mean 'resnet20'?"),
    ],
)
def test_an_unknown_name_is_one_sentence_with_the_nearest_known_one(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        resolved(**values)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
