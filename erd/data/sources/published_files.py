"""Sets of image files as their authors publish them: found, drawn from where there are many, decoded, numbered.

    @published("riga", shows="fundus", folders=("riga",), needs="RIGA's images", only_novel=True)
    def riga(folder: Path) -> Iterator[File]:
        for path in pictures(folder):
            yield File(path, "glaucoma")

makes a source of that name. It can also be given as `<name>.npz`, or as a manifest `<name>.csv` with columns path,
label and group; its labels are then names of the set's classes, or their numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from erd.base import progress
from erd.base.errors import RunError, UserError, why
from erd.base.processes import cores
from erd.base.seeds import derive
from erd.data.decode import Unfit, decode, opened
from erd.data.entries import MANIFESTS
from erd.data.images import Images
from erd.data.sources import own
from erd.data.sources.base import FOLDER_SIZE, Source, Wanted, source

MOST = 10_000  # images of a set that only serves as novel; a fixed draw where there are more
PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")


@dataclass(frozen=True)
class File:
    """An image of a set: where it is, its class, what it must stay together with, whether the set calls it a test."""

    path: Path
    label: str
    group: str = ""
    test: bool = False


@dataclass(frozen=True)
class Set:
    name: str
    folders: tuple[str, ...]  # where it may lie, below the data folder; users are told of the first
    needs: str  # what must be in there
    classes: tuple[str, ...] | None = None  # as the scenarios number them; as found where None
    only_novel: bool = False  # nobody trains on it: MOST of its images are enough
    border: int = 0  # pixels around each image that are no part of it


SETS: dict[str, Set] = {}

Lister = Callable[[Path], Iterable[File]]


def published(name: str, *, shows: str, folders: tuple[str, ...], needs: str, classes: tuple[str, ...] | None = None,
              only_novel: bool = False, border: int = 0) -> Callable[[Lister], Lister]:  # fmt: skip
    """Make a source of a function that lists the files of a set, given the set's folder."""

    def enter(files: Lister) -> Lister:
        known = SETS[name] = Set(name, folders, needs, classes, only_novel, border)

        @source(name, shows=shows)
        def read(wanted: Wanted) -> Source:
            if (whole := as_one_file(known, wanted)) is not None:
                return whole
            for folder in candidates(known, wanted):
                if folder.is_dir():
                    return _from_files(known, folder, list(files(folder)), wanted.image_size or FOLDER_SIZE)
            raise not_found(known, wanted)

        return files

    return enter


# ---------------------------------------------------------------------------------------------------- where a set is


def as_one_file(known: Set, wanted: Wanted) -> Source | None:
    """The set as `<name>.npz` or as a manifest, if it is there in that form: these come before its own files."""
    for suffix, read in ((".npz", own.npz), *((suffix, own.manifest) for suffix in MANIFESTS)):
        if wanted.root is not None and (file := wanted.root / f"{known.name}{suffix}").is_file():
            return _numbered(replace(read(replace(wanted, path=file)), name=known.name), known.classes, file)
    return None


def candidates(known: Set, wanted: Wanted) -> list[Path]:
    return [wanted.root / folder for folder in known.folders] if wanted.root else []


def not_found(known: Set, wanted: Wanted) -> UserError:
    name, first = known.name, known.folders[0]
    looked = f"looked for {first}, {name}.npz and {name}.csv in {wanted.root}"
    where = looked if wanted.root else "no data folder is given"
    remedy = f"put {known.needs} in a folder DIR/{first} and pass --data DIR or set ERD_DATA (docs/scenarios.md)"
    return UserError(f"{name} was not found ({where}): {remedy}")


# ---------------------------------------------------------------------------------------------------- for listers


def pictures(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)


def by_name(folder: Path) -> dict[str, Path]:
    """Sets of this size come in parts (images_001/images/…): where each file is."""
    return {path.name: path for path in pictures(folder)}


