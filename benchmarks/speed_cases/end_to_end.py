"""(a) ERD from a pretrained net to the scores of a batch, against what one would write oneself."""

import time
from typing import Any

import pandas as pd
from measuring import Asked, Case, Figure, Figures, Goal, in_turn, medians, over, say
from random_runs import finetuned_and_scored, random_run, settings_of
from users_loop import as_the_user_has_them, users_loop, users_member, users_net

from erd.base.errors import UserError
from erd.data import packed
from erd.runs.folder import RunDir
from erd.settings.schema import Settings
from erd.statistics import metrics
from erd.training.loop import Recipe
from erd.weekly.stages.finetune import member_labels
from erd.weekly.stages.ingest import ingest
from erd.weekly.stages.pretrain import pretrain

# The paper's algorithm on both sides: all of S, the best epoch, nothing hidden in the batch.
PLAIN = ("detect.calibration=paper", "finetune.keep=best", "data.holdout_known=0", "data.holdout_novel=0")
QUICK = ("data.train=12500", "data.val=2500", "data.batch_known=2500", "data.batch_novel=2500")  # half of it


def measure(asked: Asked) -> Figures:
    overrides = PLAIN if asked.full else (*PLAIN, *QUICK)
    settings, run, note = fashion(asked, settings_of("fmnist-near", overrides, asked.data))
    pretrain(settings, run)
    labels, epochs = member_labels(settings, run), Recipe.of(settings.finetune).epochs
    given = as_the_user_has_them(run)

    def theirs() -> float:
        _, seconds = users_member(users_net(run), labels[0], given, 1)
        return len(labels) * (epochs * seconds["epoch"] + seconds["score"])

    times = in_turn({"ours": lambda: finetuned_and_scored(settings, run), "user's": theirs}, asked.repeat)
    details: dict[str, Any] = {"seconds": medians(times), "epochs": epochs, "members": len(labels)}
    part = f"Of the user's loop one epoch and one scoring, times {epochs} epochs and {len(labels)} members."
    found = {"a.loop": Figure(over(times, "user's", "ours"), details=details, note=f"{note} {part}".strip())}
    if asked.full and not note:
        started = time.perf_counter()
        scores = users_loop(run, labels, given, epochs)
        details["user's whole loop, seconds"] = round(time.perf_counter() - started, 1)
        novel = packed.truth_of(run.batch) == "novel"
        mine = pd.read_parquet(run.scores)["score"].to_numpy()
        both = {name: metrics.auroc(s[~novel], s[novel]) for name, s in (("ours", mine), ("user's", scores))}
        found["a.auroc"] = Figure([abs(both["ours"] - both["user's"])], details={"auroc": both})
    return found


def fashion(asked: Asked, settings: Settings) -> tuple[Settings, RunDir, str]:
    """The run of fmnist-near up to its packed images; random ones, and a sentence about it, where it is not there."""
    run = RunDir(asked.place / "fmnist-near")
    try:
        ingest(settings, run)
        return settings, run, ""
    except UserError as error:
        say(f"    {error}")
    sizes = settings.data
    batch = (sizes.batch_known or 0) + (sizes.batch_novel or 0)
    run = random_run(run.root, train=sizes.train or 0, val=sizes.val or 0, batch=batch)
    return settings, run, "Fashion-MNIST is not in --data: random images of its shape, so no AUROC."


CASE = Case(
    "a",
    "ERD from the pretrained net to the scores, and the user's own loop with as many epochs",
    {
        "a.loop": Goal("ERD end to end, K=5, against the user's loop", 20, at_least=True),
        "a.auroc": Goal("AUROC of the two, difference", 0.005, unit="", tolerance=None),
    },
    measure,
)
