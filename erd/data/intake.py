"""An organisation's own images, taken in: from a folder, a manifest or an `.npz` to arrays of the working size.

    take(Path("inbox/2026-W46"), 64)             # every image below the folder
    take(Path("labeled"), 64, labeled=True)      # labeled/<class>/…, or labeled/train/<class>/… and labeled/test/…
    take(Path("week.csv"), 64)                   # a row an image: path, and label, group, acquired_at where known

What cannot be used is set aside with the reason in words. The same files give the same arrays, in the order of their
paths. The originals are only read.
"""

import errno
import hashlib
import hmac
import logging
import os
import secrets
import stat
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from erd import compute, files, progress
from erd.data.arrays import open_npz, read_array, read_column, read_images, resized
from erd.data.decode import Decoded, Unfit, decode
from erd.errors import RunError, UserError, why
from erd.rundir import SALT

log = logging.getLogger("erd")
MANIFESTS = (".csv", ".parquet")
UNFINISHED = (".part", ".partial", ".filepart", ".crdownload", ".tmp", "~")  # how programs name a copy under way
QUIET = 10.0  # seconds without a change, after which a file counts as complete
EVERY = 1.0  # seconds between two looks at an inbox that is being filled
AHEAD = 8  # files of a thread that may be decoded before their turn: one slow file does not stop the others
ALIKE = 0.99  # correlation that makes a near copy: at 0.98 a twentieth of Fashion-MNIST would be copies of the rest
COARSE = 16  # side at which near copies are looked for


@dataclass(frozen=True, eq=False)
class Taken:
    images: np.ndarray  # uint8 N×S×S, or N×S×S×3 where one image is in colour
    ids: np.ndarray  # str: path below the folder, or as the manifest or the .npz names it
    labels: np.ndarray  # str class names, "" where none
    groups: np.ndarray  # str: a patient, or what else must stay together; the id where unknown
    acquired: np.ndarray  # str ISO date or time, "" where unknown
    sha256: np.ndarray  # str, of the file's bytes; of the image's bytes in an .npz
    rejected: list[tuple[str, str]]  # (id, reason in words)


@dataclass(frozen=True)
class _Entry:
    path: Path
    id: str
    label: str = ""
    group: str = ""
    acquired: str = ""
    problem: str = ""  # what is wrong before the file is even opened


def take(place: Path, image_size: int, *, labeled: bool = False, workers: int | None = None) -> Taken:
    """All usable images of `place`, decoded by `workers` threads (one a core); no number of them changes the result."""
    if place.is_dir():
        entries = list(_labeled_entries(place) if labeled else _entries(place, place))
    elif not place.is_file():
        raise UserError(f"{place} is not there: give a folder of images, a manifest (.csv, .parquet) or an .npz file")
    elif place.suffix.lower() == ".npz":
        return _take_npz(place, image_size, labeled=labeled)
    elif place.suffix.lower() in MANIFESTS:
        entries = _manifest_entries(place, labeled=labeled)
    else:
        raise UserError(f"{place} is no folder, manifest (.csv, .parquet) or .npz file: give one of these")

    Image.init()  # all plugins before the threads: two threads that load them at once can miss a format
    results = _Results(len(entries), image_size)
    with warnings.catch_warnings(), progress.bar(len(entries), "images", unit="image") as shown:
        warnings.simplefilter("ignore")  # of decoders on odd files; bombs have a limit of our own
        for entry, result in _decoded(entries, image_size, workers or compute.cores()):
            results.add(entry, result)
            shown.update()
    return results.taken()


def write_rejected(path: Path, rejected: Sequence[tuple[str, str]]) -> None:
    """quarantine.csv: what was set aside, and why."""
    with files.replacing(path) as draft:
        pd.DataFrame(rejected, columns=["file", "reason"]).to_csv(draft, index=False)


