"""What a source is: a reader that is entered by name, and gives images with labels, ids and groups.

@source("my_set", shows="photographs")
def my_set(wanted: Wanted) -> Source:
    images, labels = …                                     # uint8 N×H×W or N×H×W×3, whole numbers from 0
    everything = images_of("my_set/train", images, labels)
    return Source("my_set", ("cat", "dog"), everything, everything.take([]))
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from erd.base.errors import RunError
from erd.data.images import Images

FOLDER_SIZE = 32  # side of images from files where no size is set: these have no common one


@dataclass(frozen=True, eq=False)
class Source:
    name: str
    classes: tuple[str, ...]  # names, index = label
    train: Images
    test: Images  # empty where the set has no test part of its own
    rejected: tuple[tuple[str, str], ...] = ()  # (file, reason in words): what a folder holds that is no usable image
    audited: tuple[str, ...] = ()  # ids of images drawn at random from past batches: the best ones for calibration
    picked: tuple[str, ...] = ()  # ids of images labelled because they looked odd: never for calibration
    waiting: dict[str, str] = field(default_factory=dict)  # what is not learned yet, and why, in a sentence


@dataclass(frozen=True)
class Wanted:
    """What `load` was asked for; each source uses what concerns it."""

    root: Path | None  # the folder of public sets
    download: bool
    path: Path | None  # a user's own file or folder
    image_size: int | None
    largest: int | None = None  # where no size is set: files are kept as large as they come, and at most so


Reader = Callable[[Wanted], Source]


@dataclass(frozen=True)
class Entered:
    read: Reader
    shows: str | None


SOURCES: dict[str, Entered] = {}


def source(name: str, *, shows: str | None = None) -> Callable[[Reader], Reader]:
    """Enter a reader. `shows` is the kind of thing in the images, None where nobody can tell: sets of one kind hold
    each other's classes (SVHN's house numbers are digits like MNIST's), so none is an outlier to the other."""

    def enter(read: Reader) -> Reader:
        if name in SOURCES:
            raise ValueError(f"two sources are called {name}")
        SOURCES[name] = Entered(read, shows)
        return read

    return enter


def images_of(
    prefix: str, images: np.ndarray, labels: np.ndarray, ids: np.ndarray | None = None, groups: np.ndarray | None = None
) -> Images:
    """`<prefix>/00000` and so on where there are no ids; an image by itself where there are no groups."""
    if ids is None:
        ids = np.array([f"{prefix}/{i:05d}" for i in range(len(images))], dtype=str)
    return Images(images, labels, ids, ids if groups is None else groups)


def checked(source: Source, file: Path) -> Source:
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
