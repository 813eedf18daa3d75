"""What the paper prints of corruptions: in place of fifteen figures their average (A) and the worst of them (W).

average_and_worst(rows)          # of cifar10-c5-fog, cifar10-c5-snow, …: `cifar10-c5 (A)` and `cifar10-c5 (W)`
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

from erd.bench.rows import Figures, Row
from erd.settings.families import ALL, GROUPS

FIGURES = (*(item.name for item in fields(Figures)), "batch_auroc", "batch_tnr95", "batch_p50", "batch_first",
           "batch_share", "holdout_auroc", "holdout_tnr95", "holdout_p50", "holdout_first")  # fmt: skip
SIGNS: dict[str, Callable[[list[float]], float]] = {"A": lambda values: sum(values) / len(values), "W": min}


@dataclass(frozen=True, kw_only=True)
class SummedRow(Row):
    """Over several corruptions; each figure on its own."""

    corruptions: int  # of how many


def average_and_worst(rows: Iterable[Row]) -> list[SummedRow]:
    """Over the corruptions of each set and severity, for each method and seed: two rows. Rows of other scenarios are
    passed over.

    Where a figure is missing for one, it is missing, and `error` is the first. All else is that of the first row.
    """
    group_of = {name: group for group, names in GROUPS.items() for name in names if ALL[name].shift is not None}
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if group := group_of.get(row.scenario):
            found.setdefault((group, row.method, row.seed), []).append(row)
    summed = []
    for (group, _, _), of_group in found.items():
        first = {item.name: getattr(of_group[0], item.name) for item in fields(Row)}
        error = next((row.error for row in of_group if row.error), None)
        for sign, over in SIGNS.items():
            values = {name: [getattr(row, name) for row in of_group] for name in FIGURES}
            figures = {name: None if None in each else over(each) for name, each in values.items()}
            about = {"scenario": f"{group} ({sign})", "error": error}
            summed.append(SummedRow(**first | figures | about, corruptions=len(of_group)))
    return summed
