"""Which images a place holds, before any is opened: the files of a folder, of class folders, or of a manifest.

list(in_folder(Path("inbox/2026-W46")))          # every file below, in the order of their paths
list(in_class_folders(Path("labeled")))          # labeled/<class>/…, or labeled/train/<class>/… and labeled/test/…
in_manifest(Path("week.csv"), labeled=False)     # a row an image: path, and label, group, acquired_at where known
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from erd.base.errors import RunError, UserError, why

MANIFESTS = (".csv", ".parquet")
OURS = ("inbox", "runs", "labeled", "labelled")  # folders beside those of the classes, in and around a workspace
UNFINISHED = (".part", ".partial", ".filepart", ".crdownload", ".tmp", "~")  # how programs name a copy under way


@dataclass(frozen=True)
class Entry:
    path: Path
    id: str  # path below the folder, or as the manifest has it; never absolute
    file: str = ""  # path from the folder, or from the manifest's: where the original is found again
    label: str = ""
    group: str = ""
    acquired: str = ""
    problem: str = ""  # what is wrong before the file is even opened
    ours: int = 0  # so many of the id's folders have names of our own (train, test, the class), and no patient's


def class_folders(root: Path) -> tuple[list[Path], list[str]]:
    """The folders that hold class folders (`root`, or its train and test), and the names of all classes."""
    # A class may be called "train" (trains and buses): it is a part only where it holds folders itself.
    parts = {entry.name: Path(entry.path) for entry in _visible(root) if _is_folder(entry)}
    split = "train" in parts and any(_is_folder(entry) for entry in _visible(parts["train"]))
    tops = [parts[name] for name in ("train", "test") if name in parts] if split else [root]
    classes = sorted({entry.name for top in tops for entry in _visible(top) if _is_folder(entry)})
    if not classes:
        raise UserError(
            f"{root} has no class folders: put the images of each class into a folder named after the class"
        )
    return tops, classes


def check_class_folders(root: Path) -> None:
    """A sentence where `root` holds class folders one folder further down, or is a workspace: its folders would be
    taken for classes. Folders below a class, such as a patient's, are fine."""
    tops, classes = class_folders(root)
    if tops != [root]:
        return
    below = {name: [entry for entry in _visible(root / name) if not entry.is_symlink()] for name in classes}
    for name, found in below.items():
        if name in OURS or (name == "library" and any(entry.name == "images.safetensors" for entry in found)):
            raise UserError(
                f"{root} has the folder {name}, which is no class: name the folder that holds the class folders"
            )
    folders = [[entry.name for entry in found if _is_folder(entry)] for found in below.values()]
    nested = all(found and len(names) == len(found) for names, found in zip(folders, below.values(), strict=True))
    if nested and len(folders[0]) > 1 and all(names == folders[0] for names in folders):
        listing = ", ".join(folders[0][:4]) + (", …" if len(folders[0]) > 4 else "")
        inside = f"{root / classes[0]} holds" if len(classes) == 1 else f"{', '.join(classes[:4])} in {root} each hold"
        raise UserError(
            f"{inside} only folders ({listing}), which look like the classes: name the folder that holds the class "
            "folders, or list the files with their labels in a .csv"
        )


def in_class_folders(root: Path) -> Iterator[Entry]:
    tops, _ = class_folders(root)
    for entry in _visible(root) if tops != [root] else []:
        if Path(entry.path) not in tops:
            path = Path(entry.path)
            yield Entry(path, name_below(root, path), problem="neither train nor test: not read")
    for top in tops:  # train before test: of a file that is in both, the one in train is kept
        for entry in _visible(top):
            path = Path(entry.path)
            if _is_folder(entry):
                yield from _below(path, root, entry.name, ours=len(path.relative_to(root).parts))
            else:
                problem = _link_problem(path, root) if entry.is_symlink() else ""
                yield Entry(path, name_below(root, path), problem=problem or "in no class folder")


def in_folder(root: Path) -> Iterator[Entry]:
    """Everything below `root` that is no folder, in a fixed order, hidden names left out."""
    yield from _below(root, root)


def _below(folder: Path, root: Path, label: str = "", ours: int = 0) -> Iterator[Entry]:
    try:
        found = _visible(folder)
    except OSError as error:
        yield Entry(folder, name_below(root, folder), problem=f"a folder that cannot be read ({error.strerror})")
        return
    for entry in found:
        path = Path(entry.path)
        if _is_folder(entry):
            yield from _below(path, root, label, ours)
            continue
        if entry.is_symlink():
            problem = _link_problem(path, root)
        else:
            problem = "an unfinished copy, by its name" if entry.name.endswith(UNFINISHED) else ""
        name = name_below(root, path)
        yield Entry(path, name, name, label, problem=problem, ours=ours)


def name_below(root: Path, file: Path) -> str:
    """Relative path; a name that is not valid UTF-8 (old Windows shares) is escaped, or no table could hold it."""
    return _utf8(file.relative_to(root).as_posix())


def _utf8(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


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


# ---------------------------------------------------------------------------------------------------- manifests


def in_manifest(file: Path, *, labeled: bool) -> list[Entry]:
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
        place = file.parent / path
        relative = _utf8(Path(os.path.relpath(place, file.parent)).as_posix()) if path else ""
        name = relative if Path(path).is_absolute() else path or f"row {row + 1}"
        entries.append(Entry(place, name, relative, label, group, acquired, problem))
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
