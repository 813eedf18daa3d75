"""Features by the pixels they were made of: found again whatever the order, the week or the process that added them."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from erd.base import files
from erd.base.errors import RunError
from erd.data.feature_store import HASH, KIND, LARGEST, Store, as_stored, hashes_of
from erd.data.packed import Rows

KEY = "of-an-encoder"


def pictures(count: int, *, size: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, size, size), dtype=torch.uint8, generator=generator)


def numbered(count: int, start: int = 0) -> Tensor:
    """Features by which a row can be told: its number, three times."""
    return torch.arange(start, start + count).float()[:, None].repeat(1, 3)


def codes(*texts: bytes) -> np.ndarray:
    """Hashes that begin with these bytes, and zeros after."""
    return np.frombuffer(b"".join(text.ljust(HASH.itemsize, b"\0") for text in texts), HASH)


def stored(folder: Path) -> list[Path]:
    return sorted((folder / KEY).iterdir())


def test_what_is_added_is_found_by_its_pixels_in_the_order_asked_for(tmp_path: Path) -> None:
    images = pictures(20)
    Store(tmp_path, KEY).add(hashes_of(Rows(images)), numbered(20))
    order = torch.tensor([7, 0, 19, 7, 3])
    found = Store(tmp_path, KEY).take(hashes_of(Rows(images.clone(), order)))
    assert found[:, 0].tolist() == [7, 0, 19, 7, 3], "one asked for twice comes twice"
    assert Store(tmp_path, "of-another").missing(hashes_of(Rows(images))).tolist() == list(range(20))


def test_features_of_several_files_come_in_the_order_asked_for(tmp_path: Path) -> None:
    known = hashes_of(Rows(pictures(30)))
    store = Store(tmp_path, KEY)
    for start in (0, 10, 20):
        store.add(known[start : start + 10], numbered(10, start))
    order = np.random.default_rng(0).permutation(30)
    assert store.take(known[order])[:, 0].tolist() == order.tolist()


def test_missing_names_each_image_once_by_its_first_place(tmp_path: Path) -> None:
    images = pictures(6)
    rows = Rows(images, torch.tensor([4, 2, 4, 0, 5, 2, 1]))
    store = Store(tmp_path, KEY)
    assert store.missing(hashes_of(rows)).tolist() == [0, 1, 3, 4, 6]
    store.add(hashes_of(Rows(images[[2, 5]])), numbered(2))
    assert Store(tmp_path, KEY).missing(hashes_of(rows)).tolist() == [0, 3, 6]
    assert Store(tmp_path, KEY).missing(hashes_of(Rows(images[:0]))).tolist() == []


def test_what_is_not_encoded_yet_is_one_sentence(tmp_path: Path) -> None:
    known = hashes_of(Rows(pictures(5)))
    store = Store(tmp_path, KEY)
    store.add(known[:3], numbered(3))
    with pytest.raises(RunError, match=r"^2 images are not encoded yet: run the stage encode again$"):
        store.take(known)
    assert store.take(known[:0]).shape == (0, 3)


def test_a_hash_is_of_the_shape_and_of_every_pixel() -> None:
    images = pictures(4)
    known = hashes_of(Rows(images))
    wide = images.view(4, 2, 8)
    assert not np.isin(_texts(hashes_of(Rows(wide))), _texts(known)).any(), "the same bytes in another shape"
    other = images.clone()
    other[2, 3, 3] ^= 1
    assert (hashes_of(Rows(other)) == known).tolist() == [True, True, False, True]
    told: list[int] = []
    assert (hashes_of(Rows(images), told.append, chunk=3) == known).all()
    assert told == [3, 1]


def _texts(hashes: np.ndarray) -> list[str]:
    return [code.tobytes().hex() for code in hashes]


def test_hashes_with_zeros_at_the_end_and_inside_are_told_apart(tmp_path: Path) -> None:
    known = codes(b"", b"\0a", b"a", b"a\0b", b"ab", b"\xff" * 15, b"a\0\0b", b"\xff" * 16, b"\x01" * 16)
    store = Store(tmp_path, KEY)
    store.add(known[::-1], numbered(len(known)).flip(0))
    order = np.random.default_rng(1).permutation(len(known))
    assert store.take(known[order])[:, 0].tolist() == order.tolist()
    others = codes(b"\0\0a", b"ab\0c", b"\xff" * 14, b"\xff" * 15 + b"\1", b"\0" * 15 + b"\1")
    assert Store(tmp_path, KEY).missing(np.concatenate([known, others])).tolist() == [9, 10, 11, 12, 13]


@pytest.mark.parametrize("damage", ["cut", "garbage", "of another kind"])
def test_a_damaged_file_counts_for_nothing_and_its_images_are_encoded_again(tmp_path: Path, damage: str) -> None:
    known = hashes_of(Rows(pictures(6)))
    store = Store(tmp_path, KEY)
    store.add(known[:4], numbered(4))
    (whole,) = stored(tmp_path)
    content = whole.read_bytes()
    store.add(known[4:], numbered(2, 4))
    whole.unlink()  # not written over: it may be mapped
    if damage == "of another kind":
        files.save_tensors(whole, {"features": numbered(4)}, {})
    else:
        whole.write_bytes(content[:-10] if damage == "cut" else b"no tensors at all")
    again = Store(tmp_path, KEY)
    assert again.missing(known).tolist() == [0, 1, 2, 3]
    again.add(known[:4], numbered(4))
    assert Store(tmp_path, KEY).take(known)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert len(stored(tmp_path)) == 2


def test_where_the_only_file_is_damaged_meanwhile_its_images_are_said_to_be_missing(tmp_path: Path) -> None:
    known = hashes_of(Rows(pictures(3)))
    Store(tmp_path, KEY).add(known, numbered(3))
    store = Store(tmp_path, KEY)
    (whole,) = stored(tmp_path)
    whole.unlink()
    whole.write_bytes(b"no tensors at all")
    with pytest.raises(RunError, match="3 images are not encoded yet"):
        store.take(known)


def test_two_stores_of_one_folder_see_what_the_other_has_added_when_they_take(tmp_path: Path) -> None:
    known = hashes_of(Rows(pictures(8)))
    one, other = Store(tmp_path, KEY), Store(tmp_path, KEY)
    one.add(known[:5], numbered(5))
    other.add(known[5:], numbered(3, 5))
    for store in (one, other):
        assert store.take(known)[:, 0].tolist() == list(range(8))


def _add(folder: Path, step: int) -> None:
    """In a process of its own."""
    known = hashes_of(Rows(pictures(40)))
    for first in range(0, 40, 4)[::step]:
        Store(folder, KEY).add(known[first : first + 4], numbered(4, first))


def test_processes_add_side_by_side(tmp_path: Path) -> None:
    """The same images, one from the first on and one from the last."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(tmp_path, step)) for step in (1, -1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert Store(tmp_path, KEY).take(hashes_of(Rows(pictures(40))))[:, 0].tolist() == list(range(40))
    assert len(stored(tmp_path)) == 10, "no draft is left, and nothing is there twice"


