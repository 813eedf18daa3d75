"""The paper's figures: every results table of it, one row a figure, in paper.csv beside this file.

    paper.of("fmnist-near", "erd").auroc          # 0.94

An empty cell is something the paper does not say. `note` is what sets a row apart: another score, the corruptions, the
outliers seen in training. "set not stated" in it: `evaluated_on` is not from the table itself, but from what the paper
says of its evaluation elsewhere, or from another table with the same figures.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from erd.settings import families

TABLES = Path(__file__).with_name("paper.csv")
COLUMNS = {
    "table": "str",  # its LaTeX label; a word of its caption where it has none
    "known": "str",
    "novel": "str",
    "method": "str",
    "members": "Int64",
    "net": "str",
    "evaluated_on": "str",  # batch or holdout
    "auroc": "float64",
    "tnr95": "float64",
    "scenario": "str",  # of ours, where known and novel are the same; `cifar10-c5 (A)` as in erd.bench.averages
    "note": "str",
}
# The two tables that compare all methods: the colour sets, and the grey ones. The others vary one thing.
MAIN = ("table:main_results", "mnist-results")


class Figure(NamedTuple):
    auroc: float
    tnr95: float | None
    members: int | None
    net: str | None
    evaluated_on: str | None
    table: str


def figures() -> pd.DataFrame:
    """All of them, as printed but for two given in per cent."""
    table = pd.read_csv(
        TABLES, dtype=COLUMNS, keep_default_na=False, na_values={"members": "", "auroc": "", "tnr95": ""}
    )
    return table[list(COLUMNS)]


def of(scenario: str, method: str) -> Figure | None:
    """What the paper says of a method on a scenario, None if nothing.

    A main table comes first, then the row nearest to the scenario: as many members, the same net, evaluated on the
    same set, in this order; then the one that comes first in the paper. The paper has no encoder: its figures for the
    same images stand beside those on features.
    """
    ours = families.like(scenario)
    rows = figures()
    rows = rows[(rows["scenario"] == scenario.removesuffix("-encoded")) & (rows["method"] == method)]
    if rows.empty:
        return None
    unlike = pd.DataFrame(
        {
            "table": ~rows["table"].isin(MAIN),
            "members": rows["members"].fillna(0) != (ours.members or 0),
            "net": rows["net"] != ours.net,
            "evaluated_on": rows["evaluated_on"] != ours.evaluated_on,
        }
    ).astype(bool)
    row = rows.loc[unlike.sort_values(list(unlike), kind="stable").index[0]]
    return Figure(
        auroc=float(row["auroc"]),
        tnr95=None if pd.isna(row["tnr95"]) else float(row["tnr95"]),
        members=None if pd.isna(row["members"]) else int(row["members"]),
        net=row["net"] or None,
        evaluated_on=row["evaluated_on"] or None,
        table=row["table"],
    )
