"""Named image sources: public sets, a user's `.npz`, a user's folder of images.

    load("fashion_mnist", Path("data"))                      # data/fashion_mnist.npz, or what else holds the set
    load("folder", path=Path("scans"), image_size=64)        # scans/<class>/*.png or scans/train/<class>/*.png

A new source is one function from `Place` to `Source` and one line in `SOURCES`. Images stay uint8 until batched.
"""

import gzip
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile
from PIL import Image, ImageOps, UnidentifiedImageError

from erd.errors import RunError, UserError, nearest

MIN_SIDE = 8  # pixels; below that the networks have nothing left to pool
MAX_PIXELS = 80_000_000  # of one file; below Pillow's own limit against decompression bombs
FOLDER_SIZE = 32  # side of a folder's images where no size is set: its files have no common one
FORMATS = ("PNG", "JPEG", "JPEG2000", "BMP", "TIFF", "WEBP", "GIF", "PPM")  # no EPS: Pillow would run Ghostscript on it
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
        why = error.strerror or _why(error)
        raise RunError(f"{what} cannot be read ({why}): check its permissions and the disk") from error
    if image_size is None or source.train.images.shape[1] == image_size:
        return source
    return replace(source, train=_resized(source.train, image_size), test=_resized(source.test, image_size))


# ---------------------------------------------------------------------------------------------------- public sets


