"""Looking back: how good the weeks' flags were, by what experts said; as figures, in MLflow, and on one page.

retrospect(run)      # one batch
write()              # runs/history.html: all batches of the workspace, in the order they were scored
"""

import io
import itertools
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from erd.base import files
from erd.base.errors import UserError
from erd.reporting import html, wording
from erd.runs import audit, configure, stage_records
from erd.runs.answers import KINDS, Answers, agreed, audited
from erd.runs.folder import HISTORY, RUNS, RunDir
from erd.runs.results import ClassAccuracy, Ingested, Metrics
from erd.statistics.audit import NOTHING, Audit

# Of the verdict, for each week.
SHOWN = ("flagged", "alarm_p", "alarm", "alarm_level", "weeks_p", "weeks_alarm", "novel_share", "look_at",
         "look_at_least")  # fmt: skip
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
    scores = files.load_table(run.scores).set_index("id")
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
    """One row a batch that was scored, the earliest first."""
    rows = []
    for path in runs.glob("*/metrics.json"):
        run = RunDir(path.parent)
        try:
            settings, metrics, classes = configure.read(run), Metrics.read(run), len(Ingested.read(run).classes)
            found, scored = ClassAccuracy.read(run), stage_records.read(run, "score")
        except UserError:  # damaged, or by another version
            continue
        if scored is None:
            continue
        rows.append(
            {
                "batch": run.batch_name,
                "stream": settings.stream,
                "scored": scored.finished,
                "report": f"{run.batch_name}/{run.report.name}" if run.report.exists() else None,
                "images": metrics.images,
                **{name: getattr(metrics.verdict, name) for name in SHOWN},
                "accuracy": found.accuracy if found else metrics.val_accuracy,
                "accuracy_before": found.accuracy_before if found else None,
                "classes": classes,
                **(retrospect(run) if run.answers.exists() else {}),
            }
        )
    return sorted(rows, key=lambda row: row["scored"])


def write(runs: Path = RUNS) -> Path:
    """The page; it needs no network and no other file."""
    from erd.reporting import figures

    streams = []
    rows = sorted(weeks(runs), key=lambda row: row["stream"])  # stable: in time within a stream
    for name, found in itertools.groupby(rows, key=lambda row: row["stream"]):
        listed = list(found)
        buffer = io.BytesIO()
        figures.history(listed).savefig(buffer, format="png", dpi=130)
        picture = html.embedded(buffer.getvalue())
        streams.append({"name": name, "weeks": listed[::-1], "picture": picture, "words": words(listed)})
    page = html.template("history.html").render(
        streams=streams, day=lambda at: f"{datetime.fromisoformat(at):%Y-%m-%d}"
    )
    place = runs / HISTORY.name
    with files.replacing(place) as draft:
        draft.write_text(page, encoding="utf-8")
    return place


def words(rows: list[dict[str, Any]]) -> list[str]:
    """What the weeks say together, in sentences."""
    rang = sum(bool(row["alarm"] or row["weeks_alarm"] or row.get("audit_low")) for row in rows)
    said = [f"{len(rows):,} batches, {rang:,} with an alarm."]
    heard = [(row["batch"], found) for row in rows if (found := _audit(row)).rings]
    said += [wording.audit(found, f"batch {batch}", past=True) for batch, found in heard[-NEWS:]]
    flags = sum(row.get("flags_reviewed") or 0 for row in rows)
    right = sum(round(row["flag_precision"] * row["flags_reviewed"]) for row in rows if row.get("flags_reviewed"))
    if flags:
        said.append(f"Of {flags:,} flagged images that experts looked at, {right:,} were novel ({right / flags:.0%}).")
    below = sum(row.get("looked_at") or 0 for row in rows) - flags
    if below:
        found = sum(row.get("looked_novel") or 0 for row in rows) - right
        said.append(f"Of {below:,} that were not flagged but worth a look, {found:,} were novel ({found / below:.0%}).")
    drawn = sum(row.get("audit_novel") or 0 for row in rows)
    if drawn:
        caught = sum(round(row["audit_recall"] * row["audit_novel"]) for row in rows if row.get("audit_novel"))
        said.append(f"Of {drawn:,} novel images in the audits, {caught:,} were flagged ({caught / drawn:.0%}).")
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


def _audit(row: dict[str, Any]) -> Audit:
    if "audit_share" not in row:
        return NOTHING
    return Audit(row["audited"], row["audit_novel"], row["audit_share"], row["audit_low"], row["audit_high"])


def _share(found: list[bool]) -> float | None:
    return float(np.mean(found)) if found else None
