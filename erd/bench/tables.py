"""The bench's rows as tables for people: mean ± standard deviation over seeds, the paper's figure beside ours.

    write(rows, folder)                  # results.json, results.md, results.html
    into(Path("docs/results.md"), "shift", rows)

A table for each scenario, its methods grouped by what they may use; the best of a group is bold.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from erd.base import files
from erd.base.version import VERSION
from erd.bench import detectors, page_parts, paper
from erd.bench.averages import SummedRow, average_and_worst
from erd.bench.rows import Row, write_rows
from erd.reporting.html import template
from erd.settings.families import expand, like

COLUMNS = {  # key of a row → heading, decimals
    "batch_auroc": ("AUROC, batch", 3),
    "batch_tnr95": ("TNR@95, batch", 2),
    "holdout_auroc": ("AUROC, holdout", 3),
    "holdout_tnr95": ("TNR@95, holdout", 2),
}
FEW = 0.2  # where no larger share of the batch is novel, what counts is what the first looks find
EVERY_COLUMN = COLUMNS | {"batch_p50": ("P@50, batch", 2)}  # such tables have this one besides
SETTINGS = {  # → what its methods may use
    "unsupervised": "labelled known images only",
    "known outliers": "also images that are neither known nor novel",
    "semi-supervised": "also the batch, unlabelled",
    "pretrained": "also a net pretrained on other images",
    "oracle": "also something about what is novel, which nobody has in earnest",
}
# Methods of the paper's tables that are not run here; all others of them are unsupervised.
QUOTED_SETTINGS = {"vit": "pretrained", "u-lac": "semi-supervised", "ssd": "oracle"}
OTHERS = "table_cifar10_cifar100"  # the paper's comparison with figures that others reported


@dataclass(frozen=True)
class Spread:
    """A figure over seeds."""

    mean: float
    std: float | None  # None: one seed
    decimals: int
    best: bool = False

    def __str__(self) -> str:
        shown = short(self.mean, self.decimals)
        return shown if self.std is None else f"{shown} ± {short(self.std, self.decimals)}"


@dataclass(frozen=True)
class Line:
    method: str
    figures: dict[str, Spread | None] = field(default_factory=dict)  # by key of EVERY_COLUMN
    paper: str = "–"
    source: str = ""  # where in the paper
    paper_auroc: float | None = None
    seconds: float | None = None
    notes: tuple[str, ...] = ()
    quoted: bool = False  # not run here


@dataclass(frozen=True)
class Table:
    scenario: str
    about: str
    evaluated_on: str
    groups: dict[str, list[Line]]  # by setting
    columns: dict[str, tuple[str, int]]  # as COLUMNS
    each: dict[str, dict[str, Spread | None]] = field(default_factory=dict)  # corruption → method → AUROC, if several

    @property
    def notes(self) -> list[str]:
        """Each once, with the methods it is about."""
        about: dict[str, list[str]] = {}
        for group in self.groups.values():
            for line in group:
                for note in line.notes:
                    about.setdefault(note, []).append(line.method)
        return [f"{', '.join(names)}: {note}" for note, names in about.items()]


@dataclass(frozen=True)
class Reported:
    """What the paper quotes from a method's own paper."""

    method: str
    by: str
    figures: dict[str, str]  # by known → novel


def write(rows: Sequence[Row], folder: Path) -> list[Path]:
    """All three forms; returns where they are."""
    texts = {"results.md": f"# Benchmark\n\n{markdown(rows)}", "results.html": html(rows)}
    written = [folder / "results.json"]
    write_rows(written[0], rows, version=VERSION)
    for name, text in texts.items():
        _save(folder / name, text)
        written.append(folder / name)
    return written


def into(page: Path, part: str, rows: Sequence[Row]) -> list[Path]:
    """The tables as a part of a page: with legend and methods in the part `bench`, alone in any other."""
    page_parts.into(page, part, markdown(rows, brief=part != "bench"))
    return [page]


