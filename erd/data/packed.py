"""Packed sets: one safetensors file of uint8 images, and beside it a Parquet manifest with a row an image.

pack(path, images, classes, part=part)          # path, and manifest(path)
labeled = read(path)                            # memory-mapped
labeled.rows("train"), labeled.labels_of("train")
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from erd.base import files
from erd.data.images import Images

PARTS = ("train", "val", "calibration", "clean")  # clean: the half of C that is not hidden in the batch


@dataclass(frozen=True)
class Rows:
    """Some rows of an image file: `images` is uint8, N×H×W or N×H×W×C; `rows` None means all of them."""

    images: Tensor
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images) if self.rows is None else len(self.rows)

    def split(self, size: int) -> "list[Rows]":
        """So many images at a time, without a copy."""
        if self.rows is None:
            return [Rows(images) for images in self.images.split(size)]
        return [Rows(self.images, rows) for rows in self.rows.split(size)]

    def take(self, positions: Tensor) -> Tensor:
        # Not images[…]: that copies byte by byte, index_select row by row.
        return self.images.index_select(0, positions if self.rows is None else self.rows[positions])


@dataclass(frozen=True)
class Packed:
    """A packed set, memory-mapped. `labels` and `part` (an index into PARTS) are those of the labelled set."""

    images: Tensor
    labels: Tensor | None
    part: Tensor | None
    facts: dict

    def rows(self, *parts: str) -> Rows:
        """The images of some parts of the labelled set; all images where none is named."""
        if not parts:
            return Rows(self.images)
        return Rows(self.images, self._where(parts))

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
    tensors = {"images": torch.from_numpy(np.ascontiguousarray(images.images))}
    table: dict[str, np.ndarray] = {"id": images.ids, "group": images.groups}
    if classes is not None and part is not None:
        tensors |= {"labels": torch.from_numpy(images.labels), "part": torch.from_numpy(part.astype(np.int8))}
        table |= {"label": np.array(classes)[images.labels], "part": np.array(PARTS)[part]}
    if truth is not None:
        table["truth"] = truth
    table |= columns or {}
    files.save_tensors(path, tensors, {"classes": classes} if classes else {})
    files.save_table(manifest(path), pd.DataFrame(table))
    return path


def read(path: Path) -> Packed:
    tensors, facts = files.load_tensors(path)
    return Packed(tensors["images"], tensors.get("labels"), tensors.get("part"), facts)


def truth_of(path: Path) -> np.ndarray | None:
    """ "known" or "novel" for each image of a packed set; None where nobody knows."""
    table = files.load_table(manifest(path))
    return table["truth"].to_numpy() if "truth" in table else None
