"""finetune: Algorithm 1, for each artificial label c a member f_c on S ∪ {(x, c): x ∈ U}, and C among U where the
calibration is `mixed`. A member is a job; heads on features are trained at once, folds and members, in one job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erd.base import files, progress
from erd.base.errors import RunError
from erd.base.seeds import derive
from erd.data import packed
from erd.data.packed import Rows, truth_of
from erd.nets import registry
from erd.runs import stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Ingested
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training import devices, together
from erd.training.loop import Fit, Recipe
from erd.training.members import (
    CURVES,
    Unlabeled,
    draw_labels,
    finetune_member,
    finetune_together,
    load_net,
    save_net,
)
from erd.weekly.stages.base import Job, Stage

A_JOB = 5_000_000  # images of all epochs that heads see in a job: some seconds, as a process takes to start


def finetune(settings: Settings, run: RunDir, labels: Sequence[int], member: int = 0) -> Done:
    """The members with these labels, a record for each. The number of the first of them among all picks their GPU."""
    mixed, crossfit = (settings.detect.calibration == mode for mode in ("mixed", "crossfit"))
    folds = folds_of(settings, groups_of(run.batch))
    epochs = Recipe.of(settings.finetune).epochs * len(folds) * len(labels)
    tell = progress.to_file(run.progress(run.member(labels[0])), epochs)
    device = devices.device(settings.run, member)
    fits: dict[int, list[Fit]] = {}  # of each member, one a fold

    def work(label: int, key: str) -> None:
        given = _Given.of(settings, run, folds)
        if label not in fits and stacked(settings):
            fits.update(_trained_at_once(settings, run, given, labels, device, lambda done: tell({"epoch": done})))
        elif label not in fits:
            fits[label] = _trained_in_turn(settings, run, given, label, device, key, epochs)
        whole = Fit([], fits[label][0].history, fits[label][0].best_epoch)
        facts: dict[str, Any] = {"classes": given.classes, "label": label}
        for (fold, _), fit in zip(folds, fits[label], strict=True):
            whole.snapshots += fit.snapshots
            if fold is not None:  # one file for all folds: for new images they are one member
                facts.setdefault("folds", []).extend([fold] * len(fit.snapshots))
        save_net(run.member(label), load_net(run.pretrained)[0], whole, facts)
        files.save_json(run.history(run.member(label)), whole.history)
        for number in range(len(folds)):
            _checkpoint(run, label, number).unlink(missing_ok=True)

    inputs = [
        run.seen(run.labeled, settings),
        run.seen(run.batch, settings),
        run.pretrained,
        *older_file(run, settings),
    ]
    done = []
    for label in labels:
        path = run.member(label)
        chosen = {"seed": settings.seed, "label": label, "mixed": mixed, "crossfit": crossfit and settings.detect.folds,
                  "recipe": settings.finetune.model_dump(exclude={"members", "labels"})}  # fmt: skip
        done.append(
            stage_records.once(run, f"finetune-{label}", [__name__, registry.get(settings.model.net or "").module],
                               chosen, inputs, [path, run.history(path)], partial(work, label))
        )  # fmt: skip
    tell({"epoch": epochs})
    name = "-".join(["finetune", *map(str, labels)])
    return Done(name, tuple(path for one in done for path in one.outputs), all(one.reused for one in done))


def stacked(settings: Settings) -> bool:
    """Whether members, and their folds, are trained at once."""
    return together.possible(settings.model.net or "", Recipe.of(settings.finetune))


@dataclass(frozen=True)
class _Given:
    """What members learn from, in each fold with a seed of its own, and what they are watched on."""

    train: tuple[Rows, Tensor]
    folds: Sequence[tuple[Unlabeled, int]]
    val: tuple[Rows, Tensor]
    classes: list[str]

    @classmethod
    def of(cls, settings: Settings, run: RunDir, folds: Sequence[tuple[int | None, np.ndarray]]) -> "_Given":
        labeled, batch = (packed.read(run.seen(data, settings)) for data in (run.labeled, run.batch))
        curves = _curves(run)
        shared: list[tuple[Rows, Tensor]] = []
        if (older := older_rows(run, settings)) is not None:
            shared.append((older, torch.full((len(older),), CURVES.index("batch"), dtype=torch.int8)))
        if settings.detect.calibration == "mixed":
            hidden = labeled.rows("calibration")
            known_truth = CURVES.index("batch_known" if truth_of(run.batch) is not None else "batch")
            shared.append((hidden, torch.full((len(hidden),), known_truth, dtype=torch.int8)))
        learned = []
        for number, (fold, rows) in enumerate(folds):
            here = torch.from_numpy(rows if fold is None else learned_without(rows, len(batch.images)))
            mine = Rows(batch.images, None if fold is None else here), curves[here]
            learned.append(([mine, *shared], derive(settings.seed, "fold", number) if number else settings.seed))
        train, val = ((labeled.rows(part), labeled.labels_of(part)) for part in ("train", "val"))
        return cls(train, learned, val, labeled.facts["classes"])


def _trained_in_turn(
    settings: Settings, run: RunDir, given: _Given, label: int, device: torch.device, key: str, epochs: int
) -> list[Fit]:
    """One member, a fold after another; a killed one goes on at its last epoch."""
    found: list[Fit] = []
    for number, (unlabeled, seed) in enumerate(given.folds):
        _, fit = finetune_member(
            load_net(run.pretrained, device)[0],
            label,
            given.train,
            unlabeled,
            given.val,
            settings.finetune,
            seed,
            checkpoint=_checkpoint(run, label, number),
            fingerprint=f"{key} {number}",
            on_epoch=progress.to_file(
                run.progress(run.member(label)), epochs, before=number * epochs // len(given.folds)
            ),
        )
        found.append(fit)
    return found


def _trained_at_once(
    settings: Settings,
    run: RunDir,
    given: _Given,
    labels: Sequence[int],
    device: torch.device,
    on_epoch: Callable[[int], None],
) -> dict[int, list[Fit]]:
    """Members that are heads, all folds of all of them."""
    fits = finetune_together(
        load_net(run.pretrained, device)[0],
        [(label, unlabeled, seed) for label in labels for unlabeled, seed in given.folds],
        given.train,
        given.val,
        settings.finetune,
        on_epoch,
    )
    count = len(given.folds)
    return {label: fits[i * count : (i + 1) * count] for i, label in enumerate(labels)}


def _checkpoint(run: RunDir, label: int, fold: int) -> Path:
    return run.checkpoint(run.member(label).with_stem(f"{label}-{fold}"))


def older_file(run: RunDir, settings: Settings) -> list[Path]:
    """Where the earlier batches are that are looked at with this one, if anywhere."""
    return [run.older] if settings.encoder and run.older.exists() else []


def older_rows(run: RunDir, settings: Settings) -> Rows | None:
    """Earlier batches, learned with this one and not scored; None where there are none."""
    for path in older_file(run, settings):
        if len(rows := packed.read(path).rows()):
            return rows
    return None


def older_groups(run: RunDir) -> list[str]:
    """Whose image each of the earlier batches is."""
    rows = packed.read(run.older).rows()
    with files.understood(run.older):
        groups = files.load_facts(run.older, {"groups": list})["groups"]
        if len(groups) != len(rows):
            raise ValueError(f"{len(rows)} images, and groups of {len(groups)}")
    return list(map(str, groups))


def member_labels(settings: Settings, run: RunDir) -> list[int]:
    """The artificial labels of this run, as numbers among its known classes."""
    return draw_labels(settings.finetune, Ingested.read(run).classes, settings.seed)


def folds_of(settings: Settings, groups: np.ndarray) -> list[tuple[int | None, np.ndarray]]:
    """Rows of the batch that are scored together: all by members that learned all, or with cross-fitting some random
    parts, each by members that learned the others.

    `groups` says whose image each is (a patient's, or its own). All of a group are in one part: members that have
    learned an image's siblings would know it, and know nobody of C.
    """
    if settings.detect.calibration != "crossfit":
        return [(None, np.arange(len(groups)))]
    names, group_of = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise RunError(
            f"the batch has {len(groups)} image{'s' * (len(groups) != 1)}, all of one group: cross-fitting takes two "
            "or more; add images, or set detect.calibration=mixed"
        )
    parts: list[list[int]] = [[] for _ in range(min(settings.detect.folds or 2, len(names)))]
    counts = np.bincount(group_of)
    for group in np.random.default_rng(derive(settings.seed, "folds")).permutation(len(names)):
        min(parts, key=lambda part: int(counts[part].sum())).append(int(group))
    return [(fold, np.flatnonzero(np.isin(group_of, part))) for fold, part in enumerate(parts)]


def groups_of(images: Path, part: str | None = None) -> np.ndarray:
    """Whose image each row of a packed set is, or of a part of it."""
    table = packed.table(images, *(["part"] if part else []))
    return (table[table["part"] == part] if part else table)["group"].to_numpy().astype(str)


def learned_without(rows: np.ndarray, images: int) -> np.ndarray:
    """The rows of the batch that are learned where these are scored."""
    return np.setdiff1d(np.arange(images), rows)


def _curves(run: RunDir) -> torch.Tensor:
    """Which learning curve each image of the batch belongs to. It changes what is recorded, never what is learned."""
    truth = truth_of(run.batch)
    if truth is None:
        return torch.full((len(packed.read(run.batch).images),), CURVES.index("batch"), dtype=torch.int8)
    codes = np.where(truth == "novel", CURVES.index("batch_novel"), CURVES.index("batch_known"))
    return torch.from_numpy(codes.astype(np.int8))


def _jobs(settings: Settings, run: RunDir) -> list[Job]:
    """One a member, or one for as many heads as take some seconds together. Members of another ensemble are cleared
    away: what is in the folder is the ensemble."""
    labels, classes = member_labels(settings, run), Ingested.read(run).classes
    for path in run.members.glob("[0-9]*.safetensors"):
        if int(path.stem) not in labels:
            path.unlink()
            run.history(path).unlink(missing_ok=True)
    epochs = (settings.finetune.epochs or 0) * len(folds_of(settings, groups_of(run.batch)))
    count = 1
    if stacked(settings):
        images = sum(len(packed.read(run.seen(data, settings))) for data in (run.labeled, run.batch))
        count = max(1, A_JOB // max(1, images * epochs))
    return [
        Job(
            f"c={', '.join(classes[label] for label in some)}",
            finetune,
            (settings, run, some, first),
            run.progress(run.member(some[0])),
            epochs * len(some),
            here=stacked(settings) and count >= len(labels),
        )
        for first in range(0, len(labels), count)
        for some in [labels[first : first + count]]
    ]


STAGE = Stage(
    "finetune",
    "f_c: S ∪ {(x, c): x ∈ U}, a member for each label c, side by side; heads at once",
    ("seed", "data.scenario", "finetune", "detect.calibration", "detect.folds"),
    # What the classifier has learned is read for the order: a refused one is no place to begin.
    lambda run: [run.labeled, run.batch, packed.manifest(run.batch), run.features, run.pretrained, run.class_accuracy],
    lambda run: [run.members],
    _jobs,
    side_by_side=True,
)
