"""Each source in its true file format, made small here; and the sentence for each thing that can be wrong."""

import gzip
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from erd.data import sources
from erd.data.sources import SOURCES, load
from erd.errors import RunError, UserError

RNG = np.random.default_rng(0)


def grey(n: int, size: int = 28) -> np.ndarray:
    return RNG.integers(0, 256, (n, size, size), dtype=np.uint8)


def colour(n: int, size: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (n, size, size, 3), dtype=np.uint8)


def refusal(kind: type[UserError], name: str, *words: str, **where: Any) -> str:
    """The one line that `load` refuses with; it must be exactly of `kind` (the exit code) and hold `words`."""
    with pytest.raises(UserError) as caught:
        load(name, where.pop("root", None), **where)
    sentence = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in sentence
    for word in words:
        assert word in sentence
    return sentence


@pytest.fixture(autouse=True)
def _no_system_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "DEBIAN_FASHION", tmp_path / "no-such-package")


# ---------------------------------------------------------------------------------------------------- public sets


def test_digits_need_no_files_and_use_the_whole_range() -> None:
    source = load("digits")
    assert source.train.images.shape == (1797, 8, 8)
    assert source.train.images.dtype == np.uint8
    assert (source.train.images.min(), source.train.images.max()) == (0, 255)
    assert source.train.images[source.train.images == 128].size  # 8 of 16, rounded
    assert source.classes == tuple("0123456789")
    assert len(source.test) == 0
    assert source.train.ids[17] == "digits/train/00017"
    assert (source.train.groups == source.train.ids).all()


def test_take_keeps_rows_together() -> None:
    train = load("digits").train
    part = train.take(np.array([5, 3]))
    assert part.ids.tolist() == ["digits/train/00005", "digits/train/00003"]
    assert part.labels.tolist() == [train.labels[5], train.labels[3]]
    assert (part.images[1] == train.images[3]).all()
    assert len(train.take([])) == 0
    assert len(train.take(train.labels == 0)) == (train.labels == 0).sum()


def public_npz(path: Path, images: np.ndarray, top: int) -> None:
    labels = np.arange(len(images)) % (top + 1)
    np.savez(path, x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])


@pytest.mark.parametrize(
    ("name", "images", "classes", "third"),
    [
        ("mnist", grey(6), 10, "2"),
        ("fashion_mnist", grey(6), 10, "Pullover"),
        ("cifar10", colour(6), 10, "bird"),
        ("cifar100", colour(6), 100, "baby"),
        ("svhn", colour(6), 10, "2"),
    ],
)
def test_npz_of_a_public_set(tmp_path: Path, name: str, images: np.ndarray, classes: int, third: str) -> None:
    public_npz(tmp_path / f"{name}.npz", images, 9)
    source = load(name, tmp_path)
    assert (source.train.images == images).all()
    assert source.train.labels.dtype == np.int64
    assert source.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(source.test) == 2
    assert source.test.ids[1] == f"{name}/test/00001"
    assert len(set(source.classes)) == classes
    assert source.classes[2] == third


def test_cifar10_falls_back_to_its_near_half_but_prefers_the_whole(tmp_path: Path) -> None:
    public_npz(tmp_path / "cifar10_near.npz", colour(4), 4)
    assert len(load("cifar10", tmp_path).train) == 4
    public_npz(tmp_path / "cifar10.npz", colour(5), 9)
    assert len(load("cifar10", tmp_path).train) == 5


def test_label_beyond_the_classes_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "svhn.npz", x_train=colour(2), y_train=[1, 10], x_test=colour(1), y_test=[0])
    refusal(RunError, "svhn", "svhn.npz", "10", "from 0 to 9", root=tmp_path)


def idx(images_or_labels: np.ndarray) -> bytes:
    shape = images_or_labels.shape
    return struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape) + images_or_labels.astype(np.uint8).tobytes()