def _digits(place: Place) -> Source:
    from sklearn.datasets import load_digits  # bundled with scikit-learn: works on any machine, offline

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    train = _part("digits/train", images, bunch.target.astype(np.int64))
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
    with _open_npz(file) as archive:
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
            raise RunError(f"{name} could not be downloaded into {folder} ({_why(error)}): {remedy}") from error
        raise RunError(
            f"{folder / public.marker} or a file beside it is damaged or missing ({_why(error)}): "
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
        raise RunError(f"{file} is damaged or missing ({_why(error)}): get the set's four idx files again") from error


def _chestxray64(place: Place) -> Source:
    """Children's chest X-rays (Kermany et al.): `sub_*` tells the two pneumonias apart, `y_*` does not."""
    name, classes = "chestxray64", ("normal", "bacterial pneumonia", "viral pneumonia")
    if place.root is None or not (file := place.root / f"{name}.npz").is_file():
        raise _not_found(name, place.root, f"{name}.npz")
    keys = {"label": "sub", "group": "patient", "ids": "file"}
    with _open_npz(file) as archive:
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
    with _open_npz(file) as archive:
        for part in ("train", "test"):
            if part == "train" or "x_test" in archive.files:
                group = "group" if f"group_{part}" in archive.files else None
                parts[part] = _read_part(archive, file, f"{file.stem}/{part}", part, group=group)
        names = _array(archive, "classes", file) if "classes" in archive.files else None
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


# ---------------------------------------------------------------------------------------------------- a user's folder


def _folder(place: Place) -> Source:
    """`<path>/<class>/…`, or `<path>/train/<class>/…` and `<path>/test/<class>/…`; below a class any depth."""
    root = place.path
    if root is None or not root.is_dir():
        problem = "data.path is not set" if root is None else f"data.path: {root} is no folder"
        raise UserError(f"{problem}: set data.path to the folder that source 'folder' shall read")
    size = place.image_size or FOLDER_SIZE
    # A class may be called "train" (trains and buses): it is a part only where it holds folders itself.
    split = (root / "train").is_dir() and any(entry.is_dir() for entry in _visible(root / "train"))
    tops = [root / "train", root / "test"] if split else [root]
    tops = [top for top in tops if top.is_dir()]
    classes = tuple(sorted({entry.name for top in tops for entry in _visible(top) if entry.is_dir()}))
    if not classes:
        raise RunError(f"{root} has no class folders: put the images of each class into a folder named after the class")

    files = [file for top in tops for name in classes for file in list_files(top / name)]
    kept, images, rejected = decode_all(files, size)
    strays = [(entry, "neither train nor test: not read") for entry in _visible(root) if split and entry not in tops]
    strays += [(entry, "in no class folder") for top in tops for entry in _visible(top) if entry.is_file()]
    aside = tuple(sorted((_name(file, root), reason) for file, reason in strays + rejected))

    names = [file.relative_to(root).parts for file in kept]
    ids = np.array([_name(file, root) for file in kept], dtype=str)
    labels = np.array([classes.index(parts[1 if split else 0]) for parts in names], np.int64)
    in_test = np.array([split and parts[0] == "test" for parts in names], bool)
    everything = Images(images, labels, ids, ids)
    if in_test.all():  # also where nothing was kept
        why = f" ({len(aside)} files set aside; {aside[0][0]}: {aside[0][1]})" if aside else ""
        raise RunError(f"{tops[0]} has no readable image{why}: put some into its class folders")
    return Source("folder", classes, everything.take(~in_test), everything.take(in_test), aside)


def list_files(folder: Path) -> list[Path]:
    """All files below `folder` in a fixed order, hidden ones left out; what is no image is for `decode` to say."""
    found = []
    for entry in _visible(folder) if folder.is_dir() else []:
        found += list_files(entry) if entry.is_dir() and not entry.is_symlink() else [entry]
    return found


def decode_all(paths: Sequence[Path], image_size: int) -> tuple[list[Path], np.ndarray, list[tuple[Path, str]]]:
    """The readable ones of `paths`, their images (grey if all are, else all colour), and (path, reason) of the rest."""

    def attempt(path: Path) -> np.ndarray | str:
        try:
            return decode(path, image_size)
        except ValueError as error:
            return str(error)

    Image.init()  # all plugins before the threads: two threads that load them at once can miss a format
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `decode` has its own limit
        results = list(zip(paths, pool.map(attempt, paths), strict=True))
    kept = [(path, result) for path, result in results if not isinstance(result, str)]
    rejected = [(path, result) for path, result in results if isinstance(result, str)]
    colour = any(image.ndim == 3 for _, image in kept)
    images = np.empty((len(kept), image_size, image_size) + (3,) * colour, np.uint8)
    for i, (_, image) in enumerate(kept):
        images[i] = image[..., None] if colour and image.ndim == 2 else image
    return [path for path, _ in kept], images, rejected


def decode(path: Path, image_size: int) -> np.ndarray:
    """One image file as uint8 S×S (grey) or S×S×3; ValueError with the reason in words where that cannot be."""
    try:
        if path.stat().st_size == 0:
            raise _Unfit("empty file (0 bytes)")
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise _Unfit(f"too large ({width}×{height} pixels; at most {MAX_PIXELS // 1_000_000} million)")
            if min(width, height) < MIN_SIDE:
                raise _Unfit(f"too small ({width}×{height} pixels; at least {MIN_SIDE}×{MIN_SIDE})")
            image.draft(None, (2 * image_size, 2 * image_size))  # a large JPEG decodes at a fraction of its size
            upright = ImageOps.exif_transpose(image)
            resized = _eight_bit(upright).resize((image_size, image_size), Image.Resampling.BILINEAR)
    except _Unfit:
        raise
    except UnidentifiedImageError:
        raise ValueError(f"not an image of a known format ({', '.join(FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"too large (at most {MAX_PIXELS // 1_000_000} million pixels)") from None
    except PermissionError:
        raise ValueError("may not be read (permission denied)") from None
    except FileNotFoundError:
        raise ValueError("not there (moved, or a broken link)") from None
    except IsADirectoryError:
        raise ValueError("a link to a folder: not followed") from None
    except Exception as error:  # decoders raise all sorts on damaged files: OSError, SyntaxError, struct.error, …
        raise ValueError(f"damaged or cut off ({_why(error)})") from error
    pixels = np.asarray(resized)
    grey = pixels.ndim == 3 and (pixels == pixels[..., :1]).all()  # grey scans are often saved as colour
    return pixels[..., 0] if grey else pixels


class _Unfit(ValueError):
    """A reason of our own, told from those a decoder raises."""


def _eight_bit(image: Image.Image) -> Image.Image:
    """Mode L or RGB. 16 bits scale by their full range: by an image's own range, two images would not compare."""
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise _Unfit("has 32-bit pixels: save it with 8 or 16 bits")
        return Image.fromarray(np.rint(values / 257).astype(np.uint8))
    if image.mode == "F":
        raise _Unfit("has floating-point pixels: save it with 8 or 16 bits")
    if image.mode in ("1", "L", "LA"):
        return image.convert("L")
    return image.convert("RGBA").convert("RGB") if image.mode in ("P", "PA") else image.convert("RGB")


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _name(file: Path, root: Path) -> str:
    """Relative path; a name that is not valid UTF-8 (old Windows shares) is escaped, or no table could hold it."""
    return file.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode()


# ---------------------------------------------------------------------------------------------------- arrays and checks


@contextmanager
def _open_npz(file: Path) -> Iterator[NpzFile]:
    remedy = "make it with numpy.savez_compressed, or get it again"
    with file.open("rb") as stream:  # numpy leaves a file open that is no good archive
        try:
            archive = np.load(stream, allow_pickle=False)
        except Exception as error:  # BadZipFile, EOFError, ValueError, OSError, … by where it is broken
            raise RunError(f"{file} is damaged or no .npz file ({_why(error)}): {remedy}") from error
        if not isinstance(archive, NpzFile):
            raise RunError(f"{file} holds a single array and is no .npz file: {remedy}")
        with archive:
            yield archive


def _array(archive: NpzFile, key: str, file: Path) -> np.ndarray:
    """One array; the others stay on disk."""
    if key not in archive.files:
        raise RunError(f"{file} has no array '{key}': add it (found: {', '.join(archive.files) or 'none'})")
    try:
        return archive[key]
    except Exception as error:
        if "allow_pickle" in str(error):
            remedy = "save numbers or strings instead, e.g. numpy.array(list_of_names, dtype=str)"
            raise RunError(f"{key} of {file} holds Python objects, which can carry code: {remedy}") from error
        raise RunError(f"{key} of {file} is damaged ({_why(error)}): make or get the file again") from error


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
        values = _array(archive, key, file)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values  # Keras saves labels as N×1
        if values.shape != (len(images),):
            raise RunError(f"{key} of {file} has shape {values.shape} for {len(images)} images: give one value each")
        return values

    images = _pixels(_array(archive, f"x_{part}", file), f"x_{part} of {file}")
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


def _pixels(images: np.ndarray, where: str) -> np.ndarray:
    """uint8 N×S×S or N×S×S×3, or a sentence that says what to change."""
    if images.size == 0:
        raise RunError(f"{where} holds no images: put some in, or leave out a test part that there is not")
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim != 3 and not (images.ndim == 4 and images.shape[3] == 3):
        channels_first = images.ndim == 4 and images.shape[1] in (1, 3)
        hint = " (move the channels last: x.transpose(0, 2, 3, 1))" if channels_first else ""
        raise RunError(f"{where} has shape {images.shape}: images must be N×H×W or N×H×W×3{hint}")
    if images.shape[1] != images.shape[2] or images.shape[1] < MIN_SIDE:
        size = f"{images.shape[1]}×{images.shape[2]}"
        raise RunError(f"{where} has images of {size}: resize them to squares of at least {MIN_SIDE}×{MIN_SIDE} pixels")
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind == "f":
        bad = int((~np.isfinite(images)).reshape(len(images), -1).any(axis=1).sum())
        if bad:
            raise RunError(f"{where} has NaN or infinite pixels in {bad} of {len(images)} images: repair or drop those")
    if images.dtype.kind not in "iu":
        remedy = "convert with (x * 255).round().astype('uint8') if they run from 0 to 1"
        raise RunError(f"{where} has pixels of type {images.dtype}, they must be uint8 from 0 to 255: {remedy}")
    if images.min() < 0 or images.max() > 255:
        raise RunError(f"{where} has pixels from {images.min()} to {images.max()}: scale them to 0 to 255 (uint8)")
    return images.astype(np.uint8)


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


def _resized(part: Images, size: int, chunk: int = 1024) -> Images:
    import torch
    from torch.nn.functional import interpolate

    old = part.images
    new = np.empty((len(old), size, size, *old.shape[3:]), np.uint8)
    for start in range(0, len(old), chunk):  # floats take four times the room of bytes
        pixels = torch.from_numpy(np.ascontiguousarray(old[start : start + chunk])).float()
        pixels = pixels.movedim(-1, 1) if old.ndim == 4 else pixels[:, None]
        pixels = interpolate(pixels, size=(size, size), mode="bilinear", antialias=True).round().clamp(0, 255).byte()
        new[start : start + chunk] = (pixels.movedim(1, -1) if old.ndim == 4 else pixels[:, 0]).numpy()
    return replace(part, images=new)


def _why(error: Exception) -> str:
    """The library's own reason, on one line and not too long for a sentence."""
    text = " ".join(str(error).split())
    return (text[:157] + "…" if len(text) > 158 else text) or type(error).__name__


SOURCES: dict[str, Callable[[Place], Source]] = {
    "digits": _digits,
    **{name: partial(_public, name) for name in PUBLIC},
    "chestxray64": _chestxray64,
    "npz": _npz,
    "folder": _folder,
}
