"""The pictures of many weeks: the simulated story, and the history of a stream."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from erd.reporting import wording
from erd.reporting.figures import FAINT, KNOWN, NEUTRAL, NOVEL, plain
from erd.runs.results import Week

COUNTS = ("flagged", "looked_novel")  # columns of a history whose 0 is nothing to draw
NAMED = 26  # batches whose name stands below the picture, at most; the last one is among them


def story(weeks: Sequence[Week], looks: int | None = None) -> Figure:
    """A simulated stream, week by week: what came in, whether the alarm rang, what was flagged, what is known. `looks`:
    weeks that share the alarm's rate here, where a year of weekly runs would have more."""
    figure = Figure(figsize=(7.2, 7.4), layout="constrained")
    mixture, alarms, flags, known = figure.subplots(4, 1, sharex=True)
    table = pd.DataFrame([asdict(week) for week in weeks])
    week = np.arange(1, len(table) + 1)

    learned = table["new_class_share"] - table["true_share"]
    mixture.bar(week, 100 * table["true_share"], color=NOVEL, label="new class, not yet known")
    mixture.bar(week, 100 * learned, bottom=100 * table["true_share"], color=KNOWN, label="new class, known by now")
    mixture.set_ylabel("% of the images")

    _evidence(alarms, week, table, "" if looks is None else f",\nfor {looks} weeks")

    right = (table["flagged"] * table["precision"].astype(float).fillna(0)).round()
    flags.bar(week, right, color=NOVEL, label="flagged, novel")
    flags.bar(week, table["flagged"] - right, bottom=right, color=KNOWN, label="flagged, known")
    flags.plot(week, (table["true_share"] * table["images"]).round(), "_", color=NEUTRAL, markersize=14, label="novel")
    for number, row in zip(week, table.to_dict("records"), strict=True):
        if row["flagged"] and row["recall"] is not None and row["precision"] is not None:
            text = f"{row['precision']:.0%} right\n{row['recall']:.0%} found"
            flags.annotate(text, (number, row["flagged"]), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    flags.margins(y=0.25)
    flags.set_ylabel("images")
    flags.yaxis.set_major_locator(MaxNLocator(integer=True))

    _percents(known, week, table, {"accuracy": ("all images of the week", NEUTRAL, "o-"),
                                   "new_class_accuracy": ("the new class", KNOWN, "o-")}, 0)  # fmt: skip
    known.set(ylabel="classifier right, %", xlabel="week", xticks=week)
    _legends(mixture, alarms, flags, known)
    return figure


def history(weeks: Sequence[Mapping[str, object]], *, narrow: bool = False) -> Figure:
    """The batches of a stream, one after another: the evidence for something new, flags and what experts said of them,
    from which share on a new class is noticed, the classifier. What nobody has measured is not drawn. `narrow`: for the
    screen of a phone."""
    table = pd.DataFrame(weeks)
    week = np.arange(1, len(table) + 1)
    panels = [panel for panel, needs in PANELS.items() if any(_has(table, name) for name in needs)]
    size = (3.6, 0.8 + 2.3 * len(panels)) if narrow else (7.2, 0.8 + 1.7 * len(panels))
    figure = Figure(figsize=size, layout="constrained")
    drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(drawn, panels, strict=True):
        panel(axes, week, table)
    named = slice(None, None, -(-len(table) // (8 if narrow else NAMED)))  # of hundreds of names none could be read
    turned = {"rotation": 45, "ha": "right"} if narrow or len(table) > 5 else {}
    drawn[-1].set_xticks(week[::-1][named], table["batch"][::-1][named], **turned)
    drawn[-1].set_xlim(0.5, max(len(table), 4) + 0.5)  # one batch alone is no broad bar
    _legends(*drawn, above=narrow)
    return figure


def _has(table: pd.DataFrame, name: str) -> bool:
    """Whether there is anything to draw: a count that is not 0, another figure that is known."""
    if name not in table:
        return False
    values = table[name].astype(float)
    return bool((values > 0).any() if name in COUNTS else values.notna().any())


def _evidence(axes: Axes, week: np.ndarray, table: pd.DataFrame, among: str = "") -> None:
    """Both alarms: how rarely chance alone gives a batch like this, or this and those before it together; the stronger,
    the higher."""
    level, p = table["alarm_level"].to_numpy(float), table["alarm_p"].to_numpy(float)
    together = table.get("weeks_p", pd.Series(np.nan, table.index)).astype(float).to_numpy()
    edges = np.append(week - 0.5, week[-1] + 0.5)
    axes.stairs(level, edges, baseline=None, color=FAINT, linestyle=":", label=f"alarm from here on{among}")
    for values, marker, text in ((p, "o", "this week alone"), (together, "s", "weeks together")):
        if not np.isfinite(values).any():
            continue
        axes.plot(week, values, f"{marker}-", color=NEUTRAL, linewidth=1, fillstyle="none", label=text)
        rang = values <= level
        if rang.any():
            axes.plot(week[rang], values[rang], marker, color=NOVEL, label=f"{text}: alarm")
    axes.set_yscale("log")
    axes.set_ylim(1.4, 0.5 * min(level.min(), p.min(), np.nanmin(together, initial=1.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: "100%" if value >= 1 else wording.chance(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("happens by chance")


def _flags(axes: Axes, week: np.ndarray, table: pd.DataFrame) -> None:
    """How many were flagged, and what experts found."""
    names = ("flagged", "flags_reviewed", "flag_precision", "looked_novel")
    flagged, looked_at, precision, found = (
        table.get(name, pd.Series(0.0, table.index)).astype(float).fillna(0).to_numpy() for name in names
    )
    right = (looked_at * precision).round()
    bars = {
        "flagged, novel": (right, NOVEL),
        "flagged, known": (looked_at - right, KNOWN),
        "flagged, not looked at": (flagged - looked_at, "#d5d5d5"),
        "not flagged, found novel": (found - right, "#eeb4bc"),
    }
    bottom = np.zeros(len(week))
    for label, (height, colour) in bars.items():
        if height.any():
            axes.bar(week, height, 0.6, bottom=bottom, color=colour, label=label)
        bottom += height
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("images")


def _rates(axes: Axes, week: np.ndarray, table: pd.DataFrame) -> None:
    """What experts said of the flags and of the audit."""
    lines = {"flag_precision": ("of the flags, novel", NOVEL, "o-"),
             "audit_recall": ("audit: novel, flagged", NEUTRAL, "s--"),
             "audit_false_positives": ("audit: known, flagged", KNOWN, "^:")}  # fmt: skip
    _percents(axes, week, table, lines, 0)
    axes.set_ylabel("by experts, %")


def _noticed(axes: Axes, week: np.ndarray, table: pd.DataFrame) -> None:
    """What a quiet week is worth, where it was asked."""
    label = "a new class would\nhave been noticed\nfrom here on"
    _percents(axes, week, table, {"noticed_from": (label, NOVEL, "o")}, 0)
    axes.set_ylim(0, max(20.0, 120 * float(table["noticed_from"].astype(float).max())))
    axes.set_ylabel("% of the batch")


def _right(axes: Axes, week: np.ndarray, table: pd.DataFrame) -> None:
    lines = {"accuracy_before": ("the classifier before", FAINT, "o--"),
             "accuracy": ("the week's classifier", KNOWN, "o-")}  # fmt: skip
    _percents(axes, week, table, lines)
    axes.set_ylabel("classifier right, %")


def _percents(
    axes: Axes,
    week: np.ndarray,
    table: pd.DataFrame,
    lines: Mapping[str, tuple[str, str, str]],
    lowest: float | None = None,
) -> None:
    """Shares as lines, up to 100% and not beyond; `lowest`: where the axis begins, else below what there is."""
    found = {name: 100 * table[name].astype(float) for name in lines if _has(table, name)}
    for name, values in found.items():
        label, colour, style = lines[name]
        axes.plot(week, values, style, color=colour, label=label, clip_on=False, zorder=3)
    if lowest is None:
        lowest = 10 * min(values.min() // 10 for values in found.values())
    axes.set_ylim(min(lowest, 90.0), 100)


PANELS: dict[Callable[[Axes, np.ndarray, pd.DataFrame], None], tuple[str, ...]] = {  # → it takes one of these columns
    _evidence: ("alarm_p",),
    _flags: COUNTS,
    _rates: ("flag_precision", "audit_recall", "audit_false_positives"),
    _noticed: ("noticed_from",),
    _right: ("accuracy",),
}


def _legends(*panels: Axes, above: bool = False) -> None:
    """Beside the panels, or above them."""
    for panel in panels:
        if above:
            panel.legend(frameon=False, fontsize=7, loc="lower left", bbox_to_anchor=(0.0, 1.0))
        else:
            panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        plain(panel)