def tables(rows: Sequence[Row]) -> list[Table]:
    every, rows, found = rows, summed(rows), []
    for name in dict.fromkeys(row.scenario for row in rows):
        here = [row for row in rows if row.scenario == name]
        groups: dict[str, list[Line]] = {setting: [] for setting in SETTINGS}
        for method in dict.fromkeys(row.method for row in here):
            of_method = [row for row in here if row.method == method]
            groups[of_method[0].setting].append(_line(of_method))
        groups = {setting: _with_best(lines) for setting, lines in groups.items()}
        for method in _quoted(name):
            groups[QUOTED_SETTINGS.get(method, "unsupervised")].append(_quote(name, method))
        seeds = len({row.seed for row in here})
        about = f"{_about(name, here)}. {seeds} seed{'s' * (seeds > 1)}."
        groups = {setting: lines for setting, lines in groups.items() if lines}
        each = _each_corruption(name, every) if name.endswith("(W)") else {}
        found.append(Table(name, about, like(name).evaluated_on, groups, _columns(here), each))
    return found


def _columns(rows: Sequence[Row]) -> dict[str, tuple[str, int]]:
    """What is shown of these rows."""
    return EVERY_COLUMN if any(few_are_novel(row.batch_share) for row in rows) else COLUMNS


def few_are_novel(share: float | None) -> bool:
    """Where that share of the batch is novel."""
    return share is not None and 0 < share <= FEW


def summed(rows: Sequence[Row]) -> list[Row]:
    """In place of the rows of several corruptions their average and their worst, as the paper has them."""
    both = [replace(row, batch_p=None) for row in average_and_worst(rows) if row.corruptions > 1]
    gone = {name for row in both for name in expand(row.scenario.partition(" (")[0])}
    both.sort(key=lambda row: row.scenario)
    return [*(row for row in rows if row.scenario not in gone), *both]


def markdown(rows: Sequence[Row], brief: bool = False) -> str:
    """Legend, a table a scenario, what others report, the methods; `brief`: the tables alone."""
    parts = [] if brief else [_legend(rows)]
    for table in tables(rows):
        columns = [heading for heading, _ in table.columns.values()]
        headings = ["method", *columns, f"paper ({table.evaluated_on})", "seconds"]
        lines = [
            f"{'###' if brief else '##'} {table.scenario}",
            "",
            table.about,
            "",
            _cells(headings),
            "|---" * len(headings) + "|",
        ]
        for setting, group in table.groups.items():
            lines.append(_cells([f"*{setting}*: {SETTINGS[setting]}", *[""] * (len(headings) - 1)]))
            for line in group:
                figures = [_bold(line.figures.get(key)) for key in table.columns]
                mark = " (quoted)" if line.quoted else ""
                took = "–" if line.seconds is None else duration(line.seconds)
                lines.append(_cells([f"{line.method}{mark}", *figures, line.paper, took]))
        if table.notes:
            lines += ["", *(f"- {note}" for note in table.notes)]
        if table.each:
            headings = [f"AUROC, {table.evaluated_on}", *next(iter(table.each.values()))]
            lines += ["", _cells(headings), "|---" * len(headings) + "|"]
            lines += [_cells([name, *map(_bold, figures.values())]) for name, figures in table.each.items()]
        parts.append("\n".join(lines) + "\n")
    if brief:
        return "\n".join(parts)
    if others := reported(rows):
        headings = ["method", "as reported by", *others[0].figures]
        lines = ["## Reported by others", "", OTHERS_TEXT, "", _cells(headings), "|---" * len(headings) + "|"]
        lines += [_cells([row.method, row.by, *row.figures.values()]) for row in others]
        parts.append("\n".join(lines) + "\n")
    lines = ["## The methods", "", "| method | setting | score | paper |", "|---|---|---|---|"]
    for method in _methods(rows):
        cells = [method.name, method.setting, method.formula, method.paper]
        lines.append(_cells([cell.replace("|", "\\|") for cell in cells]))
    parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def html(rows: Sequence[Row]) -> str:
    """One page that needs no network and no other file."""
    return template("bench.html").render(
        legend=_legend(rows),
        tables=tables(rows),
        settings=SETTINGS,
        methods=_methods(rows),
        others=reported(rows),
        others_text=OTHERS_TEXT,
        duration=duration,
        version=VERSION,
    )