def test_to_add_the_same_again_changes_nothing(tmp_path: Path) -> None:
    known = hashes_of(Rows(pictures(5)))
    Store(tmp_path, KEY).add(known, numbered(5))
    before = {path: path.read_bytes() for path in stored(tmp_path)}
    Store(tmp_path, KEY).add(known, numbered(5))
    Store(tmp_path, KEY).add(known[:0], numbered(0))
    assert {path: path.read_bytes() for path in stored(tmp_path)} == before
    Store(tmp_path, KEY).add(known[1:4], numbered(3, 1))  # some of them, in a file of their own
    assert Store(tmp_path, KEY).take(known)[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_features_are_kept_as_half_numbers_and_none_becomes_infinite(tmp_path: Path) -> None:
    features = torch.tensor([[1e9, -1e9, 1 / 3], [65504.0, -65600.0, 0.0]])
    kept = as_stored(features)
    assert kept.dtype == KIND == torch.float16
    assert kept.tolist()[0][:2] == [LARGEST, -LARGEST]
    known = hashes_of(Rows(pictures(2)))
    store = Store(tmp_path, KEY)
    store.add(known, features)
    found = store.take(known)
    assert torch.equal(found, kept)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found[:, 2].float(), features[:, 2], rtol=1e-3, atol=0)


def test_what_nobody_wants_any_more_is_dropped_and_the_rest_is_found(tmp_path: Path) -> None:
    store, hashes = Store(tmp_path, KEY), hashes_of(Rows(pictures(30)))
    for start in (0, 10, 20):
        store.add(hashes[start : start + 10], numbered(10, start))
    wanted = [hashes[:10], hashes[14:16]]
    size = sum(path.stat().st_size for path in stored(tmp_path))
    would = store.keep_only(wanted, dry_run=True)
    assert sum(path.stat().st_size for path in stored(tmp_path)) == size
    assert store.keep_only(wanted) == would > 0
    assert np.array_equal(store.take(hashes[14:16]), as_stored(numbered(2, 14)))
    assert set(store.missing(hashes)) == {*range(10, 14), *range(16, 30)}
    assert store.keep_only(wanted) == 0
    store.keep_only([])
    assert not store.folder.exists()
