"""What a comparison of speeds is, and the clocks for it: two ways in turn, again and again, on the same machine.

    times = in_turn({"ours": work, "theirs": other_work}, repeat=5)     # each a function that returns its seconds
    Figure(over(times, "theirs", "ours"), details={"seconds": medians(times)})

benchmarks/speed.py runs the cases of benchmarks/speed_cases, which are made of these.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Goal:
    """What a figure is and what it should be. `bound` is in `unit`, which is the ratio's own where it is ×."""

    what: str
    bound: float
    at_least: bool = False  # else: at most
    unit: str = "×"
    tolerance: float | None = 0.15  # how much worse than the baseline is still noise; None: nothing to compare
    worse: str = "slower"

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {shown(self.bound, self.unit)}"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass
class Figure:
    """`ratios`, one a repetition, are compared with the baseline; `value` with the goal, the median ratio if None."""

    ratios: list[float]
    value: float | None = None
    details: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    repetitions: int | None = None  # where `ratios` has only the median, the smallest and the largest


Figures = dict[str, Figure]


@dataclass(frozen=True)
class Asked:
    data: str | None
    repeat: int
    full: bool  # else smaller sizes, whose ratios have a baseline of their own; and no user's loop from end to end
    place: Path


@dataclass(frozen=True)
class Case:
    """What is compared. Figures that cannot be had on this machine are left out of what `measure` returns."""

    part: str  # the letter by which --only asks for it, and the first of its figures' keys
    about: str  # in a line
    goals: Mapping[str, Goal]  # key of a figure, such as "d.fifty" → what it should be
    measure: Callable[[Asked], Figures]


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(ways: Mapping[str, Callable[[], float]], repeat: int, quietly: bool = False) -> dict[str, list[float]]:
    """Seconds of each way, one repetition of all after another; a first one warms up and does not count."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(repeat + 1):
        for way, work in ways.items():
            taken = work()
            if repetition:
                times[way].append(taken)
                if not quietly:
                    say(f"    {repetition} of {repeat}, {way}: {taken:.2f} s")
    return times


def over(times: Mapping[str, list[float]], above: str, below: str) -> list[float]:
    return [a / b for a, b in zip(times[above], times[below], strict=True)]


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {way: rounded(statistics.median(values)) for way, values in times.items()}


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def shown(value: float, unit: str) -> str:
    return f"{value:.3g}{unit}"
