"""Packed sets: one safetensors file of uint8 images, and beside it a Parquet manifest with a row an image.

pack(path, images, classes, part=part)          # path, and manifest(path)
labeled = read(path)                            # memory-mapped
labeled.rows("train"), labeled.labels_of("train")

Of the library's images a set may hold only which they are (`refer`): a copy of all of them a week would fill the disk.
What an encoder makes of a set is a set too, with features in place of images (`pack_features`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from erd.base import files
from erd.base.errors import RunError
from erd.data import library
from erd.data.images import Images
from erd.data.pixels import Pixels

PARTS = ("train", "val", "calibration", "clean")  # clean: the half of C that is not hidden in the batch


@dataclass(frozen=True)
class Rows:
    """Some rows of an image file: `images` is uint8, N×H×W or N×H×W×C, or features, N×1×1×D; `rows` None means all."""

    images: Tensor
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images) if self.rows is None else len(self.rows)

    def split(self, size: int) -> "list[Rows]":
        """So many images at a time, without a copy."""
        if self.rows is None:
            return [Rows(images) for images in self.images.split(size)]
        return [Rows(self.images, rows) for rows in self.rows.split(size)]

    def every(self) -> Tensor:
        """All of them as one tensor, in their order."""
        return self.take(torch.arange(len(self)))

    def take(self, positions: Tensor) -> Tensor:
        # Not images[…]: that copies byte by byte, index_select row by row.
        return self.images.index_select(0, positions if self.rows is None else self.rows[positions])


@dataclass(frozen=True)
class Packed:
    """A packed set, memory-mapped. `labels` and `part` (an index into PARTS) are those of the labelled set."""

    images: Tensor  # row i of the set is row index[i] of them, or row i where there is no index
    labels: Tensor | None
    part: Tensor | None
    facts: dict
    index: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images) if self.index is None else len(self.index)

    def rows(self, *parts: str) -> Rows:
        """The images of some parts of the labelled set; all images where none is named."""
        return self.some(self._where(parts)) if parts else Rows(self.images, self.index)

    def some(self, chosen: Tensor) -> Rows:
        """Rows of the set by their numbers."""
        return Rows(self.images, chosen if self.index is None else self.index[chosen])

    def only(self, chosen: Tensor) -> "Packed":
        """Some of the labelled set, by their numbers."""
        assert self.labels is not None
        assert self.part is not None
        index = chosen if self.index is None else self.index[chosen]
        return Packed(self.images, self.labels[chosen], self.part[chosen], self.facts, index)

    def labels_of(self, *parts: str) -> Tensor:
        assert self.labels is not None
        return self.labels[self._where(parts)]

    def _where(self, parts: tuple[str, ...]) -> Tensor:
        assert self.part is not None
        return torch.cat([(self.part == PARTS.index(name)).nonzero()[:, 0] for name in parts])


def manifest(path: Path) -> Path:
    """The table beside a packed set: id, group, and label, part, truth or what else is known of each image."""
    return path.with_suffix(".parquet")


def pack(
    path: Path,
    images: Images,
    classes: list[str] | None,
    *,
    part: np.ndarray | None = None,
    truth: np.ndarray | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a set; `columns` are further ones of its manifest. Returns `path`."""
    whole = {"images": torch.from_numpy(np.ascontiguousarray(images.images))}
    return _write(path, images, whole, {}, classes, part, truth, columns or {})


def refer(path: Path, images: Images, place: Path, classes: list[str], part: np.ndarray) -> Path:
    """Write the labelled set as rows of the library in `place`, which `images.images` are."""
    pixels = images.images
    assert isinstance(pixels, Pixels)
    whole = {"rows": torch.from_numpy(pixels.rows)}
    facts = {"library": place.as_posix(), "state": pixels.state, "side": pixels.shape[1]}
    known = library.read(place).table["sha256"].to_numpy()[pixels.rows]
    return _write(path, images, whole, facts, classes, part, None, {"sha256": known})


def pack_features(path: Path, features: Tensor, of: Path) -> Path:
    """Write what an encoder makes of the set `of`, N×D; labels and parts are that set's, and so is its manifest."""
    tensors, facts = files.load_tensors(of)
    kept = {name: tensors[name] for name in ("labels", "part") if name in tensors}
    said = {name: facts[name] for name in ("classes",) if name in facts}
    files.save_tensors(path, {"images": features[:, None, None, :].contiguous()} | kept, said)
    return path


