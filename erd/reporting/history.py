"""Looking back: how good the weeks' flags were, by what experts said; as figures, in MLflow, and on one page.

retrospect(run)      # one batch
write()              # runs/history.html: all batches of the workspace, in the order they were scored
"""

import functools
import io
import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.reporting import answer_words, html, wording
from erd.runs import audit, configure, pruned, results, stage_records
from erd.runs.answers import KINDS, Answers, agreed, audited
from erd.runs.folder import HISTORY, KEPT_WEEKS, RUNS, RunDir
from erd.runs.results import ClassAccuracy, Ingested, Metrics, Sensitivity
from erd.statistics.audit import NOTHING as NO_AUDIT
from erd.statistics.audit import Audit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of the verdict, for each week.
SHOWN = ("flagged", "alarm_p", "alarm", "alarm_level", "weeks_p", "weeks_alarm", "novel_share", "look_at",
         "look_at_least")  # fmt: skip
NOTHING = "–"
NEWS = 3  # of the audits' findings the latest are told
ENOUGH = 8  # audited known images; with fewer their p-values say nothing about drift


def retrospect(run: RunDir) -> dict[str, float | int | None]:
    """Precision of the flags that were looked at, what was found on the list of the most novel images, flagged or below
    them, recall among the audited images, and whether the p-values of audited known images are still those of known
    images.

    The audit is a uniform sample of the batch: only there is something learned about images that do not look novel.
    """
    from scipy.stats import kstest

    answers = Answers(run.answers).current()
    settled, disputed = agreed(answers)
    known = set(Ingested.read(run).classes)
    scores = results.scores(run).set_index("id")
    judged = [image for image, answer in settled.items() if KINDS[answer.kind].judged and image in scores.index]
    novel = {image for image in judged if settled[image].label and settled[image].label not in known}
    flagged = set(scores.index[scores["flagged"]])
    flags = [image for image in judged if image in flagged]
    most_novel = flagged | {answer.image for answer in answers if answer.list == "flagged"}
    looked_at = [image for image in judged if image in most_novel]
    drawn = [image for image in judged if image in audited(answers)]
    drawn_novel = [image for image in drawn if image in novel]
    drawn_known = [image for image in drawn if image not in novel]
    p = scores.loc[drawn_known, "p_value"].to_numpy()
    share = audit.heard(run)
    return {
        "reviewed": len(judged),
        "disputed": len(disputed),
        "flags_reviewed": len(flags),
        "flag_precision": _share([image in novel for image in flags]),
        "looked_at": len(looked_at),
        "looked_novel": sum(image in novel for image in looked_at),
        "audited": len(drawn),
        "audit_novel": len(drawn_novel),
        # Of the whole batch, of a class nobody knows.
        **({f"audit_{name}": getattr(share, name) for name in ("share", "low", "high")} if share.images else {}),
        "audit_recall": _share([image in flagged for image in drawn_novel]),
        "audit_false_positives": _share([image in flagged for image in drawn_known]),
        # Too many small p-values among known images: they no longer look like the calibration images.
        "drift_p": float(kstest(p, "uniform", alternative="greater").pvalue) if len(p) >= ENOUGH else None,
    }


def keep(run: RunDir) -> dict[str, float | int | None]:
    """The figures of a batch's review, on disk; the same again where nothing was answered since."""
    found = retrospect(run)
    last = max((answer.at for answer in Answers(run.answers).current()), default=None)
    files.save_json(run.retrospect, found | {"at": last})
    return found


def weeks(runs: Path = RUNS) -> list[dict[str, Any]]:
    """One row a batch that was scored, the earliest first. Of hundreds of weeks all but the last few are as they were:
    a row is kept, and made anew only where one of its files, or the code, has changed."""
    place, code = runs / KEPT_WEEKS.name, _code()
    kept = files.load_json_if_whole(place)
    kept = kept if isinstance(kept, dict) else {}
    found: dict[str, Any] = {}
    for path in runs.glob("*/metrics.json"):
        run = RunDir(path.parent)
        state = [code, *map(_state, _rests_on(run))]  # before they are read: a change meanwhile is found the next time
        before = kept.get(run.batch_name)
        if not isinstance(before, dict) or before.get("key") != files.digest([state, before.get("row")]):
            row = _row(run)
            before = {"key": files.digest([state, row]), "row": row}
        found[run.batch_name] = before
    if found != kept:
        with suppress(RunError):  # it is only quicker with it
            files.save_json(place, found)
    return sorted((one["row"] for one in found.values() if one["row"]), key=lambda row: row["scored"])