def reported(rows: Sequence[Row]) -> list[Reported]:
    """What the paper quotes from other papers, a row a method; nothing beside scenarios of which it says nothing."""
    if all(row.paper_auroc is None for row in rows):
        return []
    found = paper.figures()
    found = found[found["table"] == OTHERS]
    pairs = list(dict.fromkeys(zip(found["known"], found["novel"], strict=True)))
    result = []
    for method, of_method in found.groupby("method", sort=False):
        by = {note.partition("as reported by ")[2].split(";")[0].split(",")[0] for note in of_method["note"]}
        figures = {}
        for known, novel in pairs:
            auroc = of_method[(of_method["known"] == known) & (of_method["novel"] == novel)]["auroc"]
            figures[f"{known} → {novel}"] = short(auroc.iloc[0], 2) if len(auroc) else "–"
        result.append(Reported(method, ", ".join(sorted(by - {""})) or "the paper", figures))
    return result


OTHERS_TEXT = "AUROC as the paper quotes it from the methods' own papers: other nets, other splits, not run here."


def short(value: float, decimals: int) -> str:
    """.957, 1.000: as papers print it."""
    return f"{value:.{decimals}f}".removeprefix("0")


def duration(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:,.0f}"


def _line(rows: list[Row]) -> Line:
    """One method on one scenario."""
    good = [row for row in rows if not row.error]
    quoted = paper.of(rows[0].scenario, rows[0].method)
    notes = []
    if failed := len(rows) - len(good):
        reason = next(row.error for row in rows if row.error)
        notes.append(f"failed with {failed} of {len(rows)} seeds: {reason}")
    if used := sorted({row.outliers for row in good if row.outliers}):
        notes.append(f"outliers: {' or '.join(used)}")
    if tests := [row.batch_p for row in good if row.batch_p is not None]:
        notes.append(f"p-value of the whole batch: {', '.join(f'{p:.2g}' for p in tests)}")
    return Line(
        rows[0].method,
        {key: spread([getattr(row, key) for row in good], decimals) for key, (_, decimals) in EVERY_COLUMN.items()},
        **_from_paper(quoted, rows[0].evaluated_on),
        seconds=statistics.mean(row.seconds or 0.0 for row in good) if good else None,
        notes=tuple(notes),
    )


def _each_corruption(worst: str, rows: Sequence[Row]) -> dict[str, dict[str, Spread | None]]:
    """Which of them a method misses. `rows` are those before they were summed; the best with each is marked."""
    names = expand(worst.partition(" (")[0])
    here = [row for row in rows if row.scenario in names]
    figure = f"{like(worst).evaluated_on}_auroc"
    used = list(dict.fromkeys(row.method for row in here))
    found: dict[str, dict[str, Spread | None]] = {}
    for name in dict.fromkeys(row.scenario for row in here):
        of_name = [row for row in here if row.scenario == name]
        spreads = [spread([getattr(row, figure) for row in of_name if row.method == method], 2) for method in used]
        shift = like(name).shift
        assert shift is not None
        found[shift.corruption] = dict(zip(used, _marked(spreads), strict=True))
    return found


def spread(values: Sequence[float | None], decimals: int) -> Spread | None:
    """Of the figures that there are; None where there are none."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    return Spread(statistics.mean(found), statistics.stdev(found) if len(found) > 1 else None, decimals)


def _with_best(lines: list[Line]) -> list[Line]:
    """Marks the highest figure of each column."""
    columns = [_marked([line.figures[key] for line in lines]) for key in EVERY_COLUMN]
    return [
        replace(line, figures=dict(zip(EVERY_COLUMN, figures, strict=True)))
        for line, figures in zip(lines, zip(*columns, strict=True), strict=True)
    ]


def _marked(figures: Sequence[Spread | None]) -> list[Spread | None]:
    """The highest are the best, as printed: what looks equal is equal."""
    printed = [round(figure.mean, figure.decimals) if figure else None for figure in figures]
    top = max((mean for mean in printed if mean is not None), default=None)
    return [figure and replace(figure, best=mean == top) for figure, mean in zip(figures, printed, strict=True)]


def _quoted(scenario: str) -> list[str]:
    """Methods of the paper's tables that the bench does not have."""
    found = paper.figures()
    return [name for name in dict.fromkeys(found[found["scenario"] == scenario]["method"])
            if name not in detectors.table()]  # fmt: skip