def class_folders(root: Path) -> tuple[list[Path], list[str]]:
    """The folders that hold class folders (`root`, or its train and test), and the names of all classes."""
    # A class may be called "train" (trains and buses): it is a part only where it holds folders itself.
    parts = {entry.name: Path(entry.path) for entry in _visible(root) if _is_folder(entry)}
    split = "train" in parts and any(_is_folder(entry) for entry in _visible(parts["train"]))
    tops = [parts[name] for name in ("train", "test") if name in parts] if split else [root]
    classes = sorted({entry.name for top in tops for entry in _visible(top) if _is_folder(entry)})
    if not classes:
        raise RunError(f"{root} has no class folders: put the images of each class into a folder named after the class")
    return tops, classes


# ---------------------------------------------------------------------------------------------------- which files


def _entries(folder: Path, root: Path, label: str = "") -> Iterator[_Entry]:
    """Everything below `folder` that is no folder, in a fixed order, hidden names left out."""
    try:
        found = _visible(folder)
    except OSError as error:
        yield _Entry(folder, _name(folder, root), problem=f"a folder that cannot be read ({error.strerror})")
        return
    for entry in found:
        path = Path(entry.path)
        if entry.is_symlink():
            yield _Entry(path, _name(path, root), label, problem=_link_problem(path, root))
        elif entry.is_dir():
            yield from _entries(path, root, label)
        else:
            problem = "an unfinished copy, by its name" if entry.name.endswith(UNFINISHED) else ""
            yield _Entry(path, _name(path, root), label, problem=problem)


