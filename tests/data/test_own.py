"""A user's own .npz, folder or manifest as a source; and the sentence for each thing that can be wrong."""

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files_to_read import colour, grey, refusal, save

from erd.base.errors import RunError, UserError
from erd.data.sources import load

# ---------------------------------------------------------------------------------------------------- an .npz


def npz(tmp_path: Path, **arrays: Any) -> Path:
    """A good file, but for what is given: an array replaces the good one, None leaves it out."""
    good = {"x_train": grey(4, 8), "y_train": [0, 1, 0, 1], "x_test": grey(2, 8), "y_test": [1, 0]} | arrays
    path = tmp_path / "mine.npz"
    np.savez(path, **{key: np.asarray(value) for key, value in good.items() if value is not None})  # type: ignore[arg-type]
    return path


def test_own_npz_with_gaps_in_its_labels(tmp_path: Path) -> None:
    source = load("npz", path=npz(tmp_path, y_train=[2, 10, 7, 2], y_test=[10, 9]))
    assert source.classes == ("2", "7", "9", "10")
    assert source.train.labels.tolist() == [0, 3, 1, 0]
    assert source.test.labels.tolist() == [3, 2]
    assert source.train.ids[3] == "mine/train/00003"
    assert (source.train.groups == source.train.ids).all()


def test_own_npz_with_names_as_labels(tmp_path: Path) -> None:
    labels = {"y_train": ["cat", "ant", "cat", "bee"], "y_test": ["bee", "ant"]}
    source = load("npz", path=npz(tmp_path, **labels))
    assert source.classes == ("ant", "bee", "cat")
    assert source.train.labels.tolist() == [2, 0, 2, 1]
    source = load("npz", path=npz(tmp_path, **labels, classes=["dog", "cat", "bee", "ant"]))
    assert source.classes == ("dog", "cat", "bee", "ant")
    assert source.train.labels.tolist() == [1, 3, 1, 2]
    assert source.test.labels.tolist() == [2, 3]
    refusal(RunError, "npz", "mine.npz", "'bee'", "add it", path=npz(tmp_path, **labels, classes=["cat", "ant"]))


def test_own_npz_with_class_names_and_groups_and_no_test(tmp_path: Path) -> None:
    extra = {"x_test": None, "y_test": None, "group_train": [7, 7, 8, 8]}
    source = load("npz", path=npz(tmp_path, y_train=[3, 1, 1, 3], classes=["a", "b", "c", "d"], **extra))
    assert source.classes == ("a", "b", "c", "d")
    assert source.train.labels.tolist() == [3, 1, 1, 3]
    assert source.train.groups.tolist() == ["7", "7", "8", "8"]
    assert len(source.test) == 0
    assert source.test.images.shape == (0, 8, 8)
    refusal(RunError, "npz", "from 0 to 1", path=npz(tmp_path, y_train=[3, 1, 1, 3], classes=["a", "b"]))
    refusal(RunError, "npz", "classes of", "different strings", path=npz(tmp_path, classes=["a", "a"]))


def test_what_is_harmless_is_accepted(tmp_path: Path) -> None:
    images = grey(4, 8)
    source = load("npz", path=npz(tmp_path, x_train=images[..., None].astype(np.int32), y_train=[[0], [1], [0], [1]]))
    assert source.train.images.dtype == np.uint8
    assert (source.train.images == images).all()
    assert source.train.labels.tolist() == [0, 1, 0, 1]


