"""Images with their labels, ids and groups, as they are read and dealt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Images:
    images: Any  # uint8, N×H×W (grey) or N×H×W×3: an array, or `Pixels` of a library, which are as good but on disk
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