def write_idx(folder: Path, images: np.ndarray, labels: np.ndarray, *, gz: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix in ("train", "t10k"):
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx(values)
            name = f"{prefix}-{kind}-ubyte"
            (folder / (name + ".gz" * gz)).write_bytes(gzip.compress(content) if gz else content)


@pytest.mark.parametrize("place", ["system", "fashion-mnist", "."])
def test_fashion_mnist_from_debians_package_or_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    images = grey(3)
    write_idx(tmp_path / place, images, np.array([9, 0, 3]), gz=True)
    if place == "system":
        monkeypatch.setattr(sources, "DEBIAN_FASHION", tmp_path / "system")
    source = load("fashion_mnist", None if place == "system" else tmp_path)
    assert (source.train.images == images).all()
    assert source.train.labels.dtype == np.int64
    assert [source.classes[label] for label in source.test.labels] == ["Ankle boot", "T-shirt/top", "Dress"]


def test_damaged_idx_file_is_named(tmp_path: Path) -> None:
    write_idx(tmp_path, grey(3), np.array([9, 0, 3]), gz=True)
    file = tmp_path / "t10k-images-idx3-ubyte.gz"
    whole = file.read_bytes()
    floats = b"\0\0\x0d\x03" + idx(grey(3))[4:]
    for content in (whole[:-20], b"no gzip", gzip.compress(idx(grey(3))[:-1]), gzip.compress(floats)):
        file.write_bytes(content)
        refusal(RunError, "fashion_mnist", "t10k-images-idx3-ubyte.gz", "damaged", "again", root=tmp_path)
    file.unlink()
    refusal(RunError, "fashion_mnist", "t10k-images-idx3-ubyte.gz", "missing", root=tmp_path)


def test_idx_labels_must_fit_their_images(tmp_path: Path) -> None:
    write_idx(tmp_path, grey(3), np.array([9, 0]), gz=True)
    refusal(RunError, "fashion_mnist", "2 labels for 3 images", root=tmp_path)


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion_mnist", "FashionMNIST/raw")])
def test_torchvisions_mnist_folder(tmp_path: Path, name: str, folder: str) -> None:
    images = grey(3)
    write_idx(tmp_path / folder, images, np.array([9, 0, 3]), gz=False)
    source = load(name, tmp_path)
    assert (source.train.images == images).all()
    assert source.test.labels.tolist() == [9, 0, 3]


def test_incomplete_torchvision_folder_says_so(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST/raw", grey(3), np.array([9, 0, 3]), gz=False)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    refusal(RunError, "mnist", "MNIST/raw", "damaged or missing", "data.download=true", root=tmp_path)


@pytest.mark.parametrize("folder", [".", "svhn"])
def test_svhn_mat_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    from scipy.io import savemat

    from erd.vision import torchvision

    images = colour(3)
    (tmp_path / folder).mkdir(exist_ok=True)
    for part in ("train", "test"):  # the true layout: H×W×3×N, labels N×1 with 10 for the digit 0
        mat = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9]], np.uint8)}
        savemat(tmp_path / folder / f"{part}_32x32.mat", mat)
    refusal(RunError, "svhn", "train_32x32.mat", "damaged", root=tmp_path)  # not the published files, by their md5
    monkeypatch.setattr(torchvision.datasets.SVHN, "_check_integrity", lambda self: True)
    source = load("svhn", tmp_path)
    assert (source.train.images == images).all()
    assert source.train.labels.tolist() == [0, 1, 9]
    assert source.train.images.flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "loader", "folder", "train", "test", "key"),
    [
        ("cifar10", "CIFAR10", "cifar-10-batches-py", ["data_batch_1", "data_batch_2"], "test_batch", "labels"),
        ("cifar100", "CIFAR100", "cifar-100-python", ["train"], "test", "fine_labels"),
    ],
)
def test_cifar_python_batches(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    loader: str,
    folder: str,
    train: list[str],
    test: str,
    key: str,
) -> None:
    from erd.vision import torchvision

    images = colour(2)
    (tmp_path / folder).mkdir()
    for file in [*train, test]:  # the true layout: one row an image, channel after channel
        batch = {"data": images.transpose(0, 3, 1, 2).reshape(2, -1), key: [3, 7]}
        (tmp_path / folder / file).write_bytes(pickle.dumps(batch))
    refusal(RunError, name, folder, "damaged", "data.download=true", root=tmp_path)  # wrong md5: never unpickled
    cifar = getattr(torchvision.datasets, loader)
    monkeypatch.setattr(cifar, "_check_integrity", lambda self: True)
    monkeypatch.setattr(cifar, "_load_meta", lambda self: None)
    monkeypatch.setattr(cifar, "train_list", [[file, ""] for file in train])
    source = load(name, tmp_path)
    assert (source.train.images == np.concatenate([images] * len(train))).all()
    assert source.test.labels.tolist() == [3, 7]
    assert (source.test.images == images).all()


