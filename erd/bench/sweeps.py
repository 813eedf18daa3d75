"""One thing varied, all else as it is: the paper's ablations, as grids of cells of the bench.

    todo = sweeps.plan("members", ["fmnist-near"], seeds=3)
    rows = run.every_cell(todo, partial(runners.each, runner))
    sweeps.write("members", rows, todo.root)          # a table, a figure, and the rows as JSON

A sweep is a list of points; a point is a method with settings that differ, and where it stands on the axes. Points are
cells like any other, so a sweep runs in parallel, goes on where it was, and each point is a run in MLflow.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from erd.base import files
from erd.base.errors import UserError, nearest
from erd.base.seeds import derive
from erd.bench import page_parts, sweep_figures
from erd.bench.plan import AS_USUAL, Asked, Cell, Plan, place, with_seeds
from erd.bench.rows import Row, write_rows
from erd.bench.sweep_figures import BEST, FIGURES
from erd.bench.tables import few_are_novel, spread
from erd.reporting import figures
from erd.settings.families import get
from erd.settings.schema import Settings
from erd.statistics.disagreement import DISTANCES

ERD = "erd"  # the paper's rule for what is kept of a member; `--method` takes another
SMALLER: tuple[int, ...] = (1, 2, 4, 8, 16)  # the batch divided by these
SHARES: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
ONE_CLASS: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.1)  # shares, where few are novel to begin with
LOOKS = {"batch_p50": "P@50, batch", "batch_first": "first, batch"}  # columns of a table in which few images are novel
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
    draw: Callable[[Sequence[str], pd.DataFrame], Figure]  # the axes, and a table with a column for each
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
    """Batches of fewer images, and with fewer novel ones among them. Of a scenario in which few are novel, such as one
    new class, the largest batch is its own and not one of as many known images as novel ones."""
    known, novel = settings.data.batch_known or 0, settings.data.batch_novel or 0
    largest, parts, shares = min(known, novel), SMALLER, SHARES
    if novel and few_are_novel(novel / (known + novel)):
        largest, parts, shares = known + novel, SMALLER[:3], ONE_CLASS
    points = []
    for part, share in itertools.product(parts, shares):
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


SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep(
            "members",
            "the number of members, with different draws of their labels",
            ("members", "labels"),
            _members,
            sweep_figures.lines,
        ),
        Sweep("labels", "which labels the members take, two members", ("labels",), _labels, sweep_figures.dots),
        Sweep(
            "share",
            "images in the batch, and the share of novel ones among them",
            ("images in the batch", "novel"),
            _share,
            sweep_figures.heat,
            on="holdout",  # one image in a hundred of a small batch is three of them: too few for an AUROC
        ),
        Sweep("nets", "the net", ("net",), _nets, sweep_figures.dots),
        Sweep("lr-batch", "learning rate and minibatch", ("learning rate", "minibatch"), _lr_batch, sweep_figures.heat),
        Sweep("score", "what is made of the members' outputs", ("score", "ensemble"), _score, sweep_figures.dots),
        Sweep("stopping", "when fine-tuning stops", ("epoch",), _stopping, sweep_figures.lines),
    )
}


# ---------------------------------------------------------------------------------------------------- as a user asks


def plan(
    name: str, scenarios: Iterable[str] = (), seeds: int = 3, asked: Asked = AS_USUAL, *, method: str = ERD
) -> Plan:
    """The cells of a sweep. Points that a scenario has twice are one."""
    if name not in SWEEPS:
        raise UserError(f"unknown sweep '{name}': {nearest(name, SWEEPS)}")
    cells: dict[Path, Cell] = {}  # by where the result is kept
    for scenario, seed in with_seeds(scenarios, seeds, asked):
        for point in SWEEPS[name].points(place(scenario, seed, asked).settings, method, seed):
            there = place(scenario, seed, asked, variant=point.settings)
            cells[there.record(point.method)] = Cell(there, point.method, tuple(point.at.items()))
    return Plan(asked.root, list(cells.values()))


def write(name: str, rows: Sequence[Row], root: Path) -> list[Path]:
    """Table, figure and rows of a sweep, in <root>/sweeps/."""
    sweep, folder = SWEEPS[name], root / "sweeps"
    good = _good(sweep, rows)
    written = [folder / f"{name}.json", folder / f"{name}.md"]
    write_rows(written[0], rows, sweep=name, about=sweep.about)
    with files.replacing(written[1]) as draft:
        draft.write_text(markdown(sweep, good), encoding="utf-8")
    if len(good):
        written.append(figures.save(sweep.draw(sweep.axes, good), folder / f"{name}.png"))
    return written


def into(page: Path, part: str, name: str, rows: Sequence[Row]) -> list[Path]:
    """Figure and table as a part of a page; the figure is in img/ beside it. Nothing where every point has failed."""
    sweep = SWEEPS[name]
    good = _good(sweep, rows)
    if not len(good):
        return []
    picture = page.parent / "img" / f"sweep-{part}.png"
    figures.save(sweep.draw(sweep.axes, good), picture)
    shown = f"![{sweep.about}](img/{picture.name})\n\n"
    page_parts.into(page, part, shown + markdown(sweep, good).partition("\n\n")[2])
    return [page, picture]


def _good(sweep: Sweep, rows: Sequence[Row]) -> pd.DataFrame:
    """What can be shown, with each point's place on the axes."""
    if sweep.on:
        # Where the user wants no holdout, the figures stay where they are.
        rows = [row if getattr(row, f"{sweep.on}_auroc") is None else _elsewhere(row, sweep.on) for row in rows]
    return pd.DataFrame([row.as_json() | row.at for row in rows if not row.error and row.auroc is not None])


def _elsewhere(row: Row, where: str) -> Row:
    there = {name: getattr(row, f"{where}_{name}") for name in FIGURES}
    return replace(row, **there, evaluated_on=where)


def markdown(sweep: Sweep, rows: pd.DataFrame) -> str:
    where = " and ".join(f"the {name}" for name in dict.fromkeys(rows.get("evaluated_on", ())))
    lines = [
        f"# Sweep `{sweep.name}`: {sweep.about}",
        "",
        f"Mean ± standard deviation over seeds{where and f', on {where}'}.",
        "",
    ]
    axes = [axis for axis in sweep.axes if (sweep.name, axis) != ("members", "labels")]  # draws are part of the spread
    few = any(few_are_novel(share) for share in rows.get("batch_share", ()))
    shown = FIGURES | (LOOKS if few else {})
    head = ["scenario", "method", *axes, "runs", *shown.values()]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    if len(rows):
        for key, group in rows.groupby(["scenario", "method", *axes], sort=False):
            cells = [f"{value:g}" if isinstance(value, float) else str(value) for value in key]
            cells += [str(len(group)), *(str(spread(group[name].dropna().tolist(), 3) or "–") for name in shown)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
