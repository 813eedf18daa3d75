"""The tables of docs/peers.md, and where a peer is better than ours, from the rows that benchmarks/peers.py measured.

A row is one method on one batch: set, share, seed, method, and what there is of auroc, p50, fdp, power, known_flagged,
any_flag, rings, rings_weekly, seconds, megabytes, failed. Share 0 is a batch without novelty.
"""

import math
import platform
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import pandas as pd
import peers_cases
from peer import OUR_LINES, OURS, Promise

from erd.base.processes import cores

LEVEL = 0.05  # nominal: of flags and of alarms
TITLES = {
    "waste": "Photographs of waste, one new class (batches of 500)",
    "cifar10-one": "CIFAR-10, one new class (batches of 1,000)",
    "cifar10-near": "CIFAR-10, five new classes (batches of 1,000)",
    "xray-viral": "Chest X-rays, a new kind of pneumonia (batches of 500)",
    "fmnist-one": "Fashion-MNIST, one new class (batches of 1,000)",
    "fmnist-near": "Fashion-MNIST, five new classes (batches of 1,000)",
    "digits": "Bundled digits on pixels, one new class (batches of 300)",
}
MEASURES = ("auroc", "p50", "fdp", "power", "known_flagged", "any_flag", "rings", "rings_weekly", "seconds",
            "megabytes")  # fmt: skip
Rows = Sequence[dict[str, Any]]


class Mean(NamedTuple):
    """Over the repetitions; the deviation is nan where there is but one."""

    value: float
    deviation: float
    repetitions: int

    @property
    def error(self) -> float:
        return self.deviation / math.sqrt(self.repetitions) if self.repetitions > 1 else 0.0


class Better(NamedTuple):
    """A peer that is ahead of ours, seed by seed."""

    method: str
    theirs: float
    ours: float
    clearly: bool  # by more than two standard errors of the difference


def text(rows: Rows, absent: Sequence[str] = ()) -> str:
    found = Table(rows)
    parts = [about(found, absent)]
    for name in found.sets:
        parts.append(f"### {TITLES[name]}")
        parts += [quality(found, name), flags(found, name)]
    parts += ["### Does anything ring?", alarms(found), "### What it costs", costs(found)]
    parts += ["### Where a peer is better", "\n".join(where_better(found))]
    return "\n\n".join(part for part in parts if part) + "\n"


class Table:
    def __init__(self, rows: Rows) -> None:
        self.rows = pd.DataFrame(rows)
        for column in (*MEASURES, "failed"):
            if column not in self.rows:
                self.rows[column] = None
        there = set(self.rows["set"])
        self.sets = [name for name in TITLES if name in there]
        self.shares = sorted({int(share) for share in self.rows["share"]} - {0}, reverse=True)
        asked = set(self.rows["method"])
        self.methods = [name for name in (OURS, *peers_cases.found()) if name in asked]

    def values(self, measure: str, method: str, name: str | None, share: int | None) -> pd.Series:
        """By seed; of all sets where `name` is None, of all shares where `share` is."""
        rows = self.rows[self.rows["method"] == method]
        rows = rows if name is None else rows[rows["set"] == name]
        rows = rows if share is None else rows[rows["share"] == share]
        return rows.set_index("seed")[measure].dropna().astype(float)

    def mean(self, measure: str, method: str, name: str | None, share: int | None) -> Mean | None:
        values = self.values(measure, method, name, share)
        return Mean(float(values.mean()), float(values.std()), len(values)) if len(values) else None

    def that_give(self, measure: str, name: str | None = None) -> list[str]:
        return [method for method in self.methods if len(self.values(measure, method, name, None))]


def summarised(rows: Rows) -> list[dict[str, Any]]:
    found, told = Table(rows), []
    for name in found.sets:
        for share in (*found.shares, 0):
            for method in found.methods:
                means = {measure: found.mean(measure, method, name, share) for measure in MEASURES}
                if row := {measure: mean for measure, mean in means.items() if mean}:
                    told.append({"set": name, "share": share, "method": method} | _numbers(row))
    return told


def _numbers(row: dict[str, Mean]) -> dict[str, Any]:
    """`repetitions` are those of the answers: a method that failed once has one less."""
    told: dict[str, Any] = {"repetitions": max(mean.repetitions for mean in row.values())}
    for measure, mean in row.items():
        told[measure] = round(mean.value, 4)
        told[f"{measure}_deviation"] = None if math.isnan(mean.deviation) else round(mean.deviation, 4)
    return told


# Tables ---------------------------------------------------------------------------------------------------------------


