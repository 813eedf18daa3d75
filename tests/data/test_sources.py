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

from erd.data import published, sources
from erd.data.corruptions import Shift, corrupt
from erd.data.sources import PUBLISHED, SOURCES, Images, load
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
    refusal(UserError, "zzz", *sorted(SOURCES)[:12])


# ---------------------------------------------------------------------------------------------------- as published


def picture(path: Path, value: int | tuple[int, int, int], side: int = 40) -> None:
    """A plain image, in the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(value, int) else "RGB", (side, side), value).save(path)


def by_class(name: str, root: Path) -> dict[str, list[int]]:
    """Class → the first value of each of its images, in both parts."""
    source = load(name, root, image_size=16)
    found: dict[str, list[int]] = {}
    for part in (source.train, source.test):
        for image, label in zip(part.images, part.labels, strict=True):
            found.setdefault(source.classes[label], []).append(int(image.flat[0]))
    return found


def cifar_c(root: Path, folder: str = "CIFAR-10-C", tests: int = 6) -> tuple[Images, np.ndarray]:
    """A folder in the true layout, five severities after each other; test images of CIFAR, and what is in the file."""
    stored, labels = colour(5 * tests), np.arange(tests) * 3 % 10
    (root / folder).mkdir()
    np.save(root / folder / "gaussian_noise.npy", stored)
    np.save(root / folder / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    ids = np.array([f"cifar{folder[6:-2].replace('-', '')}/test/{i:05d}" for i in range(tests)])
    return Images(colour(tests), labels, ids, ids), stored


@pytest.mark.parametrize(("source", "folder"), [("cifar10", "CIFAR-10-C"), ("cifar100", "CIFAR-100-C")])
def test_published_corruptions_are_those_of_the_same_image_at_that_severity(
    tmp_path: Path, source: str, folder: str
) -> None:
    clean, stored = cifar_c(tmp_path, folder)
    some = clean.take([4, 0])
    for severity in (1, 2, 5):
        made, told = published.shifted(some, source, tmp_path, Shift("gaussian-noise", severity, "novel"))
        assert (made.images == stored[[6 * (severity - 1) + 4, 6 * (severity - 1)]]).all()
        assert made.labels.tolist() == some.labels.tolist()
        assert made.groups.tolist() == some.groups.tolist(), "stays with the clean image"
        assert made.ids[0] == f"{source}/test/00004/gaussian-noise-{severity}"
        assert told == ""
    small = Images(some.images[:, :16, :16], some.labels, some.ids, some.groups)
    made, _ = published.shifted(small, source, tmp_path, Shift("gaussian-noise", 5, "novel"))
    assert made.images.shape == (2, 16, 16, 3), "in the size of the clean ones"


def test_corruptions_that_are_not_published_are_made_and_said(tmp_path: Path) -> None:
    clean, _ = cifar_c(tmp_path)
    made, told = published.shifted(clean, "cifar10", tmp_path, Shift("fog", 5, "novel"))
    assert (made.images == corrupt(clean.images, clean.ids, "fog", 5)).all()
    assert told == "fog at severity 5 is made here: there is no CIFAR-10-C"
    grey_ones = Images(grey(2), np.zeros(2, int), np.array(["a", "b"]), np.array(["a", "b"]))
    assert published.shifted(grey_ones, "mnist", tmp_path, Shift("gaussian-noise", 5, "novel"))[1] == ""


def test_published_corruptions_that_do_not_fit_are_told(tmp_path: Path) -> None:
    clean, _ = cifar_c(tmp_path)
    noise, folder = Shift("gaussian-noise", 2, "novel"), tmp_path / "CIFAR-10-C"

    def refused(images: Images, *words: str) -> None:
        with pytest.raises(RunError) as caught:
            published.shifted(images, "cifar10", tmp_path, noise)
        assert "\n" not in str(caught.value)
        for word in ("gaussian_noise.npy", *words):
            assert word in str(caught.value)

    refused(Images(clean.images, clean.labels[::-1], clean.ids, clean.groups), "order", "labels")
    train = np.array(["cifar10/train/00000"] * 6)
    refused(Images(clean.images, clean.labels, train, train), "only test images", "data.holdout_novel")
    more = np.array(["cifar10/test/00006"] * 6)
    refused(Images(clean.images, clean.labels, more, more), "6 test images")
    np.save(folder / "labels.npy", np.zeros(7))
    refused(clean, "30 images and 7 labels")
    (folder / "gaussian_noise.npy").write_bytes(b"no array")
    refused(clean, "damaged")
    np.save(folder / "gaussian_noise.npy", np.array([{}], dtype=object), allow_pickle=True)
    refused(clean, "no .npy file of numbers")


@pytest.mark.parametrize("folder", [".", "CIFAR-10.1", "CIFAR-10.1/datasets"])
def test_cifar10_version_two(tmp_path: Path, folder: str) -> None:
    images = colour(4)
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    np.save(tmp_path / folder / "cifar10.1_v6_data.npy", images)
    np.save(tmp_path / folder / "cifar10.1_v6_labels.npy", np.array([9, 0, 3, 3], np.int32))
    source = load("cifar10v2", tmp_path)
    assert (source.train.images == images).all()
    assert [source.classes[label] for label in source.train.labels] == ["truck", "airplane", "cat", "cat"]
    assert len(source.test) == 0
    np.save(tmp_path / folder / "cifar10.1_v6_labels.npy", np.array([9, 0, 3]))
    refusal(RunError, "cifar10v2", "cifar10.1_v6_data.npy", "do not fit", root=tmp_path)
    (tmp_path / folder / "cifar10.1_v6_labels.npy").unlink()
    refusal(RunError, "cifar10v2", "cifar10.1_v6_labels.npy", "missing", root=tmp_path)


def test_tiny_imagenet_in_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    for number, wnid in enumerate(("n01443537", "n01629819")):
        for i in range(2):
            picture(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", (60 * number + 9, 0, 0), 64)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
        picture(root / "val" / "images" / f"val_{number}.JPEG", (60 * number + 9, 0, 0), 64)
    picture(root / "test" / "images" / "test_0.JPEG", (250, 0, 0), 64)
    notes = "val_1.JPEG\tn01629819\t0\t32\t44\t62\nval_0.JPEG\tn01443537\t52\t55\t57\t59\n"
    (root / "val" / "val_annotations.txt").write_text(notes)
    source = load("tinyimagenet", tmp_path, image_size=32)
    assert source.classes == ("n01443537", "n01629819")
    assert source.train.labels.tolist() == [0, 0, 1, 1]
    assert source.test.labels.tolist() == [1, 0]
    assert source.train.images.shape == (4, 32, 32, 3)
    assert source.test.images[0, 0, 0, 0] > 50 > source.test.images[1, 0, 0, 0]
    (root / "val" / "val_annotations.txt").unlink()
    refusal(RunError, "tinyimagenet", "val_annotations.txt", "missing", root=tmp_path)


def test_objectnet_loses_its_red_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, name in enumerate(("air_freshener", "alarm_clock", "backpack")):
        path = tmp_path / "objectnet-1.0" / "images" / name / f"{i}.png"
        path.parent.mkdir(parents=True)
        image = Image.new("RGB", (90, 60), (255, 0, 0))
        image.paste((0, 10 * i, 200), (2, 2, 88, 58))
        image.save(path)
    source = load("objectnet", tmp_path, image_size=32)
    assert source.classes == ("air_freshener", "alarm_clock", "backpack")
    assert source.train.images.shape == (3, 32, 32, 3)
    assert source.train.images[..., 0].max() == 0, "nothing red is left"
    monkeypatch.setattr(published, "MOST", 2)
    assert len(load("objectnet", tmp_path, image_size=32).train) == 2
    assert load("objectnet", tmp_path).train.ids.tolist() == load("objectnet", tmp_path).train.ids.tolist()


def test_nih_chest_xrays_by_their_table(tmp_path: Path) -> None:
    folder = tmp_path / "nih"
    findings = ["No Finding", "Effusion|Infiltration", "Cardiomegaly|Effusion", "Nodule|Mass", "Hernia", "Mass"]
    rows = ["Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"]
    for i, found in enumerate(findings):
        rows.append(f"{i:08d}_000.png,{found},0,{i // 2},58,M,PA")
        if i < 5:  # the last is in no part that was unpacked
            picture(folder / f"images_{i // 3 + 1:03d}" / "images" / f"{i:08d}_000.png", 40 * i)
    (folder / "Data_Entry_2017_v2020.csv").write_text("\n".join(rows) + "\n")
    (folder / "test_list.txt").write_text("00000004_000.png\n00000005_000.png\n")
    source = load("nih", tmp_path, image_size=16)
    assert source.classes == ("no finding", "finding", "cardiomegaly", "pneumothorax", "nodule", "mass")
    assert by_class("nih", tmp_path) == {"no finding": [0], "finding": [40, 160], "cardiomegaly": [80], "nodule": [120]}
    assert source.train.groups.tolist() == ["nih/0", "nih/0", "nih/1", "nih/1"]
    assert source.test.labels.tolist() == [1]
    (folder / "Data_Entry_2017_v2020.csv").write_text("Image Index,Patient ID\n")
    refusal(RunError, "nih", "Data_Entry_2017_v2020.csv", "'Finding Labels'", root=tmp_path)


def test_padchest_by_view_and_finding(tmp_path: Path) -> None:
    folder = tmp_path / "padchest"
    rows = [  # projection, pediatric, labels → class
        ("L", "No", "['normal']", "normal"),
        ("L", "No", "['chronic changes', 'pleural effusion']", "finding"),
        ("L", "No", "['multiple nodules', 'pneumonia']", "nodule"),
        ("L", "No", "['pseudonodule', 'atelectasis']", "finding"),
        ("L", "No", "['nodule', 'cardiomegaly']", "cardiomegaly"),
        ("L", "No", "['unchanged']", None),
        ("L", "PED", "['normal']", "pediatric"),
        ("PA", "No", "['cardiomegaly']", "PA"),
        ("AP", "No", "['normal']", "AP"),
        ("AP_horizontal", "No", "['normal']", "AP_horizontal"),
        ("COSTAL", "No", "['normal']", None),
    ]
    lines = [",ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,Projection,Pediatric,Labels"]
    expected: dict[str, list[int]] = {}
    for i, (view, child, labels, name) in enumerate(rows):
        lines.append(f'{i},{i}.png,{i % 3},20140915,{i},p{i // 2},{view},{child},"{labels}"')
        path = folder / str(i % 3) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((40, 40), 257 * 20 * i, np.uint16)).save(path)  # 16 bits, as published
        if name is not None:
            expected.setdefault(name, []).append(20 * i)
    (folder / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv").write_text("\n".join(lines) + "\n")
    assert by_class("padchest", tmp_path) == expected
    source = load("padchest", tmp_path, image_size=16)
    assert source.train.groups[:3].tolist() == ["padchest/p0", "padchest/p0", "padchest/p1"]


def test_diabetic_retinas_by_patient(tmp_path: Path) -> None:
    lines = ["image,level"]
    for i, (eye, level) in enumerate((("10_left", 0), ("10_right", 3), ("13_left", 1))):
        lines.append(f"{eye},{level}")
        picture(tmp_path / "drd" / "train" / f"{eye}.jpeg", (60 * i, 60 * i, 60 * i + 3))
    (tmp_path / "drd" / "trainLabels.csv").write_text("\n".join(lines) + "\n")
    source = load("drd", tmp_path, image_size=16)
    assert [source.classes[label] for label in source.train.labels] == ["healthy", "retinopathy", "retinopathy"]
    assert source.train.groups.tolist() == ["drd/10", "drd/10", "drd/13"]


@pytest.mark.parametrize("form", ["table", "folders"])
def test_histology_patches(tmp_path: Path, form: str) -> None:
    for i, label in enumerate((0, 1, 1)):
        name = f"train/f{i}.tif" if form == "table" else f"train/{label}/f{i}.png"
        picture(tmp_path / "pcam" / name, (50 * i, 0, 99))
    if form == "table":
        (tmp_path / "pcam" / "train_labels.csv").write_text("id,label\nf2,1\nf0,0\nf1,1\n")
    else:
        picture(tmp_path / "pcam" / "test" / "1" / "t.png", (200, 0, 99))
    found = {name: sorted(values) for name, values in by_class("pcam", tmp_path).items()}
    assert found == {"normal": [0], "tumour": [50, 100] + [200] * (form == "folders")}
    assert len(load("pcam", tmp_path, image_size=16).test) == (form == "folders")


@pytest.mark.parametrize(
    ("name", "files", "kept", "groups"),
    [
        ("mura", ["valid/XR_HAND/patient11185/study1_positive/image1.png",
                  "valid/XR_WRIST/patient11186/study1_negative/image1.png"], [0, 1], ["patient11185", "patient11186"]),
        ("malaria", ["cell_images/Parasitized/C33P1thinF_cell_1.png", "cell_images/Uninfected/C1_thinF_cell_2.png"],
         [0, 1], ["C33P1", None]),
        ("drimdb", ["Good/drimdb_good (1).jpg", "Bad/drimdb_bad (1).jpg", "Outlier/drimdb_outlier (1).jpg"],
         [1, 2], [None, None]),
        ("riga", ["BinRushed1/image1-1.tif", "BinRushed1/image1prime.tif"], [1], [None]),
        ("idc", ["8863/0/8863_idx5_x51_y1251_class0.png", "8864/1/8864_idx5_x51_y1_class1.png"], [0, 1],
         ["8863", "8864"]),
        ("anhir", ["breast_1/patch_0.png", "readme.txt"], [0], ["breast_1"]),
    ],
)  # fmt: skip
def test_sets_that_are_only_novel_need_no_labels(
    tmp_path: Path, name: str, files: list[str], kept: list[int], groups: list[str | None]
) -> None:
    for file in files:
        if file.endswith(".txt"):
            (tmp_path / name / file).write_text("no image")
        else:
            picture(tmp_path / name / file, (9, 90, 30))
    source = load(name, tmp_path, image_size=16)
    assert source.train.ids.tolist() == [f"{name}/{files[i]}" for i in kept]
    assert [a for a, b in zip(source.train.groups.tolist(), source.train.ids.tolist(), strict=True) if a != b] == [
        f"{name}/{group}" for group in groups if group is not None
    ]


def test_noise_needs_no_files() -> None:
    source = load("noise", image_size=8)
    assert source.train.images.shape == (10_000, 8, 8)
    assert (
        source.train.images[source.train.labels == 0].std() > source.train.images[source.train.labels == 1].std() > 40
    )
    assert (source.train.images == load("noise", image_size=8).train.images).all()


def test_any_of_them_can_be_a_manifest_or_an_npz(tmp_path: Path) -> None:
    for i in range(3):
        picture(tmp_path / "scans" / f"{i}.png", 70 * i)
    rows = "path,label,group\nscans/0.png,finding,a\nscans/1.png,mass,a\nscans/2.png,no finding,b\n"
    (tmp_path / "nih.csv").write_text(rows)
    source = load("nih", tmp_path, image_size=16)
    assert source.name == "nih"
    assert source.train.labels.tolist() == [1, 5, 0]
    assert source.train.groups.tolist() == ["a", "a", "b"]
    np.savez(tmp_path / "nih.npz", x_train=grey(3), y_train=[5, 0, 1])
    assert load("nih", tmp_path).train.labels.tolist() == [5, 0, 1], "the packed one comes first"
    (tmp_path / "drd.csv").write_text("path,label\nscans/0.png,ill\n")
    refusal(RunError, "drd", "drd.csv", "'ill'", "healthy, retinopathy", root=tmp_path)


def test_damaged_files_of_a_set_are_set_aside(tmp_path: Path) -> None:
    picture(tmp_path / "riga" / "a.png", 9)
    (tmp_path / "riga" / "b.png").write_bytes(b"no image")
    source = load("riga", tmp_path, image_size=16)
    assert len(source.train) == 1
    assert source.rejected[0][0] == "b.png"
    assert "not an image" in source.rejected[0][1]
    (tmp_path / "riga" / "a.png").unlink()
    refusal(RunError, "riga", "no readable image", "b.png", root=tmp_path)
    (tmp_path / "riga" / "b.png").unlink()
    refusal(RunError, "riga", "no image of riga", root=tmp_path)


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) - {"noise"}))
def test_a_published_set_that_is_not_there_says_where_it_must_lie(tmp_path: Path, name: str) -> None:
    refusal(UserError, name, str(tmp_path), f"{name}.npz", "--data DIR", "docs/scenarios.md", root=tmp_path)
    refusal(UserError, name, "no data folder is given")


def test_every_published_set_has_a_reader_and_a_place_in_the_docs() -> None:
    assert set(PUBLISHED) == {"noise", *published.LAYOUTS}
    text = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for name, (_, folders, _) in published.LAYOUTS.items():
        assert f"`{name}`" in text
        assert folders[0] == "." or folders[0] in text


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
