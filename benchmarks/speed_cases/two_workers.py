"""(c) Members side by side in two workers, against one after another in one."""

from functools import partial

from measuring import Asked, Case, Figure, Figures, Goal, in_turn, medians, over, say
from random_runs import finetuned_and_scored, random_run, settings_of, untrained

from erd.base.processes import cores

# Four: five members on two cores cannot be faster than 5/3, however good the workers are.
MEMBERS = 4


def measure(asked: Asked) -> Figures:
    if cores() < 2:
        say("    this machine has one core: nothing to compare")
        return {}
    overrides = [f"finetune.members={MEMBERS}", "data.holdout_known=0", "data.holdout_novel=0"]
    settings = settings_of("fmnist-near", overrides + ([] if asked.full else ["finetune.epochs=4"]))
    sizes = settings.data
    run = random_run(
        asked.place / "run", train=sizes.train or 0, val=sizes.val or 0, calibration=sizes.calibration or 0,
        batch=(sizes.batch_known or 0) + (sizes.batch_novel or 0),
    )  # fmt: skip
    untrained(settings, run)
    ways = {
        f"{count} workers": partial(finetuned_and_scored, settings.override({"run.workers": count}), run)
        for count in (1, 2)
    }
    times = in_turn(ways, asked.repeat)
    return {"c.cores": Figure(over(times, "1 workers", "2 workers"), details={"seconds": medians(times)})}


CASE = Case(
    "c",
    "members side by side in two workers, and one after another in one",
    {"c.cores": Goal(f"{MEMBERS} members with 2 workers against 1", 1.8, at_least=True, tolerance=0.1)},
    measure,
)