def _rests_on(run: RunDir) -> tuple[Path, ...]:
    """All that `_row` looks at."""
    return (run.settings, run.metrics, run.ingested, run.class_accuracy, run.record("score"), run.sensitivity,
            run.report, run.scores, run.answers, run.pruned)  # fmt: skip


def _state(path: Path) -> list[int] | None:
    """Another one whenever the file was written; None where it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


@functools.cache
def _code() -> list[Any]:
    """Of all of erd: which of it makes a row is not worth finding out."""
    return [_state(path) for path in sorted(Path(__file__).parents[1].rglob("*.py"))]


def _row(run: RunDir) -> dict[str, Any] | None:
    """None where the batch was not scored, or what is there is damaged or by another version."""
    try:
        settings, metrics, classes = configure.read(run), Metrics.read(run), len(Ingested.read(run).classes)
        found, scored = ClassAccuracy.read(run), stage_records.read(run, "score")
        asked = Sensitivity.read(run)
    except UserError:
        return None
    if scored is None:
        return None
    return {
        "batch": run.batch_name,
        "stream": settings.stream,
        "scored": scored.finished,
        "report": f"{run.batch_name}/{run.report.name}" if run.report.exists() else None,
        "pruned": pruned.read(run) is not None,
        "images": metrics.images,
        **{name: getattr(metrics.verdict, name) for name in SHOWN},
        "accuracy": found.accuracy if found else metrics.val_accuracy,
        "accuracy_before": found.accuracy_before if found else None,
        "classes": classes,
        **({"noticed_from": asked.noticed_from} if asked else {}),
        **(retrospect(run) if run.answers.exists() else {}),
    }


def write(runs: Path = RUNS) -> Path:
    """The page; it needs no network and no other file."""
    from erd.reporting import week_figures

    streams = []
    rows = sorted(weeks(runs), key=lambda row: row["stream"])  # stable: in time within a stream
    for name, found in itertools.groupby(rows, key=lambda row: row["stream"]):
        listed = list(found)
        wide, narrow = (_picture(week_figures.history(listed, narrow=on_phone)) for on_phone in (False, True))
        streams.append({"name": name, "wide": wide, "narrow": narrow, "words": words(listed), **_table(listed[::-1])})
    page = html.template("history.html").render(streams=streams)
    place = runs / HISTORY.name
    with files.replacing(place) as draft:
        draft.write_text(page, encoding="utf-8")
    return place


def _picture(figure: "Figure") -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return html.embedded(buffer.getvalue())


def words(rows: list[dict[str, Any]]) -> list[str]:
    """What the weeks say together, in sentences."""
    rang = sum(bool(row["alarm"] or row["weeks_alarm"] or row.get("audit_low")) for row in rows)
    said = [f"{_many(len(rows), 'batch', 'batches')}, {rang:,} with an alarm."]
    if gone := sum(row["pruned"] for row in rows):
        said.append(f"Of {_many(gone, 'batch', 'batches')} the nets and features were cleared away (`erd prune`).")
    heard = [(row["batch"], found) for row in rows if (found := _audit(row)).rings]
    said += [answer_words.audit(found, f"batch {batch}", past=True) for batch, found in heard[-NEWS:]]
    flags = sum(row.get("flags_reviewed") or 0 for row in rows)
    right = sum(round(row["flag_precision"] * row["flags_reviewed"]) for row in rows if row.get("flags_reviewed"))
    if flags:
        said.append(f"Of {flags:,} flagged images that experts looked at, {_were(right)} novel ({right / flags:.0%}).")
    below = sum(row.get("looked_at") or 0 for row in rows) - flags
    if below:
        found = sum(row.get("looked_novel") or 0 for row in rows) - right
        said.append(f"Of {below:,} that were not flagged but worth a look, {_were(found)} novel ({found / below:.0%}).")
    drawn = sum(row.get("audit_novel") or 0 for row in rows)
    if drawn:
        caught = sum(round(row["audit_recall"] * row["audit_novel"]) for row in rows if row.get("audit_novel"))
        said.append(f"Of {drawn:,} novel images in the audits, {_were(caught)} flagged ({caught / drawn:.0%}).")
    if asked := [row for row in rows if "noticed_from" in row]:
        said.append(f"{asked[-1]['batch']}: {wording.sensitivity(asked[-1]['noticed_from'])}")
    tested = [row["drift_p"] for row in rows if row.get("drift_p") is not None]
    if tested:
        worst = min(1.0, min(tested) * len(tested))
        said.append(
            f"Known images in the audits no longer look like the calibration images (p = {worst:.1g} over all weeks): "
            "the stated rates may not hold; label more audited images, so that calibration is of today."
            if worst < 0.01
            else "Known images in the audits score as the calibration images do: flags are wrong as rarely as stated."
        )
    return said


def _table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The cells of the page's table; columns of which nothing is known in any week are left out."""
    cells = [{heading: text(row) for heading, text in COLUMNS.items()} for row in rows]
    headings = [heading for heading in COLUMNS if any(row[heading] != NOTHING for row in cells)]
    return {"headings": headings, "weeks": [row | {"cells": cell} for row, cell in zip(rows, cells, strict=True)]}


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _were(count: int) -> str:
    return f"{count:,} {'was' if count == 1 else 'were'}"


