"""(e) Twice the images, twice the members: what that costs, fine-tuned for an epoch one after another, and scored."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from measuring import Asked, Case, Figure, Figures, Goal, in_turn, medians, over
from random_runs import finetuned_and_scored, random_run, settings_of, untrained


def measure(asked: Asked) -> Figures:
    """Two doublings of each, or one of them."""
    steps = 3 if asked.full else 2
    return grown(asked, (10_000, 20_000, 40_000)[:steps], (2, 4, 8)[:steps])


def grown(asked: Asked, images: Sequence[int], members: Sequence[int]) -> Figures:
    ways: dict[str, Callable[[], float]] = {}
    for count in images:
        for number in members if count == images[0] else members[:1]:
            overrides = [f"finetune.members={number}", "finetune.epochs=1", "run.runner=serial", "model.net=mlp"]
            settings = settings_of("fmnist-near", overrides)
            run = random_run(asked.place / f"{count}-{number}", train=count, val=count // 10, batch=count, classes=10)
            untrained(settings, run)
            ways[f"{count} images, {number} members"] = partial(finetuned_and_scored, settings, run)
    times = in_turn(ways, asked.repeat)

    def worst(names: list[str]) -> Figure:
        steps = [over(times, large, small) for small, large in pairwise(names)]
        details = {"doublings": [round(statistics.median(step), 2) for step in steps], "seconds": medians(times)}
        return Figure(max(steps, key=statistics.median), details=details)

    return {
        "e.images": worst([f"{count} images, {members[0]} members" for count in images]),
        "e.members": worst([f"{images[0]} images, {number} members" for number in members]),
    }


CASE = Case(
    "e",
    "members fine-tuned for an epoch one after another, and scored: twice the images, twice the members",
    {
        "e.images": Goal("cost of twice the images, worst", 2.1, tolerance=0.1),
        "e.members": Goal("cost of twice the members, worst", 2.1, tolerance=0.1),
    },
    measure,
)
