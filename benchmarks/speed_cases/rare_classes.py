"""(k) A weekly run on photographs with all that finds rare classes, against the same week without it."""

import shutil
from pathlib import Path

import numpy as np
from measuring import Asked, Case, Figure, Figures, Goal, in_turn, medians, over, say, timed

from erd.data import library
from erd.runs import alarm_ledger
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.settings.schema import Settings
from erd.weekly import chain

NEW, SHARE = "cardboard", 0.1
A_WEEK, EARLIER = 250, 3  # images; weeks that are remembered
# C hidden in the batch, disagreement alone, a test of single images, and no week remembered.
WITHOUT = ("detect.calibration=mixed", "score.join=none", "data.window=1")


def measure(asked: Asked) -> Figures:
    if not asked.full:
        say("    it takes minutes: left out")
        return {}
    photographs = Path(asked.data or "") / "waste"
    if not photographs.is_dir():
        say("    there is no folder 'waste' in --data: left out")
        return {}
    place = asked.place / "rare"
    _deal(photographs, place)
    for number in range(EARLIER):
        run = _run(place, f"week-{number}", (), up_to="encode")
        alarm_ledger.enter(run.alarms, "own", run.batch_name, p=0.5, at=0.0005)
    features = place / "library" / "features"
    shutil.copytree(features, place / "before")

    def week(name: str, overrides: tuple[str, ...]) -> float:
        """From its files, none of which was encoded before."""
        shutil.rmtree(features)
        shutil.copytree(place / "before", features)
        shutil.rmtree(place / "runs" / name, ignore_errors=True)
        return timed(lambda: _run(place, name, overrides))

    found = {}
    for name in ("quiet", "novel"):
        ways = {"with": lambda name=name: week(name, ()), "without": lambda name=name: week(name, WITHOUT)}
        times = in_turn(ways, asked.repeat)
        found[f"k.{name}"] = Figure(over(times, "with", "without"), details={"seconds": medians(times)})
    return found


def _deal(photographs: Path, place: Path) -> None:
    """Files as a user has them: labelled ones, weeks without anything new, and one with a new class."""
    rng = np.random.default_rng(0)
    known = [path for path in sorted(photographs.glob("*/*")) if path.parent.name != NEW]
    known = [known[row] for row in rng.permutation(len(known))]
    new = sorted((photographs / NEW).iterdir())[: round(SHARE * A_WEEK)]
    names = [*(f"week-{number}" for number in range(EARLIER)), "quiet", "novel"]
    for name in names:
        come = known[:A_WEEK] if name != "novel" else known[: A_WEEK - len(new)] + new
        known = known[A_WEEK:]
        (place / "inbox" / name).mkdir(parents=True)
        for number, path in enumerate(come):
            shutil.copyfile(path, place / "inbox" / name / f"{number:04}{path.suffix}")
    for path in known:
        (place / "labelled" / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place / "labelled" / path.parent.name / path.name)
    largest = settings_for(scenario="own").data.largest or 0
    library.take_in(place / "labelled", None, place / "library", largest=largest)


def _run(place: Path, week: str, overrides: tuple[str, ...], up_to: str = "evaluate") -> RunDir:
    settings = _settings(place, week, overrides)
    run = RunDir.of(settings, place)
    for stage in chain.up_to(up_to):
        chain.run(stage, settings, run)
    return run


def _settings(place: Path, week: str, overrides: tuple[str, ...]) -> Settings:
    said = ["data.source=library", f"data.path={place / 'library'}", f"data.inbox={place / 'inbox' / week}",
            f"data.batch={week}", "data.settle=0", *overrides]  # fmt: skip
    return settings_for(scenario="own", overrides=said)


CASE = Case(
    "k",
    "a weekly run on photographs with candidate classes, folds and the weeks before, and the same week without them",
    {
        "k.quiet": Goal("a week without anything new, against the same without what finds rare classes", 1.5),
        "k.novel": Goal("the same of a week with 10% of a new class", 1.5),
    },
    measure,
)
