"""How large images are kept, and how many go where: as asked, else by what there is."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from erd.cli import main
from erd.data import library, packed, reading
from erd.data.collect import Collected, collect
from erd.data.dealing import own_sizes
from erd.runs import configure
from erd.settings import schema

CLASSES = ("ant", "bee", "cow")


def pictures(folder: Path, sides: dict[str, int], count: int = 10) -> Path:
    """Class folders of noise, each class at its own size."""
    rng = np.random.default_rng(0)
    for name, side in sides.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (side, side), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03}.png")
    return folder


def same(side: int) -> dict[str, int]:
    return dict.fromkeys(CLASSES, side)


# ---------------------------------------------------------------------------------------------------- pixels


@pytest.fixture
def ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Ingest":
    monkeypatch.chdir(tmp_path)
    return Ingest(capsys)


class Ingest:
    """`erd ingest` in a workspace; the size it tells, which is that of the library."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, origin: Path, *chosen: str) -> int:
        words = [word for setting in chosen for word in ("--set", setting)]
        assert main(["ingest", "--labeled", str(origin), *words, "--json"]) == 0
        told = json.loads(self.capsys.readouterr().out)["image_size"]
        kept = library.read().images.shape
        assert kept[1:] == (told, told)
        return told


def test_files_are_kept_as_large_as_they_come_and_at_most_as_the_encoder_takes_them(
    ingest: Ingest, tmp_path: Path
) -> None:
    small, large = pictures(tmp_path / "small", same(40), 3), pictures(tmp_path / "large", same(400), 3)
    assert ingest(small) == 40
    np.testing.assert_array_equal(library.read().images[0], np.asarray(Image.open(small / "ant" / "000.png")))
    assert ingest(large) == 224
    assert ingest(large, "data.largest=100") == 100
    assert ingest(small, "data.largest=100") == 40
    assert ingest(large, "model.encoder=none") == 32
    assert ingest(large, "model.net=timm:tf_efficientnet_lite2") == 260


def test_a_size_that_is_set_wins(ingest: Ingest, tmp_path: Path) -> None:
    assert ingest(pictures(tmp_path / "small", same(40), 3), "data.image_size=64") == 64
    assert ingest(pictures(tmp_path / "large", same(400), 3), "data.image_size=300", "data.largest=100") == 300


