"""(d) The score of a batch as we compute it, against its definition pair by pair; one thread, 10 classes."""

import statistics
from collections.abc import Callable, Sequence

import torch
from measuring import Asked, Case, Figure, Figures, Goal, in_turn, over, say, timed
from torch import Tensor

from erd.statistics import disagreement
from erd.training import devices

MEMBERS = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50)


def measure(asked: Asked, members: Sequence[int] = MEMBERS, count: int = 10_000) -> Figures:
    found: dict[int, list[float]] = {}
    with devices.threads(1):
        for number in members:
            generator = torch.Generator().manual_seed(number)
            softmax = torch.randn(number, count, 10, generator=generator).mul_(3).softmax(-1)
            calls = max(1, 300 // number**2)  # so long that the clock is no matter

            def again(form: Callable[[Tensor], Tensor], softmax: Tensor = softmax, calls: int = calls) -> float:
                return timed(lambda: [form(softmax) for _ in range(calls)])

            ways = {"ours": lambda: again(disagreement.disagreement), "pairs": lambda: again(disagreement.pairwise)}
            found[number] = over(in_turn(ways, max(5, asked.repeat), quietly=True), "pairs", "ours")
    worst = min(found, key=lambda number: statistics.median(found[number]))
    ratios = {str(number): round(statistics.median(values), 2) for number, values in found.items()}
    say(f"    {ratios}")
    return {
        "d.fifty": Figure(found[max(members)], details={"members": ratios}),
        "d.least": Figure(found[worst], details={"members": worst}),
    }


CASE = Case(
    "d",
    "the score of a batch by members, and pair by pair; one thread, 10 classes",
    {
        "d.fifty": Goal("score of 50 members against the pairwise form", 10, at_least=True, tolerance=0.25),
        "d.least": Goal("score of 2 to 50 members against the pairwise form, worst", 1, at_least=True, tolerance=0.25),
    },
    measure,
)
