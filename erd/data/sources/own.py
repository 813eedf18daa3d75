"""A user's own images: an `.npz`, a folder of class folders, a manifest of image files.

load("npz", path=Path("mine.npz"))                       # through erd.data.sources
load("manifest", path=Path("labels.csv"), image_size=64)
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from erd.base.errors import RunError, UserError
from erd.data.arrays import Part, read_own
from erd.data.entries import MANIFESTS, class_folders
from erd.data.images import Images
from erd.data.reading import Taken, take
from erd.data.sources.base import FOLDER_SIZE, Source, Wanted, checked, images_of, source


@source("npz")
def npz(wanted: Wanted) -> Source:
    """x_train, y_train; optional x_test, y_test, group_train, group_test and `classes` (names, index = label)."""
    file = wanted.path
    if file is None or not file.is_file():
        problem = "data.path is not set" if file is None else f"data.path: {file} is no file"
        raise UserError(f"{problem}: set data.path to the .npz file that source 'npz' shall read")
    parts, names = read_own(file, labeled=True, parts=("train", "test"))
    train = _images(file, "train", parts["train"])
    test = _images(file, "test", parts["test"]) if "test" in parts else train.take(slice(0, 0))
    return checked(_named(Source("npz", (), train, test), names, file), file)


def _images(file: Path, name: str, part: Part) -> Images:
    groups = part.columns["group"].astype(str) if "group" in part.columns else None
    return images_of(f"{file.stem}/{name}", part.images, part.columns["y"], groups=groups)


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


@source("folder")
def folder(wanted: Wanted) -> Source:
    """`<path>/<class>/…`, or `<path>/train/<class>/…` and `<path>/test/<class>/…`; below a class any depth."""
    root = wanted.path
    if root is None or not root.is_dir():
        problem = "data.path is not set" if root is None else f"data.path: {root} is no folder"
        raise UserError(f"{problem}: set data.path to the folder that source 'folder' shall read")
    tops, classes = class_folders(root)
    taken = take(root, wanted.image_size, largest=wanted.largest or FOLDER_SIZE, labeled=True)
    in_test = np.array([tops != [root] and name.startswith("test/") for name in taken.ids], bool)
    return _from_files("folder", tops[0], classes, taken, in_test)


@source("manifest")
def manifest(wanted: Wanted) -> Source:
    """A .csv or .parquet with columns path and label, and group where images belong together."""
    file = wanted.path
    if file is None or file.suffix.lower() not in MANIFESTS or not file.is_file():
        problem = "data.path is not set" if file is None else f"data.path: {file} is no .csv or .parquet file"
        raise UserError(f"{problem}: set data.path to the manifest that source 'manifest' shall read")
    taken = take(file, wanted.image_size, largest=wanted.largest or FOLDER_SIZE, labeled=True)
    return _from_files("manifest", file, sorted(set(taken.labels.tolist())), taken, np.zeros(len(taken.ids), bool))


def _from_files(name: str, where: Path, classes: Sequence[str], taken: Taken, in_test: np.ndarray) -> Source:
    aside = tuple(sorted(taken.rejected))
    if in_test.all():  # also where nothing was kept
        shown = f" ({len(aside)} files set aside; {aside[0][0]}: {aside[0][1]})" if aside else ""
        raise RunError(f"{where} has no readable image{shown}: put some into it")
    labels = np.array([classes.index(label) for label in taken.labels], np.int64)
    everything = Images(taken.images, labels, taken.ids, taken.groups)
    return Source(name, tuple(classes), everything.take(~in_test), everything.take(in_test), aside)
