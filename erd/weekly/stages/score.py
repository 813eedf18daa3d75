"""score: Algorithm 2. Where the members disagree an image is novel; what that means against known images.

With `score.join: neighbours` the score joins the disagreement with the neighbours an image has in the batch and with
candidate classes (erd/statistics/joint.py); all of them stand beside it in the tables.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from erd.base import files
from erd.base.seeds import derive
from erd.data import packed
from erd.nets import Classifier, registry
from erd.runs import alarm_ledger, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Group, Ingested
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.statistics import decisions, flags, novelty_test, scan, shift
from erd.statistics import disagreement as scores_of
from erd.statistics.candidates import Known, Space
from erd.statistics.joint import Joint
from erd.statistics.verdict import Verdict
from erd.training import devices
from erd.training.batches import Mixture
from erd.training.checkpoint import State
from erd.training.loop import EVAL_BATCH, predict
from erd.training.members import folds_learned, load_net
from erd.weekly.stages.base import Stage, one
from erd.weekly.stages.finetune import (
    folds_of,
    groups_of,
    learned_without,
    member_labels,
    older_file,
    older_groups,
    older_rows,
)

SMALLEST_GROUP = 5  # images that are told as look-alikes
SCORED_AT_ONCE = 64 * EVAL_BATCH  # images: bounds memory; whole batches, so that no bit depends on it
# Which known images the batch is compared with, and which new images are.
COMPARED_WITH = {
    "mixed": ("calibration", "clean"),
    "crossfit": ("calibration", "calibration"),
    "holdout": ("calibration", "calibration"),
    "paper": ("val", "val"),
}


def score(settings: Settings, run: RunDir) -> Done:
    """Disagreement of the members on U (and T), p-values, flags, the alarm."""
    labels = member_labels(settings, run)
    joins = settings.score.join == "neighbours"
    promises = settings.detect.calibration in decisions.PROMISING
    remembers = joins and promises and settings.data.window > 1
    level = alarm_ledger.level_of(run.alarms, settings.stream, run.batch_name, settings.alarm, 2 if remembers else 1)
    chosen = {"labels": labels, "seed": settings.seed, "score": settings.score.model_dump(),
              "detect": settings.detect.model_dump(), "alarm": level}  # fmt: skip
    sets = [run.labeled, run.batch, run.holdout]
    inputs = [*(run.seen(path, settings) for path in sets), run.pretrained, *(run.member(label) for label in labels),
              *older_file(run, settings)]  # fmt: skip
    with_batch, with_new = COMPARED_WITH[settings.detect.calibration or "mixed"]
    hides = settings.detect.calibration == "mixed"
    held_out = tuple(dict.fromkeys((with_batch, with_new)))  # C, hidden in the batch or not
    known_parts = tuple(dict.fromkeys((*held_out, "val")))  # known images in no training

    code = [__name__, registry.get(settings.model.net or "").module]

    def work(key: str) -> None:
        device = devices.device(settings.run)
        paths = [run.pretrained, *(run.member(label) for label in labels)]
        nets = [(*load_net(path, device), folds_learned(path)) for path in paths]
        folds = folds_of(settings, groups_of(run.batch))
        older = older_rows(run, settings)
        train_labels = packed.read(run.seen(run.labeled, settings)).labels_of("train")
        weeks = 1 + len(files.load_facts(run.older, {"batches": list})["batches"]) if older is not None else 1

        # No defaults here and below: a cache takes a call that leaves one out for another one.
        @functools.cache  # in some modes the same known images serve twice
        def members(images: Path, part: str | None, fold: int | None) -> pd.DataFrame:
            return _scored(run, images, part, _without_fold(nets, fold), settings)

        @functools.cache
        def space() -> Space:
            """All images that are compared are looked at alike, hidden or not, in whatever fold: V too, or it would
            seem to be of another kind than C."""
            others = [_features(run, run.batch), *(_features(run, run.labeled, part) for part in known_parts)]
            if older is not None:
                others.append(_features(run, run.older))
            with devices.threads(settings.pretrain.threads):
                return Space.of(_features(run, run.labeled, "train"), train_labels, others)

        @functools.cache
        def seen(images: Path, part: str | None) -> Tensor:
            """A set in the directions of the space, once for all folds."""
            with devices.threads(settings.pretrain.threads):
                return space()(_features(run, images, part))

        def learned_by(fold: int | None) -> np.ndarray:
            every = sum(len(rows) for _, rows in folds)
            return np.arange(every) if fold is None else learned_without(dict(folds)[fold], every)

        @functools.cache
        def joint(fold: int | None, fair: bool) -> Joint:
            """With M, the images that the members of a fold have learned: those of the other folds or all, and earlier
            batches. They are held against S, V and C. To be `fair` to the images of C that the batch is compared with,
            these speak for nothing, or would look better known than it: they are hidden in M, or left out."""
            learned = learned_by(fold)
            within = [seen(run.batch, None)[torch.from_numpy(learned)]]
            values = [members(run.batch, None, fold)["disagreement"].to_numpy()[learned]]
            against = [seen(run.labeled, part) for part in known_parts if not (fair and part == with_batch)]
            if fair and hides:
                within.append(seen(run.labeled, with_batch))
                values.append(members(run.labeled, with_batch, fold)["disagreement"].to_numpy())
            if older is not None:
                within.append(seen(run.older, None))
                found = _columns(run.older, None, _without_fold(nets, fold), settings, Ingested.read(run).classes)
                values.append(found["disagreement"])
            with devices.threads(settings.pretrain.threads):
                return Joint.of_seen(
                    space(),
                    seen(run.labeled, "train"),
                    train_labels,
                    torch.cat(within),
                    np.concatenate(values),
                    against,
                )

        @functools.cache
        def scored(images: Path, part: str | None, fold: int | None, fair: bool) -> pd.DataFrame:
            table = members(images, part, fold)
            if not joins:
                return table.drop(columns="disagreement")
            with devices.threads(settings.pretrain.threads):  # as the registered model does it, to the last bit
                return joint(fold, fair).of_table_seen(table, seen(images, part))

        def listed(images: Path, part: str | None) -> pd.DataFrame:
            """By the score that people see, and with which new images are scored: it knows all of the batch, undiluted
            by C."""
            return scored(images, part, None, False)

        @functools.cache
        def known_side() -> Known:
            return Known.of(seen(run.labeled, "train"), train_labels)

        def calibration() -> Tensor:
            return torch.cat([seen(run.labeled, part) for part in held_out])

        def tested(together: bool = False) -> float | None:
            """The alarm by groups, where images can be compared: of this batch, or with those before it. It asks
            nothing of the members, so it has all of C, also what is hidden among the batch."""
            if not (joins and promises) or (together and older is None):
                return None
            batch, whose = seen(run.batch, None), groups_of(run.batch)
            if together:
                batch = torch.cat([batch, seen(run.older, None)])
                whose = np.concatenate([whose, older_groups(run)])
            groups = whose, np.concatenate([groups_of(run.labeled, part) for part in held_out])
            draws = max(scan.DRAWS, math.ceil(1 / level))
            with devices.threads(settings.pretrain.threads):
                return scan.group_test(
                    batch, calibration(), known_side(), derive(settings.seed, "alarm"), draws, groups
                )

        batches = [scored(run.batch, None, fold, True).iloc[rows] for fold, rows in folds]
        references = [scored(run.labeled, with_batch, fold, True) for fold, _ in folds]
        changed, moved, p_alarm = None, None, tested()
        if promises:
            if p_alarm is None:
                p_alarm = _within_classes(batches, references, settings)
            changed, references = _same_mix(batches, references, settings)
        if joins:
            with devices.threads(settings.pretrain.threads):
                moved = shift.bulk(seen(run.batch, None), calibration(), known_side().centres, settings.seed)
        # What a fold's members learned they do not score alike; neighbours and candidates leave the image itself out.
        learned = [
            joint(fold, True).learned[: len(learned_by(fold))] if joins and fold is not None else None
            for fold, _ in folds
        ]
        decision = decisions.decide(
            [
                decisions.Compared(rows, batch["score"].to_numpy(), reference["score"].to_numpy(), others)
                for (_, rows), batch, reference, others in zip(folds, batches, references, learned, strict=True)
            ],
            settings,
            level,
            decisions.Tested(p_alarm, tested(together=True), weeks),
            listed(run.batch, None)["score"].to_numpy(),
        )
        # p-values and flags are those of the scores that can be compared with C.
        batch = listed(run.batch, None).copy()
        batch.insert(2, "p_value", decision.p_value)
        batch.insert(3, "flagged", decision.flagged)
        batch["wrong_at_most"] = decision.wrong_at_most
        validation, clean = (listed(run.labeled, part) for part in ("val", with_new))
        holdout = listed(run.holdout, None)
        known, values = clean["score"].to_numpy(), holdout["score"].to_numpy()
        holdout.insert(2, "p_value", flags.p_values(values, known))
        holdout.insert(3, "flagged", decisions.flag(values, known, settings))
        drift = decisions.drift(known, validation["score"].to_numpy()) if with_new != "val" else None
        files.save_table(run.scores, batch)
        files.save_table(run.reference_scores, pd.concat(references))
        files.save_table(run.clean_scores, clean)
        files.save_table(run.validation_scores, validation)
        files.save_table(run.holdout_scores, holdout)
        if joins:
            joint(None, False).save(run.neighbour_index)
        else:
            files.save_tensors(run.neighbour_index, {}, {})
        verdict = replace(decision.verdict, mix_changed=changed, bulk_moved=moved)
        groups = _groups(joint(None, False), batch, verdict, Ingested.read(run).classes) if joins else []
        Decided(verdict, [*decision.warnings, *([drift] if drift else [])], groups).write(run)

    return stage_records.once(run, "score", code, chosen, inputs, _writes(run), work)


def _features(run: RunDir, images: Path, part: str | None = None) -> Tensor:
    """N×D of a set, or of a part of it."""
    whole = packed.read(run.older if images == run.older else run.features_of(images))
    return (whole.rows(part) if part else whole.rows()).every().flatten(1)


def _same_mix(
    batches: Sequence[pd.DataFrame], references: Sequence[pd.DataFrame], settings: Settings
) -> tuple[str | None, list[pd.DataFrame]]:
    """Whether known classes come in other proportions than in C; and C, matched to them where they do."""
    whole = pd.concat(batches)
    p = np.concatenate(
        [flags.p_values(batch["score"], known["score"]) for batch, known in zip(batches, references, strict=True)]
    )
    first = references[0]
    found, usual = whole["predicted"].to_numpy(), first["predicted"].to_numpy()
    changed = shift.mix(found, p, usual, flags.p_values(first["score"], first["score"]))
    if changed is None:
        return None, list(references)
    rows = shift.matched(found, p, usual, derive(settings.seed, "mix"))
    return changed, [known.iloc[rows] for known in references]


def _within_classes(batches: Sequence[pd.DataFrame], references: Sequence[pd.DataFrame], settings: Settings) -> float:
    """The alarm by single images: p-value of 'nothing is novel', whatever the mix of known classes is this week."""
    seed = derive(settings.seed, "alarm")
    found = [
        novelty_test.alarm(
            batch["score"].to_numpy(),
            known["score"].to_numpy(),
            seed,
            kinds=(batch["predicted"].to_numpy(), known["predicted"].to_numpy()),
        )
        for batch, known in zip(batches, references, strict=True)
    ]
    return min(1.0, len(found) * min(found))


def _groups(joint: Joint, batch: pd.DataFrame, verdict: Verdict, classes: list[str]) -> list[Group]:
    """Candidate classes in this batch, where there is a sign that anything is novel."""
    found, p = joint.candidates, batch["p_value"].to_numpy()
    groups = []
    for centre, belongs in zip(found.centres, found.belongs, strict=True) if verdict.worth_looking else ():
        rows = torch.nonzero(belongs[: len(batch)] > 0.5)[:, 0].numpy()
        rows = rows[np.argsort(-batch["score"].to_numpy()[rows], kind="stable")]
        if len(rows) >= SMALLEST_GROUP:
            at_least = flags.novel_at_least(rows, p, batch["wrong_at_most"].to_numpy())
            like = classes[int((found.known.centres @ centre).argmax())]
            groups.append(Group(len(rows), at_least, like, batch["id"].iloc[rows].tolist()))
    return groups


def _without_fold(
    nets: list[tuple[Classifier, list[State], list[int]]], fold: int | None
) -> list[tuple[Classifier, list[State]]]:
    """The nets as they are without what they learned from one fold of the batch; all that they are where it is None."""
    return [
        (
            model,
            [state for state, without in zip(states, folds, strict=True) if fold in (None, without)]
            if folds
            else states,
        )
        for model, states, folds in nets
    ]


def _scored(
    run: RunDir, images: Path, part: str | None, nets: list[tuple[Classifier, list[State]]], settings: Settings
) -> pd.DataFrame:
    """One row an image of a packed set, or of a part of it. The first net is the classifier, the others are members."""
    columns = _columns(run.seen(images, settings), part, nets, settings, Ingested.read(run).classes)
    manifest = packed.table(images, *(["part"] if part else []))  # now that the images are no longer mapped
    if part:
        manifest = manifest[manifest["part"] == part].reset_index(drop=True)
    table = {"id": manifest["id"]} | columns
    return pd.DataFrame(table | ({"truth": manifest["truth"]} if "truth" in manifest else {}))


def _columns(
    images: Path, part: str | None, nets: list[tuple[Classifier, list[State]]], settings: Settings, classes: list[str]
) -> dict[str, np.ndarray]:
    whole = packed.read(images)
    device = next(nets[0][0].parameters()).device
    blocks: list[dict[str, np.ndarray]] = []
    for rows in (whole.rows(part) if part else whole.rows()).split(SCORED_AT_ONCE):
        mixture = Mixture(rows, device=device)
        with devices.threads(settings.pretrain.threads):
            classifier, *others = (predict(model, snapshots, mixture) for model, snapshots in nets)
        members = torch.stack(others)
        blocks.append(
            {
                "score": (found := scores_of.disagreement(members, settings.score.distance).numpy()),
                "disagreement": found,
                "predicted": np.array(classes)[classifier.argmax(1).numpy()],
                # For comparison: what the same ensemble and the classifier alone would say.
                "entropy": scores_of.entropy_of_mean(members).numpy(),
                "max_softmax": scores_of.max_softmax(classifier[None]).numpy(),
            }
        )
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _reads(run: RunDir) -> list[Path]:
    sets = [run.labeled, run.batch, run.holdout]
    return [*(path for data in sets for path in (data, packed.manifest(data))), run.features, run.pretrained,
            run.members]  # fmt: skip


def _writes(run: RunDir) -> list[Path]:
    return [run.scores, run.reference_scores, run.validation_scores, run.clean_scores, run.holdout_scores, run.decision,
            run.neighbour_index]  # fmt: skip


STAGE = Stage(
    "score",
    "where the members disagree, an image is novel; p-values and flags against C",
    ("seed", "finetune.members", "finetune.labels", "score", "detect", "alarm.rate", "alarm.looks"),
    _reads,
    _writes,
    one(score),
)
