"""DVC: the data of every run, and the whole run that dvc.yaml describes, kept by hash. The one module that talks to it.

    hashes = save(settings, run)     # after a run: its data are in DVC's cache, with pointers for git
    push(hashes.values())            # to the default remote, where there is one
    checkout(path, hash)             # the same bytes again, from the cache or the remote

Where the workspace is no DVC repository `save` and `push` do nothing. Only the parent process comes here: DVC's lock is
for the whole repository, and gives up after 3 seconds. What goes wrong is one sentence, a RunError.
"""

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from erd.base import files, progress
from erd.base.errors import RunError, why
from erd.data import library, packed
from erd.runs.configure import resolve
from erd.runs.folder import RunDir
from erd.settings.schema import HERE, Settings, load

if TYPE_CHECKING:
    from dvc.repo import Repo

PIPELINE, PARAMS = Path("dvc.yaml"), Path("params.yaml")
CACHE = Path(".dvc/cache/files/md5")
HASH = re.compile(r"\b[0-9a-f]{32}\b")


def is_repo() -> bool:
    return Path(".dvc").is_dir()


def save(settings: Settings, run: RunDir) -> dict[str, str]:
    """Keep a finished run: all of it where dvc.yaml describes it, else its data. The hashes of its data, by path in
    the run folder; none outside a DVC repository."""
    if not is_repo():
        return {}
    if is_pipeline(settings, run):
        commit()
    else:
        track(data_files(run))
    return hashes(run)


def is_pipeline(settings: Settings, run: RunDir) -> bool:
    """Whether `dvc repro` would write these very files: nothing but params.yaml decided them."""
    if not (PIPELINE.exists() and PARAMS.exists()):
        return False
    described = load(PARAMS)
    if described.data.batch is None or RunDir.of(described) != run:  # DVC knows no folder without a name
        return False
    return resolve(described).model_dump(exclude=HERE) == resolve(settings).model_dump(exclude=HERE)


def commit() -> None:
    """Tell DVC that the outputs of dvc.yaml are what its stages made: then `dvc status` is clean and `dvc repro` has
    nothing to do. Only for a run with the values in params.yaml."""
    with _repo("keep the run") as repo:
        repo.commit(str(PIPELINE), force=True)


def track(paths: Sequence[Path]) -> dict[str, str]:
    """Put files under DVC, each with a pointer (.dvc) beside it for git; their hashes by path.

    An output of dvc.yaml can have no pointer of its own: it only goes into the cache, and its hash finds it there. Each
    file is added as `dvc add` does it, but for the look at all other pointers, whose number grows from week to week.
    """
    if not is_repo():
        return {}
    found = {path: _md5(path) for path in paths}
    with _repo("track the data") as repo:
        from dvc.repo import lock_repo

        with lock_repo(repo), repo.scm_context():
            stages = repo.stage.load_all(str(PIPELINE)) if PIPELINE.exists() else []
            outputs = {Path(out.fs_path) for stage in stages for out in stage.outs}
            for path, md5 in found.items():
                whole = path.absolute()
                if above := [folder for folder in path.parents if folder.name and pointer(folder).is_file()]:
                    raise RunError(f"{path} cannot be tracked alone: {pointer(above[0])} tracks the whole folder")
                if outputs & {whole, *whole.parents}:
                    repo.cache.local.add(str(whole), repo.fs, md5)
                    continue
                stage = repo.stage.create(single_stage=True, validate=False, fname=str(pointer(whole)),
                                          wdir=str(whole.parent), outs=[path.name], force=True)  # fmt: skip
                stage.add_outs(str(whole))
                stage.dump()
    return {path.as_posix(): md5 for path, md5 in found.items()}


def track_library(place: Path = library.PLACE) -> str | None:
    """The labelled images under DVC; the hash of their pixels, None outside a DVC repository."""
    with progress.watched({}, "version"):  # of many images it takes minutes
        return track(library.files_of(place)).get(library.packed(place).as_posix())


def hashes(run: RunDir) -> dict[str, str]:
    """The hash DVC knows each data file by, under the file's path in the run folder."""
    return {path.relative_to(run.root).as_posix(): _md5(path) for path in data_files(run)}


