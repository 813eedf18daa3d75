"""Other rules on the scores of a batch that are there: which images are flagged, and what is said of them.

Nothing is trained. The members, and the labelled images as they were then, are in the run's folder; the scores they
give are checked to be the ones that stand.
"""

import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.reporting import history, report
from erd.runs import configure, pruned, results, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings import schema
from erd.settings.schema import Settings
from erd.weekly.stages import evaluate, score

# None of them changes a score, a p-value or the alarm.
RULES = ("detect.rule", "detect.fdr", "detect.adaptive", "detect.fpr", "detect.catch", "detect.novel_at_most",
         "detect.confidence", "review.budget")  # fmt: skip


@dataclass(frozen=True)
class Redecided:
    before: Metrics
    now: Metrics
    back: list[str]  # `a.b=v` that give the rules before


def decide(run: RunDir, overrides: Iterable[str]) -> Redecided:
    """Flags, figures and report by other rules; when the run was scored stays as it was, and so does its place in the
    history."""
    then = configure.read(run)
    pruned.check(run)
    now = schema.overridden(then, overrides)
    every = list(schema.keys())
    changed = [key for key in every if _value(then, key) != _value(now, key)]
    if wrong := [key for key in changed if key not in RULES]:
        raise UserError(f"{wrong[0]} takes a new run; without one these can be changed: {', '.join(RULES)}")
    before, scored = Metrics.read(run), stage_records.read(run, "score")
    standing = [path for path in (*score.STAGE.writes(run), run.record("score"), run.settings, run.metrics)
                if path.exists()]  # fmt: skip
    report.render(run)  # what of the run cannot be read is told before anything is changed
    with TemporaryDirectory(dir=run.root, prefix=".decide-") as folder:
        for path in standing:
            shutil.copy(path, Path(folder) / path.name)
        try:
            score.score(now, run)
            _check(Path(folder) / run.scores.name, run)
            if scored is not None and (made := stage_records.read(run, "score")) is not None:
                kept = replace(made, started=scored.started, finished=scored.finished)
                files.save_json(run.record("score"), asdict(kept))
            configure.keep(now, run)
            evaluate.evaluate(now, run)
        except BaseException:
            for path in standing:
                files.copy(Path(folder) / path.name, path)
            raise
    report.write(run)
    history.write(run.root.parent)
    return Redecided(before, Metrics.read(run), [f"{key}={_value(then, key)}" for key in changed])


def _check(before: Path, run: RunDir) -> None:
    old, new = files.load_table(before, results.SCORES), results.scores(run)
    if not old[["id", "score", "p_value"]].equals(new[["id", "score", "p_value"]]):
        raise RunError(
            f"{run.root} was scored by another version of erd, by which its scores would be others: they stay as they "
            "are, and so do its flags"
        )


def _value(settings: Settings, key: str) -> object:
    block, _, leaf = key.rpartition(".")
    return getattr(getattr(settings, block) if block else settings, leaf)
