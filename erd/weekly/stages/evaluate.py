"""evaluate: metrics.json, the figures and the tables behind them. What it does not draw is not left from before."""

import shutil
from pathlib import Path

import numpy as np

from erd.reporting import figures, plot_tables
from erd.runs import results
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Encoded, Ingested, Metrics
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.statistics import decisions
from erd.statistics.metrics import Detection
from erd.training.members import best_epoch
from erd.weekly.stages.base import Stage, one
from erd.weekly.stages.finetune import member_labels


def evaluate(settings: Settings, run: RunDir) -> Done:
    """AUROC, TNR@95, power and false positives where the truth is known; figures."""
    labels = member_labels(settings, run)
    batch, holdout = results.scores(run), results.scores_of_known(run.holdout_scores)
    reference = results.scores_of_known(run.reference_scores)["score"].to_numpy()
    decided, ingested = Decided.read(run), Ingested.read(run)
    kept, best = best_epoch(run.pretrained), {label: best_epoch(run.member(label)) for label in labels}
    pretrained = results.history_of(run, run.pretrained, kept)
    members = {label: results.history_of(run, run.member(label), epoch) for label, epoch in best.items()}
    lowest = batch.loc[batch["flagged"], "score"].min()
    Metrics(
        batch=run.batch_name,
        scenario=settings.data.scenario,
        on_batch=Detection.of(batch),
        on_holdout=Detection.of(holdout),
        images=len(batch),
        verdict=decided.verdict,
        threshold=float(lowest) if np.isfinite(lowest) else None,
        val_accuracy=pretrained[kept - 1]["val_accuracy"],
        members=len(labels),
        sizes=ingested.sizes,
        warnings=[*ingested.warnings, *Encoded.read(run).warnings, *decided.warnings],
        assumes=decisions.assumptions(settings),
    ).write(run)
    for folder in (run.figures, run.plots):
        shutil.rmtree(folder, ignore_errors=True)
    drawn = figures.draw_all(run, ingested.classes, batch, members, best)
    plot_tables.write_all(run, batch, reference, members)
    return Done("evaluate", (run.metrics, *drawn))


def _reads(run: RunDir) -> list[Path]:
    return [run.ingested, run.batch, run.features, run.pretrained, run.history(run.pretrained), run.members, run.scores,
            run.reference_scores, run.holdout_scores, run.decision]  # fmt: skip


STAGE = Stage(
    "evaluate",
    "AUROC, TNR@95, power and false positives; figures",
    ("seed", "data.scenario", "finetune.members", "finetune.labels", "detect"),
    _reads,
    lambda run: [run.figures, run.plots, run.metrics],
    one(evaluate),
)