def data_files(run: RunDir, *, encoded: bool | None = None) -> list[Path]:
    """All that ingest packed, and what an encoder made of it and of the batches that it is looked at with, if there was
    one: with these files a run can be made again."""
    sets = [run.labeled, run.batch, run.holdout]
    there = run.features_of(run.labeled).exists() if encoded is None else encoded
    features = [*map(run.features_of, sets), run.encoded, run.older] if there else []
    if encoded is None:
        features = [path for path in features if path.exists()]  # an earlier version did not remember
    return [*sets, *map(packed.manifest, sets), run.ingested, *features]


def checkout(path: Path, md5: str) -> None:
    """Write the file that has this hash to `path`, from the cache, else from the default remote."""
    if path.exists() and _md5(path) == md5:
        return
    if not is_repo():
        raise RunError(f"{path} is to be got from DVC, but there is no DVC repository here; call it in the workspace")
    with _repo(f"get {path}") as repo:
        cache = repo.cache.local
        if not cache.exists(md5) and _remote(repo):
            from dvc_data.hashfile.hash_info import HashInfo

            repo.cloud.pull([HashInfo("md5", md5)])
        if not cache.exists(md5):
            where = f"nor in the remote '{_remote(repo)}'" if _remote(repo) else "and there is no default remote"
            raise RunError(f"{path} with the hash {md5} is not in DVC's cache {where}; `dvc push` it where it was made")
        files.copy(Path(cache.oid_to_path(md5)), path)
    if _md5(path) != md5:
        path.unlink()
        raise RunError(f"DVC's cached copy of {path} is damaged; delete .dvc/cache/files/md5/{md5[:2]}/{md5[2:]}")


def push(md5s: Iterable[str] = ()) -> bool:
    """Send what DVC tracks here, and these hashes, to the default remote; whether there is one."""
    if not is_repo():
        return False
    with _repo("push to the remote") as repo:
        if not _remote(repo):
            return False
        from dvc_data.hashfile.hash_info import HashInfo

        repo.push()
        repo.cloud.push([HashInfo("md5", md5) for md5 in md5s])
    return True


def pointer(path: Path) -> Path:
    return path.with_name(f"{path.name}.dvc")


def kept_copy(path: Path) -> bool:
    """Whether DVC's cache has what the file's pointer names, so that `dvc checkout` brings the file back."""
    found = HASH.findall(_text(pointer(path)))
    return is_repo() and len(found) == 1 and _cached(found[0]).exists()


def only_named_by(pointers: Sequence[Path]) -> list[Path]:
    """The files in DVC's cache that these pointers name, and nothing else of the workspace does: other pointers, the
    pipeline, the records of runs. What only another commit names is not looked at."""
    mine = {md5 for path in pointers for md5 in HASH.findall(_text(path))}
    others = [*Path().rglob("*.dvc"), Path("dvc.lock"), *Path().glob("runs/*/mlflow.json")]
    leaving = {path.parent.parent for path in pointers}  # the record of a run names its data too
    named: set[str] = set()
    for path in others:
        if path.is_file() and path not in pointers and path.parent not in leaving:
            named |= set(HASH.findall(_text(path)))
    named |= {md5 for one in named for md5 in HASH.findall(_text(_cached(f"{one}.dir")))}  # what is in a folder
    return [path for md5 in sorted(mine - named) if (path := _cached(md5)).exists()]


def _cached(md5: str) -> Path:
    return CACHE / md5[:2] / md5[2:]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


class Remote(NamedTuple):
    name: str
    url: str  # of a folder its path


def remote() -> Remote | None:
    """The default remote; None where there is none, or no repository."""
    if not is_repo():
        return None
    with _repo("read its settings") as repo:
        name = _remote(repo)
        if name and name not in repo.config["remote"]:
            raise RunError(f"DVC's default remote is '{name}', which it does not know: `dvc remote add {name} PLACE`")
        return Remote(name, str(repo.config["remote"][name]["url"])) if name else None


def _remote(repo: "Repo") -> str | None:
    return repo.config["core"].get("remote")


@contextmanager
def _repo(doing: str) -> Iterator["Repo"]:
    """The workspace's repository. DVC writes notes to stdout, which is ours, and its remotes raise what they like."""
    from dvc.repo import Repo  # slow

    logger = logging.getLogger("dvc")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with Repo() as repo:
            yield repo
    except RunError:
        raise
    except Exception as error:
        raise RunError(f"DVC could not {doing}: {why(error).rstrip('.')}") from error
    finally:
        logger.setLevel(level)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