def _quote(scenario: str, method: str) -> Line:
    figure = paper.of(scenario, method)
    note = f"quoted from the paper ({figure.table if figure else ''}), not run here"
    return Line(method, **_from_paper(figure, like(scenario).evaluated_on), notes=(note,), quoted=True)


def _from_paper(figure: paper.Figure | None, evaluated_on: str) -> dict[str, Any]:
    if figure is None:
        return {}
    shown = short(figure.auroc, 2) + (f" / {short(figure.tnr95, 2)}" if figure.tnr95 is not None else "")
    if figure.evaluated_on not in (None, evaluated_on):
        shown += f" ({figure.evaluated_on})"
    members = f"{figure.members} members" if figure.members else None
    source = ", ".join(part for part in (figure.table, figure.net, members) if part)
    return {"paper": shown, "source": source, "paper_auroc": figure.auroc}


def _about(name: str, rows: Sequence[Row]) -> str:
    scenario, otherwise = like(name), rows[0].otherwise

    def classes(numbers: tuple[int, ...] | None) -> str:
        return "" if numbers is None else f" {', '.join(map(str, numbers))}" if len(numbers) <= 10 else " (half)"

    known = f"{scenario.known_source}{classes(scenario.known)}"
    text = f"Known: {known}. Novel: {scenario.novel_source}{classes(scenario.novel)}"
    text += f". Net: {otherwise.get('model.net', scenario.net)}"
    if shift := scenario.shift:
        where = "novel images of the holdout" if shift.on == "holdout" else "novel images"
        what = shift.corruption
        if isinstance(rows[0], SummedRow):
            what = f"the {'average' if name.endswith('(A)') else 'worst'} of {rows[0].corruptions} corruptions"
        text += f". Corrupted: {where}, {what}, severity {shift.severity}"
    if scenario.batch_known is not None:
        sizes = [otherwise.get(f"data.{size}", getattr(scenario, size)) for size in ("batch_known", "batch_novel")]
        text += ". Batch: {:,} known and {:,} novel images".format(*sizes)
    told = ("model.net", "data.batch_known", "data.batch_novel")
    if others := [f"{knob}={value}" for knob, value in otherwise.items() if knob not in told]:
        text += f". Otherwise than usual: {', '.join(others)}"
    return text


def _legend(rows: Sequence[Row]) -> str:
    seeds = len({row.seed for row in rows})
    spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    looked = "P@50: the share of novel images among the 50 highest scores, so fewer than 50 of them cannot give 1. "
    looked = looked if _columns(rows) is EVERY_COLUMN else ""
    return (
        f"AUROC and TNR@95 (the share of known images left alone where 95% of the novel ones are caught), {spread}; a "
        "seed is a new split, a new classifier and new draws of the method. The batch is what methods may learn from, "
        "the holdout has the same mixture and no method has seen it. Bold: the best of those that may use as much. "
        f"{looked}Paper: AUROC / TNR@95. Seconds: fit and score on one worker, without the classifier that all share.\n"
    )


def _methods(rows: Sequence[Row]) -> list[detectors.Method]:
    used = {row.method for row in rows}
    return [method for name, method in detectors.table().items() if name in used]


def _cells(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _bold(figure: Spread | None) -> str:
    return "–" if figure is None else f"**{figure}**" if figure.best else str(figure)


def _save(path: Path, text: str) -> None:
    with files.replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
