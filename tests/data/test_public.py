"""Each public set in its true file format, made small here; and the sentence for each thing that can be wrong."""

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files_to_read import colour, grey, refusal

from erd.base.errors import RunError, UserError
from erd.data.sources import SOURCES, load, public


@pytest.fixture(autouse=True)
def _no_system_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(public, "DEBIAN_FASHION", tmp_path / "no-such-package")


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
        monkeypatch.setattr(public, "DEBIAN_FASHION", tmp_path / "system")
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

    from erd.base.torchvision import torchvision

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
    from erd.base.torchvision import torchvision

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
    from erd.base.torchvision import torchvision

    def offline(self: object) -> None:
        raise RuntimeError("Error downloading train-images:\nTried https://a, got:\n<urlopen error no network>\n")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", offline)
    words = ("could not be downloaded", str(tmp_path), "no network", "mnist.npz")
    refusal(RunError, "mnist", *words, root=tmp_path, download=True)


def test_download_fills_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from erd.base.torchvision import torchvision

    def download(self: Any) -> None:
        write_idx(Path(self.raw_folder), grey(3), np.array([9, 0, 3]), gz=False)

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", download)
    assert len(load("mnist", tmp_path, download=True).train) == 3
    assert len(load("mnist", tmp_path).train) == 3


def test_unknown_source_names_the_nearest() -> None:
    refusal(UserError, "fashion-mnist", "fashion_mnist")
    refusal(UserError, "zzz", *sorted(SOURCES)[:12])
