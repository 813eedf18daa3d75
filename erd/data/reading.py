"""An organisation's own images, taken in: from a folder, a manifest or an `.npz` to arrays of the working size.

    take(Path("inbox/2026-W46"), 64)             # every image below the folder
    take(Path("labeled"), 64, labeled=True)      # labeled/<class>/…, or labeled/train/<class>/… and labeled/test/…
    take(Path("week.csv"), 64)                   # a row an image: path, and label, group, acquired_at where known

What cannot be used is set aside with the reason in words. The same files give the same arrays, in the order of their
paths. The originals are only read.
"""

import hashlib
import logging
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from erd.base import progress, spreadsheets
from erd.base.errors import RunError, UserError
from erd.base.processes import cores
from erd.data import scratch
from erd.data.arrays import MIN_SIDE, read_own, resized
from erd.data.decode import Decoded, Patient, Unfit, decode, opened
from erd.data.entries import MANIFESTS, Entry, in_class_folders, in_folder, in_manifest
from erd.data.pseudonyms import Pseudonyms

log = logging.getLogger("erd")
LARGEST = 224  # pixels at which images are kept at most, where nobody says otherwise
LOOKED_AT = 40  # images that tell how large they all are
AHEAD = 8  # files of a thread that may be decoded before their turn: one slow file does not stop the others


@dataclass(frozen=True, eq=False)
class Taken:
    images: np.ndarray  # uint8 N×S×S, or N×S×S×3 where one image is in colour
    ids: np.ndarray  # str: path below the folder, or as the manifest or the .npz names it; no patient's name in it
    files: np.ndarray  # str: path from the folder, or from the manifest's; "" in an .npz, and where it names a patient
    labels: np.ndarray  # str class names, "" where none
    groups: np.ndarray  # str: a patient, or what else must stay together; the id where unknown
    acquired: np.ndarray  # str ISO date or time, "" where unknown
    sha256: np.ndarray  # str, of the file's bytes; of the image's bytes in an .npz
    rejected: list[tuple[str, str]]  # (id, reason in words)


def take(
    place: Path,
    image_size: int | None,
    *,
    largest: int = LARGEST,
    labeled: bool = False,
    workers: int | None = None,
) -> Taken:
    """All usable images of `place`, decoded by `workers` threads (one a core); no number of them changes the result.

    Without an `image_size` they are kept as large as they come, by the look of some of them, and at most `largest`.
    """
    if place.is_dir():
        entries = list(in_class_folders(place) if labeled else in_folder(place))
    elif not place.is_file():
        raise UserError(f"{place} is not there: give a folder of images, a manifest (.csv, .parquet) or an .npz file")
    elif place.suffix.lower() == ".npz":
        return _take_npz(place, image_size, largest, labeled=labeled)
    elif place.suffix.lower() in MANIFESTS:
        entries = in_manifest(place, labeled=labeled)
    else:
        raise UserError(f"{place} is no folder, manifest (.csv, .parquet) or .npz file: give one of these")

    Image.init()  # all plugins before the threads: two threads that load them at once can miss a format
    if image_size is None:
        image_size = usual_size(entries, largest)
    _tell_room(len(entries), image_size)
    results = _Results(len(entries), image_size)
    with warnings.catch_warnings(), progress.bar(len(entries), "images", unit="image") as shown:
        warnings.simplefilter("ignore")  # of decoders on odd files; bombs have a limit of our own
        for entry, result in _decoded(entries, image_size, workers or cores()):
            results.add(entry, result)
            shown.update()
    return results.taken()


def _tell_room(images: int, image_size: int) -> None:
    """Many images: what they take on disk, before any is decoded, and a sentence where there is no room for that."""
    needed = images * image_size**2 * 3
    if needed > scratch.IN_MEMORY:
        log.info("%s images of %d pixels: up to %.1f GB on disk, and as much again while they are taken in",
                 f"{images:,}", image_size, needed / 1e9)  # fmt: skip
        scratch.check_room(
            2 * needed, Path(), f"{images:,} images of {image_size} pixels, twice while they are taken in,"
        )