def test_chestxray_tells_pneumonias_apart_and_keeps_patients(tmp_path: Path) -> None:
    columns: dict[str, Any] = {}
    for part, n in (("train", 3), ("test", 2)):
        columns[f"x_{part}"] = grey(n, 64)
        columns[f"y_{part}"] = np.array([0, 1, 1])[:n]
        columns[f"sub_{part}"] = np.array([0, 1, 2])[:n]
        columns[f"patient_{part}"] = np.array(["IM-1", "p2", "p2"])[:n]
        columns[f"file_{part}"] = np.array(["IM-1-0001.jpeg", "person2_bacteria_1.jpeg", "person2_virus_1.jpeg"])[:n]
    np.savez(tmp_path / "chestxray64.npz", **columns)
    source = load("chestxray64", tmp_path)
    assert [source.classes[label] for label in source.train.labels] == [
        "normal",
        "bacterial pneumonia",
        "viral pneumonia",
    ]
    assert source.train.groups.tolist() == ["IM-1", "p2", "p2"]
    assert source.test.ids[1] == "person2_bacteria_1.jpeg"
    refusal(UserError, "chestxray64", "chestxray64.npz", "ERD_DATA", root=tmp_path / "elsewhere")
    columns.pop("patient_test")
    np.savez(tmp_path / "chestxray64.npz", **columns)
    refusal(RunError, "chestxray64", "chestxray64.npz", "'patient_test'", "sub_train", root=tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "svhn"])
def test_a_set_that_is_not_there_says_how_to_get_it(tmp_path: Path, name: str) -> None:
    remedy = (f"{name}.npz", "--data DIR", "ERD_DATA", "data.download=true")
    refusal(UserError, name, str(tmp_path), *remedy, root=tmp_path)
    without = refusal(UserError, name, *remedy)
    assert ("dataset-fashion-mnist" in without) == (name == "fashion_mnist")
    refusal(UserError, name, "--data DIR", download=True)


def test_failed_download_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from erd.vision import torchvision

    def offline(self: object) -> None:
        raise RuntimeError("Error downloading train-images:\nTried https://a, got:\n<urlopen error no network>\n")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", offline)
    words = ("could not be downloaded", str(tmp_path), "no network", "mnist.npz")
    refusal(RunError, "mnist", *words, root=tmp_path, download=True)


def test_download_fills_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from erd.vision import torchvision

    def download(self: Any) -> None:
        write_idx(Path(self.raw_folder), grey(3), np.array([9, 0, 3]), gz=False)

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", download)
    assert len(load("mnist", tmp_path, download=True).train) == 3
    assert len(load("mnist", tmp_path).train) == 3


def test_unknown_source_names_the_nearest() -> None:
    refusal(UserError, "fashion-mnist", "fashion_mnist")
    refusal(UserError, "zzz", *SOURCES)


# ---------------------------------------------------------------------------------------------------- a user's .npz


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


# ---------------------------------------------------------------------------------------------------- a user's folder


def save(path: Path, image: np.ndarray | Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path, **options)
    return path


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
    refusal(RunError, "folder", str(tmp_path), "no class folders", path=tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/empty.png").touch()
    refusal(RunError, "folder", str(tmp_path), "no readable image", "cat/empty.png: empty file", path=tmp_path)
    save(tmp_path / "test/cat/a.png", grey(1)[0])
    (tmp_path / "train/cat").mkdir(parents=True)
    refusal(RunError, "folder", str(tmp_path / "train"), "no readable image", path=tmp_path)
