"""The table of scenarios, and what is left open in params.yaml decided from it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from erd.base.errors import UserError
from erd.data import collect
from erd.data.collect import Collected
from erd.data.corruptions import CORRUPTIONS, corrupt
from erd.data.sources import SOURCES, load
from erd.data.sources.published import CLASSES as PUBLISHED_CLASSES
from erd.nets import registry
from erd.runs.configure import resolve, settings_for
from erd.settings.families import ALL, FAMILIES, GROUPS, expand, get
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
    assert settings.data.image_size is not None
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


# ---------------------------------------------------------------------------------------------------- families


def collected(scenario: str, root: Path | None = None, *overrides: str) -> Collected:
    return collect.collect(settings_for(scenario=scenario, data=str(root) if root else None, overrides=overrides))


def is_novel(truth: np.ndarray | None) -> np.ndarray:
    assert truth is not None
    return np.asarray(truth == "novel")


def small_cifar(root: Path, tests: int = 100) -> np.ndarray:
    """CIFAR-10 with few images, and CIFAR-10-C's noise of its test images; returns that file."""
    random = np.random.default_rng(0)
    labels = np.arange(400) % 10
    images = random.integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
    np.savez(root / "cifar10.npz", x_train=images, y_train=labels, x_test=images[:tests], y_test=labels[:tests])
    (root / "CIFAR-10-C").mkdir()
    stored = random.integers(0, 256, (5 * tests, 32, 32, 3), dtype=np.uint8)
    np.save(root / "CIFAR-10-C" / "shot_noise.npy", stored)
    np.save(root / "CIFAR-10-C" / "labels.npy", np.tile(labels[:tests], 5))
    return stored


def test_what_the_paper_runs_on_corruptions_can_be_asked_for() -> None:
    for known in ("cifar10", "cifar100", "fmnist", "mnist", "digits"):
        for severity in (2, 5):
            names = expand(f"{known}-c{severity}")
            assert names == [f"{known}-c{severity}-{name}" for name in CORRUPTIONS]
            for name in names:
                row = get(name)
                assert (row.known, row.novel, row.known_source) == (None, None, row.novel_source), "the same classes"
                assert row.shift is not None
                assert (row.shift.severity, row.shift.on) == (severity, "novel")
                assert row.evaluated_on == "batch"
                assert row.members == 5
    assert sizes("cifar10-c2-fog") == (40_000, 5_000, 5_000, 5_000)


@pytest.mark.parametrize("near", ["cifar10-near", "cifar100-near", "fmnist-near", "digits-near"])
def test_novel_classes_corrupted_at_test_only(near: str) -> None:
    names = expand(f"{near}-c5")
    assert len(names) == 15
    for row in map(get, names):
        assert row.shift is not None
        assert (row.shift.on, row.evaluated_on) == ("holdout", "holdout")
        assert (row.known, row.novel) == (get(near).known, get(near).novel)
        assert sizes(row.name) == sizes(near)


def test_batches_of_a_thousand() -> None:
    for name in ("svhn-cifar10", "cifar10-near", "cifar100-c5-snow", "fmnist-near", "cifar10-6v4-2"):
        row = get(f"{name}-1k")
        assert (row.batch_known, row.batch_novel, row.members, row.evaluated_on) == (500, 500, 5, "batch")
        assert (row.train, row.holdout_novel) == (get(name).train, get(name).holdout_novel)
    assert "digits-near-1k" not in ALL, "it has fewer"


def test_every_scenario_of_a_family_is_possible() -> None:
    for name, row in ALL.items():
        assert row.name == name
        assert {row.known_source, row.novel_source} <= {*SOURCES, "own"}, name
        for source, classes in ((row.known_source, row.known), (row.novel_source, row.novel)):
            if source in PUBLISHED_CLASSES and classes is not None:
                assert set(classes) <= set(range(len(PUBLISHED_CLASSES[source]))), name
        if row.known_source == row.novel_source and row.shift is None:
            assert not set(row.known or ()) & set(row.novel or ()), name
        assert name == "own" or row.batch_novel, name


def test_the_medical_use_cases() -> None:
    assert get("nih-uc3-unseen").known == (0, 1)
    named = {PUBLISHED_CLASSES["nih"][number] for number in get("nih-uc3-unseen").novel or ()}
    assert named == {"cardiomegaly", "pneumothorax", "nodule", "mass"}
    view = {name: PUBLISHED_CLASSES["padchest"][(get(name).novel or ())[-1]] for name in expand("padchest-uc2")}
    assert set(view.values()) == {"PA", "AP", "AP_horizontal", "pediatric"}
    assert get("nih-uc2-ap").novel_source == "padchest"
    assert (get("drd-uc3-riga").batch_known, get("drd-uc3-riga").batch_novel) == (500, 500)
    assert {get(name).net for name in expand("medical")} == {"densenet121"}
    assert {name.split("-")[0] for name in expand("medical")} == {"nih", "padchest", "drd", "pcam"}