def test_an_npz_keeps_its_size(ingest: Ingest, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = {side: rng.integers(0, 256, (6, side, side), dtype=np.uint8) for side in (16, 300)}
    for side, pixels in images.items():
        np.savez(tmp_path / f"{side}.npz", x_train=pixels, y_train=np.repeat(["ant", "bee"], 3))
    assert ingest(tmp_path / "16.npz") == 16
    np.testing.assert_array_equal(np.asarray(library.read().images), images[16])
    assert ingest(tmp_path / "300.npz") == 224
    assert ingest(tmp_path / "16.npz", "data.image_size=24") == 24


def test_the_size_is_the_usual_one_of_the_longer_sides(tmp_path: Path) -> None:
    """A few large or damaged files among many decide nothing."""
    folder = pictures(tmp_path / "files", {"ant": 40, "bee": 90}, 8)
    for number in range(20):
        Image.new("L", (30, 60), number).save(folder / "ant" / f"tall{number}.png")
    (folder / "bee" / "broken.png").write_bytes(b"no image")
    taken = reading.take(folder, None, labeled=True)
    assert taken.images.shape == (36, 60, 60)
    assert len(taken.rejected) == 1
    assert reading.take(folder, None, largest=50, labeled=True).images.shape[1:] == (50, 50)
    np.testing.assert_array_equal(reading.take(folder, None, labeled=True, workers=1).images, taken.images)


def test_labelled_images_taken_in_again_keep_the_size_of_those_that_reviews_brought(
    ingest: Ingest, tmp_path: Path
) -> None:
    assert ingest(pictures(tmp_path / "files", same(40), 3)) == 40
    table = library.table({"id": ["W45/a"], "sha256": ["a"], "label": "ant", "group": ["W45/a"], "batch": "W45"}, 1)
    library.save(library.read().joined(library.Library(np.zeros((1, 40, 40), np.uint8), table)))
    assert ingest(pictures(tmp_path / "larger", same(80), 3)) == 40
    assert len(library.read()) == 10


# ---------------------------------------------------------------------------------------------------- numbers


def test_without_a_wish_a_fifth_each_goes_to_batch_and_holdout() -> None:
    assert own_sizes(1_000, 0, 200, inbox=False) == {
        "train": 540, "val": 60, "calibration": 60, "batch_known": 200, "batch_novel": 100, "holdout_known": 200,
        "holdout_novel": 100,
    }  # fmt: skip
    with_test = own_sizes(1_000, 300, 0, inbox=False)
    assert (with_test["train"], with_test["batch_known"], with_test["holdout_known"]) == (900, 150, 150)


def test_a_batch_that_is_asked_for_comes_first_and_the_rest_is_dealt_from_what_is_left() -> None:
    sizes = own_sizes(1_000, 0, 200, inbox=False, asked={"batch_known": 600, "batch_novel": 150})
    assert sizes == {
        "train": 180, "val": 20, "calibration": 20, "batch_known": 600, "batch_novel": 150, "holdout_known": 200,
        "holdout_novel": 50,
    }  # fmt: skip
    assert own_sizes(1_000, 0, 200, inbox=False, asked={"batch_known": None}) == own_sizes(1_000, 0, 200, inbox=False)


def test_a_holdout_that_is_asked_for_leaves_the_batch_the_rest() -> None:
    sizes = own_sizes(1_000, 0, 200, inbox=False, asked={"holdout_known": 900, "holdout_novel": 0})
    assert (sizes["batch_known"], sizes["holdout_known"]) == (100, 900)
    assert (sizes["batch_novel"], sizes["holdout_novel"]) == (100, 0)
    assert sizes["train"] + sizes["val"] == 0
    in_test = own_sizes(1_000, 300, 0, inbox=False, asked={"batch_known": 250, "holdout_known": 0})
    assert (in_test["train"], in_test["batch_known"], in_test["holdout_known"]) == (900, 250, 0), "all of the rest"


def test_with_an_inbox_nothing_is_dealt_to_a_batch() -> None:
    sizes = own_sizes(1_000, 0, 200, inbox=True, asked={"batch_known": 600})
    assert {name: size for name, size in sizes.items() if "known" in name or "novel" in name} == dict.fromkeys(
        ("batch_known", "batch_novel", "holdout_known", "holdout_novel"), 0
    )
    assert sizes["train"] + sizes["val"] == 1_000


def collected(folder: Path, *chosen: str) -> Collected:
    words = ["data.scenario=own", "data.source=folder", f"data.path={folder}", "data.novel=[cow]", *chosen]
    return collect(configure.resolve(schema.load(None, words)))


def told(found: Collected) -> dict[str, int]:
    parts = {name: int((found.part == code).sum()) for code, name in enumerate(packed.PARTS)}
    truths = {"batch": found.batch_truth, "holdout": found.holdout_truth}
    return parts | {
        f"{name}_{kind}": int((truth == kind).sum())
        for name, truth in truths.items()
        if truth is not None
        for kind in ("known", "novel")
    }


def test_a_trial_on_a_folder_has_exactly_the_batch_that_was_asked_for(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "files", same(12), 40)
    found = collected(folder, "data.batch_known=30", "data.batch_novel=13")
    assert found.classes == ["ant", "bee"]
    assert not any("scaled down" in warning for warning in found.warnings)
    sizes = told(found)
    assert (sizes["batch_known"], sizes["batch_novel"]) == (30, 13)
    assert (sizes["holdout_known"], sizes["holdout_novel"]) == (16, 20)
    assert sizes["train"] + sizes["val"] + sizes["calibration"] + sizes["clean"] == 34
    ids = [*found.labeled.ids, *found.batch.ids, *found.holdout.ids]
    assert len(ids) == len(set(ids)), "nobody is in two parts"
    novel = np.array([name.startswith("cow/") for name in found.batch.ids])
    assert found.batch_truth is not None
    assert (novel == (found.batch_truth == "novel")).all()


def test_a_validation_set_that_is_asked_for_comes_out_of_the_training_images(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "files", same(12), 40)
    sizes = told(collected(folder, "data.batch_known=30", "data.batch_novel=13", "data.val=12"))
    assert (sizes["batch_known"], sizes["batch_novel"], sizes["val"]) == (30, 13, 12)


def test_a_batch_without_novel_images_can_be_asked_for(tmp_path: Path) -> None:
    sizes = told(collected(pictures(tmp_path / "files", same(12), 40), "data.batch_novel=0"))
    assert (sizes["batch_known"], sizes["batch_novel"]) == (16, 0)


def test_more_than_there_is_is_scaled_down_and_said(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "files", same(12), 40)
    found = collected(folder, "data.batch_novel=100", "data.holdout_novel=0")
    assert told(found)["batch_novel"] == 40
    assert "scaled down to the 40 images there are: 40 of 100 novel in the batch" in found.warnings
