"""`erd prune --keep N`: clear away what is large in old runs, and nothing refers to any more.

    prune(keep=8, dry_run=True).freed        # kind → bytes

Of each stream the last N batches stay whole. Of those before them nets, checkpoints and features go; what they found
out (scores, figures, report, answers, the ledger), their images and the library stay. Also stay: a run that is at work
or did not end, one that MLflow has not heard all of, the one that dvc.yaml describes; of the others the classifier that
the champion's gate or a kept batch is compared with, and the features that kept batches, and the next one, are looked
at with. `cache` clears the same files out of DVC's cache too.
"""

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from erd.base import locks
from erd.base.errors import RunError, UserError
from erd.data import collect, library, packed
from erd.data.feature_store import Store, hashes_of
from erd.data.packed import Rows
from erd.data.pixels import Pixels
from erd.integrations import dvc, mlflow_record, registry, status
from erd.integrations.registry import InUse
from erd.reporting import history, report
from erd.runs import configure, pruned, stage_records
from erd.runs.folder import RUNS, RunDir
from erd.settings.schema import Settings, load
from erd.weekly.stages import encode

CACHE = "DVC's cache"
STORE = "features of images that no whole batch has"
NEXT = ".next"  # no batch can have that name


@dataclass(frozen=True)
class Old:
    """A finished run."""

    run: RunDir
    settings: Settings
    scored: str  # ISO

    @property
    def batch(self) -> str:
        return self.run.batch_name

    @property
    def tracked(self) -> bool:
        return mlflow_record.read(self.run) is not None

    def model(self, in_use: Callable[[str], InUse]) -> InUse:
        return in_use(registry.model_name(self.settings))


@dataclass
class Done:
    batches: list[str] = field(default_factory=list)  # that are no longer whole
    freed: Counter[str] = field(default_factory=Counter)  # kind → bytes
    stays: dict[str, str] = field(default_factory=dict)  # batch, of those before the last N → why it stays as it is


def prune(keep: int, *, cache: bool = False, dry_run: bool = False) -> Done:
    """Clear away, or with `dry_run` only say what would be."""
    if keep < 1:
        raise UserError(f"--keep is {keep}: keep one batch or more, the next one is compared with the last")
    if not RUNS.is_dir():
        raise UserError(f"there is no folder {RUNS} here: call `erd prune` in the workspace")
    done, in_use = Done(), functools.cache(registry.in_use)
    with locks.held(RUNS), ExitStack() as ours:
        old, compared = _before_the_last(keep, done)
        working = [run.batch_name for run in status.run_folders() if locks.is_held(run.root)]
        if cache and working:
            raise RunError(f"{working[0]} is at work: wait for it, or leave DVC's cache out (no --cache)")
        described = load(dvc.PARAMS).data.batch if dvc.PIPELINE.exists() and dvc.PARAMS.exists() else None
        old = [one for one in old if _may_go(one, described, in_use, done) and _taken(one.run, ours, done)]
        champions = [one.run.pretrained for one in old if one.tracked and one.batch in one.model(in_use).batches]
        whole = [run for run in status.run_folders() if run not in {one.run for one in old}]
        held = {*champions, *compared, *_looked_at_with(whole)}
        for one in old:
            _clear(one.run, held, dry_run, done)
        if cache:
            _clear_cache([one.run for one in old], held, dry_run, done)
        if not working:
            done.freed[STORE] += sum(_clear_stores(whole, dry_run))
    done.freed = Counter({kind: size for kind, size in done.freed.items() if size})
    if done.batches and not dry_run:
        history.write()
    return done


def _before_the_last(keep: int, done: Done) -> tuple[list[Old], list[Path]]:
    """Finished runs before the last of their stream, the earliest first; and the classifiers that the first of the
    last are compared with."""
    finished: dict[str, list[Old]] = {}
    for run in status.run_folders():
        record = stage_records.read(run, "score")
        try:
            settings = configure.read(run)
            if record is None or not run.metrics.exists():
                raise UserError("it is not finished")
        except UserError as error:
            done.stays[run.batch_name] = str(error)
            continue
        finished.setdefault(settings.stream, []).append(Old(run, settings, record.finished))
    old: list[Old] = []
    compared: list[Path] = []
    for runs in finished.values():
        runs.sort(key=lambda one: one.scored)
        old += runs[:-keep]
        compared += [one.run.pretrained for one in runs[-keep - 1 : -keep]]
    return old, compared


def _may_go(one: Old, described: str | None, in_use: Callable[[str], InUse], done: Done) -> bool:
    """Whether nothing speaks against it; else why it stays."""
    run, why = one.run, ""
    record = mlflow_record.read(run)
    if described == run.batch_name:
        why = "dvc.yaml describes it"
    elif record is not None and mlflow_record.END not in record.sent:
        why = f"MLflow has not heard all of it: `erd sync {run.root}`"
    elif record is not None and record.status == "FINISHED" and record.run_id not in one.model(in_use).runs:
        why = f"it is no version of a model in MLflow yet: `erd sync {run.root}`"
    if why:
        done.stays[run.batch_name] = why
    return not why


