"""A whole workspace in one file, also while it is in use, and back from it, also elsewhere.

    saved = save(Path("/mnt/backup/2026-W46.tar"))
    restore(Path("/mnt/backup/2026-W46.tar"), Path("/srv/watch"))

A run at work is saved as a kill would leave it: the same command goes on there. First the files, then the databases,
then what the databases name: so neither knows of something that the other one does not have. SQLite's own way to copy
gives one state of a database that is being written to. PostgreSQL has pg_dump (docs/operate.md).
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from erd.base import files
from erd.base.addresses import bare
from erd.base.errors import RunError, UserError, why
from erd.base.version import VERSION
from erd.data import library
from erd.integrations import mlflow_client

# Made again by itself, or of no use elsewhere.
LEFT_OUT = {".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "logs"}
SCRATCH = Path(".dvc/tmp")
ARTIFACTS = "mlruns"
LIST, PREFECT = "backup.json", "prefect.db"  # in the archive, beside the workspace's own files
BLOCK = 2**20


@dataclass
class Saved:
    files: dict[str, str] = field(default_factory=dict)  # name → sha256
    size: int = 0
    notes: list[str] = field(default_factory=list)  # what is not in it


class Restored(NamedTuple):
    place: Path
    files: int
    notes: list[str]


# ------------------------------------------------------------------------------------------------ save


def save(target: Path) -> Saved:
    """The workspace in the current folder, as a .tar (or .tar.gz); a half-written one never has the name."""
    if target.exists():
        raise UserError(f"{target} is there already, and stays: give the new one another name")
    saved, before = Saved(), _stamps()
    mode: Any = "w:gz" if target.name.endswith("gz") else "w"
    with files.replacing(target) as draft, tarfile.open(draft, mode, dereference=True) as tar:
        skip = {draft.resolve(), target.resolve()}
        for artifacts in (False, True):
            for path in _walk(Path(), skip):
                if (path.parts[0] == ARTIFACTS) == artifacts and not _is_database(path):
                    _add(tar, path, path.as_posix(), saved)
            if not artifacts:
                for name, database in _databases(skip, saved.notes).items():
                    with _copy_of(database) as copy:
                        _add(tar, copy, name, saved)
        if _stamps() != before:
            raise RunError("the labelled images were changed meanwhile: call `erd backup` again")
        told = {"erd": VERSION, "workspace": str(Path.cwd()), "made": mlflow_client.now(), "files": saved.files}
        text = json.dumps(told).encode()
        entry = tarfile.TarInfo(LIST)
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return saved


def _stamps() -> list[tuple[int, int]]:
    """Of the two files that have to be of one state."""
    return [(path.stat().st_mtime_ns, path.stat().st_size) for path in library.files_of(library.PLACE) if path.exists()]


def _walk(folder: Path, skip: set[Path]) -> Iterator[Path]:
    """Files, folders (git knows a repository by empty ones) and links; no sockets and pipes."""
    for path in sorted(folder.iterdir()):
        if path.name in LEFT_OUT or path == SCRATCH or path.name.endswith(".part") or path.resolve() in skip:
            continue
        if path.is_symlink() or path.is_file() or path.is_dir():
            yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, skip)


def _is_database(path: Path) -> bool:
    return path.name.endswith((".db", ".db-wal", ".db-shm", ".db-journal"))


def _databases(skip: set[Path], notes: list[str]) -> dict[str, Path]:
    """By their names in the archive: the workspace's own, and Prefect's, which lies elsewhere."""
    found = {path.as_posix(): path for path in _walk(Path(), skip) if path.suffix == ".db"}
    uri = mlflow_client.location()
    if not uri.startswith(mlflow_client.SQLITE):
        notes.append(f"MLflow's records are at {bare(uri)}, and not in it")
    elif (own := Path(uri.removeprefix(mlflow_client.SQLITE))).exists() and not own.is_relative_to(Path.cwd()):
        notes.append(f"MLflow's records are in {own}, outside of the workspace, and not in it")
    from prefect.settings import get_current_settings  # slow

    settings = get_current_settings()
    url = settings.server.database.connection_url
    place = settings.home / PREFECT if url is None else None
    if url is not None and (where := url.get_secret_value()).startswith("sqlite"):
        place = Path(where.partition(":///")[2].partition("?")[0])
    elif url is not None:
        notes.append(f"Prefect's records are at {bare(url.get_secret_value())}, and not in it")
    if place is not None and place.is_file() and not place.resolve().is_relative_to(Path.cwd().resolve()):
        found[PREFECT] = place
    return found


@contextlib.contextmanager
def _copy_of(database: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        try:
            with (
                contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as source,
                contextlib.closing(sqlite3.connect(copy)) as drain,
            ):
                source.backup(drain)
        except sqlite3.Error as error:
            raise RunError(f"the database {database} cannot be copied ({why(error)}); see `erd doctor`") from error
        yield copy


def _add(tar: tarfile.TarFile, path: Path, name: str, saved: Saved) -> None:
    with contextlib.suppress(FileNotFoundError):  # a stage took it away meanwhile
        if path.is_symlink() and not path.is_file():
            saved.notes.append(f"{path} is a link to {os.readlink(path)}, which is not in it")
            return
        if path.is_dir():
            tar.addfile(tar.gettarinfo(path, name))
            return
        with path.open("rb") as file:
            entry = tar.gettarinfo(arcname=name, fileobj=file)
            hashed = _Hashed(file, entry.size)
            tar.addfile(entry, hashed)  # type: ignore[arg-type]
        saved.files[name] = hashed.hash.hexdigest()
        saved.size += entry.size


class _Hashed:
    """A file that is hashed while it is read, as long as it was at first: one that grows is appended to."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left, self.hash = file, size, hashlib.sha256()

    def read(self, size: int) -> bytes:
        found = self.file.read(min(size, self.left))
        self.left -= len(found)
        self.hash.update(found)
        return found


