"""The figures of a sweep: its rows over its axes, AUROC and TNR@95 side by side.

sweep_figures.lines(("members", "labels"), rows)          # `rows` is a table with a column for each axis
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from erd.bench.tables import short
from erd.reporting.figures import KNOWN, NOVEL

FIGURES = {"auroc": "AUROC", "tnr95": "TNR@95"}
BEST = "best on V"  # on an axis of epochs: no number, but what V chooses
SPAN = 0.05  # a panel shows at least so much: .001 should not look like a difference


def lines(axes: Sequence[str], rows: pd.DataFrame) -> Figure:
    """Mean and spread of AUROC and TNR@95 over an axis of numbers, a line a scenario."""
    axis = axes[0]
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    chosen = rows[rows[axis] == BEST]
    numbers = rows[rows[axis] != BEST].astype({axis: float})
    for panel, (figure_name, label) in zip(figure.subplots(1, 2, sharex=True), FIGURES.items(), strict=True):
        for (scenario,), of_scenario in numbers.groupby(["scenario"], sort=False):
            over = of_scenario.groupby(axis)[figure_name].agg(["mean", "std"])
            line = panel.errorbar(
                over.index, over["mean"], over["std"].fillna(0), marker="o", capsize=2, label=scenario
            )
            best = chosen.loc[chosen["scenario"] == scenario, figure_name]
            if len(best):
                panel.axhline(best.mean(), color=line[0].get_color(), linestyle=":", label=f"{scenario}, {BEST}")
        panel.set(xlabel=axis, ylabel=label)
        panel.xaxis.get_major_locator().set_params(integer=True)  # nobody has two and a half members
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=8
    )
    return figure


def dots(axes: Sequence[str], rows: pd.DataFrame) -> Figure:
    """A dot for each seed over an axis of names, the mean as a bar; a colour for each value of the second axis."""
    axis, *second = axes
    scenarios = list(dict.fromkeys(rows["scenario"]))
    figure = Figure(figsize=(8.4, 0.8 + 2.6 * len(scenarios)), layout="constrained")
    panels = figure.subplots(len(scenarios), 2, squeeze=False)
    names = list(dict.fromkeys(rows[axis]))
    groups = list(dict.fromkeys(rows[second[0]])) if second else [None]
    for line, scenario in zip(panels, scenarios, strict=True):
        for panel, (figure_name, label) in zip(line, FIGURES.items(), strict=True):
            for number, (group, colour) in enumerate(zip(groups, (NOVEL, KNOWN), strict=False)):
                here = rows[(rows["scenario"] == scenario) & ((rows[second[0]] == group) if second else True)]
                shift = 0.18 * (number - (len(groups) - 1) / 2)
                places = here[axis].map(names.index) + shift
                panel.plot(places, here[figure_name], "o", color=colour, alpha=0.5, markersize=4, label=group)
                means = here.groupby(axis, sort=False)[figure_name].mean()
                panel.plot([names.index(name) + shift for name in means.index], means, "_", color=colour, markersize=12)
            panel.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
            panel.set(ylabel=label, title=scenario, xlim=(-0.5, len(names) - 0.5))
            low, high = panel.get_ylim()
            if (missing := SPAN - (high - low)) > 0:
                panel.set_ylim(low - missing / 2, high + missing / 2)
            panel.spines[["top", "right"]].set_visible(False)
    if second:
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return figure


def heat(axes: Sequence[str], rows: pd.DataFrame) -> Figure:
    """Mean AUROC and TNR@95 over two axes of numbers."""
    across, down = axes[1], axes[0]
    scenarios = list(dict.fromkeys(rows["scenario"]))
    figure = Figure(figsize=(9.4, 0.8 + 3.2 * len(scenarios)), layout="constrained")
    panels = figure.subplots(len(scenarios), 2, squeeze=False)
    for line, scenario in zip(panels, scenarios, strict=True):
        for panel, (figure_name, label) in zip(line, FIGURES.items(), strict=True):
            here = rows[rows["scenario"] == scenario]
            table = here.pivot_table(index=down, columns=across, values=figure_name, aggfunc="mean").sort_index()
            panel.imshow(
                table, cmap="viridis", aspect="auto", origin="lower", vmin=0.5 * (figure_name == "auroc"), vmax=1
            )
            for (y, x), value in np.ndenumerate(table.to_numpy()):
                if np.isfinite(value):
                    colour = "black" if value > 0.8 else "white"
                    panel.text(x, y, short(value, 2), ha="center", va="center", fontsize=8, color=colour)
            panel.set_xticks(range(len(table.columns)), [f"{value:g}" for value in table.columns])
            panel.set_yticks(range(len(table.index)), [f"{value:g}" for value in table.index])
            panel.set(xlabel=across, ylabel=down, title=f"{scenario}: {label}")
    return figure
