"""Images that are copies of others but for size, compression, brightness or contrast.

near_duplicates(batch.images, train.images)          # [(3, 7)]: image 3 of the batch is a copy of training image 7
copies(batch.images, likest_training_images)         # [3]: where something else has told the likest of each
"""

from collections.abc import Sequence

import numpy as np

ALIKE = 0.99  # correlation that makes a near copy: at 0.98 a twentieth of Fashion-MNIST would be copies of the rest
COARSE = 16  # side at which near copies are looked for


def warnings(pairs: Sequence[tuple[int, int]], batch: Sequence[str], train: Sequence[str]) -> list[str]:
    """A warning where the classifier has seen images of the batch already: it knows those by heart. By their ids."""
    if not pairs:
        return []
    listing = ", ".join(f"{batch[i]} ({train[j]})" for i, j in pairs[:3]) + (", …" if len(pairs) > 3 else "")
    many = f"{len(pairs):,} images of the batch are near copies of training images"
    return [f"{many if len(pairs) > 1 else '1 image of the batch is a near copy of a training image'}: {listing}"]


def near_duplicates(images: np.ndarray, reference: np.ndarray) -> list[tuple[int, int]]:
    """(i, j): image i is a near copy of reference j; the likest j only.

    The likest is found among averages over at most 16×16 cells, by one matrix product, and then compared at full size.
    """
    if not len(images) or not len(reference):
        return []
    pairs, likest = [], _standard(_coarse(reference)).T
    for start in range(0, len(images), 512):
        rows = images[start : start + 512]
        best = (_standard(_coarse(rows)) @ likest).argmax(axis=1)
        pairs += [(start + i, int(best[i])) for i in copies(rows, reference[best])]
    return pairs


def copies(images: np.ndarray, likest: np.ndarray) -> list[int]:
    """Which of the images are near copies of their partner in the other row."""
    if not len(images):
        return []
    return np.flatnonzero((_standard(_grey(images)) * _standard(_grey(likest))).sum(axis=1) > ALIKE).tolist()


def _grey(images: np.ndarray) -> np.ndarray:
    return images if images.ndim == 3 else images.mean(axis=3)


def _coarse(images: np.ndarray, chunk: int = 4096) -> np.ndarray:
    """N×16×16 averages, or what there is where images are smaller."""
    side = min(COARSE, images.shape[1])
    edges = np.arange(side) * images.shape[1] // side
    small = np.empty((len(images), side, side), np.float32)
    for start in range(0, len(images), chunk):  # floats take four times the room of bytes
        sums = np.add.reduceat(_grey(images[start : start + chunk]), edges, axis=1, dtype=np.float32)
        small[start : start + chunk] = np.add.reduceat(sums, edges, axis=2)
    cells = np.diff([*edges, images.shape[1]]).astype(np.float32)
    return small / np.outer(cells, cells)


def _standard(images: np.ndarray) -> np.ndarray:
    """N×D with mean 0 and length 1, so that a product of two rows is their correlation; 0 where an image is blank."""
    rows = images.reshape(len(images), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 1e-3, length, np.inf)