# ------------------------------------------------------------------------------------------------ restore


def restore(archive: Path, place: Path) -> Restored:
    """The workspace in a folder that is new or empty. Nothing is there before all of it is, and as it was."""
    if not archive.is_file():
        raise UserError(f"there is no file {archive}; `erd backup` makes one")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"{place} is not empty: name a new folder, and move it when you have looked")
    place = place.absolute()
    draft = place.with_name(f".{place.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            draft.mkdir(parents=True)
            tar.extractall(draft, filter="data")
        if not (draft / LIST).is_file():
            raise RunError(f"{archive} was not made by `erd backup`, or is cut off: it has no {LIST}")
        told = files.load_json(draft / LIST)
        (draft / LIST).unlink()
        changed = [name for name, digest in told["files"].items() if files.sha256(draft / name) != digest]
        if changed:
            raise RunError(f"{archive} is damaged: {changed[0]} is not what was saved ({len(changed)} such files)")
        for database in draft.rglob("*.db"):
            if database != draft / PREFECT:
                _move_paths(database, told["workspace"], str(place))
        if place.exists():
            place.rmdir()
        draft.rename(place)
    except (tarfile.TarError, EOFError, KeyError, TypeError, OSError) as error:
        raise RunError(f"{archive} cannot be restored ({why(error)}); {place} is as it was") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    notes = []
    if (place / PREFECT).exists():
        notes.append(f"Prefect's records are in {place / PREFECT}: put it into ~/.prefect while no server runs there")
    return Restored(place, len(told["files"]), notes)


def _move_paths(database: Path, old: str, new: str) -> None:
    """MLflow keeps absolute paths of its artifacts and models: in whatever column, they begin at the new place."""
    if old == new:
        return
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for column in [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]:
                for before in ("", "file://", mlflow_client.SQLITE):
                    connection.execute(
                        f'UPDATE "{table}" SET "{column}" = ? || substr("{column}", ?) '  # noqa: S608  # its own names
                        f'WHERE typeof("{column}") = \'text\' AND substr("{column}", 1, ?) = ?',
                        (f"{before}{new}/", len(f"{before}{old}/") + 1, len(f"{before}{old}/"), f"{before}{old}/"),
                    )
