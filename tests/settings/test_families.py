"""Scenarios by a pattern: what each name means, and the images that it brings."""

from pathlib import Path

import numpy as np
import pytest
from test_scenarios import sizes

from erd.base.errors import UserError
from erd.data import collect
from erd.data.collect import Collected
from erd.data.corruptions import CORRUPTIONS, corrupt
from erd.data.sources import SOURCES, load
from erd.data.sources.published import CLASSES as PUBLISHED_CLASSES
from erd.runs.configure import settings_for
from erd.settings.families import ALL, FAMILIES, GROUPS, expand, get
from erd.settings.scenarios import SCENARIOS


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


def shares(scenario: str) -> tuple[int, int, float]:
    """Images in the batch and in the holdout, and the share of novel ones in the batch in per cent."""
    row = get(scenario)
    assert row.batch_known is not None
    assert row.batch_novel is not None
    assert row.holdout_known is not None
    assert row.holdout_novel is not None
    batch, holdout = row.batch_known + row.batch_novel, row.holdout_known + row.holdout_novel
    assert abs(row.holdout_novel / holdout - row.batch_novel / batch) < 0.005, "the same mixture"
    return batch, holdout, 100 * row.batch_novel / batch


@pytest.mark.parametrize(
    ("name", "near", "classes", "images"),
    [
        ("digits", "digits-near", 10, 300),
        ("mnist", "mnist-near", 10, 1_000),
        ("fmnist", "fmnist-near", 10, 1_000),
        ("cifar10", "cifar10-near", 10, 1_000),
        ("svhn", "svhn-near", 10, 1_000),
        ("xray", "xray-viral", 3, 500),
    ],
)
def test_one_new_class_among_all_others(name: str, near: str, classes: int, images: int) -> None:
    assert expand(f"{name}-one") == [f"{name}-one-{new}" for new in range(classes)]
    for new, row in enumerate(map(get, expand(f"{name}-one"))):
        assert row.novel == (new,)
        assert set(row.known or ()) == set(range(classes)) - {new}
        assert (row.known_source, row.novel_source) == (get(near).known_source, get(near).known_source)
        assert (row.net, row.members, row.settings) == (get(near).net, get(near).members, get(near).settings)
        assert row.evaluated_on == "batch"
        assert shares(row.name) == (images, images // 2, 10)
        assert shares(f"{row.name}-encoded") == (images, images // 2, 10)
        for share in (1, 2, 3, 5):
            assert shares(f"{row.name}-at-{share}") == (images, images // 2, share)
            assert get(f"{row.name}-at-{share}").novel == (new,)
    assert f"{name}-one-0-1k" not in ALL, "its batch would be half novel"
    assert f"{name}-one-{classes}" not in ALL


def test_one_new_class_of_the_small_sets_leaves_enough_known_images_for_a_batch_as_its_name_says() -> None:
    counts = {"xray": [1_340, 2_517, 1_343], "digits": np.bincount(load("digits").train.labels).tolist()}
    for name, there in counts.items():
        for row in (ALL[one] for share in ("", "-at-1") for one in expand(f"{name}-one{share}")):
            wanted = [row.train, row.val, row.batch_known, row.holdout_known]
            assert sum(size or 0 for size in wanted) <= sum(there[known] for known in row.known or ()), row.name


def test_groups_of_one_new_class() -> None:
    assert expand("mnist-one-at-2") == [f"mnist-one-{new}-at-2" for new in range(10)]
    assert expand("mnist-one-encoded") == [f"mnist-one-{new}-encoded" for new in range(10)]
    assert expand("mnist-one-at-2-encoded") == [f"mnist-one-{new}-at-2-encoded" for new in range(10)]
    assert {get(name).encoder for name in expand("xray-one-at-1-encoded")} == {get("own").encoder}
    with pytest.raises(UserError, match="'digits-one' is 10 scenarios, digits-one-0 to digits-one-9"):
        get("digits-one")


def test_one_new_class_of_the_digits_is_dealt_as_the_name_says() -> None:
    for scenario, novel in (("digits-one-3", 30), ("digits-one-3-at-1", 3)):
        found = collected(scenario)
        assert "3" not in found.classes
        assert len(found.classes) == 9
        assert (is_novel(found.batch_truth).sum(), len(found.batch)) == (novel, 300)
        assert len(found.holdout) == 150
        assert set(load("digits").train.labels[np.isin(load("digits").train.ids, found.batch.ids)]) == set(range(10))
        assert not [warning for warning in found.warnings if "scaled down" in warning]


def test_one_new_class_of_a_reduced_cifar_is_scaled_down_to_what_there_is(tmp_path: Path) -> None:
    """Such as the file with training images of five classes, and test images of all."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (1_500, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar10_near.npz", x_train=images[:1_000], y_train=np.arange(1_000) % 5,
             x_test=images[1_000:], y_test=np.arange(500) % 10)  # fmt: skip
    found = collected("cifar10-one-7-encoded", tmp_path, "data.calibration=100")
    assert len(found.classes) == 9
    assert "horse" not in found.classes
    novel = is_novel(found.batch_truth)
    assert 0 < novel.sum() < len(novel) / 2
    assert any("scaled down to the 1,450 images there are" in warning for warning in found.warnings)


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
