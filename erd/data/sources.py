"""Named image sources: public sets, a user's `.npz`, a user's folder or manifest of image files.

    load("fashion_mnist", Path("data"))                      # data/fashion_mnist.npz, or what else holds the set
    load("folder", path=Path("scans"), image_size=64)        # scans/<class>/*.png or scans/train/<class>/*.png

A new source is one function from `Place` to `Source` and one line in `SOURCES`. Images stay uint8 until batched.
"""

import gzip
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from erd.data.arrays import open_npz, read_array, read_column, read_images, resized
from erd.data.intake import MANIFESTS, Taken, class_folders, take
from erd.errors import RunError, UserError, nearest, why

FOLDER_SIZE = 32  # side of a folder's images where no size is set: its files have no common one
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")  # Debian's package dataset-fashion-mnist

DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm"""
CIFAR100 = tuple(_CIFAR100.split())


@dataclass(frozen=True, eq=False)
class Images:
    images: np.ndarray  # uint8, N×H×W (grey) or N×H×W×3
    labels: np.ndarray  # int64 class index, N
    ids: np.ndarray  # str, N
    groups: np.ndarray  # str, N: what must stay together when the data is split (a patient); else equal to ids

    def __len__(self) -> int:
        return len(self.images)

    def take(self, index: np.ndarray | Sequence[int] | slice) -> "Images":
        if not isinstance(index, slice):
            index = np.asarray(index)
            index = index if len(index) else slice(0, 0)  # an empty list would index as float
        return Images(self.images[index], self.labels[index], self.ids[index], self.groups[index])


@dataclass(frozen=True, eq=False)
class Source:
    name: str
    classes: tuple[str, ...]  # names, index = label
    train: Images
    test: Images  # empty where the set has no test part of its own
    rejected: tuple[tuple[str, str], ...] = ()  # (file, reason in words): what a folder holds that is no usable image
    audited: tuple[str, ...] = ()  # ids of images drawn at random from past batches: the best ones for calibration
    picked: tuple[str, ...] = ()  # ids of images labelled because they looked odd: never for calibration
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where `load` was told to look; each source uses what concerns it."""

    root: Path | None
    download: bool
    path: Path | None
    image_size: int | None


def load(
    name: str,
    root: Path | None = None,
    *,
    download: bool = False,
    path: Path | None = None,
    image_size: int | None = None,
) -> Source:
    """The source `name`: public sets from the folder `root`, the user's own (`npz`, `folder`) from `path`."""
    if name not in SOURCES:
        raise UserError(f"there is no data source '{name}'; {nearest(name, SOURCES)}")
    try:
        source = SOURCES[name](Place(root, download, path, image_size))
    except OSError as error:
        what = error.filename or path or root or name
        reason = error.strerror or why(error)
        raise RunError(f"{what} cannot be read ({reason}): check its permissions and the disk") from error
    if image_size is None:
        return source
    train, test = (replace(part, images=resized(part.images, image_size)) for part in (source.train, source.test))
    return replace(source, train=train, test=test)


# ---------------------------------------------------------------------------------------------------- public sets