def spoilt(value: float) -> np.ndarray:
    images = np.zeros((4, 8, 8), np.float32)
    images[1:3, 0, 0] = value
    return images


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x_train": None}, ["'x_train'", "y_train, x_test, y_test", "add it"]),
        ({"y_train": None}, ["'y_train'", "x_train"]),
        ({"y_test": None}, ["'y_test'"]),
        ({"x_train": grey(4, 8).reshape(4, 64)}, ["x_train", "(4, 64)", "N×H×W"]),
        ({"x_train": colour(4, 8).transpose(0, 3, 1, 2)}, ["(4, 3, 8, 8)", "transpose(0, 2, 3, 1)"]),
        ({"x_train": np.zeros((4, 8, 8, 4), np.uint8)}, ["(4, 8, 8, 4)", "N×H×W×3"]),
        ({"x_train": np.zeros((4, 8, 9), np.uint8)}, ["8×9", "squares"]),
        ({"x_train": np.zeros((4, 7, 7), np.uint8)}, ["7×7", "at least 8×8"]),
        ({"x_train": np.zeros((0, 8, 8), np.uint8), "y_train": []}, ["x_train of", "no images", "put some in"]),
        ({"x_test": []}, ["x_test of", "no images", "leave out"]),
        ({"x_train": np.zeros((4, 8, 8), np.int64) + 256}, ["256", "scale them to 0 to 255"]),
        ({"x_train": np.zeros((4, 8, 8), np.int64) - 1}, ["-1", "scale them to 0 to 255"]),
        ({"x_train": spoilt(np.nan)}, ["NaN", "2 of 4 images", "drop"]),
        ({"x_train": spoilt(np.inf)}, ["infinite", "2 of 4 images"]),
        ({"x_train": spoilt(0.5)}, ["float32", "uint8", "(x * 255).round().astype('uint8')"]),
        ({"x_train": np.zeros((4, 8, 8), bool)}, ["bool", "uint8"]),
        ({"x_test": colour(2, 8)}, ["different shape", "8×8 and 8×8×3"]),
        ({"x_test": grey(2, 9)}, ["different shape", "9×9"]),
        ({"y_train": [0, 1, 0]}, ["y_train", "(3,)", "4 images", "one value each"]),
        ({"y_train": np.zeros((4, 2), int)}, ["y_train", "(4, 2)"]),
        ({"group_train": ["a", "b"]}, ["group_train", "(2,)", "4 images"]),
        ({"y_train": [0, -1, 0, 1]}, ["below 0", "whole numbers from 0"]),
        ({"y_train": [0.0, 1.0, 0.0, 1.0]}, ["float64", "whole numbers from 0"]),
        ({"y_train": ["a", "b", "a", "b"]}, ["<U1 and int64", "both parts"]),
    ],
)
def test_wrong_arrays_are_told(tmp_path: Path, arrays: dict[str, Any], words: list[str]) -> None:
    refusal(RunError, "npz", "mine.npz", *words, path=npz(tmp_path, **arrays))


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return Path.touch, (tmp_path / "ran",)

    bombs = np.array([Bomb()] * 4, dtype=object)
    refusal(RunError, "npz", "y_train of", "mine.npz", "dtype=str", path=npz(tmp_path, y_train=bombs))
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Bomb()))
    refusal(RunError, "npz", "plain.npz", path=tmp_path / "plain.npz")
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_no_npz_is_named(tmp_path: Path) -> None:
    whole = npz(tmp_path).read_bytes()
    path = tmp_path / "bad.npz"
    for content in (b"", b"some text", whole[: len(whole) // 2], b"PK\x03\x04" + b"\0" * 50):
        path.write_bytes(content)
        refusal(RunError, "npz", "bad.npz", "damaged", "numpy.savez_compressed", path=path)
    with path.open("wb") as stream:
        np.save(stream, grey(2))
    refusal(RunError, "npz", "bad.npz", "single array", "numpy.savez_compressed", path=path)


def test_an_array_damaged_inside_a_whole_archive_is_named(tmp_path: Path) -> None:
    path = npz(tmp_path)
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("x_train.npy").header_offset
    content = bytearray(path.read_bytes())
    content[offset + 250] ^= 0xFF  # one pixel: the checksum no longer holds
    path.write_bytes(content)
    refusal(RunError, "npz", "x_train of", "mine.npz", "damaged", "again", path=path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", b"\x93NUMPY\x01\x00 cut")
    refusal(RunError, "npz", "x_train of", "mine.npz", "damaged", path=path)


@pytest.mark.parametrize("name", ["npz", "folder"])
def test_own_data_needs_a_path(tmp_path: Path, name: str) -> None:
    refusal(UserError, name, "data.path is not set")
    refusal(UserError, name, "data.path", "nowhere", path=tmp_path / "nowhere")
    (tmp_path / "file.npz").touch()
    refusal(UserError, name, "set data.path", path=tmp_path if name == "npz" else tmp_path / "file.npz")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(tmp_path)

    def denied(file: Path, *_: Any) -> None:  # root may read everything, so chmod would not show it
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "open", denied)
    refusal(RunError, "npz", "mine.npz", "Permission denied", "check its permissions", path=path)


@pytest.mark.parametrize("images", [grey(3, 32), colour(3, 32)])
def test_image_size_resizes_any_source(tmp_path: Path, images: np.ndarray) -> None:
    images[0] = 255
    images[1, :16], images[1, 16:] = 0, 200
    images[2], images[2, :, ::4] = 0, 200  # a quarter of the columns: to pick pixels would lose or double them
    path = npz(tmp_path, x_train=images, y_train=[0, 1, 2], x_test=None)
    new = load("npz", path=path, image_size=8)
    assert new.train.images.shape == (3, 8, 8, *images.shape[3:])
    assert new.train.images.dtype == np.uint8
    assert (new.train.images[0] == 255).all()
    assert (new.train.images[1, :3] == 0).all()  # rows stay rows
    assert (new.train.images[1, 5:] == 200).all()
    assert (new.train.images[2, :, 1:-1] == 50).all()
    assert new.train.ids.tolist() == ["mine/train/00000", "mine/train/00001", "mine/train/00002"]
    assert new.test.images.shape == (0, 8, 8, *images.shape[3:])
    assert (load("npz", path=path, image_size=32).train.images == images).all()


# ---------------------------------------------------------------------------------------------------- files


def test_folder_of_classes(tmp_path: Path) -> None:
    first, second, third = grey(3, 32)
    save(tmp_path / "cat/b.png", third)
    save(tmp_path / "cat/a.png", second)
    save(tmp_path / "ant/week 1/c.PNG", first)
    save(tmp_path / "ant/.hidden.png", first)
    (tmp_path / ".git").mkdir()
    source = load("folder", path=tmp_path)
    assert source.classes == ("ant", "cat")
    assert source.train.ids.tolist() == ["ant/week 1/c.PNG", "cat/a.png", "cat/b.png"]
    assert source.train.labels.tolist() == [0, 1, 1]
    assert (source.train.groups == source.train.ids).all()
    assert (source.train.images == np.stack([first, second, third])).all()  # 32×32 is the size unless one is set
    assert len(source.test) == 0
    assert source.rejected == ()


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    save(tmp_path / "train/cat/a.png", grey(1, 16)[0])
    save(tmp_path / "test/cat/b.png", colour(1, 16)[0])
    save(tmp_path / "test/dog/c.png", grey(1, 16)[0])
    save(tmp_path / "val/dog/d.png", grey(1, 16)[0])
    save(tmp_path / "train/stray.png", grey(1, 16)[0])
    source = load("folder", path=tmp_path, image_size=16)
    assert source.classes == ("cat", "dog")
    assert source.train.ids.tolist() == ["train/cat/a.png"]
    assert source.test.ids.tolist() == ["test/cat/b.png", "test/dog/c.png"]
    assert source.test.labels.tolist() == [0, 1]
    assert source.train.images.shape == (1, 16, 16, 3)  # one colour image makes all colour
    assert [file for file, _ in source.rejected] == ["train/stray.png", "val"]  # nothing is left out in silence


def test_a_file_in_train_and_test_stays_in_train(tmp_path: Path) -> None:
    for part in ("train", "test"):
        save(tmp_path / part / "cat/a.png", np.zeros((16, 16), np.uint8))
        save(tmp_path / part / f"cat/{part}.png", grey(1, 16)[0])
    source = load("folder", path=tmp_path)
    assert source.train.ids.tolist() == ["train/cat/a.png", "train/cat/train.png"]
    assert source.test.ids.tolist() == ["test/cat/test.png"]
    assert source.rejected == (("test/cat/a.png", "the same file as train/cat/a.png"),)


def test_manifest_with_labels(tmp_path: Path) -> None:
    for i, image in enumerate(grey(3, 16)):
        save(tmp_path / f"{i}.png", image)
    file = tmp_path / "labels.csv"
    file.write_text("path,label,group\n2.png,dog,p1\n0.png,cat,p1\n1.png,,p2\n")
    source = load("manifest", path=file, image_size=16)
    assert source.classes == ("cat", "dog")
    assert source.train.ids.tolist() == ["2.png", "0.png"]
    assert source.train.labels.tolist() == [1, 0]
    assert source.train.groups.tolist() == ["p1", "p1"]
    assert source.rejected == (("1.png", "no label is given"),)
    file.write_text("path\n0.png\n")
    refusal(RunError, "manifest", "labels.csv", "'label'", "add it", path=file)
    refusal(UserError, "manifest", "set data.path", path=tmp_path / "0.png")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    save(tmp_path / "train/a.png", grey(1)[0])
    save(tmp_path / "bus/b.png", grey(1)[0])
    assert load("folder", path=tmp_path).classes == ("bus", "train")


def test_folder_without_classes_or_images_says_what_to_put_there(tmp_path: Path) -> None:
    (tmp_path / "loose.png").touch()
    refusal(UserError, "folder", str(tmp_path), "no class folders", path=tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/empty.png").touch()
    refusal(RunError, "folder", str(tmp_path), "no readable image", "cat/empty.png: empty file", path=tmp_path)
    save(tmp_path / "test/cat/a.png", grey(1)[0])
    (tmp_path / "train/cat").mkdir(parents=True)
    refusal(RunError, "folder", str(tmp_path / "train"), "no readable image", path=tmp_path)
