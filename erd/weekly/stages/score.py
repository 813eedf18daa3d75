"""score: Algorithm 2. Where the members disagree an image is novel; what that means against known images.

With `score.join: neighbours` the score joins the disagreement with the neighbours an image has in the batch
(erd/statistics/neighbours.py); both stand beside it in the tables.
"""

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from erd.base import files
from erd.data import packed
from erd.nets import Classifier, registry
from erd.runs import alarm_ledger, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Ingested
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.statistics import decisions, flags
from erd.statistics import disagreement as scores_of
from erd.statistics.neighbours import Joint
from erd.training import devices
from erd.training.batches import Mixture
from erd.training.checkpoint import State
from erd.training.loop import EVAL_BATCH, predict
from erd.training.members import load_net
from erd.weekly.stages.base import Stage, one
from erd.weekly.stages.finetune import folds_of, member_labels

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
    level = alarm_ledger.level_of(run.alarms, settings.stream, run.batch_name, settings.alarm)
    chosen = {"labels": labels, "seed": settings.seed, "score": settings.score.model_dump(),
              "detect": settings.detect.model_dump(), "alarm": level}  # fmt: skip
    sets = [run.labeled, run.batch, run.holdout]
    inputs = [*(run.seen(path, settings) for path in sets), run.pretrained, *(run.member(label) for label in labels)]
    with_batch, with_new = COMPARED_WITH[settings.detect.calibration]

    code = [__name__, registry.get(settings.model.net or "").module]

    def work(key: str) -> None:
        device = devices.device(settings.run)
        paths = [run.pretrained, *(run.member(label) for label in labels)]
        nets = [(*load_net(path, device), files.load_facts(path).get("folds", [])) for path in paths]
        folds = folds_of(settings, len(packed.read(run.batch)))

        @functools.cache  # in some modes the same known images serve twice
        def members(images: Path, part: str | None, fold: int | None) -> pd.DataFrame:
            return _scored(run, images, part, _without_fold(nets, fold), settings)

        @functools.cache
        def joint(fold: int | None) -> Joint:
            """With the images that the members of a fold have learned: those of the other one, or all."""
            learned = np.sort(np.concatenate([rows for number, rows in folds if number != fold or fold is None]))
            mixed = settings.detect.calibration == "mixed"
            hidden = members(run.labeled, "calibration", fold) if mixed else None
            return _joint(settings, run, learned, members(run.batch, None, fold), hidden)

        @functools.cache
        def scored(images: Path, part: str | None = None, fold: int | None = None) -> pd.DataFrame:
            table = members(images, part, fold)
            if settings.score.join != "neighbours":
                return table.drop(columns="disagreement")
            with devices.threads(settings.pretrain.threads):  # as the registered model does it, to the last bit
                return joint(fold).of_table(table, _features(run, images, part))

        batches = [scored(run.batch, None, fold).iloc[rows] for fold, rows in folds]
        references = [scored(run.labeled, with_batch, fold) for fold, _ in folds]
        decision = decisions.decide(
            [
                decisions.Compared(rows, batch["score"].to_numpy(), reference["score"].to_numpy())
                for (_, rows), batch, reference in zip(folds, batches, references, strict=True)
            ],
            settings,
            level,
        )
        batch = pd.concat(batches).sort_index()
        batch.insert(2, "p_value", decision.p_value)
        batch.insert(3, "flagged", decision.flagged)
        batch["wrong_at_most"] = decision.wrong_at_most
        validation, clean, holdout = scored(run.labeled, "val"), scored(run.labeled, with_new), scored(run.holdout)
        known, values = clean["score"].to_numpy(), holdout["score"].to_numpy()
        holdout.insert(2, "p_value", flags.p_values(values, known))
        holdout.insert(3, "flagged", decisions.flag(values, known, settings))
        drift = decisions.drift(known, validation["score"].to_numpy()) if with_new != "val" else None
        files.save_table(run.scores, batch)
        files.save_table(run.reference_scores, pd.concat(references))
        files.save_table(run.clean_scores, clean)
        files.save_table(run.validation_scores, validation)
        files.save_table(run.holdout_scores, holdout)
        if settings.score.join == "neighbours":
            joint(None).save(run.neighbour_index)
        else:
            files.save_tensors(run.neighbour_index, {}, {})
        Decided(decision.verdict, [*decision.warnings, *([drift] if drift else [])]).write(run)

    return stage_records.once(run, "score", code, chosen, inputs, _writes(run), work)


def _features(run: RunDir, images: Path, part: str | None) -> Tensor:
    """N×D of a set, or of a part of it."""
    whole = packed.read(run.features_of(images))
    return (whole.rows(part) if part else whole.rows()).every().flatten(1)


def _joint(
    settings: Settings, run: RunDir, learned: np.ndarray, batch: pd.DataFrame, hidden: pd.DataFrame | None
) -> Joint:
    """The neighbours in M, which are the images of the batch that the members learned and C where it was among them."""
    train = packed.read(run.features_of(run.labeled))
    within = [_features(run, run.batch, None)[torch.from_numpy(learned)]]
    values = [batch["disagreement"].to_numpy()[learned]]
    if hidden is not None:
        within.append(_features(run, run.labeled, "calibration"))
        values.append(hidden["disagreement"].to_numpy())
    with devices.threads(settings.pretrain.threads):
        return Joint.of(
            _features(run, run.labeled, "train"), train.labels_of("train"), torch.cat(within), np.concatenate(values)
        )


def _without_fold(
    nets: list[tuple[Classifier, list[State], list[int]]], fold: int | None
) -> list[tuple[Classifier, list[State]]]:
    """The nets as they are without what they learned from one fold of the batch."""
    return [
        (model, [state for state, learned in zip(states, folds, strict=True) if learned != fold] if folds else states)
        for model, states, folds in nets
    ]


def _scored(
    run: RunDir, images: Path, part: str | None, nets: list[tuple[Classifier, list[State]]], settings: Settings
) -> pd.DataFrame:
    """One row an image of a packed set, or of a part of it. The first net is the classifier, the others are members."""
    columns = _columns(run.seen(images, settings), part, nets, settings, Ingested.read(run).classes)
    manifest = files.load_table(packed.manifest(images))  # now that the images are no longer mapped
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