def test_families_keep_the_table_short() -> None:
    assert len(SCENARIOS) < 30
    assert len(ALL) == len(SCENARIOS) + sum(len(family.scenarios) for family in FAMILIES), "no name twice"
    assert not set(GROUPS) & set(ALL)
    text = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for family in FAMILIES:
        assert family.example in ALL
        assert f"| {len(family.scenarios)} |" in text or len(family.scenarios) == 2  # one row each in the docs
    for corruption in CORRUPTIONS:
        assert f"`{corruption}`" in text


def test_a_group_is_no_scenario_and_says_so() -> None:
    assert expand("cifar10-6v4") == [f"cifar10-6v4-{draw}" for draw in range(5)]
    assert expand("cifar10-c5-1k")[0] == "cifar10-c5-gaussian-noise-1k"
    assert expand("fmnist-near") == ["fmnist-near"]
    with pytest.raises(UserError, match="'fmnist-c5' is 15 scenarios, fmnist-c5-gaussian-noise to"):
        get("fmnist-c5")
    for wrong, right in (("fmnist-c5-foggy", "fmnist-c5-fog"), ("cifar10c5", "cifar10-c5")):
        with pytest.raises(UserError, match=f"did you mean '{right}'"):
            expand(wrong)
    assert expand("drd-uc3") == ["drd-uc3-riga"]


def test_covariate_shift_is_the_same_classes_corrupted_and_no_image_twice() -> None:
    found = collected("digits-c5-fog")
    novel = is_novel(found.batch_truth)
    assert (novel.sum(), (~novel).sum()) == (180, 180)
    assert len(found.classes) == 10
    originals = load("digits").train
    at = {image: i for i, image in enumerate(originals.ids.tolist())}
    rows = [at[group] for group in found.batch.groups.tolist()]
    assert (found.batch.images[~novel] == originals.images[rows][~novel]).all()
    made = corrupt(originals.images[rows][novel], originals.ids[rows][novel], "fog", 5)
    assert (found.batch.images[novel] == made).all()
    everyone = [*found.labeled.groups, *found.batch.groups, *found.holdout.groups]
    assert len(everyone) == len(set(everyone)), "nobody has seen the clean version of a corrupted image"
    other = collected("digits-c2-snow")
    assert (other.labeled.ids == found.labeled.ids).all(), "all corruptions have the same training images"


def test_corrupted_at_test_only_leaves_the_batch_as_it_was() -> None:
    plain, spoilt = collected("digits-near"), collected("digits-near-c5-contrast")
    for one, other in ((plain.batch, spoilt.batch), (plain.labeled, spoilt.labeled)):
        assert (one.images == other.images).all()
        assert one.ids.tolist() == other.ids.tolist()
    novel = is_novel(spoilt.holdout_truth)
    assert (plain.holdout.images[~novel] == spoilt.holdout.images[~novel]).all()
    clean = plain.holdout
    assert (corrupt(clean.images[novel], clean.ids[novel], "contrast", 5) == spoilt.holdout.images[novel]).all()


def test_cifars_corruptions_come_from_the_published_files_if_they_are_there(tmp_path: Path) -> None:
    stored = small_cifar(tmp_path)
    few = ["data.train=200", "data.val=50", "data.calibration=20", "data.batch_known=50", "data.batch_novel=30",
           "data.holdout_known=20", "data.holdout_novel=20"]  # fmt: skip
    found = collected("cifar10-c2-shot-noise", tmp_path, *few)
    novel = is_novel(found.batch_truth)
    rows = [int(group.rpartition("/")[2]) for group in found.batch.groups[novel]]
    assert len(rows) == 30
    assert (found.batch.images[novel] == stored[100:200][rows]).all(), "severity 2 is the second fifth"
    assert not found.warnings[1:]
    made = collected("cifar10-c2-fog", tmp_path, *few)
    assert "fog at severity 2 is made here: there is no CIFAR-10-C" in made.warnings


def test_another_set_of_photographs(tmp_path: Path) -> None:
    small_cifar(tmp_path)
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "cifar10.1_v6_data.npy", images)
    np.save(tmp_path / "cifar10.1_v6_labels.npy", np.arange(60) % 10)
    found = collected("cifar10-v2", tmp_path, "data.train=200", "data.val=50", "data.calibration=20",
                      "data.batch_known=50", "data.batch_novel=40", "data.holdout_known=20",
                      "data.holdout_novel=20")  # fmt: skip
    novel = is_novel(found.batch_truth)
    assert novel.sum() == 40
    assert all(image.startswith("cifar10v2/") for image in found.batch.ids[novel])


def test_an_unseen_disease_from_a_manifest(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.array(["no finding", "finding", "mass", "nodule"])[np.arange(120) % 4]
    np.savez(tmp_path / "nih.npz", x_train=random.integers(0, 256, (120, 64, 64), dtype=np.uint8), y_train=labels,
             group_train=np.arange(120) // 2)  # fmt: skip
    found = collected("nih-uc3-unseen", tmp_path, "data.train=40", "data.val=6", "data.calibration=4",
                      "data.batch_known=6", "data.batch_novel=6", "data.holdout_known=4",
                      "data.holdout_novel=4")  # fmt: skip
    assert found.classes == ["no finding", "finding"]
    assert is_novel(found.batch_truth).sum() > 0
    assert not set(found.labeled.groups) & set(found.batch.groups)
