"""One thing varied, all else as it is: the paper's ablations, as grids of cells of the bench.

    found = sweeps.plan("members", ["fmnist-near"], seeds=3, data="…")
    rows = bench.run(found, bench.side_by_side(workers))
    sweeps.write("members", rows, Path("bench"))          # a table, a figure, and the rows as JSON

A sweep is a list of points; a point is a method with settings that differ, and where it stands on the axes. Points are
cells like any other, so a sweep runs in parallel, goes on where it was, and each point is a run in MLflow.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from erd import bench, files, pages
from erd.bench import Plan
from erd.cells import Cell
from erd.errors import UserError, nearest
from erd.leaderboard import short
from erd.params import Settings
from erd.scenarios import get
from erd.seeds import derive

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ERD = "erd"  # the paper's rule for what is kept of a member; `--method` takes another
DRAWS = 3  # label draws for each number of members, as in the paper


@dataclass(frozen=True)
class Point:
    method: str
    settings: dict[str, Any]
    at: dict[str, Any] = field(default_factory=dict)  # axis → value


@dataclass(frozen=True)
class Sweep:
    name: str
    about: str
    axes: tuple[str, ...]  # columns of the table; the first is the figure's x, the second its y or its lines
    points: Callable[[Settings, str, int], list[Point]]  # of a scenario, for a method and a seed
    draw: Callable[["Sweep", pd.DataFrame], "Figure"]
    on: str = ""  # batch or holdout: where its figures are computed, if not where the paper evaluates the scenario


# ---------------------------------------------------------------------------------------------------- the points


def _members(settings: Settings, method: str, seed: int) -> list[Point]:
    """2 to 5 members with different draws of their labels, no draw twice."""
    points = []
    for count in range(2, min(5, _classes(settings)) + 1):
        for labels in _draws(settings, count, seed):
            points.append(Point(method, {"finetune.labels": labels}, {"members": count, "labels": _named(labels)}))
    return points


def _labels(settings: Settings, method: str, seed: int) -> list[Point]:
    """Each pair of labels."""
    pairs = list(itertools.combinations(range(_classes(settings)), 2))
    random.Random(derive(seed, "pairs")).shuffle(pairs)
    return [Point(method, {"finetune.labels": [*pair]}, {"labels": _named(pair)}) for pair in sorted(pairs[:10])]


def _share(settings: Settings, method: str, seed: int) -> list[Point]:
    """Batches of fewer images, and with fewer novel ones among them."""
    data = settings.data
    largest = min(data.batch_known or 0, data.batch_novel or 0)
    points = []
    for part, share in itertools.product((1, 2, 4, 8, 16), (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)):
        images = largest // part
        novel = round(images * share)
        if novel >= 2:  # one novel image is luck, not a figure
            sizes = {"data.batch_known": images - novel, "data.batch_novel": novel}
            points.append(Point(method, sizes, {"images in the batch": images, "novel": share}))
    return points


def _nets(settings: Settings, method: str, seed: int) -> list[Point]:
    small = settings.data.image_size is not None and settings.data.image_size < 32
    names = ["mlp", "resnet20"] if small else ["resnet20", "resnet18", "wrn28_10", "vgg16"]
    return [Point(method, {"model.net": name}, {"net": name}) for name in names]


def _lr_batch(settings: Settings, method: str, seed: int) -> list[Point]:
    rate, size = settings.finetune.lr, settings.finetune.batch_size
    assert rate is not None
    assert size is not None
    points = []
    for times, part in itertools.product((0.1, 0.3, 1, 3, 10), (0.25, 0.5, 1, 2, 4)):
        lr, batch = float(f"{rate * times:.1g}"), max(2, round(size * part))
        points.append(
            Point(method, {"finetune.lr": lr, "finetune.batch_size": batch}, {"learning rate": lr, "minibatch": batch})
        )
    return points


def _score(settings: Settings, method: str, seed: int) -> list[Point]:
    from erd.disagreement import DISTANCES

    points = []
    for ensemble, disagreeing, entropy in (
        ("ERD", "erd", "erd-entropy"),
        ("vanilla", "vanilla-disagreement", "vanilla"),
    ):
        for distance in DISTANCES:
            points.append(Point(disagreeing, {"score.distance": distance}, {"score": distance, "ensemble": ensemble}))
        points.append(Point(entropy, {}, {"score": "entropy of the mean", "ensemble": ensemble}))
    return points


def _stopping(settings: Settings, method: str, seed: int) -> list[Point]:
    """The members as they are after 1, 2, … epochs, up to twice as many as usual; and the epoch that V chooses."""
    epochs = settings.finetune.epochs
    assert epochs is not None
    last = sorted({*range(1, epochs + 1), *range(epochs + 2, 2 * epochs + 1, 2)})
    points = [Point("erd-last", {"finetune.epochs": epoch}, {"epoch": epoch}) for epoch in last]
    return [*points, Point(ERD, {}, {"epoch": BEST})]


def _classes(settings: Settings) -> int:
    """Known classes: a label has to be one of them."""
    known = get(settings.data.scenario).known
    return 10 if known is None else len(known)


def _draws(settings: Settings, count: int, seed: int) -> list[list[int]]:
    every = [list(labels) for labels in itertools.combinations(range(_classes(settings)), count)]
    return sorted(random.Random(derive(seed, "draws", count)).sample(every, min(DRAWS, len(every))))


def _named(labels: Sequence[int]) -> str:
    return ", ".join(map(str, labels))


# ---------------------------------------------------------------------------------------------------- the figures


def _lines(sweep: Sweep, rows: pd.DataFrame) -> "Figure":
    """Mean and spread of AUROC and TNR@95 over an axis of numbers, a line a method or a second axis."""
    from matplotlib.figure import Figure

    axis = sweep.axes[0]
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


def _dots(sweep: Sweep, rows: pd.DataFrame) -> "Figure":
    """A dot for each seed over an axis of names, the mean as a bar; a colour for each value of the second axis."""
    from matplotlib.figure import Figure

    from erd.figures import KNOWN, NOVEL

    axis, *second = sweep.axes
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


def _heat(sweep: Sweep, rows: pd.DataFrame) -> "Figure":
    """Mean AUROC and TNR@95 over two axes of numbers."""
    from matplotlib.figure import Figure

    across, down = sweep.axes[1], sweep.axes[0]
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


FIGURES = {"auroc": "AUROC", "tnr95": "TNR@95"}
BEST = "best on V"
SPAN = 0.05  # a panel shows at least so much: .001 should not look like a difference

SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep(
            "members",
            "the number of members, with different draws of their labels",
            ("members", "labels"),
            _members,
            _lines,
        ),
        Sweep("labels", "which labels the members take, two members", ("labels",), _labels, _dots),
        Sweep(
            "share",
            "images in the batch, and the share of novel ones among them",
            ("images in the batch", "novel"),
            _share,
            _heat,
            on="holdout",  # one image in a hundred of a small batch is three of them: too few for an AUROC
        ),
        Sweep("nets", "the net", ("net",), _nets, _dots),
        Sweep("lr-batch", "learning rate and minibatch", ("learning rate", "minibatch"), _lr_batch, _heat),
        Sweep("score", "what is made of the members' outputs", ("score", "ensemble"), _score, _dots),
        Sweep("stopping", "when fine-tuning stops", ("epoch",), _stopping, _lines),
    )
}


# ---------------------------------------------------------------------------------------------------- as a user asks


def plan(
    name: str,
    scenarios: Iterable[str] = (),
    seeds: int = 3,
    *,
    method: str = ERD,
    data: str | None = None,
    overrides: Sequence[str] = (),
    runner: str | None = None,
    file: Path | None = None,
    root: Path = bench.ROOT,
) -> Plan:
    """The cells of a sweep. Points that a scenario has twice are one."""
    if name not in SWEEPS:
        raise UserError(f"unknown sweep '{name}': {nearest(name, SWEEPS)}")
    cells: dict[Path, Cell] = {}  # by where the result is kept
    for scenario in bench.asked(scenarios):
        for seed in range(seeds):
            common = {"data": data, "overrides": overrides, "runner": runner, "file": file, "root": root}
            base = bench.place(scenario, seed, **common)  # type: ignore[arg-type]
            for point in SWEEPS[name].points(base.settings, method, seed):
                place = bench.place(scenario, seed, variant=point.settings, **common)  # type: ignore[arg-type]
                cells[place.record(point.method)] = Cell(place, point.method, tuple(point.at.items()))
    return Plan(root, list(cells.values()), [])


def write(name: str, rows: list[dict[str, Any]], root: Path) -> list[Path]:
    """Table, figure and rows of a sweep, in <root>/sweeps/."""
    from erd import figures

    sweep, folder = SWEEPS[name], root / "sweeps"
    good = _good(sweep, rows)
    written = [folder / f"{name}.json", folder / f"{name}.md"]
    files.save_json(written[0], {"sweep": name, "about": sweep.about, "rows": rows})
    with files.replacing(written[1]) as draft:
        draft.write_text(markdown(sweep, good), encoding="utf-8")
    if len(good):
        written.append(figures.save(sweep.draw(sweep, good), folder / f"{name}.png"))
    return written


def into(page: Path, part: str, name: str, rows: list[dict[str, Any]]) -> list[Path]:
    """Figure and table as a part of a page; the figure is in img/ beside it."""
    from erd import figures

    sweep = SWEEPS[name]
    good = _good(sweep, rows)
    picture = page.parent / "img" / f"sweep-{part}.png"
    figures.save(sweep.draw(sweep, good), picture)
    shown = f"![{sweep.about}](img/{picture.name})\n\n"
    pages.into(page, part, shown + markdown(sweep, good).partition("\n\n")[2])
    return [page, picture]


def _good(sweep: Sweep, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """What can be shown, with each point's place on the axes."""
    if sweep.on:
        there = {figure: f"{sweep.on}_{figure}" for figure in FIGURES}
        rows = [
            row | {figure: row[name] for figure, name in there.items()} | {"evaluated_on": sweep.on}
            if row[there["auroc"]] is not None  # the user may want no holdout
            else row
            for row in rows
        ]
    return pd.DataFrame([row | row["at"] for row in rows if not row["error"] and row["auroc"] is not None])


def markdown(sweep: Sweep, rows: pd.DataFrame) -> str:
    where = " and ".join(f"the {name}" for name in dict.fromkeys(rows.get("evaluated_on", ())))
    lines = [
        f"# Sweep `{sweep.name}`: {sweep.about}",
        "",
        f"Mean ± standard deviation over seeds{where and f', on {where}'}.",
        "",
    ]
    axes = [axis for axis in sweep.axes if (sweep.name, axis) != ("members", "labels")]  # draws are part of the spread
    head = ["scenario", "method", *axes, "runs", *FIGURES.values()]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    if len(rows):
        for key, group in rows.groupby(["scenario", "method", *axes], sort=False):
            cells = [f"{value:g}" if isinstance(value, float) else str(value) for value in key]
            lines.append(f"| {' | '.join([*cells, str(len(group)), *(_spread(group[name]) for name in FIGURES)])} |")
    return "\n".join(lines) + "\n"


def _spread(values: pd.Series) -> str:
    mean = short(values.mean(), 3)
    return mean if len(values) < 2 else f"{mean} ± {short(values.std(), 3)}"
