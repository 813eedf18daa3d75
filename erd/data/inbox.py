"""An inbox: waiting until it is complete, the batch it makes, and its files found again later.

    arrived = batch(Path("inbox/2026-W46"), 64, settle=60, colour=False)
    original(Path("inbox/2026-W46"), file, sha256)      # the file an image of the batch came from, if it is still there

An inbox is a folder, a manifest or an `.npz` (`reading.py`).
"""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erd.base import files, progress
from erd.base.errors import RunError
from erd.data.arrays import as_labeled
from erd.data.decode import check_file
from erd.data.entries import MANIFESTS, UNFINISHED, in_folder, name_below
from erd.data.images import Images
from erd.data.reading import take

log = logging.getLogger("erd")
QUIET = 10.0  # seconds without a change, after which a file counts as complete
EVERY = 1.0  # seconds between two looks at an inbox that is being filled


@dataclass(frozen=True, eq=False)
class Arrived:
    images: Images
    columns: dict[str, np.ndarray]  # what else is known of each image: further columns of the batch's manifest
    rejected: list[tuple[str, str]]  # (id, reason in words)


def batch(inbox: Path, image_size: int, *, settle: float, colour: bool) -> Arrived:
    """The usable images, grey or in colour as the labelled ones are, once nobody has written for a while."""
    settled(inbox, settle)
    taken = take(inbox, image_size)
    images, aside = taken.images, len(taken.rejected)
    if not len(images):
        raise RunError(f"the inbox {inbox} has no readable image ({aside} files set aside): put some into it")
    return Arrived(
        Images(as_labeled(images, colour), np.full(len(images), -1), taken.ids, taken.groups),
        {"file": taken.files, "sha256": taken.sha256, "acquired_at": taken.acquired},
        taken.rejected,
    )


def has_arrived(inbox: Path) -> bool:
    """Whether there is anything to take: a file that is not hidden."""
    return inbox.is_file() or (inbox.is_dir() and any(True for _ in in_folder(inbox)))


def original(inbox: Path, file: str, sha256: str) -> Path | None:
    """The file that the columns `file` and `sha256` of a batch tell of, if it is there and still has these bytes: an
    inbox may be filled anew under the same names.

    Nothing outside an inbox folder is ever shown, whether by `..` or by a link. A manifest may have named files
    anywhere: there the hash tells that it is the file it named, and without a hash ("") none is taken for it.
    """
    if not file:
        return None
    try:
        if inbox.is_dir():
            root = inbox.resolve(strict=True)
            path = (root / file).resolve(strict=True)
            if not path.is_relative_to(root):
                return None
        elif inbox.suffix.lower() in MANIFESTS and sha256:
            path = Path(os.path.abspath(inbox.parent / file))  # by its words, as it was made relative
        else:
            return None
        check_file(path)
        return path if not sha256 or files.sha256(path) == sha256 else None
    except (OSError, ValueError, RuntimeError):  # gone, no regular file, a name no file can have, links in a circle
        return None


# ---------------------------------------------------------------------------------------------------- being filled


def settled(place: Path, wait_seconds: float) -> None:
    """Return once nobody writes into `place` any more; RunError where that takes longer than `wait_seconds`."""
    if not wait_seconds:
        return
    before = _look(place)
    if not any(_recent(changed) for _, changed in before.values()):
        return
    started, told = time.monotonic(), False
    with progress.bar(wait_seconds, f"waiting for {place} to be complete", unit="second") as shown:
        while True:
            time.sleep(min(EVERY, wait_seconds))
            after = _look(place)
            growing = [name for name in after if _growing(name, before, after)]
            if not growing:
                return
            waited = time.monotonic() - started
            listing = ", ".join(growing[:3]) + (", …" if len(growing) > 3 else "")
            if waited >= wait_seconds:
                raise RunError(
                    f"files are still being copied into {place} ({len(growing)}: {listing}): "
                    "run again when they are there, or take it as it is with --set data.settle=0"
                )
            if not told:
                log.info("waiting up to %g s for %s: files are still being copied (%s)", wait_seconds, place, listing)
                told = True
            shown.update(min(waited, wait_seconds) - shown.n)
            before = after


def _look(place: Path) -> Mapping[str, tuple[int, float]]:
    """Size and time of last change of every file, hidden ones too: rsync hides what it has not finished."""
    found = {}
    root = place if place.is_dir() else place.parent
    paths = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
    for path in paths if place.is_dir() else [place]:
        with suppress(OSError):  # gone since
            facts = path.lstat()
            found[name_below(root, path)] = facts.st_size, facts.st_mtime
    return found


def _recent(changed: float) -> bool:
    return abs(time.time() - changed) < QUIET  # a time far in the future is a wrong clock, and says nothing


def _growing(name: str, before: Mapping[str, tuple[int, float]], after: Mapping[str, tuple[int, float]]) -> bool:
    return before.get(name) != after[name] or _recent(after[name][1]) or name.endswith(UNFINISHED)
