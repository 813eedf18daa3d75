"""Public sets in the forms that are often at hand: our `.npz`, torchvision's files, idx files, or a download.

load("cifar10", Path("data"))                   # through erd.data.sources: data/cifar10.npz, cifar-10-batches-py, …
load("mnist", Path("data"), download=True)
"""

import gzip
import importlib.util
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from erd.base.errors import RunError, UserError, why
from erd.data.arrays import open_npz, read_part
from erd.data.sources.base import Source, Wanted, checked, images_of, source

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
XRAYS = ("normal", "bacterial pneumonia", "viral pneumonia")


@source("digits", shows="digits")
def digits(wanted: Wanted) -> Source:
    # Bundled with scikit-learn: works on any machine, offline. Only its file is read: the import takes seconds.
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    table = np.loadtxt(Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    images = np.rint(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    train = images_of("digits/train", images, table[:, -1].astype(np.int64))
    return Source("digits", DIGITS, train, train.take(slice(0, 0)))


# ---------------------------------------------------------------------------------------------------- torchvision's


@dataclass(frozen=True)
class Set:
    shows: str
    classes: tuple[str, ...]
    loader: str  # torchvision.datasets.<loader>
    marker: str  # a file that is there once torchvision has the set


SETS = {
    "mnist": Set("digits", DIGITS, "MNIST", "MNIST/raw/train-images-idx3-ubyte"),
    "fashion_mnist": Set("clothes", FASHION, "FashionMNIST", "FashionMNIST/raw/train-images-idx3-ubyte"),
    "cifar10": Set("photographs", CIFAR10, "CIFAR10", "cifar-10-batches-py/test_batch"),
    "cifar100": Set("photographs", CIFAR100, "CIFAR100", "cifar-100-python/test"),
    "svhn": Set("digits", DIGITS, "SVHN", "train_32x32.mat"),
}


def first_found(name: str, wanted: Wanted) -> Source:
    """The first of: our `.npz`, torchvision's files, idx files, a download."""
    root, marker = wanted.root, SETS[name].marker
    if root and (file := root / f"{name}.npz").is_file():
        return _from_npz(name, file)
    for folder in (root, root / name) if root else ():  # SVHN's files lie bare: some keep them in a folder
        if (folder / marker).is_file():
            return _from_torchvision(name, folder, download=wanted.download)
    if name == "fashion_mnist":
        for folder in (root / "fashion-mnist", DEBIAN_FASHION, root) if root else (DEBIAN_FASHION,):
            if (folder / "train-images-idx3-ubyte.gz").is_file():
                return _from_idx(name, folder)
    if name == "cifar10" and root and (file := root / "cifar10_near.npz").is_file():  # trains classes 0–4 only
        return _from_npz(name, file)
    if wanted.download:
        if root is None:
            raise UserError(f"{name} has nowhere to be downloaded to: pass --data DIR or set ERD_DATA")
        return _from_torchvision(name, root, download=True)
    remedy = "run with --set data.download=true"
    if name == "fashion_mnist":
        remedy = f"install Debian's package dataset-fashion-mnist (it goes to {DEBIAN_FASHION}), or {remedy}"
    raise _not_found(name, root, f"{name}.npz and {marker}", f", or {remedy}")


for _name, _set in SETS.items():
    source(_name, shows=_set.shows)(partial(first_found, _name))


def _not_found(name: str, root: Path | None, files: str, otherwise: str = "") -> UserError:
    where = f"looked for {files} in {root}" if root else "no data folder is given"
    remedy = f"put {name}.npz in a folder DIR and pass --data DIR or set ERD_DATA"
    return UserError(f"{name} was not found ({where}): {remedy}{otherwise}")


def _from_npz(name: str, file: Path) -> Source:
    parts = []
    with open_npz(file) as archive:
        for part in ("train", "test"):
            found = read_part(archive, file, part, ["y"])
            parts.append(images_of(f"{name}/{part}", found.images, found.columns["y"]))
    return checked(Source(name, SETS[name].classes, parts[0], parts[1]), file)


def _from_torchvision(name: str, folder: Path, *, download: bool = False) -> Source:
    """Through torchvision's own reader, which checks each file's md5 before it reads CIFAR's pickles."""
    from erd.base.torchvision import torchvision  # slow, and most runs do without

    public = SETS[name]
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
            parts.append(images_of(f"{name}/{part}", images, np.asarray(labels)))
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
    return checked(Source(name, public.classes, parts[0], parts[1]), folder / public.marker)


def _from_idx(name: str, folder: Path) -> Source:
    parts = []
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", dimensions=3)
        labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", dimensions=1)
        parts.append(images_of(f"{name}/{part}", images, labels))
    return checked(Source(name, SETS[name].classes, parts[0], parts[1]), folder)


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


# ---------------------------------------------------------------------------------------------------- chest X-rays


@source("chestxray64", shows="X-rays")
def chestxray64(wanted: Wanted) -> Source:
    """Children's chest X-rays (Kermany et al.): `sub_*` tells the two pneumonias apart, `y_*` does not."""
    if wanted.root is None or not (file := wanted.root / "chestxray64.npz").is_file():
        raise _not_found("chestxray64", wanted.root, "chestxray64.npz")
    parts = []
    with open_npz(file) as archive:
        for part in ("train", "test"):
            found = read_part(archive, file, part, ["sub", "patient", "file"])
            labels, patients, names = (found.columns[key] for key in ("sub", "patient", "file"))
            parts.append(images_of("", found.images, labels, ids=names.astype(str), groups=patients.astype(str)))
    return checked(Source("chestxray64", XRAYS, parts[0], parts[1]), file)
