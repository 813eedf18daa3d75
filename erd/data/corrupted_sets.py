"""Corrupted versions of a source's images: from the published files where these are there (CIFAR-10-C), else made.

shifted(images, "cifar10", Path("data"), Shift("fog", 5, "novel"))
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from erd.base.errors import RunError
from erd.data.arrays import read_npy, read_npy_images, resized
from erd.data.corruptions import corrupt
from erd.data.images import Images
from erd.settings.scenarios import Shift

# Names of the folders of corrupted images, by the set they were made of; each holds its 10,000 test images five times.
CORRUPTED = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}


def corrupted_file(source: str, root: Path | None, shift: Shift) -> Path | None:
    """The published file of a source's corrupted test images; None where it is not there."""
    if root is None or source not in CORRUPTED:
        return None
    file = root / CORRUPTED[source] / f"{shift.corruption.replace('-', '_')}.npy"
    return file if file.is_file() else None


def shifted(images: Images, source: str, root: Path | None, shift: Shift) -> tuple[Images, str]:
    """The corrupted versions of some images of a source, and a warning or "".

    From the published files where they are there, which hold test images only; else made.
    """
    name, level = shift.corruption, shift.severity
    ids = np.array([f"{image}/{name}-{level}" for image in images.ids], dtype=str)
    if (file := corrupted_file(source, root, shift)) is None:
        made = corrupt(np.asarray(images.images), images.ids, name, level)
        told = (
            f"{name} at severity {level} is made here: there is no {CORRUPTED[source]}" if source in CORRUPTED else ""
        )
        return replace(images, images=made, ids=ids), told
    stored, labels = read_npy_images(file), read_npy(file.with_name("labels.npy"))
    each = len(stored) // 5
    if len(stored) % 5 or labels.shape != (len(stored),):
        counts = f"{len(stored):,} images and {labels.size:,} labels"
        raise RunError(f"{file} and labels.npy beside it have {counts}: both must be five times as many as test images")
    rows = np.array([_test_row(image, source, file) for image in images.ids], int)
    if len(rows) and rows.max() >= each:
        raise RunError(f"{file} is of {each:,} test images, and {source} has more: get both whole")
    rows += (level - 1) * each
    if (labels[rows] != images.labels).any():
        raise RunError(f"{file} is not in the order of {source}'s test images, by its labels: get both again")
    pixels = resized(np.ascontiguousarray(stored[rows]), images.images.shape[1])
    return replace(images, images=pixels, ids=ids), ""


def _test_row(image: str, source: str, file: Path) -> int:
    found = re.fullmatch(rf"{source}/test/(\d+)", image)
    if found is None:
        raise RunError(
            f"{file} has only test images, and the scenario needs more: set data.batch_novel or data.holdout_novel "
            f"lower, or move {file.parent} away to have all made"
        )
    return int(found[1])
