"""The numbers behind the figures as small tables, which `dvc plots show` and `dvc plots diff` draw and compare.

Each table has the same columns whatever the run knows: null where there is no truth, no row where nothing can be drawn.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from erd.base import files
from erd.reporting.figures import CURVES, History
from erd.runs.folder import RunDir
from erd.statistics import metrics

BINS = 40
POINTS = 300  # of a curve over all images of a batch, at most


def write_all(run: RunDir, batch: pd.DataFrame, reference: np.ndarray, members: Mapping[int, History]) -> None:
    files.save_json(run.plots / "roc.json", roc(batch))
    files.save_json(run.plots / "looks.json", looks(batch))
    files.save_json(run.plots / "scores.json", scores(batch, reference))
    files.save_json(run.plots / "learning_curves.json", learning_curves(members))


def roc(batch: pd.DataFrame) -> list[dict[str, float]]:
    """Share of novel images caught against share of known ones flagged wrongly."""
    if "truth" not in batch or batch["truth"].nunique() < 2:
        return []
    novel = (batch["truth"] == "novel").to_numpy()
    values = batch["score"].to_numpy()
    rates = zip(*metrics.roc(values[~novel], values[novel]), strict=True)
    return [{"false_positive": float(wrong), "caught": float(caught)} for wrong, caught in rates]


def looks(batch: pd.DataFrame) -> list[dict[str, Any]]:
    """After so many looks, the highest scores first: which share of the novel images is found, and which share of the
    images looked at is novel."""
    if "truth" not in batch or batch["truth"].nunique() < 2:
        return []
    novel = (batch["truth"] == "novel").to_numpy()
    found = metrics.found_after(batch["score"].to_numpy(), novel)
    # The first looks are the ones that somebody takes: the further down the list, the fewer points.
    after = np.unique(np.geomspace(1, len(batch), POINTS).round().astype(int))
    share = found[after - 1]
    return _rows(pd.DataFrame({"looks": after, "found": share, "precision": share * novel.sum() / after}))


def scores(batch: pd.DataFrame, reference: np.ndarray) -> list[dict[str, Any]]:
    """The histogram: which share of each set has a score in the bin."""
    values = batch["score"].to_numpy()
    truth = batch["truth"].to_numpy() if "truth" in batch else np.full(len(batch), "")
    sets = {
        "known": values[truth == "known"],
        "novel": values[truth == "novel"],
        "all": values,
        "calibration": reference,
    }
    edges = np.linspace(0, max(values.max(), reference.max(initial=0), 1e-6), BINS + 1)
    shares = {name: np.histogram(found, edges)[0] / len(found) for name, found in sets.items() if len(found)}
    table = pd.DataFrame({"score": edges[:-1]} | shares, columns=["score", *sets])
    return _rows(table)


def learning_curves(members: Mapping[int, History]) -> list[dict[str, Any]]:
    """Accuracies over the epochs, on average over the members that were still trained then."""
    epochs = pd.concat([pd.DataFrame(history) for history in members.values()])
    means = epochs.reindex(columns=["epoch", *CURVES]).groupby("epoch", as_index=False).mean()
    return _rows(means.astype({"epoch": int}))


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """For JSON, which has null but no NaN."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