def _digits(place: Place) -> Source:
    # Bundled with scikit-learn: works on any machine, offline. Only its file is read: the import takes seconds.
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    table = np.loadtxt(Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    images = np.rint(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    train = _part("digits/train", images, table[:, -1].astype(np.int64))
    return Source("digits", DIGITS, train, train.take(slice(0, 0)))


@dataclass(frozen=True)
class _Public:
    classes: tuple[str, ...]
    loader: str  # torchvision.datasets.<loader>
    marker: str  # a file that is there once torchvision has the set


PUBLIC = {
    "mnist": _Public(DIGITS, "MNIST", "MNIST/raw/train-images-idx3-ubyte"),
    "fashion_mnist": _Public(FASHION, "FashionMNIST", "FashionMNIST/raw/train-images-idx3-ubyte"),
    "cifar10": _Public(CIFAR10, "CIFAR10", "cifar-10-batches-py/test_batch"),
    "cifar100": _Public(CIFAR100, "CIFAR100", "cifar-100-python/test"),
    "svhn": _Public(DIGITS, "SVHN", "train_32x32.mat"),
}


def _public(name: str, place: Place) -> Source:
    """The first of: our `.npz`, torchvision's files, idx files, a download."""
    root, marker = place.root, PUBLIC[name].marker
    if root and (file := root / f"{name}.npz").is_file():
        return _public_npz(name, file)
    for folder in (root, root / name) if root else ():  # SVHN's files lie bare: some keep them in a folder
        if (folder / marker).is_file():
            return _from_torchvision(name, folder, download=place.download)
    if name == "fashion_mnist":
        for folder in (root / "fashion-mnist", DEBIAN_FASHION, root) if root else (DEBIAN_FASHION,):
            if (folder / "train-images-idx3-ubyte.gz").is_file():
                return _from_idx(name, folder)
    if name == "cifar10" and root and (file := root / "cifar10_near.npz").is_file():  # trains classes 0–4 only
        return _public_npz(name, file)
    if place.download:
        if root is None:
            raise UserError(f"{name} has nowhere to be downloaded to: pass --data DIR or set ERD_DATA")
        return _from_torchvision(name, root, download=True)
    remedy = "run with --set data.download=true"
    if name == "fashion_mnist":
        remedy = f"install Debian's package dataset-fashion-mnist (it goes to {DEBIAN_FASHION}), or {remedy}"
    raise _not_found(name, root, f"{name}.npz and {marker}", f", or {remedy}")


def _not_found(name: str, root: Path | None, files: str, otherwise: str = "") -> UserError:
    where = f"looked for {files} in {root}" if root else "no data folder is given"
    remedy = f"put {name}.npz in a folder DIR and pass --data DIR or set ERD_DATA"
    return UserError(f"{name} was not found ({where}): {remedy}{otherwise}")


def _public_npz(name: str, file: Path) -> Source:
    classes = PUBLIC[name].classes
    with open_npz(file) as archive:
        train, test = (_read_part(archive, file, f"{name}/{part}", part) for part in ("train", "test"))
    return _checked(Source(name, classes, train, test), file)


def _from_torchvision(name: str, folder: Path, *, download: bool = False) -> Source:
    """Through torchvision's own reader, which checks each file's md5 before it reads CIFAR's pickles."""
    from erd.vision import torchvision

    public = PUBLIC[name]
    reader = getattr(torchvision.datasets, public.loader)
    parts = []
    try:
        for part in ("train", "test"):
            if name == "svhn":
                data = reader(folder, split=part, download=download)
                images, labels = np.ascontiguousarray(data.data.transpose(0, 2, 3, 1)), data.labels
            else:
                data = reader(folder, train=part == "train", download=download)
                images, labels = np.ascontiguousarray(data.data), data.targets
            parts.append(_part(f"{name}/{part}", images, np.asarray(labels)))
    except PermissionError:
        raise
    except Exception as error:  # each reader has its own kinds: RuntimeError, URLError, ValueError, AssertionError, …
        if download:
            remedy = f"check the network, or put {name}.npz there"
            raise RunError(f"{name} could not be downloaded into {folder} ({why(error)}): {remedy}") from error
        raise RunError(
            f"{folder / public.marker} or a file beside it is damaged or missing ({why(error)}): "
            f"delete them and run with --set data.download=true, or put {name}.npz in the data folder"
        ) from error
    return _checked(Source(name, public.classes, parts[0], parts[1]), folder / public.marker)


def _from_idx(name: str, folder: Path) -> Source:
    parts = []
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", dimensions=3)
        labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", dimensions=1)
        parts.append(_part(f"{name}/{part}", images, labels))
    return _checked(Source(name, PUBLIC[name].classes, parts[0], parts[1]), folder)


def _read_idx(file: Path, dimensions: int) -> np.ndarray:
    """One gzip idx file: magic number 0x0800 + dimensions, each dimension as a big-endian int, then bytes."""
    try:
        with gzip.open(file) as stream:
            content = stream.read()
        header = np.frombuffer(content, ">u4", count=1 + dimensions)
        if header[0] != 0x0800 + dimensions:
            raise ValueError("wrong magic number")
        return np.frombuffer(content, np.uint8, offset=header.nbytes).reshape(header[1:].astype(int)).copy()
    except PermissionError:
        raise
    except Exception as error:  # gzip, zlib and numpy each have their own
        raise RunError(f"{file} is damaged or missing ({why(error)}): get the set's four idx files again") from error


def _chestxray64(place: Place) -> Source:
    """Children's chest X-rays (Kermany et al.): `sub_*` tells the two pneumonias apart, `y_*` does not."""
    name, classes = "chestxray64", ("normal", "bacterial pneumonia", "viral pneumonia")
    if place.root is None or not (file := place.root / f"{name}.npz").is_file():
        raise _not_found(name, place.root, f"{name}.npz")
    keys = {"label": "sub", "group": "patient", "ids": "file"}
    with open_npz(file) as archive:
        train, test = (_read_part(archive, file, f"{name}/{part}", part, **keys) for part in ("train", "test"))
    return _checked(Source(name, classes, train, test), file)


# ---------------------------------------------------------------------------------------------------- a user's .npz


def _npz(place: Place) -> Source:
    """x_train, y_train; optional x_test, y_test, group_train, group_test and `classes` (names, index = label)."""
    file = place.path
    if file is None or not file.is_file():
        problem = "data.path is not set" if file is None else f"data.path: {file} is no file"
        raise UserError(f"{problem}: set data.path to the .npz file that source 'npz' shall read")
    parts: dict[str, Images] = {}
    with open_npz(file) as archive:
        for part in ("train", "test"):
            if part == "train" or "x_test" in archive.files:
                group = "group" if f"group_{part}" in archive.files else None
                parts[part] = _read_part(archive, file, f"{file.stem}/{part}", part, group=group)
        names = read_array(archive, "classes", file) if "classes" in archive.files else None
    test = parts.get("test", parts["train"].take(slice(0, 0)))
    return _checked(_named(Source("npz", (), parts["train"], test), names, file), file)


def _named(source: Source, names: np.ndarray | None, file: Path) -> Source:
    """Labels as indices into the class names: the file's own, else the labels themselves in order."""
    parts = (source.train, source.test)
    strings = all(part.labels.dtype.kind == "U" for part in parts)
    if not strings and not all(part.labels.dtype.kind in "iu" and (part.labels >= 0).all() for part in parts):
        kinds = " and ".join(sorted({str(part.labels.dtype) for part in parts}))
        remedy = "they must be whole numbers from 0, or strings (.astype(str)), in both parts"
        raise RunError(f"{file} has labels of type {kinds} or below 0: {remedy}")
    labels = np.concatenate([part.labels if strings else part.labels.astype(np.int64) for part in parts])
    if names is None:
        known = np.unique(labels)
    elif names.ndim != 1 or names.dtype.kind != "U" or len(set(names.tolist())) != len(names):
        raise RunError(f"classes of {file} must be an array of different strings, one for each label from 0")
    elif not strings:
        return replace(source, classes=tuple(names.tolist()))  # numbers are the index already
    elif (missing := ~np.isin(labels, names)).any():
        raise RunError(f"{file} has label '{labels[missing][0]}', which its array 'classes' does not list: add it")
    else:
        known = names
    order = np.argsort(known)
    train, test = (replace(p, labels=order[np.searchsorted(known, p.labels, sorter=order)]) for p in parts)
    return replace(source, classes=tuple(str(value) for value in known), train=train, test=test)


# ---------------------------------------------------------------------------------------------------- a user's files


def _folder(place: Place) -> Source:
    """`<path>/<class>/…`, or `<path>/train/<class>/…` and `<path>/test/<class>/…`; below a class any depth."""
    root = place.path
    if root is None or not root.is_dir():
        problem = "data.path is not set" if root is None else f"data.path: {root} is no folder"
        raise UserError(f"{problem}: set data.path to the folder that source 'folder' shall read")
    tops, classes = class_folders(root)
    taken = take(root, place.image_size or FOLDER_SIZE, labeled=True)
    in_test = np.array([tops != [root] and name.startswith("test/") for name in taken.ids], bool)
    return _from_files("folder", tops[0], classes, taken, in_test)


def _manifest(place: Place) -> Source:
    """A .csv or .parquet with columns path and label, and group where images belong together."""
    file = place.path
    if file is None or file.suffix.lower() not in MANIFESTS or not file.is_file():
        problem = "data.path is not set" if file is None else f"data.path: {file} is no .csv or .parquet file"
        raise UserError(f"{problem}: set data.path to the manifest that source 'manifest' shall read")
    taken = take(file, place.image_size or FOLDER_SIZE, labeled=True)
    return _from_files("manifest", file, sorted(set(taken.labels.tolist())), taken, np.zeros(len(taken.ids), bool))


def _from_files(name: str, where: Path, classes: Sequence[str], taken: Taken, in_test: np.ndarray) -> Source:
    aside = tuple(sorted(taken.rejected))
    if in_test.all():  # also where nothing was kept
        shown = f" ({len(aside)} files set aside; {aside[0][0]}: {aside[0][1]})" if aside else ""
        raise RunError(f"{where} has no readable image{shown}: put some into it")
    labels = np.array([classes.index(label) for label in taken.labels], np.int64)
    everything = Images(taken.images, labels, taken.ids, taken.groups)
    return Source(name, tuple(classes), everything.take(~in_test), everything.take(in_test), aside)


# ---------------------------------------------------------------------------------------------------- parts and checks


def _read_part(
    archive: NpzFile,
    file: Path,
    prefix: str,
    part: str,
    *,
    label: str = "y",
    group: str | None = None,
    ids: str | None = None,
) -> Images:
    """`x_<part>` with its labels (as the file has them), groups and ids."""

    def column(key: str) -> np.ndarray:
        return read_column(archive, key, file, len(images))

    images = read_images(archive, f"x_{part}", file)
    labels = column(f"{label}_{part}")
    return _part(
        prefix,
        images,
        labels,
        ids=column(f"{ids}_{part}").astype(str) if ids else None,
        groups=column(f"{group}_{part}").astype(str) if group else None,
    )


def _part(
    prefix: str, images: np.ndarray, labels: np.ndarray, ids: np.ndarray | None = None, groups: np.ndarray | None = None
) -> Images:
    if ids is None:
        ids = np.array([f"{prefix}/{i:05d}" for i in range(len(images))], dtype=str)
    return Images(images, labels, ids, ids if groups is None else groups)


def _checked(source: Source, file: Path) -> Source:
    """What must hold between the parts, whatever file they came from; labels become int64."""
    if not len(source.train):
        raise RunError(f"{file} has no training images: put at least a few of each class into it")
    shapes = [part.images.shape[1:] for part in (source.train, source.test)]
    if len(source.test) and shapes[0] != shapes[1]:
        sizes = " and ".join("×".join(map(str, shape)) for shape in shapes)
        raise RunError(f"{file} has training and test images of different shape ({sizes}): bring them to the same")
    parts = []
    for part in (source.train, source.test):
        labels, top = part.labels, len(source.classes) - 1
        if labels.shape != (len(part),):
            raise RunError(f"{file} has {len(labels)} labels for {len(part)} images: give each image one label")
        if labels.dtype.kind not in "iu" or (len(labels) and (labels.min() < 0 or labels.max() > top)):
            shown = f"of type {labels.dtype}" if labels.dtype.kind not in "iu" else f"{labels.min()} to {labels.max()}"
            raise RunError(f"{file} has labels {shown}: they must be whole numbers from 0 to {top}, one per class")
        parts.append(replace(part, labels=labels.astype(np.int64)))
    return replace(source, train=parts[0], test=parts[1])


def _published(name: str, place: Place) -> Source:
    from erd.data import published  # which needs this module

    return published.read(name, place)


# Read by erd.data.published; docs/scenarios.md says where their files must lie.
PUBLISHED = ("noise", "cifar10v2", "tinyimagenet", "objectnet", "nih", "padchest", "drd", "pcam", "mura", "malaria",
             "drimdb", "riga", "idc", "anhir")  # fmt: skip
SOURCES: dict[str, Callable[[Place], Source]] = {
    "digits": _digits,
    **{name: partial(_public, name) for name in PUBLIC},
    "chestxray64": _chestxray64,
    **{name: partial(_published, name) for name in PUBLISHED},
    "npz": _npz,
    "folder": _folder,
    "manifest": _manifest,
}
