"""Room for many images: in memory where they are few, else in a file that is gone when nobody uses it any more.

room = scratch.empty((100_000, 224, 224, 3), near=Path("library"))
scratch.copy(pixels, room)                   # a part at a time
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from erd.base.errors import RunError
from erd.data.pixels import Pixels

IN_MEMORY = 512 << 20  # bytes
AT_ONCE = 64 << 20  # bytes that are copied at a time


def empty(shape: tuple[int, ...], near: Path = Path()) -> np.ndarray:
    """uint8. A sentence where the disk has no room for it, before anything is begun."""
    needed = int(np.prod(shape, dtype=np.int64))
    if needed <= IN_MEMORY:
        return np.empty(shape, np.uint8)
    near.mkdir(parents=True, exist_ok=True)
    check_room(needed, near, f"{shape[0]:,} images of {shape[1]} pixels")
    with tempfile.TemporaryFile(dir=near, prefix=".erd-scratch-") as file:
        return np.memmap(file, np.uint8, mode="w+", shape=shape)


def check_room(needed: int, near: Path, what: str) -> None:
    while not near.exists():
        near = near.absolute().parent
    if (free := shutil.disk_usage(near).free) < needed:
        raise RunError(
            f"{what} take up to {needed / 1e9:.1f} GB on disk and {free / 1e9:.1f} GB are free: free some, or set "
            "data.image_size lower"
        )


def copy(images: np.ndarray | Pixels, room: np.ndarray) -> None:
    """Fill `room`, a part at a time; grey images fill three channels."""
    step = max(1, AT_ONCE // max(1, int(np.prod(room.shape[1:]))))
    for start in range(0, len(images), step):
        part = np.asarray(images[start : start + step])
        room[start : start + len(part)] = part if part.ndim == room.ndim else part[..., None]


def in_one_piece(images: np.ndarray | Pixels, near: Path = Path()) -> np.ndarray:
    """An array with these images in their order; the mapped file itself where that is one."""
    if not isinstance(images, Pixels):
        return np.ascontiguousarray(images)
    if np.array_equal(images.rows, np.arange(len(images.whole))):
        return images.whole
    room = empty(images.shape, near)
    copy(images, room)
    return room