def _taken(run: RunDir, ours: ExitStack, done: Done) -> bool:
    """Hold the folder till the end, so that no run begins in it."""
    try:
        ours.enter_context(locks.held(run.root, wait=False))
        return True
    except locks.Busy:
        done.stays[run.batch_name] = "a run is at work in it"
        return False


def _looked_at_with(whole: Iterable[RunDir]) -> Iterator[Path]:
    """Features of batches that one that stays, or the next one, is looked at with (`data.window`)."""
    for run in whole:
        with suppress(UserError):  # of a run that cannot be read nobody knows
            settings = configure.read(run)
            for each in (run, RunDir(RUNS / NEXT)):
                yield from (other.features_of(other.batch) for other in encode.remembered(settings, each))


def _large(run: RunDir) -> Iterator[tuple[str, Path]]:
    """What can go: its kind, and where it is."""
    for path in [*run.root.glob(".*.checkpoint.safetensors"), *run.members.glob(".*.checkpoint.safetensors")]:
        yield "checkpoints", path
    for path in run.members.glob("[0-9]*.safetensors"):
        yield "members", path
    yield "classifiers", run.pretrained
    yield "what new images are compared with", run.neighbour_index
    for path in run.features.glob("*.safetensors"):
        yield "features", path
    for path in (run.labeled, run.holdout):  # the batch's own are what people judged, and stay
        if dvc.kept_copy(path):
            yield "copies of labelled images", path


def _clear(run: RunDir, held: set[Path], dry_run: bool, done: Done) -> None:
    found = [(kind, path) for kind, path in _large(run) if path.is_file() and path not in held]
    if not found:
        return
    done.batches.append(run.batch_name)
    sizes = {path: size_of(path) for _, path in found}
    for kind, path in found:
        done.freed[kind] += sizes[path]
    if dry_run:
        return
    pruned.note(run, {path.relative_to(run.root).as_posix(): size for path, size in sizes.items()})
    for path in sizes:
        path.unlink(missing_ok=True)
    if run.report.exists():
        with suppress(UserError):  # by another version of erd: it stays as it was
            report.write(run)


def _clear_cache(old: Sequence[RunDir], held: set[Path], dry_run: bool, done: Done) -> None:
    """What was cleared away now or before, or would be now: its pointers, and what these alone name in DVC's cache."""
    pointers = []
    for run in old:
        before = pruned.read(run)
        names = [run.root / name for name in before.files] if before else []
        gone = {*names, *(path for _, path in _large(run))} - held
        pointers += [there for path in sorted(gone) if (there := dvc.pointer(path)).exists()]
    cached = dvc.only_named_by(pointers)
    done.freed[CACHE] += sum(map(size_of, cached))
    for path in [] if dry_run else [*cached, *pointers]:  # who is killed in between finds the pointers again
        path.unlink(missing_ok=True)


def _clear_stores(whole: Sequence[RunDir], dry_run: bool) -> Iterator[int]:
    """Of the features that are kept once an image: those of images that are neither labelled nor in a batch that is
    whole, and those of encoders that no such batch has. Bytes."""
    wanted: dict[Path, list[Rows]] = {}
    for run in whole:
        if not run.settings.exists():
            continue
        try:
            settings = configure.read(run)
            if settings.encoder is None:
                continue
            folder, place = encode.store_of(settings, run).folder, collect.library_of(settings)
            own = folder.parent.parent == place and library.exists(place)  # labelled images are those of the library
            if own and folder not in wanted:
                pixels = library.read(place).images
                assert isinstance(pixels, Pixels)  # on disk, not in memory
                wanted[folder] = [Rows(torch.from_numpy(pixels.whole), torch.from_numpy(pixels.rows))]
            sets = [path for path in encode.sets_of(run) if path.exists() and not (own and path == run.labeled)]
            wanted.setdefault(folder, []).extend(packed.read(path).rows() for path in sets)
        except UserError:  # nobody knows what it needs
            return
    for place in {folder.parent for folder in wanted}:
        for folder in filter(Path.is_dir, place.iterdir()):
            if not locks.is_held(folder.with_suffix(".lock")):  # by `erd bench`, which encodes
                hashes = [hashes_of(rows) for rows in wanted.get(folder, [])]
                yield Store(place, folder.name).keep_only(hashes, dry_run=dry_run)


def size_of(path: Path) -> int:
    """Bytes that go with it: none where it has another name as well, as links to DVC's cache have."""
    found = os.lstat(path)
    return found.st_size if found.st_nlink == 1 else 0
