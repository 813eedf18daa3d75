"""Which images of a batch are shown, in which order: the flagged ones, and those that are worth a look."""

import numpy as np
import pandas as pd

from erd.runs import configure, results
from erd.runs.folder import RunDir
from erd.runs.results import Metrics


def order(table: pd.DataFrame) -> np.ndarray:
    """Rows of scores.parquet, the highest score first; what is flagged stands above what is not, also where flags do
    not follow the scores."""
    return np.lexsort((-table["score"].to_numpy(), ~table["flagged"].to_numpy(bool)))


def budget(run: RunDir) -> int:
    """How many images are worth a look: as many as the verdict is about, or as are asked for where it says nothing."""
    metrics = Metrics.read(run)
    return min(metrics.verdict.look_at or configure.read(run).review.budget, metrics.images)


def shown(run: RunDir) -> pd.DataFrame:
    """Both tiers in one list: all that are flagged, and no fewer than are worth a look. The index is the row in the
    batch, the column `flagged` tells the tiers apart."""
    table = results.scores(run)
    return table.iloc[order(table)[: max(int(table["flagged"].sum()), budget(run))]]


def worth_a_look(run: RunDir) -> pd.DataFrame:
    return shown(run).head(budget(run))


def flagged(run: RunDir) -> pd.DataFrame:
    return shown(run).query("flagged")


def readable(listed: pd.DataFrame) -> pd.DataFrame:
    """With figures of four digits, for tables that people read: what is stored has sixteen."""
    figures = listed.select_dtypes("floating")
    return listed.assign(**{name: [float(f"{value:.4g}") for value in figures[name]] for name in figures})
