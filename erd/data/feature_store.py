"""What an encoder made of images, kept by the hash of their pixels: an image is encoded once, whatever week it is in.

    store = Store(Path("library/features"), key)         # key: of the encoder, and how it is shown images
    missing = store.missing(hashes)                      # positions whose image nobody has encoded yet
    store.add(hashes[some], features)                    # a file of its own, so that several processes can add
    store.take(hashes)                                   # N×D

float16: half the disk of float32, and no score differs by more than a thousandth (docs/results.md).
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erd.base import files
from erd.base.errors import RunError
from erd.data.packed import Rows

KIND = torch.float16
LEAST_SPREAD = 0.05  # of a feature in S, as a share of the median one's: what hardly varies there must not decide alone
LARGEST = torch.finfo(KIND).max
HASH = np.dtype("V16")  # half of a sha256: among a million images two alike by chance are as likely as 1 in 10^26


def hashes_of(rows: Rows, on_chunk: Callable[[int], None] = lambda done: None, chunk: int = 256) -> np.ndarray:
    """One an image, of its pixels and their shape."""
    shape = repr(tuple(rows.images.shape[1:])).encode()
    found = []
    for positions in torch.arange(len(rows)).split(chunk):
        for image in rows.take(positions).numpy():
            found.append(hashlib.sha256(shape + image.tobytes()).digest()[: HASH.itemsize])
        on_chunk(len(positions))
    return np.frombuffer(b"".join(found), HASH)


def as_stored(features: Tensor) -> Tensor:
    return features.clamp(-LARGEST, LARGEST).to(KIND)


class Store:
    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder / key
        self._known = np.empty(0, HASH)  # in order
        self._where = np.empty((0, 2), np.int64)  # file, row
        self._files: list[Tensor] = []
        self._read()

    def missing(self, hashes: np.ndarray) -> np.ndarray:
        """The first position of each image that is not here."""
        _, first = np.unique(hashes, return_index=True)
        first.sort()
        return first[~self._has(hashes[first])]

    def add(self, hashes: np.ndarray, features: Tensor) -> None:
        """Whole or not at all; the name is that of the content, so that who does the same again changes nothing."""
        if not len(hashes):
            return
        name = hashlib.sha256(hashes.tobytes()).hexdigest()[:24]
        codes = torch.from_numpy(np.frombuffer(hashes.tobytes(), np.uint8).reshape(len(hashes), HASH.itemsize).copy())
        files.save_tensors(self.folder / f"{name}.safetensors", {"features": as_stored(features), "hashes": codes}, {})

    def take(self, hashes: np.ndarray) -> Tensor:
        """Features in the order asked for; all of them have to be here."""
        self._read()
        if not len(hashes):
            return torch.empty(0, self._files[0].shape[1] if self._files else 0, dtype=KIND)
        if not (here := self._has(hashes)).all():
            raise RunError(f"{int((~here).sum()):,} images are not encoded yet: run the stage encode again")
        where = self._where[np.searchsorted(_bytes(self._known), _bytes(hashes))]
        found = torch.empty(len(hashes), self._files[0].shape[1], dtype=KIND)
        for number in np.unique(where[:, 0]):
            mine = np.flatnonzero(where[:, 0] == number)
            found[torch.from_numpy(mine)] = self._files[number][torch.from_numpy(where[mine, 1])]
        return found

    def keep_only(self, wanted: Sequence[np.ndarray], *, dry_run: bool = False) -> int:
        """Drop all but the features of these images (hashes, in several arrays); the bytes that frees."""
        known = np.unique(_bytes(np.concatenate([np.empty(0, HASH), *wanted])))
        freed = 0
        for path in sorted(self.folder.glob("*.safetensors")):
            tensors, _ = files.load_tensors(path)
            hashes = np.frombuffer(tensors["hashes"].numpy().tobytes(), HASH)
            stays = np.isin(_bytes(hashes), known)
            if stays.all():
                continue
            freed += round(path.stat().st_size * (~stays).mean())
            if not dry_run:
                # First: nothing is lost by a kill.
                self.add(hashes[stays], tensors["features"][torch.from_numpy(stays)])
                path.unlink()
        if not dry_run:
            with suppress(OSError):  # it still has some
                self.folder.rmdir()
            self._read()
        return freed

    def _has(self, hashes: np.ndarray) -> np.ndarray:
        if not len(self._known):
            return np.zeros(len(hashes), bool)
        place = np.searchsorted(_bytes(self._known), _bytes(hashes)).clip(max=len(self._known) - 1)
        return self._known[place] == hashes

    def _read(self) -> None:
        """All that was added by now. A damaged file counts for nothing: its images are encoded again."""
        self._files, self._known, self._where = [], np.empty(0, HASH), np.empty((0, 2), np.int64)
        known: list[np.ndarray] = []
        where: list[np.ndarray] = []
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                tensors, _ = files.load_tensors(path, "features", "hashes")
                features, codes = tensors["features"], tensors["hashes"]
                if features.ndim != 2 or tuple(codes.shape) != (len(features), HASH.itemsize):
                    raise RunError(f"{path} is no file of features")
            except RunError:
                path.unlink(missing_ok=True)
                continue
            known.append(np.frombuffer(codes.numpy().tobytes(), HASH))
            where.append(np.stack([np.full(len(codes), len(self._files)), np.arange(len(codes))], 1))
            self._files.append(features)
        if known:
            every, rows = np.concatenate(known), np.concatenate(where)
            order = np.argsort(_bytes(every), kind="stable")
            self._known, self._where = every[order], rows[order]


def _bytes(hashes: np.ndarray) -> np.ndarray:
    """In a type that can be ordered; a byte more, since numpy drops zeros at the end of such strings."""
    wide = np.full((len(hashes), HASH.itemsize + 1), 1, np.uint8)
    wide[:, :-1] = np.frombuffer(hashes.tobytes(), np.uint8).reshape(len(hashes), HASH.itemsize)
    return wide.reshape(-1).view(f"S{HASH.itemsize + 1}")