def _labeled_entries(root: Path) -> Iterator[_Entry]:
    tops, _ = class_folders(root)
    for entry in _visible(root) if tops != [root] else []:
        if Path(entry.path) not in tops:
            path = Path(entry.path)
            yield _Entry(path, _name(path, root), problem="neither train nor test: not read")
    for top in tops:  # train before test: of a file that is in both, the one in train is kept
        for entry in _visible(top):
            path = Path(entry.path)
            if _is_folder(entry):
                yield from _entries(path, root, entry.name)
            else:
                problem = _link_problem(path, root) if entry.is_symlink() else ""
                yield _Entry(path, _name(path, root), problem=problem or "in no class folder")


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return sorted((e for e in found if not e.name.startswith(".")), key=lambda e: e.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _link_problem(path: Path, root: Path) -> str:
    """Links are followed to files of the same folder only: an inbox must not bring in the rest of the disk."""
    to_folder = False
    try:
        to_folder = stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link that leads back to itself"
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        return "a link out of the folder: not followed"
    return "a link to a folder: not followed" if to_folder else ""


def _name(file: Path, root: Path) -> str:
    """Relative path; a name that is not valid UTF-8 (old Windows shares) is escaped, or no table could hold it."""
    return file.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode()


def _manifest_entries(file: Path, *, labeled: bool) -> list[_Entry]:
    """A row an image. Paths are absolute or start at the manifest's folder; further columns are not looked at."""
    table = _read_manifest(file)
    for name in ("path", "label") if labeled else ("path",):
        if name not in table.columns:
            found = ", ".join(map(str, table.columns)) or "none"
            raise RunError(f"{file} has no column '{name}': add it (found: {found})")
    if table.empty:
        raise RunError(f"{file} lists no images: give it a row for each")
    columns = {name: _words(table[name]) for name in ("path", "label", "group", "acquired_at") if name in table.columns}
    none = [""] * len(table)
    for row, when in enumerate(columns.get("acquired_at", none)):
        if when and pd.isna(pd.to_datetime(when, errors="coerce", format="ISO8601")):
            raise RunError(
                f"{file} has acquired_at '{when}' in row {row + 1}: write it as 2026-11-16T08:15 or 2026-11-16"
            )
    entries = []
    for row, path in enumerate(columns["path"]):
        problem = "no path is given" if not path else ""
        label = columns.get("label", none)[row]
        if labeled and not label:
            problem = problem or "no label is given"
        group, acquired = columns.get("group", none)[row], columns.get("acquired_at", none)[row]
        entries.append(_Entry(file.parent / path, path or f"row {row + 1}", label, group, acquired, problem))
    return entries


def _read_manifest(file: Path) -> pd.DataFrame:
    try:
        if file.suffix.lower() == ".parquet":
            return pd.read_parquet(file)
        return pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig")  # Excel begins with a mark
    except pd.errors.EmptyDataError:
        raise RunError(f"{file} is empty: give it a line with the column names and a row for each image") from None
    except Exception as error:  # pandas and pyarrow have many: ParserError, UnicodeDecodeError, ArrowInvalid, …
        raise RunError(
            f"{file} cannot be read as a manifest ({why(error)}): save it as CSV or Parquet again"
        ) from error


def _words(column: pd.Series) -> list[str]:
    """As text, "" for what is missing; whole numbers that a gap has turned to floats are whole again."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return ["" if pd.isna(value) else value.isoformat() for value in column]
    return [str(value).strip() for value in column.convert_dtypes().astype("string").fillna("")]


# ---------------------------------------------------------------------------------------------------- what is in them


class _Results:
    """Collects images one by one in one array; rows that are never filled take no memory."""

    def __init__(self, most: int, size: int, what: str = "file") -> None:
        self.what = what
        self.images = np.empty((most, size, size), np.uint8)
        self.rows: list[tuple[str, str, str, str, str]] = []  # id, label, group, acquired, sha256
        self.rejected: list[tuple[str, str]] = []
        self.seen: dict[str, int] = {}
        self.salt = b""

    def add(self, entry: _Entry, result: Decoded | str) -> None:
        if isinstance(result, str):
            self.rejected.append((entry.id, result))
            return
        if (first := self.seen.setdefault(result.sha256, len(self.rows))) < len(self.rows):
            kept, label = self.rows[first][:2]
            other = f", there with the label {label}" if label != entry.label else ""
            self.rejected.append((entry.id, f"the same {self.what} as {kept}{other}"))
            return
        pixels = result.pixels
        if pixels.ndim > self.images.ndim - 1:  # the first in colour
            grey, self.images = self.images, np.empty((*self.images.shape, 3), np.uint8)
            self.images[: len(self.rows)] = grey[: len(self.rows), ..., None]
        self.images[len(self.rows)] = pixels if pixels.ndim == self.images.ndim - 1 else pixels[..., None]
        group = entry.group or (self._pseudonym(result.patient) if result.patient else entry.id)
        self.rows.append((entry.id, entry.label, group, entry.acquired or result.acquired, result.sha256))

    def taken(self) -> Taken:
        columns = zip(*self.rows, strict=True) if self.rows else [()] * 5
        ids, labels, groups, acquired, sha256 = (np.array(column, dtype=str) for column in columns)
        images = self.images[: len(self.rows)]
        return Taken(images, ids, labels, groups, acquired, sha256, self.rejected)

    def _pseudonym(self, patient: str) -> str:
        self.salt = self.salt or _salt()
        return hmac.new(self.salt, patient.encode(), "sha256").hexdigest()[:16]


def _salt() -> bytes:
    """Made once for a workspace, so that a patient has the same pseudonym every week."""
    try:
        if not SALT.exists():
            SALT.parent.mkdir(exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=SALT.parent)  # mode 600
            with os.fdopen(handle, "wb") as stream:
                stream.write(secrets.token_bytes(16))
            with suppress(FileExistsError):  # another run was first: its salt counts
                os.link(draft, SALT)
            os.unlink(draft)
        salt = SALT.read_bytes()
    except OSError as error:
        raise RunError(f"{SALT} cannot be made or read ({error.strerror}): check the folder's permissions") from error
    if len(salt) != 16:
        raise RunError(f"{SALT} is damaged: put back a copy, or delete it and patients get new pseudonyms")
    return salt


def _decoded(entries: Sequence[_Entry], image_size: int, workers: int) -> Iterator[tuple[_Entry, Decoded | str]]:
    """In the order of `entries`, few under way at a time. Threads: Pillow and hashlib work without Python's lock."""

    def attempt(entry: _Entry) -> Decoded | str:
        try:
            return entry.problem or decode(entry.path, image_size)
        except Unfit as reason:
            return str(reason)

    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[tuple[_Entry, Future[Decoded | str]]] = deque()
        for entry in entries:
            waiting.append((entry, pool.submit(attempt, entry)))
            if len(waiting) > workers * AHEAD:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


def _take_npz(file: Path, image_size: int, *, labeled: bool) -> Taken:
    """All parts x_*, with y_* and group_* where they are there; numbers in y_* index `classes` where that is there."""
    parts = []
    with open_npz(file) as archive:
        names = [key[2:] for key in archive.files if key.startswith("x_")]
        for name in names or ["train"]:  # where there is none, x_train is what the user is told to add
            images = read_images(archive, f"x_{name}", file)
            columns = {"y": np.full(len(images), ""), "group": np.full(len(images), "")}
            for key in columns:
                if f"{key}_{name}" in archive.files or (labeled and key == "y"):
                    columns[key] = read_column(archive, f"{key}_{name}", file, len(images))
            parts.append((name, images, columns["y"], columns["group"]))
        classes = read_array(archive, "classes", file) if "classes" in archive.files else None

    results = _Results(sum(len(images) for _, images, _, _ in parts), image_size, what="image")
    for name, images, labels, groups in parts:
        if classes is not None and labels.dtype.kind in "iu":
            if labels.min() < 0 or labels.max() >= len(classes):
                raise RunError(f"{file} has labels beyond its array 'classes': they must be 0 to {len(classes) - 1}")
            labels = classes[labels]
        for i, pixels in enumerate(resized(images, image_size)):
            entry = _Entry(file, f"{file.stem}/{name}/{i:05d}", str(labels[i]), str(groups[i]))
            results.add(entry, Decoded(pixels, hashlib.sha256(images[i].tobytes()).hexdigest()))
    return results.taken()


# ---------------------------------------------------------------------------------------------------- before and after


def settled(place: Path, wait_seconds: float) -> None:
    """Return once nobody writes into `place` any more; RunError where that takes longer than `wait_seconds`."""
    if not wait_seconds:
        return
    before = _look(place)
    if not any(_recent(changed) for _, changed in before.values()):
        return
    started, told = time.monotonic(), False
    with progress.bar(wait_seconds, f"waiting for {place} to be complete", unit="s") as shown:
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


def near_duplicates(images: np.ndarray, reference: np.ndarray) -> list[tuple[int, int]]:
    """(i, j): image i is a copy of reference j but for size, compression, brightness or contrast; the likest j only.

    The likest is found among averages over at most 16×16 cells, by one matrix product, and then compared at full size.
    """
    if not len(images) or not len(reference):
        return []
    pairs, likest = [], _standard(_coarse(reference)).T
    for start in range(0, len(images), 512):
        rows = images[start : start + 512]
        best = (_standard(_coarse(rows)) @ likest).argmax(axis=1)
        alike = (_standard(_grey(rows)) * _standard(_grey(reference[best]))).sum(axis=1) > ALIKE
        pairs += [(start + int(i), int(best[i])) for i in np.flatnonzero(alike)]
    return pairs


def _look(place: Path) -> Mapping[str, tuple[int, float]]:
    """Size and time of last change of every file, hidden ones too: rsync hides what it has not finished."""
    found = {}
    root = place if place.is_dir() else place.parent
    paths = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
    for path in paths if place.is_dir() else [place]:
        with suppress(OSError):  # gone since
            facts = path.lstat()
            found[_name(path, root)] = facts.st_size, facts.st_mtime
    return found


def _recent(changed: float) -> bool:
    return abs(time.time() - changed) < QUIET  # a time far in the future is a wrong clock, and says nothing


def _growing(name: str, before: Mapping[str, tuple[int, float]], after: Mapping[str, tuple[int, float]]) -> bool:
    return before.get(name) != after[name] or _recent(after[name][1]) or name.endswith(UNFINISHED)


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