def _audit(row: dict[str, Any]) -> Audit:
    if "audit_share" not in row:
        return NO_AUDIT
    return Audit(row["audited"], row["audit_novel"], row["audit_share"], row["audit_low"], row["audit_high"])


def _share(found: list[bool]) -> float | None:
    return float(np.mean(found)) if found else None


def _percent(name: str, digits: int = 0) -> Callable[[dict[str, Any]], str]:
    return lambda row: NOTHING if row.get(name) is None else f"{row[name]:.{digits}%}"


def _count(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: NOTHING if row.get(name) is None else f"{row[name]:,}"


def _chance(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: NOTHING if row.get(name) is None else wording.chance(row[name])


def _alarm(row: dict[str, Any]) -> str:
    if row["alarm"]:
        return "rang"
    return "rang over weeks" if row["weeks_alarm"] else "rang by the audit" if row.get("audit_low") else "quiet"


def _of_the_batch(row: dict[str, Any]) -> str:
    if "audit_share" not in row:
        return NOTHING
    return f"{row['audit_share']:.0%} ({100 * row['audit_low']:.0f} to {row['audit_high']:.0%})"


def _noticed(row: dict[str, Any]) -> str:
    if "noticed_from" not in row:
        return NOTHING
    return "not seen at any" if row["noticed_from"] is None else f"from {wording.percent(row['noticed_from'])} on"


def _caught(row: dict[str, Any]) -> str:
    return f"{row['audit_recall']:.0%} of {row['audit_novel']:,}" if row.get("audit_novel") else NOTHING


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {  # heading → what of a week stands below it
    "scored": lambda row: f"{datetime.fromisoformat(row['scored']):%Y-%m-%d}",
    "images": _count("images"),
    "alarm": _alarm,
    "by chance": _chance("alarm_p"),
    "weeks together": _chance("weeks_p"),
    "flagged": _count("flagged"),
    "of these looked at": _count("flags_reviewed"),
    "right": _percent("flag_precision"),
    "looked at in all": _count("looked_at"),
    "of these novel": _count("looked_novel"),
    "audited": _count("audited"),
    "share of the batch": _of_the_batch,
    "novel ones caught": _caught,
    "drift": _chance("drift_p"),
    "a new class noticed": _noticed,
    "accuracy": _percent("accuracy", 1),
    "before": _percent("accuracy_before", 1),
}
