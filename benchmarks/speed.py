"""How near we are to the machine's limit, and to what one would write oneself: everything side by side in one run.

    python benchmarks/speed.py --data DIR            # a table; half an hour on two cores
    python benchmarks/speed.py --only b --only d --json
    python benchmarks/speed.py --check               # what got slower since benchmarks/baseline.json; exit 1 if so
    python benchmarks/speed.py --quick --check       # the same in four minutes, by ratios of smaller sizes
    python benchmarks/speed.py --data DIR --keep --output docs/speed.md

Each number is a ratio of two things measured in turn, again and again, on the same machine: the median over the
repetitions, with the smallest and the largest. Where a goal is in seconds or gigabytes, those stand beside the ratio.
docs/speed.md says what each part compares and why; a new part is a new file in benchmarks/speed_cases.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import speed_cases
import torch
from measuring import Asked, Figure, Figures, rounded, say, shown

from erd.base import files
from erd.base.processes import cores
from erd.bench import page_parts

BASELINE = Path(__file__).resolve().parent / "baseline.json"
CASES = speed_cases.found()
GOALS = {key: goal for case in CASES.values() for key, goal in case.goals.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=CASES, help="repeatable; default all")
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"), help="folder with fashion_mnist.npz, for (a)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each comparison; default 5")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, 2 repetitions; a baseline of its own")
    parser.add_argument("--check", action="store_true", help="compare with the baseline; exit 1 if something is slower")
    parser.add_argument("--keep", action="store_true", help="write what was measured into the baseline")
    parser.add_argument("--output", type=Path, metavar="FILE", help="put the table between the marks of a page")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args(argv)
    if asked.output:
        page_parts.check(asked.output, "speed")
    machine = {"cores": cores(), "torch": torch.__version__, "busy": psutil.cpu_percent(1) / 100}
    notes = []
    if machine["busy"] > 0.1:
        notes.append(f"Something else kept {machine['busy']:.0%} of the cores busy at the start: run it again alone.")
    figures = measured(asked.only or list(CASES), asked.data, 2 if asked.quick else asked.repeat, not asked.quick)
    rows = [row(key, figures[key], not asked.quick) for key in GOALS if key in figures]
    report: dict[str, Any] = {"machine": machine, "notes": notes, "figures": rows}
    whole = files.load_json(BASELINE) if BASELINE.exists() else {}
    baseline = whole.get("quick", {}) if asked.quick else whole
    if asked.check:
        report |= compared(rows, baseline)
    if asked.keep:
        now = kept(rows, baseline, machine)
        files.save_json(BASELINE, whole | ({"quick": now} if asked.quick else now))
    if asked.output:
        page_parts.into(asked.output, "speed", "\n".join(table(rows)) + "\n")
    if not asked.json:
        print("\n".join([*table(rows), "", *notes, *(said(report) if asked.check else [])]))
    print(json.dumps(report))
    return 1 if report.get("worse") else 0


def measured(parts: Sequence[str], data: str | None, repeat: int, full: bool) -> Figures:
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="erd-speed-") as scratch:
        for part in parts:
            say(f"({part}) {CASES[part].about}")
            place = Path(scratch) / part
            place.mkdir()
            figures |= CASES[part].measure(Asked(data, repeat, full, place))
            shutil.rmtree(place)  # gigabytes, some of them
    return figures


# What is said ---------------------------------------------------------------------------------------------------------


def row(key: str, figure: Figure, full: bool = True) -> dict[str, Any]:
    """A goal is one of the full sizes: at others it is neither met nor missed."""
    goal, ratio = GOALS[key], statistics.median(figure.ratios)
    value = ratio if figure.value is None else figure.value
    return {
        "key": key,
        "what": goal.what,
        "ratio": rounded(ratio),
        "low": rounded(min(figure.ratios)),
        "high": rounded(max(figure.ratios)),
        "repetitions": figure.repetitions or len(figure.ratios),
        "value": rounded(value),
        "unit": goal.unit.strip(),
        "goal": str(goal),
        "met": goal.met(value) if full else None,
        "note": figure.note,
        "details": figure.details,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown, which reads well enough in a terminal."""
    lines = ["| | what | goal | measured | ratio (from – to) | met |", "|---|---|---|---|---|---|"]
    for one in rows:
        spread = f"{one['ratio']:.3g} ({one['low']:.3g} – {one['high']:.3g})"
        value = shown(one["value"], GOALS[one["key"]].unit)
        met = {True: "yes", False: "**no**", None: "–"}[one["met"]]
        lines.append(f"| {one['key'][0]} | {one['what']} | {one['goal']} | {value} | {spread} | {met} |")
    notes = [f"({one['key'][0]}) {one['note']}" for one in rows if one["note"]]
    return [*lines, "", *notes] if notes else lines


# The guard ------------------------------------------------------------------------------------------------------------


def compared(rows: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is worse and what is better than the baseline by more than its tolerance, in words."""
    found: dict[str, list[str]] = {"worse": [], "better": [], "new": []}
    for one in rows:
        goal, before = GOALS[one["key"]], baseline.get("figures", {}).get(one["key"])
        if goal.tolerance is None:
            continue
        if before is None:
            found["new"].append(f"({one['key'][0]}) {one['what']}: no baseline yet, --keep writes it")
            continue
        was, now, tolerance = before["ratio"], one["ratio"], before["tolerance"]
        change = was / now if goal.at_least else now / was  # above 1: worse
        better = {"slower": "faster", "larger": "smaller"}[goal.worse]
        how, word, share = ("worse", goal.worse, change - 1) if change > 1 else ("better", better, 1 / change - 1)
        if share > tolerance:
            numbers = f"the ratio was {was:.3g} and is {now:.3g}"
            found[how].append(
                f"({one['key'][0]}) {one['what']}: {share:.0%} {word} ({numbers}; {tolerance:.0%} is noise)"
            )
    return found


def said(report: Mapping[str, list[str]]) -> list[str]:
    lines = [f"{how}: {line}" for how in ("worse", "better", "new") for line in report[how]]
    return lines or ["Nothing is slower than in the baseline."]


def kept(rows: Sequence[Mapping[str, Any]], before: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """The baseline with what was measured now; parts that were not, and tolerances set by hand, stay."""
    figures = dict(before.get("figures", {}))
    for one in rows:
        tolerance = figures.get(one["key"], {}).get("tolerance", GOALS[one["key"]].tolerance)
        if tolerance is not None:
            figures[one["key"]] = {"ratio": one["ratio"], "tolerance": tolerance}
    return {"machine": dict(machine), "figures": {key: figures[key] for key in GOALS if key in figures}}


if __name__ == "__main__":
    sys.exit(main())
