"""Rows of a large array of images that stay on disk until somebody looks at them.

    whole = Pixels.of(mapped)                # of a memory-mapped file
    some = whole[rows]                       # nothing is read yet
    some.shape, len(some), some[3]           # one image is an array
    np.asarray(some)                         # now all of them are

A library of 100,000 photographs is 15 GB: dealing them out must not copy them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Pixels:
    whole: np.ndarray  # uint8, N×H×W or N×H×W×3, mapped
    rows: np.ndarray  # of `whole`, in their order here
    state: str = ""  # which state of the library they are rows of

    @classmethod
    def of(cls, mapped: np.ndarray, state: str = "") -> "Pixels":
        return cls(mapped, np.arange(len(mapped)), state)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ndim(self) -> int:
        return self.whole.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.whole.shape[1:]

    def __getitem__(self, index: int | slice | np.ndarray | Sequence[int]) -> Any:
        """An image by its number; several stay rows."""
        if isinstance(index, int | np.integer):
            return self.whole[self.rows[index]]
        return Pixels(self.whole, self.rows[index], self.state)

    def with_rows(self, more: np.ndarray) -> "Pixels":
        """And further rows of the same file."""
        return Pixels(self.whole, np.concatenate([self.rows, more]), self.state)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.whole[self.rows].astype(dtype or self.whole.dtype, copy=False)