def _write(
    path: Path,
    images: Images,
    tensors: dict[str, Tensor],
    facts: Mapping[str, object],
    classes: list[str] | None,
    part: np.ndarray | None,
    truth: np.ndarray | None,
    columns: Mapping[str, np.ndarray],
) -> Path:
    rows: dict[str, np.ndarray] = {"id": images.ids, "group": images.groups}
    if classes is not None and part is not None:
        tensors |= {"labels": torch.from_numpy(images.labels), "part": torch.from_numpy(part.astype(np.int8))}
        rows |= {"label": np.array(classes)[images.labels], "part": np.array(PARTS)[part]}
    if truth is not None:
        rows["truth"] = truth
    rows |= columns
    files.save_tensors(path, tensors, ({"classes": classes} if classes else {}) | dict(facts))
    files.save_table(manifest(path), pd.DataFrame(rows))
    return path


def read(path: Path) -> Packed:
    tensors, facts = files.load_tensors(path)
    with files.understood(path):
        labels, part = tensors.get("labels"), tensors.get("part")
        if "rows" not in tensors:
            found = Packed(tensors["images"], labels, part, facts)
        else:
            images, index = _in_library(path, tensors["rows"], facts)
            found = Packed(images, labels, part, facts, index)
        _check(found)
    return found


def _check(found: Packed) -> None:
    """Images and what is said of them are of one length, and labels are classes."""
    shape, classes = tuple(found.images.shape), found.facts.get("classes", [])
    if len(shape) not in (3, 4) or shape[1] != shape[2]:
        raise ValueError(f"images of shape {shape}")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise TypeError("its classes are no names")
    if not bool(classes) == (found.labels is not None) == (found.part is not None):
        raise ValueError("of classes, labels and parts one is missing")
    for said, most in ((found.labels, len(classes)), (found.part, len(PARTS))):
        if said is not None and tuple(said.shape) != (len(found),):
            raise ValueError(f"{len(found)} images, and something is said of {tuple(said.shape)}")
        if said is not None and len(said) and not 0 <= int(said.min()) <= int(said.max()) < most:
            raise ValueError("a class or a part that it does not have")


def table(path: Path, *more: str) -> pd.DataFrame:
    """The manifest of a set, a row an image; `more` are columns that it must have beside id and group."""
    with files.understood(manifest(path)):
        found = files.load_table(manifest(path), dict.fromkeys(("id", "group", *more), str))
        if path.exists() and len(found) != (images := _count(path)):
            raise ValueError(f"{len(found)} rows, and {path} has {images} images")
    return found


def _count(path: Path) -> int:
    """How many images a set has, also where the library that they are in is gone."""
    tensors, _ = files.load_tensors(path)
    with files.understood(path):
        return len(tensors["rows"] if "rows" in tensors else tensors["images"])


def _in_library(path: Path, rows: Tensor, facts: dict) -> tuple[Tensor, Tensor]:
    """The library's images, and which of them the set has: the same rows, or where these are since it has changed."""
    now = library.read(Path(facts["library"]))
    assert isinstance(now.images, Pixels)
    if now.images.shape[1] != facts["side"]:
        raise RunError(
            f"the labelled images of {path} were {facts['side']} pixels wide, and {facts['library']} has them at "
            f"{now.images.shape[1]}: get its earlier state with `dvc checkout`, or run the batch again"
        )
    if now.images.state != facts["state"]:
        place = {known: row for row, known in enumerate(now.table["sha256"])}
        found = [place.get(known, -1) for known in files.load_table(manifest(path), {"sha256": str})["sha256"]]
        if missing := found.count(-1):
            raise RunError(
                f"{missing:,} of the labelled images of {path} are no longer in {facts['library']}: get its earlier "
                "state with `dvc checkout`, or run the batch again"
            )
        rows = torch.tensor(found)
    return torch.from_numpy(now.images.whole), rows


def truth_of(path: Path) -> np.ndarray | None:
    """ "known" or "novel" for each image of a packed set; None where nobody knows."""
    known = table(path)
    return known["truth"].to_numpy() if "truth" in known else None