def latest(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise RunError(f"{folder} has no {pattern}, the table of the set: put it there")
    return found[-1]


def words(file: Path) -> set[str]:
    return set(file.read_text(encoding="utf-8").split()) if file.is_file() else set()


def rows(file: Path, columns: tuple[str, ...], **how: object) -> list[dict[str, str]]:
    """Of a table: what its rows have in some columns, as text; `how` is for pandas."""
    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, **how)
    except FileNotFoundError:
        raise RunError(f"{file} is missing: get it again, with the files beside it") from None
    except Exception as error:  # ParserError, UnicodeDecodeError, EmptyDataError, …
        raise RunError(f"{file} cannot be read as a table ({why(error)}): get it again") from error
    if missing := [name for name in columns if name not in table.columns]:
        raise RunError(f"{file} has no column '{missing[0]}': it is not the set's table; get it again")
    return table[list(columns)].to_dict("records")


# ---------------------------------------------------------------------------------------------------- files to images


def _from_files(known: Set, folder: Path, files: list[File], size: int) -> Source:
    name = known.name
    if known.only_novel and len(files) > MOST:
        files = sorted(files, key=lambda file: derive(0, name, file.path.relative_to(folder).as_posix()))[:MOST]
        files.sort(key=lambda file: file.path)
    if not files:
        raise RunError(f"{folder} has no image of {name}: put {known.needs} there (docs/scenarios.md)")
    decoded = list(_decoded(files, size, known.border, name))
    good = [i for i, result in enumerate(decoded) if not isinstance(result, str)]
    aside = tuple(
        (file.path.relative_to(folder).as_posix(), result)
        for file, result in zip(files, decoded, strict=True)
        if isinstance(result, str)
    )
    if not good:
        raise RunError(f"{folder} has no readable image ({aside[0][0]}: {aside[0][1]}): get the set again")
    pixels = [result for result in decoded if not isinstance(result, str)]
    if any(image.ndim == 3 for image in pixels):
        pixels = [image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2) for image in pixels]
    ids = np.array([f"{name}/{files[i].path.relative_to(folder).as_posix()}" for i in good], dtype=str)
    groups = np.array([f"{name}/{files[i].group}" if files[i].group else ids[n] for n, i in enumerate(good)], dtype=str)
    names = sorted({files[i].label for i in good})
    labels = np.searchsorted(names, [files[i].label for i in good]).astype(np.int64)
    everything, test = Images(np.stack(pixels), labels, ids, groups), np.array([files[i].test for i in good])
    found = Source(name, tuple(names), everything.take(~test), everything.take(test), aside)
    return _numbered(found, known.classes, folder)


def _decoded(files: list[File], size: int, border: int, what: str) -> Iterator[np.ndarray | str]:
    """Pixels, or why there are none, in the order of the files. Threads: Pillow works without Python's lock."""

    def one(file: File) -> np.ndarray | str:
        try:
            if not border:
                return decode(file.path, size).pixels
            image = opened(file.path, 2 * size).image
            inner = image.crop((border, border, image.width - border, image.height - border))
            return np.asarray(inner.resize((size, size), Image.Resampling.BILINEAR))
        except Unfit as reason:
            return str(reason)

    Image.init()  # all plugins before the threads: two threads that load them at once can miss a format
    with ThreadPoolExecutor(cores()) as pool, progress.bar(len(files), what, unit="image") as shown:
        for result in pool.map(one, files):
            shown.update()
            yield result


def _numbered(found: Source, names: tuple[str, ...] | None, where: Path) -> Source:
    """Labels as numbers of these classes, whatever classes were found; `0` and `1` may stand for names."""
    if names is None:
        return found
    numbers = []
    for label in found.classes:
        if label not in names and not (label.isdecimal() and int(label) < len(names)):
            raise RunError(f"{where} has the label '{label}', which is no class of {found.name}: {', '.join(names)}")
        numbers.append(names.index(label) if label in names else int(label))
    new = np.array(numbers, np.int64)
    train, test = (replace(part, labels=new[part.labels]) for part in (found.train, found.test))
    return replace(found, classes=names, train=train, test=test)
