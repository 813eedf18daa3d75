"""finetune: Algorithm 1, a job for each artificial label c: a member f_c on S ∪ {(x, c): x ∈ U}, and C among U where
the calibration is `mixed`."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
from erd.training import devices
from erd.training.loop import Fit, Recipe
from erd.training.members import CURVES, draw_labels, finetune_member, load_net, save_net
from erd.weekly.stages.base import Job, Stage

log = logging.getLogger("erd")


def finetune(settings: Settings, run: RunDir, label: int, member: int = 0) -> Done:
    """One member. Its number among the members picks its GPU."""
    path = run.member(label)
    outputs = [path, run.history(path)]
    recipe = Recipe.of(settings.finetune)
    mixed, crossfit = (settings.detect.calibration == mode for mode in ("mixed", "crossfit"))
    chosen = {"seed": settings.seed, "label": label, "mixed": mixed, "crossfit": crossfit and settings.detect.folds,
              "recipe": settings.finetune.model_dump(exclude={"members", "labels"})}  # fmt: skip
    folds = folds_of(settings, groups_of(run.batch))
    told, epochs = run.progress(path), recipe.epochs * len(folds)

    code = [__name__, registry.get(settings.model.net or "").module]

    def work(key: str) -> None:
        labeled, batch = (packed.read(run.seen(data, settings)) for data in (run.labeled, run.batch))
        curves = _curves(run)
        older = older_rows(run, settings)
        facts: dict[str, Any] = {"classes": labeled.facts["classes"], "label": label}
        checkpoints = [run.checkpoint(path.with_stem(f"{label}-{number}")) for number in range(len(folds))]
        whole = Fit()
        for number, (fold, rows) in enumerate(folds):
            pretrained, _ = load_net(run.pretrained, devices.device(settings.run, member))
            here = torch.from_numpy(learned_without(rows, len(batch.images)) if crossfit else rows)
            unlabeled = [(Rows(batch.images, here if crossfit else None), curves[here])]
            if older is not None:
                unlabeled.append((older, torch.full((len(older),), CURVES.index("batch"), dtype=torch.int8)))
            if mixed:
                hidden = labeled.rows("calibration")
                known_truth = CURVES.index("batch_known" if truth_of(run.batch) is not None else "batch")
                unlabeled.append((hidden, torch.full((len(hidden),), known_truth, dtype=torch.int8)))
            model, result = finetune_member(
                pretrained,
                label,
                (labeled.rows("train"), labeled.labels_of("train")),
                unlabeled,
                (labeled.rows("val"), labeled.labels_of("val")),
                settings.finetune,
                derive(settings.seed, "fold", number) if number else settings.seed,
                checkpoint=checkpoints[number],
                fingerprint=f"{key} {number}",
                on_epoch=progress.to_file(told, epochs, before=recipe.epochs * number),
            )
            whole.snapshots += result.snapshots
            if fold is not None:  # one file for all folds: for new images they are one member
                facts.setdefault("folds", []).extend([fold] * len(result.snapshots))
            if number == 0:
                whole.history, whole.best_epoch = result.history, result.best_epoch
        save_net(path, model, whole, facts)
        files.save_json(run.history(path), whole.history)
        for checkpoint in checkpoints:
            checkpoint.unlink(missing_ok=True)

    inputs = [
        run.seen(run.labeled, settings),
        run.seen(run.batch, settings),
        run.pretrained,
        *older_file(run, settings),
    ]
    done = stage_records.once(run, f"finetune-{label}", code, chosen, inputs, outputs, work)
    progress.to_file(told, epochs)({"epoch": epochs})
    return done


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
    """One a member. Members of another ensemble are cleared away: what is in the folder is the ensemble."""
    labels, classes = member_labels(settings, run), Ingested.read(run).classes
    epochs = (settings.finetune.epochs or 0) * len(folds_of(settings, groups_of(run.batch)))
    for path in run.members.glob("[0-9]*.safetensors"):
        if int(path.stem) not in labels:
            path.unlink()
            run.history(path).unlink(missing_ok=True)
    return [
        Job(
            f"c={classes[label]}",
            finetune,
            (settings, run, label, member),
            run.progress(run.member(label)),
            epochs,
        )
        for member, label in enumerate(labels)
    ]


STAGE = Stage(
    "finetune",
    "f_c: S ∪ {(x, c): x ∈ U}, a member for each label c, side by side",
    ("seed", "data.scenario", "finetune", "detect.calibration", "detect.folds"),
    # What the classifier has learned is read for the order: a refused one is no place to begin.
    lambda run: [run.labeled, run.batch, packed.manifest(run.batch), run.features, run.pretrained, run.class_accuracy],
    lambda run: [run.members],
    _jobs,
    side_by_side=True,
)
