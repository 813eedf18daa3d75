"""Proposition 1 as an experiment: what gradient descent has fitted after T steps, and what only much later.

    python benchmarks/theory.py
    python benchmarks/theory.py --seed 3 --epsilon 0.3 --output theory.png --json

Clusters, net, step size and T are the paper's (`benchmarks/proposition.py`, which has the conditions too). Printed:
each condition and whether it is met, the share of every group with the label it was given before, at T and late, and
the share on which the members for c = −1 and c = +1 disagree. The figure shows both over all steps. About twenty
seconds of one core; another ε, cosine between centres or width shows what happens beyond the conditions.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import proposition
import torch
from matplotlib.figure import Figure
from proposition import Condition, Found, Setting

from erd.reporting import figures

GROUPS = {  # label, colour, line
    "train": ("S", figures.NEUTRAL, "-"),
    "batch_known_right": ("batch, known, label right", figures.KNOWN, "--"),
    "batch_novel": ("batch, novel, label c", figures.NOVEL, "-"),
    "batch_known_wrong": ("batch, known, label wrong", figures.KNOWN, "-"),
}
DISAGREEMENTS = {
    "batch_novel": ("batch, novel", figures.NOVEL, "-"),
    "holdout_novel": ("holdout, novel", figures.NOVEL, ":"),
    "batch_known": ("batch, known", figures.KNOWN, "-"),
    "holdout_known": ("holdout, known", figures.KNOWN, ":"),
}


def main(argv: Sequence[str] | None = None) -> None:
    plain = Setting()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epsilon", type=float, default=plain.epsilon, help="radius of the clusters (%(default)s)")
    parser.add_argument("--overlap", type=float, default=plain.overlap, help="cosine between centres (%(default)s)")
    parser.add_argument("--width", type=int, default=plain.width, help="hidden units, an even number (%(default)s)")
    parser.add_argument("--output", type=Path, help="draw the figure here")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args(argv)
    if asked.epsilon <= 0 or not 0 <= asked.overlap < 1 or asked.width < 2 or asked.width % 2:
        parser.error("epsilon must be above 0, overlap from 0 to below 1, width even and 2 or more")
    setting = Setting(epsilon=asked.epsilon, overlap=asked.overlap, width=asked.width)
    torch.set_num_threads(1)  # the matrices are small
    conditions = proposition.conditions(setting, asked.seed)
    found = proposition.run(setting, asked.seed)
    if asked.output:
        figures.save(draw(found), asked.output)
    if asked.json:
        print(json.dumps(result(found, conditions, asked.seed, asked.output)))
    else:
        show(found, conditions, asked.output)


def result(found: Found, conditions: list[Condition], seed: int, output: Path | None) -> dict[str, Any]:
    return {
        "seed": seed,
        "conditions": [vars(condition) | {"met": condition.met} for condition in conditions],
        "step_size": found.step_size,
        "T": found.stop,
        "late": found.late,
        "at_T": found.at(found.stop),
        "at_late": found.at(found.late),
        "disagreement_at_T": found.disagreement_at(found.stop),
        "disagreement_at_late": found.disagreement_at(found.late),
        "steps": found.steps,
        "fit": found.fit,
        "disagreement": found.disagreement,
        "figure": output.as_posix() if output else None,
    }


def show(found: Found, conditions: list[Condition], output: Path | None) -> None:
    print("conditions, open constants at 1")
    for condition in conditions:
        verdict = "met" if condition.met else "NOT met"
        print(f"  {condition.name:<42} {condition.value:>9.4g} {condition.sign} {condition.bound:<9.4g} {verdict}")
    times = {"at 0": 0, f"T = {found.stop}": found.stop, f"late = {found.late}": found.late}
    for title, curves in (("have the label they were given", found.fit), ("members disagree", found.disagreement)):
        print(f"\n{title:<31}" + "".join(f"{name:>16}" for name in times))
        for group, curve in curves.items():
            shares = (curve[found.steps.index(step)] for step in times.values())
            print(f"  {group:<29}" + "".join(f"{share:>16.1%}" for share in shares))
    if output:
        print(f"\ndrawn: {output}")


def draw(found: Found) -> Figure:
    """Above, how far each group is on the side of its label; below, where the two members disagree. T is marked."""
    figure = Figure(figsize=(7.6, 5.2), layout="constrained")
    fits, apart = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for group, (name, colour, line) in GROUPS.items():
        low, mean, high = zip(*found.margin[group], strict=True)
        fits.plot(found.steps, mean, line, color=colour, label=name, linewidth=1.6)
        fits.fill_between(found.steps, low, high, color=colour, alpha=0.12, linewidth=0)
    fits.axhline(0, color=figures.NEUTRAL, linewidth=0.7)
    fits.set_ylabel("label × output: mean and range\n(fitted above 0)", fontsize=9)
    for group, (name, colour, line) in DISAGREEMENTS.items():
        apart.plot(found.steps, [100 * share for share in found.disagreement[group]], line, color=colour, label=name)
    apart.set_ylim(-4, 104)
    apart.set_ylabel("members disagree, %", fontsize=9)
    apart.set_xlabel("steps of gradient descent", fontsize=9)
    for panel in (fits, apart):
        panel.axvline(found.stop, color=figures.FAINT, linewidth=1.2)
        panel.set_xscale("symlog", linthresh=1)
        panel.set_xlim(0, found.late)
        panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    apart.annotate(f" T = {found.stop}", (found.stop, 50), fontsize=9, color=figures.NEUTRAL)
    return figure


if __name__ == "__main__":
    main()