def about(found: Table, absent: Sequence[str]) -> str:
    repetitions = found.rows.groupby(["set", "share"])["seed"].nunique()
    known = peers_cases.found()
    packages = sorted({known[method].package for method in found.methods if method != OURS})
    versions = ", ".join(f"{package} {_version(package)}" for package in packages)
    with_new, without = ([count for (_, share), count in repetitions.items() if bool(share) == new]
                         for new in (True, False))  # fmt: skip
    counts = f"{_range(with_new)} a share" + (f", {_range(without)} of batches without novelty" if without else "")
    lines = [f"Repetitions: {counts}; ± is the standard deviation over them. Python {platform.python_version()}, "
             f"{cores()} cores, one for each method. {versions}."]  # fmt: skip
    failed = found.rows[found.rows["failed"].notna()]
    for (method, name), rows in failed.groupby(["method", "set"]):
        lines.append(f"`{method}` failed on {len(rows)} batches of {name}: {rows['failed'].iloc[0]}")
    return "\n\n".join([*lines, *absent])


def quality(found: Table, name: str) -> str:
    """How novel images are ranked."""
    columns = [(measure, share) for measure in ("auroc", "p50") for share in found.shares]
    means = {(method, column): found.mean(column[0], method, name, column[1])
             for method in found.that_give("auroc", name) for column in columns}  # fmt: skip
    best = {column: max((mean.value for (_, other), mean in means.items() if other == column and mean), default=0)
            for column in columns}  # fmt: skip
    heads = [f"{'AUROC' if measure == 'auroc' else 'P@50'}, {share}%" for measure, share in columns]
    return table(
        ["", *heads],
        [
            [_name(method), *(_bold(_spread(mean), bool(mean and mean.value >= best[column]))
                              for column in columns for mean in [means[method, column]])]
            for method in found.that_give("auroc", name)
        ],
    )  # fmt: skip


def flags(found: Table, name: str) -> str:
    """By each method's own threshold: what it promises, what it does."""
    methods = found.that_give("any_flag", name)
    rows = []
    for method in methods:
        row = [_name(method), _promised(method)]
        for share in found.shares:
            fdr, power = (found.mean(measure, method, name, share) for measure in ("fdp", "power"))
            best = max((other.value for one in methods if _keeps(found, one, name, share)
                        and (other := found.mean("power", one, name, share))), default=0)  # fmt: skip
            ahead = bool(power and power.value >= best > 0 and _keeps(found, method, name, share))
            row.append(f"{_percent(fdr)} / {_bold(_short(power), ahead)}")
        known, any_flag = (found.mean(measure, method, name, 0) for measure in ("known_flagged", "any_flag"))
        rows.append([*row, _percent(known), _percent(any_flag)])
    heads = [f"FDR / power, {share}%" for share in found.shares]
    last = ["known flagged, nothing novel", "such batches with a flag"]
    return table(["flags", "promises at most", *heads, *last], rows)


def alarms(found: Table) -> str:
    """Of batches with so many novel images, and without any, how many ring?"""
    shares = [*found.shares, 0]
    measures: list[tuple[str, str, str]] = [
        (f"{_name(method)}, at {LEVEL:.0%}", method, "rings") for method in found.that_give("rings")
    ]
    if OURS in found.methods:
        measures.insert(1, (f"{_name(OURS)}, at the level of a weekly run", OURS, "rings_weekly"))
    rows = [
        [words, *(" / ".join(_percent(found.mean(measure, method, name, share), sign="") for share in shares) + "%"
                  for name in found.sets)]
        for words, method, measure in measures
    ]  # fmt: skip
    head = " / ".join(f"{share}%" if share else "none" for share in shares)
    return table([f"batches that ring, of {head} novel", *found.sets], rows) if rows else ""


def costs(found: Table) -> str:
    rows = []
    for method in found.methods:
        taken = [seconds(found, method, name) for name in found.sets]
        most = [peak for name in found.sets if (peak := megabytes(found, method, name)) is not None]
        rows.append(
            [_name(method), _package(method), str(lines(method))]
            + [f"{value:.3g}" if value is not None else "–" for value in taken]
            + [f"{max(most) / 1000:.2f}" if most else "–"]
        )
    return table(["", "package", "lines", *(f"s, {name}" for name in found.sets), "peak memory, GB"], rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])


# Comparison -----------------------------------------------------------------------------------------------------------


