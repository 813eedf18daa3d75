"""The labelled images of a workspace: taken in from files, kept when files change, dealt to the parts they suit."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from erd.base.errors import RunError, UserError
from erd.data import library
from erd.data.dealing import split
from erd.data.library import Library
from erd.data.sources import Images


def pictures(folder: Path, classes: dict[str, int], start: int = 0) -> Path:
    rng = np.random.default_rng(start)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            image = Image.fromarray(rng.integers(0, 256, (12, 12), dtype=np.uint8))
            image.save(folder / name / f"{start + number:03}.png")
    return folder


def reviewed(count: int, batch: str, label: str = "cow", *, audited: bool = False, size: int = 8) -> Library:
    ids = [f"{batch}/{number}" for number in range(count)]
    columns = {"id": ids, "sha256": ids, "label": label, "group": ids, "audited": audited, "batch": batch}
    return Library(np.zeros((count, size, size), np.uint8), library.table(columns, count))


def test_class_folders_are_taken_in_and_read_again(tmp_path: Path) -> None:
    origin = pictures(tmp_path / "files", {"cat": 12, "dog": 11})
    (origin / "cat" / "broken.png").write_bytes(b"no image")
    done = library.take_in(origin, 8, tmp_path / "library")
    assert (done.images, done.classes, done.set_aside) == (23, ["cat", "dog"], 1)
    assert "broken.png" in done.quarantine.read_text()
    assert all(file.is_file() for file in library.files_of(tmp_path / "library"))
    source = library.source(tmp_path / "library", 8, 10)
    assert source.classes == ("cat", "dog")
    assert np.bincount(source.train.labels).tolist() == [12, 11]


def test_taking_in_anew_replaces_the_files_and_keeps_what_reviews_brought(tmp_path: Path) -> None:
    place = tmp_path / "library"
    library.take_in(pictures(tmp_path / "a", {"cat": 12}), 8, place)
    library.save(library.read(place).joined(reviewed(3, "2026-W46")), place)
    done = library.take_in(pictures(tmp_path / "b", {"dog": 5}, start=100), 8, place)
    assert (done.images, done.classes, done.kept) == (8, ["cow", "dog"], 3)


def test_no_image_enters_twice() -> None:
    once = reviewed(4, "2026-W46")
    assert len(once.joined(reviewed(4, "2026-W46"))) == 4


def test_a_grey_set_that_gets_a_colour_image_is_in_colour() -> None:
    colour = Library(np.full((1, 8, 8, 3), 7, np.uint8), reviewed(1, "2026-W47").table)
    assert reviewed(2, "2026-W46").joined(colour).images.shape == (3, 8, 8, 3)


def test_a_class_with_very_few_images_waits_and_is_named(tmp_path: Path) -> None:
    place = tmp_path / "library"
    library.take_in(pictures(tmp_path / "files", {"cat": 12, "dog": 12}), 8, place)
    library.save(library.read(place).joined(reviewed(9, "2026-W46")), place)
    source = library.source(place, 8, 10)
    assert source.classes == ("cat", "dog")
    assert source.waiting == {"cow": library.waits("cow", 9, 10)}
    library.save(library.read(place).joined(reviewed(1, "2026-W47")), place)
    assert library.source(place, 8, 10).classes == ("cat", "cow", "dog")


def test_a_class_has_enough_to_be_learned_from_before_its_audited_images_are_kept_for_calibration(
    tmp_path: Path,
) -> None:
    place = tmp_path / "library"
    whole = reviewed(20, "", "cat").joined(reviewed(15, "W45", "cat", audited=True)).joined(reviewed(7, "W46"))
    library.save(whole.joined(reviewed(6, "W47", audited=True)), place)
    source = library.source(place, 8, 10)
    assert [name for name in source.audited if name.startswith("W45")] == [f"W45/{number}" for number in range(15)]
    assert [name for name in source.audited if name.startswith("W47")] == ["W47/3", "W47/4", "W47/5"]
    assert set(source.picked) == {f"W46/{number}" for number in range(7)} | {"W47/0", "W47/1", "W47/2"}


def test_another_working_size_is_one_sentence(tmp_path: Path) -> None:
    library.take_in(pictures(tmp_path / "files", {"cat": 12}), 8, tmp_path / "library")
    with pytest.raises(UserError, match=r"8 pixels wide and data.image_size is 32: take them in again"):
        library.source(tmp_path / "library", 32, 10)


def test_no_library_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="erd ingest --labeled DIR"):
        library.source(tmp_path / "library", 8, 10)


def test_a_folder_without_a_usable_image_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    place = tmp_path / "library"
    library.take_in(pictures(tmp_path / "files", {"cat": 12}), 8, place)
    (tmp_path / "bad" / "cat").mkdir(parents=True)
    (tmp_path / "bad" / "cat" / "a.png").write_bytes(b"no image")
    with pytest.raises(RunError, match="no usable image"):
        library.take_in(tmp_path / "bad", 8, place)
    assert len(library.read(place)) == 12


def test_audited_images_serve_for_calibration_and_picked_ones_never_do() -> None:
    ids = np.array([f"i{number}" for number in range(400)])
    known = Images(np.zeros((400, 1, 1), np.uint8), np.zeros(400, np.int64), ids, ids)
    audited, picked = np.arange(400) < 30, np.arange(400) >= 350
    sizes = {"train": 300, "val": 100, "calibration": 60, "clean": 40, "batch_known": 0, "batch_novel": 0,
             "holdout_known": 0, "holdout_novel": 0}  # fmt: skip
    for seed in range(5):
        dealt = split(known, np.zeros(400, bool), known.take([]), sizes, seed, audited=audited, picked=picked)
        assert set(np.flatnonzero(audited)) <= set(dealt["calibration"])
        assert not picked[dealt["calibration"]].any()
        assert not picked[dealt["clean"]].any()
        assert picked[dealt["train"]].sum() > 30, "validation has its share of them and no more"
        assert (len(dealt["calibration"]), len(dealt["clean"])) == (60, 40)


def test_where_there_are_more_audited_images_than_places_the_latest_get_them() -> None:
    ids = np.array([f"i{number}" for number in range(100)])
    known = Images(np.zeros((100, 1, 1), np.uint8), np.zeros(100, np.int64), ids, ids)
    sizes = dict.fromkeys(("batch_known", "batch_novel", "holdout_known", "holdout_novel"), 0)
    sizes |= {"train": 80, "val": 20, "calibration": 10, "clean": 0}
    dealt = split(known, np.zeros(100, bool), known.take([]), sizes, 0, audited=np.arange(100) < 40)
    assert dealt["calibration"].tolist() == list(range(30, 40))


def test_a_set_that_grows_keeps_most_images_in_their_part() -> None:
    """What was validation stays unseen: last week's classifier can be compared on it."""
    ids = np.array([f"i{number}" for number in range(1_100)])
    known = Images(np.zeros((1_100, 1, 1), np.uint8), np.zeros(1_100, np.int64), ids, ids)

    def validation(count: int) -> set[int]:
        sizes = dict.fromkeys(("batch_known", "batch_novel", "holdout_known", "holdout_novel", "clean"), 0)
        sizes |= {"train": count - count // 10, "val": count // 10, "calibration": count // 10}
        some = known.take(np.arange(count))
        return set(split(some, np.zeros(count, bool), known.take([]), sizes, 0)["val"].tolist())

    before, after = validation(1_000), validation(1_100)
    assert len(before & after) > 0.85 * len(before)
