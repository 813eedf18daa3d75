"""Many images: looked at only when somebody asks, in a file where memory would not do, and in a run by reference."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from erd.base import files
from erd.base.errors import RunError
from erd.data import library, packed, scratch
from erd.data.images import Images
from erd.data.library import Library
from erd.data.packed import PARTS
from erd.data.pixels import Pixels


class Counted(np.ndarray):
    """An array that knows how many of its rows were looked at."""

    looked: int

    def __getitem__(self, index: Any) -> Any:
        found = np.asarray(self)[index]
        self.looked = getattr(self, "looked", 0) + (len(index) if isinstance(index, np.ndarray) else 1)
        return found


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def pictures(count: int, size: int = 6, *, colour: bool = False, seed: int = 0) -> np.ndarray:
    shape = (count, size, size, 3) if colour else (count, size, size)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# ---------------------------------------------------------------------------------------------------- rows of a file


def test_nothing_is_read_until_somebody_looks() -> None:
    whole = pictures(100).view(Counted)
    pixels = Pixels.of(whole)
    some = pixels[np.arange(100) % 2 == 0][10:20][[3, 1, 1]].with_rows(np.array([99]))
    assert (len(some), some.shape, some.ndim) == (4, (4, 6, 6), 3)
    assert not hasattr(whole, "looked")
    np.testing.assert_array_equal(some[1], np.asarray(whole)[22])
    assert whole.looked == 1
    np.testing.assert_array_equal(np.asarray(some), np.asarray(whole)[[26, 22, 22, 99]])
    assert whole.looked == 5


def test_an_array_of_another_kind_of_number_is_made_where_it_is_asked_for() -> None:
    pixels = Pixels.of(pictures(3))
    assert np.asarray(pixels).dtype == np.uint8
    np.testing.assert_array_equal(np.asarray(pixels, np.float32) / 2, pictures(3) / 2)


# ---------------------------------------------------------------------------------------------------- room for many


def test_few_images_are_in_memory_and_many_in_a_file_that_is_gone_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "IN_MEMORY", 1000)
    assert not isinstance(scratch.empty((10, 10, 10), tmp_path / "new"), np.memmap)
    assert not (tmp_path / "new").exists()
    room = scratch.empty((10, 10, 11), tmp_path / "new")
    assert isinstance(room, np.memmap)
    assert not list((tmp_path / "new").iterdir()), "a killed process leaves nothing behind"
    scratch.copy(pictures(10, 10)[:, :, :1].repeat(11, 2), room)
    np.testing.assert_array_equal(room[..., 10], pictures(10, 10)[:, :, 0])


def test_a_disk_that_is_too_small_is_one_sentence_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(0, 0, 700_000_000))
    with pytest.raises(
        RunError, match=r"100,000 images of 224 pixels take up to 15\.1 GB on disk and 0\.7 GB are free"
    ):
        scratch.empty((100_000, 224, 224, 3), tmp_path)
    scratch.check_room(600_000_000, tmp_path / "not" / "yet", "some images")
    with pytest.raises(RunError, match=r"some images take up to 0\.8 GB .*: free some, or set data\.image_size lower$"):
        scratch.check_room(800_000_000, tmp_path / "not" / "yet", "some images")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lazy", [False, True])
def test_images_are_copied_a_part_at_a_time_and_grey_ones_fill_three_channels(
    monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    monkeypatch.setattr(scratch, "AT_ONCE", 3 * 6 * 6 * 3)
    whole, rows = pictures(10), np.array([9, 0, 4, 4, 7, 1, 2])
    images = Pixels.of(whole)[rows] if lazy else whole[rows]
    grey, colour = scratch.empty((7, 6, 6)), scratch.empty((8, 6, 6, 3))
    colour[7] = 5
    scratch.copy(images, grey)
    scratch.copy(images, colour)
    np.testing.assert_array_equal(grey, whole[rows])
    for channel in range(3):
        np.testing.assert_array_equal(colour[:7, ..., channel], whole[rows])
    assert (colour[7] == 5).all(), "what is beyond is left as it is"


def test_in_one_piece_a_whole_file_is_itself_and_some_rows_are_copied_in_their_order(tmp_path: Path) -> None:
    whole = pictures(10)
    pixels = Pixels.of(whole)
    assert scratch.in_one_piece(pixels, tmp_path) is whole
    for rows in ([3, 1, 2], list(range(9)), [1, 0, *range(2, 10)]):
        piece = scratch.in_one_piece(pixels[rows], tmp_path)
        np.testing.assert_array_equal(piece, whole[rows])
        assert piece.flags.c_contiguous
    turned = scratch.in_one_piece(whole.transpose(0, 2, 1), tmp_path)
    assert turned.flags.c_contiguous
    np.testing.assert_array_equal(turned, whole.transpose(0, 2, 1))


# ---------------------------------------------------------------------------------------------------- by reference


def shelf(images: np.ndarray, batch: str = "", start: int = 0) -> Library:
    names = [f"{batch or 'first'}/{start + number}" for number in range(len(images))]
    columns = {"id": names, "sha256": [f"sha-{name}" for name in names], "label": "cat", "group": names, "batch": batch}
    return Library(images, library.table(columns, len(images)))


def referred(place: Path, path: Path, rows: list[int]) -> np.ndarray:
    """A labelled set of some images of the library; the pixels it shall have."""
    source = library.source(place, None, 1)
    chosen = source.train.take(rows)
    assert isinstance(chosen.images, Pixels)
    part = np.arange(len(rows)) % len(PARTS)
    packed.refer(path, chosen, place, list(source.classes), part)
    return np.asarray(chosen.images).copy()


def shown(path: Path) -> np.ndarray:
    rows = packed.read(path).rows()
    return rows.take(torch.arange(len(rows))).numpy()


def test_a_labelled_set_by_reference_shows_the_librarys_pixels(tmp_path: Path) -> None:
    place, path = tmp_path / "library", tmp_path / "labeled.safetensors"
    library.save(shelf(pictures(40, 64)), place)
    rows = [7, 0, 39, 12, 3, 3, 21, 8]
    pixels = referred(place, path, rows)
    assert path.stat().st_size < 2_000, "numbers of rows, and no pixels"
    np.testing.assert_array_equal(shown(path), pixels)
    labeled = packed.read(path)
    assert (len(labeled), labeled.facts["classes"]) == (8, ["cat"])
    assert files.load_table(packed.manifest(path))["id"].tolist() == [f"first/{row}" for row in rows]
    for code, name in enumerate(PARTS):
        part = labeled.rows(name)
        np.testing.assert_array_equal(part.take(torch.arange(len(part))).numpy(), pixels[code::4])
        assert labeled.labels_of(name).tolist() == [0, 0]
    copied = packed.pack(tmp_path / "copy.safetensors", Images(pixels, *_columns(8)), ["cat"], part=np.zeros(8, int))
    np.testing.assert_array_equal(shown(copied), pixels)


def _columns(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids = np.arange(count).astype(str)
    return np.zeros(count, np.int64), ids, ids


def test_it_finds_its_images_when_the_library_has_grown_or_a_batch_was_taken_back(tmp_path: Path) -> None:
    place, path = tmp_path / "library", tmp_path / "labeled.safetensors"
    first, week = shelf(pictures(10)), shelf(pictures(5, seed=1), "W45")
    library.save(week.joined(first), place)  # the images of the run lie behind those of another batch
    pixels = referred(place, path, [14, 5, 9])
    library.save(library.read(place).joined(shelf(pictures(4, seed=2), "W46")), place)
    np.testing.assert_array_equal(shown(path), pixels)
    whole = library.read(place)
    library.save(whole.take(~whole.of_batch("W45")), place)
    np.testing.assert_array_equal(shown(path), pixels)
    whole = library.read(place)
    order = np.random.default_rng(0).permutation(len(whole))
    library.save(Library(whole.images[order], whole.table.iloc[order]), place)
    np.testing.assert_array_equal(shown(path), pixels)


def test_an_image_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    place, path = tmp_path / "library", tmp_path / "labeled.safetensors"
    library.save(shelf(pictures(10)).joined(shelf(pictures(5, seed=1), "W45")), place)
    referred(place, path, [0, 11, 14])
    whole = library.read(place)
    library.save(whole.take(~whole.of_batch("W45")), place)
    with pytest.raises(
        RunError, match=r"^2 of the labelled images of .*labeled\.safetensors are no longer in .*library"
    ):
        packed.read(path)


def test_a_labelled_set_whose_library_is_kept_at_another_size_is_one_sentence(tmp_path: Path) -> None:
    """The files are the same, their pixels are not those of the run."""
    place, path = tmp_path / "library", tmp_path / "labeled.safetensors"
    library.save(shelf(pictures(10)), place)
    referred(place, path, [0, 3])
    library.save(shelf(pictures(10, 12)), place)
    with pytest.raises(RunError, match="labelled images"):
        packed.read(path)


def test_to_save_a_part_of_the_library_goes_through_a_file_where_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "IN_MEMORY", 100)
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "library"
    library.save(shelf(pictures(10)), place)
    library.save(library.read(place).take(np.isin(np.arange(10), [8, 2, 5])), place)
    colour = shelf(pictures(2, colour=True, seed=3), "W45")
    library.save(library.read(place).joined(colour), place)
    found = np.asarray(library.read(place).images)
    np.testing.assert_array_equal(found[:3], np.repeat(pictures(10)[[2, 5, 8], ..., None], 3, 3))
    np.testing.assert_array_equal(found[3:], pictures(2, colour=True, seed=3))
    assert {path.name for path in place.iterdir()} == {"images.safetensors", "images.parquet"}
