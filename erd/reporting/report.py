"""report.html: what a batch brought, on one page that needs no network and no other file.

Its first screen is for those who know the images; what only engineers can read is folded in at the end.
"""

import os
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from erd.base import files, spreadsheets
from erd.base.version import VERSION
from erd.data import dealing, inbox, packed
from erd.reporting import answer_words, html, tiers, wording
from erd.runs import audit, configure, pruned, results, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Decided, Encoded, Ingested, Metrics
from erd.settings.schema import Settings

SHOWN = 100  # pictures of the most novel images, and rows of a table; all are in scores.parquet
AT_ONCE = 24  # of these pictures are seen without unfolding the others
OF_GROUP = 8  # of a candidate class
FIGURES = {  # for the engineer
    "scores": "Scores of the batch, and of known images for comparison",
    "learning_curves": "How the members learned",
    "roc": "Novel images caught against known images flagged wrongly",
    "looks": "Novel images found, by how many images are looked at",
}


def write(run: RunDir) -> Path:
    page = render(run)
    with files.replacing(run.report) as draft:
        draft.write_text(page, encoding="utf-8")
    return run.report


def render(run: RunDir) -> str:
    metrics, settings = Metrics.read(run), configure.read(run)
    aside = spreadsheets.load(run.quarantine)
    shown = tiers.shown(run)
    learned = ClassAccuracy.read(run)
    groups, noticed = _groups(run, settings), wording.noticed(run)
    heard, loud = audit.heard(run), not wording.quiet(metrics)
    look_alikes = groups[0]["images"] if groups and groups[0]["sure"] else 0
    steps = wording.advice(metrics, look_alikes)
    if not (loud or heard.rings or noticed) and Encoded.read(run).encoder:
        steps.append(wording.unasked(metrics))
    unlearned = answer_words.unlearned(learned)
    waiting = Ingested.read(run).waiting
    told = {one.what for one in learned.refused} if learned else set()
    notes = [*wording.findings(metrics, numbers=False), *(wording.sentence(text) for what, text in waiting.items()
             if what not in told)]  # fmt: skip
    return html.template("report.html").render(
        title=answer_words.audit(heard) if heard.rings else wording.title(metrics, look_alikes),
        by_scores=wording.title(metrics, look_alikes) if heard.rings and loud else "",
        scored=_scored(run),
        quiet=not (loud or heard.rings),
        alarm=answer_words.audit_alarm(metrics) if heard.rings else wording.alarm(metrics, numbers=False),
        audit="" if heard.rings else answer_words.audit(heard),
        unlearned=unlearned,
        promised=wording.promised(metrics),
        notes=[note for note in notes if note],
        noticed=noticed,
        worth_a_look=wording.worth_a_look(metrics, settings.detect.confidence),
        last_good=wording.last_good(metrics),
        confidence=settings.detect.confidence,
        metrics=metrics.flat(),
        warnings=[text for text in metrics.warnings if text not in waiting.values()],
        figures=[
            {"title": title, "data": html.embedded(path.read_bytes())}
            for name, title in FIGURES.items()
            if (path := run.figures / f"{name}.png").exists()
        ],
        learned=learned,
        next=steps,
        listed=_with_pictures(shown.head(SHOWN), run, settings),
        at_once=AT_ONCE,
        of_group=OF_GROUP,
        more=max(len(shown) - SHOWN, 0),
        groups=groups,
        aside=aside.head(SHOWN).to_dict("records"),
        set_aside=len(aside),
        tests=[wording.alarm(metrics), *wording.findings(metrics)],
        facts=_facts(run, metrics, settings),
    )


def _groups(run: RunDir, settings: Settings) -> list[dict[str, Any]]:
    """Candidate classes with their images, the strongest first; they are named as in scores.parquet."""
    if not run.decision.exists():
        return []
    table, groups = results.scores(run), []
    for found in Decided.read(run).groups:
        rows = table[table["id"].isin(found.ids)]
        listed = _with_pictures(rows.iloc[tiers.order(rows)[:SHOWN]], run, settings)
        words = wording.group(found.images, found.at_least, found.like)
        groups.append({"images": found.images, "sure": found.at_least > 0, "words": words, "listed": listed})
    return groups


def _with_pictures(listed: pd.DataFrame, run: RunDir, settings: Settings) -> list[dict[str, Any]]:
    images, known = packed.read(run.batch).images, packed.table(run.batch)
    return [
        row._asdict()
        | {
            "picture": html.picture(images[int(row.Index)].numpy()),
            "original": _original(known.iloc[int(row.Index)], run, settings),
        }
        for row in listed.itertuples()
    ]


def _original(entry: pd.Series, run: RunDir, settings: Settings) -> str | None:
    """Where the file of an image is, seen from the report; None where nobody knows, or it is another one by now."""
    if not settings.data.inbox or "file" not in entry or "sha256" not in entry:
        return None
    path = inbox.original(Path(settings.data.inbox), entry["file"], entry["sha256"])
    return None if path is None else quote(Path(os.path.relpath(path, run.root.resolve())).as_posix())


def _scored(run: RunDir) -> str:
    record = stage_records.read(run, "score")
    return "" if record is None else f"{datetime.fromisoformat(record.finished):%-d %B %Y}"


def _facts(run: RunDir, metrics: Metrics, settings: Settings) -> dict[str, str]:
    """What made the report, for those who want to make it again."""
    images, seen = packed.read(run.batch).images, Encoded.read(run)
    tracked = files.load_json_if_whole(run.tracked) or {}
    detect, high, wide = settings.detect, *images.shape[1:3]
    rates = {"fdr": f"false discovery rate {detect.fdr:g}", "fpr": f"false-positive rate {detect.fpr:g}",
             "catch": f"catch {detect.catch:.0%}"}  # fmt: skip
    record = stage_records.read(run, "score")
    facts = {
        "scored": f"{datetime.fromisoformat(record.finished):%Y-%m-%d %H:%M %Z}" if record else "",
        "batch": f"{run.batch_name}, scenario {metrics.scenario}",
        "run in MLflow": tracked.get("run_id") or "",
        "erd": VERSION,
        "images": f"{high}×{wide} pixels, {'colour' if images.ndim == 4 and images.shape[3] == 3 else 'grey'}",
        "net": f"{settings.model.net}, {metrics.members} members",
        "encoder": f"{seen.encoder}, shown {seen.input_size}×{seen.input_size} pixels" if seen.encoder else "none",
        "parts": dealing.in_words(metrics.sizes),
        "flags": f"{rates[detect.rule]}, calibration {detect.calibration}",
        "seed": str(settings.seed),
        "pruned": pruned.words(run),
    }
    return {name: value for name, value in facts.items() if value}
