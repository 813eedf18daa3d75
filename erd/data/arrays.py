"""Arrays of images in `.npz` and `.npy` files: read without pickle, checked, brought to size and to colour.

    parts, classes = read_own(Path("mine.npz"), labeled=True)      # x_*, y_*, group_* and classes of a user's own file
    resized(parts["train"].images, 64)

What is wrong is one sentence.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from erd.base.errors import RunError, why

MIN_SIDE = 8  # pixels; below that the networks have nothing left to pool


@contextmanager
def open_npz(file: Path) -> Iterator[NpzFile]:
    remedy = "make it with numpy.savez_compressed, or get it again"
    with file.open("rb") as stream:  # numpy leaves a file open that is no good archive
        try:
            archive = np.load(stream, allow_pickle=False)
        except Exception as error:  # BadZipFile, EOFError, ValueError, OSError, … by where it is broken
            raise RunError(f"{file} is damaged or no .npz file ({why(error)}): {remedy}") from error
        if not isinstance(archive, NpzFile):
            raise RunError(f"{file} holds a single array and is no .npz file: {remedy}")
        with archive:
            yield archive


def read_array(archive: NpzFile, key: str, file: Path) -> np.ndarray:
    """One array; the others stay on disk."""
    if key not in archive.files:
        raise RunError(f"{file} has no array '{key}': add it (found: {', '.join(archive.files) or 'none'})")
    try:
        found = archive[key]
        if found.dtype.kind == "U":
            "".join(found.ravel().tolist()).encode()  # half a character could be written to no table
        return found
    except Exception as error:
        if "allow_pickle" in str(error):
            remedy = "save numbers or strings instead, e.g. numpy.array(list_of_names, dtype=str)"
            raise RunError(f"{key} of {file} holds Python objects, which can carry code: {remedy}") from error
        raise RunError(f"{key} of {file} is damaged ({why(error)}): make or get the file again") from error


def read_column(archive: NpzFile, key: str, file: Path, count: int) -> np.ndarray:
    """One value for each of `count` images."""
    values = read_array(archive, key, file)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values  # Keras saves labels as N×1
    if values.shape != (count,):
        raise RunError(f"{key} of {file} has shape {values.shape} for {count} images: give one value each")
    return values


def read_images(archive: NpzFile, key: str, file: Path) -> np.ndarray:
    """uint8 N×S×S or N×S×S×3."""
    return _pixels(read_array(archive, key, file), f"{key} of {file}")


def read_npy(file: Path) -> np.ndarray:
    """The array of an `.npy` file, memory-mapped: only rows that are looked at are read."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise RunError(f"{file} is missing: get it again, with the files beside it") from None
    except PermissionError:
        raise
    except Exception as error:  # ValueError, EOFError, OSError, … by where it is broken
        raise RunError(f"{file} is damaged or no .npy file of numbers ({why(error)}): get it again") from error


def read_npy_images(file: Path) -> np.ndarray:
    """uint8 N×S×S or N×S×S×3, memory-mapped."""
    return _pixels(read_npy(file), str(file))


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


# ---------------------------------------------------------------------------------------------------- parts


@dataclass(frozen=True, eq=False)
class Part:
    """`x_<name>` of an archive, and what goes with it."""

    images: np.ndarray  # uint8 N×S×S or N×S×S×3
    columns: dict[str, np.ndarray]  # by the first word of the array's name, y of y_train: a value an image, as it is


def read_part(archive: NpzFile, file: Path, part: str, columns: Sequence[str], if_there: Sequence[str] = ()) -> Part:
    """`x_<part>` with `<column>_<part>` for each of the columns."""
    images = read_images(archive, f"x_{part}", file)
    found = [*columns, *(column for column in if_there if f"{column}_{part}" in archive.files)]
    return Part(images, {column: read_column(archive, f"{column}_{part}", file, len(images)) for column in found})


def read_own(
    file: Path, *, labeled: bool, parts: Sequence[str] | None = None
) -> tuple[dict[str, Part], np.ndarray | None]:
    """A user's own images: x_*, with y_* (which labelled ones must have) and group_* where they are there; and
    `classes`, which numbers in y_* index, where that is there.

    Of `parts` the first must be there and no other is read; where none are named all are.
    """
    needed, if_there = (("y",), ("group",)) if labeled else ((), ("y", "group"))
    with open_npz(file) as archive:
        names = [key[2:] for key in archive.files if key.startswith("x_")]
        if parts is not None:
            names = [parts[0], *(name for name in parts[1:] if name in names)]
        names = names or ["train"]  # where there is none, x_train is what the user is told to add
        found = {name: read_part(archive, file, name, needed, if_there) for name in names}
        return found, read_array(archive, "classes", file) if "classes" in archive.files else None


# ---------------------------------------------------------------------------------------------------- size and colour


def in_colour(images: np.ndarray) -> np.ndarray:
    """N×S×S×3, grey images with three equal channels."""
    return images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=3)


def resized(old: np.ndarray, size: int, chunk: int = 1024) -> np.ndarray:
    import torch  # slow, and most sets have their size already
    from torch.nn.functional import interpolate

    if old.shape[1] == size:
        return old
    new = np.empty((len(old), size, size, *old.shape[3:]), np.uint8)
    for start in range(0, len(old), chunk):  # floats take four times the room of bytes
        pixels = torch.from_numpy(np.ascontiguousarray(old[start : start + chunk])).float()
        pixels = pixels.movedim(-1, 1) if old.ndim == 4 else pixels[:, None]
        pixels = interpolate(pixels, size=(size, size), mode="bilinear", antialias=True).round().clamp(0, 255).byte()
        new[start : start + chunk] = (pixels.movedim(1, -1) if old.ndim == 4 else pixels[:, 0]).numpy()
    return new


def as_labeled(images: np.ndarray, colour: bool) -> np.ndarray:
    """N×S×S or N×S×S×3, grey or in colour as the labelled images are."""
    if colour:
        return in_colour(images)
    if images.ndim == 4:  # luma, as Pillow makes grey of colour
        return np.stack([np.rint(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8) for image in images])
    return images