def usual_size(entries: Sequence[Entry], largest: int) -> int:
    """The median of the longer sides of some images, evenly spread over all, and at most `largest`."""
    sound = [entry.path for entry in entries if not entry.problem]
    sides = []
    for path in sound[:: max(1, len(sound) // LOOKED_AT)]:
        with suppress(Unfit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sides.append(max(opened(path, largest).image.size))
    return max(MIN_SIDE, min(largest, int(np.median(sides)))) if sides else largest


def write_rejected(path: Path, rejected: Sequence[tuple[str, str]]) -> None:
    """quarantine.csv: what was set aside, and why."""
    spreadsheets.save(path, pd.DataFrame(rejected, columns=["file", "reason"]))


class _Results:
    """Collects images one by one in one array; rows that are never filled take no memory."""

    def __init__(self, most: int, size: int, what: str = "file") -> None:
        self.what = what
        self.images = scratch.empty((most, size, size))
        self.rows: list[tuple[str, str, str, str, str, str]] = []  # id, file, label, group, acquired, sha256
        self.rejected: list[tuple[str, str]] = []
        self.seen: dict[str, int] = {}
        self.named: set[str] = set()
        self.pseudonyms = Pseudonyms()

    def add(self, entry: Entry, result: Decoded | Unfit) -> None:
        name, file = self._unnamed(entry, result.patient)
        if isinstance(result, Unfit):
            self.rejected.append((name, str(result)))
            return
        if (first := self.seen.setdefault(result.sha256, len(self.rows))) < len(self.rows):
            kept, _, label = self.rows[first][:3]
            other = f", there with the label {label}" if label != entry.label else ""
            self.rejected.append((name, f"the same {self.what} as {kept}{other}"))
            return
        pixels = result.pixels
        if pixels.ndim > self.images.ndim - 1:  # the first in colour
            grey, self.images = self.images, scratch.empty((*self.images.shape, 3))
            scratch.copy(grey[: len(self.rows)], self.images)
        self.images[len(self.rows)] = pixels if pixels.ndim == self.images.ndim - 1 else pixels[..., None]
        group = entry.group or (self.pseudonyms.of(result.patient) if result.patient.id else name)
        self.rows.append((name, file, entry.label, group, entry.acquired or result.acquired, result.sha256))
        self.named.add(name)

    def taken(self) -> Taken:
        columns = zip(*self.rows, strict=True) if self.rows else [()] * 6
        ids, paths, labels, groups, acquired, sha256 = (np.array(column, dtype=str) for column in columns)
        images = self.images[: len(self.rows)]
        return Taken(images, ids, paths, labels, groups, acquired, sha256, self.rejected)

    def _unnamed(self, entry: Entry, patient: Patient) -> tuple[str, str]:
        """Id and file as they may go further. A path that tells who the patient is goes no further; what is left of it
        may be the same for several images, which are numbered then."""
        name = self.pseudonyms.instead(entry.id, patient, entry.ours)
        if name == entry.id:
            return name, entry.file
        numbered, number = name, 1
        while numbered in self.named:
            number += 1
            numbered = f"{name}-{number}"
        return numbered, ""


def _decoded(entries: Sequence[Entry], image_size: int, workers: int) -> Iterator[tuple[Entry, Decoded | Unfit]]:
    """In the order of `entries`, few under way at a time. Threads: Pillow and hashlib work without Python's lock."""

    def attempt(entry: Entry) -> Decoded | Unfit:
        try:
            return Unfit(entry.problem) if entry.problem else decode(entry.path, image_size)
        except Unfit as reason:
            return Unfit(str(reason), reason.patient)  # a new one: what was raised holds on to the file's pixels

    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[tuple[Entry, Future[Decoded | Unfit]]] = deque()
        for entry in entries:
            waiting.append((entry, pool.submit(attempt, entry)))
            if len(waiting) > workers * AHEAD:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


def _take_npz(file: Path, image_size: int | None, largest: int, *, labeled: bool) -> Taken:
    parts, classes = read_own(file, labeled=labeled)
    if image_size is None:
        image_size = min(largest, max(part.images.shape[1] for part in parts.values()))
    results = _Results(sum(len(part.images) for part in parts.values()), image_size, what="image")
    for name, part in parts.items():
        none = np.full(len(part.images), "")
        labels, groups = part.columns.get("y", none), part.columns.get("group", none)
        if classes is not None and labels.dtype.kind in "iu":
            if labels.min() < 0 or labels.max() >= len(classes):
                raise RunError(f"{file} has labels beyond its array 'classes': they must be 0 to {len(classes) - 1}")
            labels = classes[labels]
        for i, pixels in enumerate(resized(part.images, image_size)):
            entry = Entry(file, f"{file.stem}/{name}/{i:05d}", label=str(labels[i]), group=str(groups[i]))
            results.add(entry, Decoded(pixels, hashlib.sha256(part.images[i].tobytes()).hexdigest()))
    return results.taken()