def where_better(found: Table) -> Iterator[str]:
    if OURS not in found.methods:
        yield "Ours was not asked."
        return
    any_said = False
    for name in found.sets:
        for share in found.shares:
            words = []
            for what, measure, digits in (("AUROC", "auroc", 3), ("P@50", "p50", 2), ("power at FDR 5%", "power", 2),
                                          ("alarm at 5%", "rings", 2)):  # fmt: skip
                if ahead := better(found, measure, name, share, digits):
                    first, more = ahead[0], len(ahead) - 1
                    words.append(
                        f"{what} `{first.method}` {_plain(first.theirs, digits)}, ours {_plain(first.ours, digits)}"
                        + (" (**clearly**)" if first.clearly else "")
                        + (f", and {more} more" if more else "")
                    )
            if words:
                any_said = True
                yield f"- {name}, {share}% novel: {'; '.join(words)}"
    if not any_said:
        yield "- In finding what is new: nowhere in these sets."
    for what, cost in COSTS.items():
        less = [f"`{method}`" for method in found.methods if method != OURS and _less(cost, found, method)]
        yield f"- {what}, on every set: {', '.join(less) or 'none'}"


def better(found: Table, measure: str, name: str, share: int, digits: int) -> list[Better]:
    """Peers that are ahead of ours as far as the digits show, the first one first. Of flags and alarms those only that
    keep the rate: more of both is easily had."""
    ours, ahead = found.values(measure, OURS, name, share), []
    for method in found.methods:
        theirs = found.values(measure, method, name, share)
        if method == OURS or not len(theirs) or not _fair(found, measure, method, name, share):
            continue
        difference = (theirs - ours).dropna()
        if len(difference) and round(float(difference.mean()), digits) > 0:
            error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else math.inf
            both = float(theirs[difference.index].mean()), float(ours[difference.index].mean())
            ahead.append(Better(method, *both, clearly=float(difference.mean()) > 2 * error))
    return sorted(ahead, key=lambda one: -one.theirs)


def _fair(found: Table, measure: str, method: str, name: str, share: int) -> bool:
    if measure == "power":
        return _keeps(found, method, name, share)
    if measure == "rings":
        quiet = found.mean("rings", method, name, 0)
        return quiet is None or quiet.value <= LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / quiet.repetitions)
    return True


def _keeps(found: Table, method: str, name: str, share: int) -> bool:
    """Whether it promises a false discovery rate of 5%, and has no more here than chance may give."""
    promise = Promise("flagged", LEVEL) if method == OURS else peers_cases.found()[method].promise
    fdr = found.mean("fdp", method, name, share)
    return promise == Promise("flagged", LEVEL) and fdr is not None and fdr.value <= LEVEL + 2 * fdr.error


# What it costs, set by set; None where there is no answer.


def lines(method: str) -> int:
    return len(OUR_LINES) if method == OURS else peers_cases.found()[method].lines


def seconds(found: Table, method: str, name: str) -> float | None:
    values = found.values("seconds", method, name, None)
    return float(values.median()) if len(values) else None


def megabytes(found: Table, method: str, name: str) -> float | None:
    values = found.values("megabytes", method, name, None)
    return float(values.max()) if len(values) else None


COSTS: dict[str, Callable[[Table, str, str], float | None]] = {
    "In less time": seconds,
    "With less memory": megabytes,
    "In fewer lines": lambda found, method, name: lines(method),
}


def _less(cost: Callable[[Table, str, str], float | None], found: Table, method: str) -> bool:
    pairs = [(cost(found, method, name), cost(found, OURS, name)) for name in found.sets]
    return all(theirs is not None and ours is not None and theirs < ours for theirs, ours in pairs)


# Words ----------------------------------------------------------------------------------------------------------------


def _name(method: str) -> str:
    return "**erd**" if method == OURS else f"`{method}`"


def _package(method: str) -> str:
    return "erd" if method == OURS else peers_cases.found()[method].package


def _promised(method: str) -> str:
    promise = Promise("flagged", LEVEL) if method == OURS else peers_cases.found()[method].promise
    return str(promise) if promise else "nothing"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"


def _plain(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0") if value < 1 else f"{value:.{digits}f}"


def _spread(mean: Mean | None) -> str:
    if mean is None:
        return "–"
    return _plain(mean.value, 3) + ("" if math.isnan(mean.deviation) else f" ± {_plain(mean.deviation, 3)}")


def _short(mean: Mean | None) -> str:
    return "–" if mean is None else _plain(mean.value, 2)


def _percent(mean: Mean | None, sign: str = "%") -> str:
    return "–" if mean is None else f"{100 * mean.value:.0f}{sign}"


def _bold(words: str, yes: bool) -> str:
    return f"**{words}**" if yes else words


def _range(counts: Sequence[int]) -> str:
    return "–".join(str(count) for count in sorted({min(counts, default=0), max(counts, default=0)}))
