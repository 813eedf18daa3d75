"""report.html: what a batch brought, on one page that needs no network and no other file."""

from pathlib import Path
from typing import Any

import pandas as pd

from erd.base import files
from erd.data import packed
from erd.reporting import html, tiers, wording
from erd.runs import audit, configure
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Decided, Group, Metrics

SHOWN = 100  # pictures of the most novel images, and rows of a table; all are in scores.parquet
OF_GROUP = 8  # pictures of a candidate class
FIGURES = {
    "most_novel": "The images on which the members disagree most",
    "scores": "Scores of the batch, and of known images for comparison",
    "learning_curves": "How the members learned",
    "roc": "Novel images caught against known images flagged wrongly",
    "looks": "Novel images found, by how many images are looked at",
}


def write(run: RunDir) -> Path:
    metrics, settings = Metrics.read(run), configure.read(run)
    aside = pd.read_csv(run.quarantine)
    listed = tiers.shown(run)
    groups = Decided.read(run).groups if run.decision.exists() else []
    heard, loud = audit.heard(run), metrics.verdict.worth_looking or wording.rich(metrics)
    page = html.template("report.html").render(
        headline=wording.audit(heard) if heard.rings else wording.headline(metrics),
        by_scores=wording.headline(metrics) if heard.rings and loud else "",
        quiet=not (loud or heard.rings),
        alarm=wording.audit_alarm(metrics) if heard.rings else wording.alarm(metrics),
        audit="" if heard.rings else wording.audit(heard),
        findings=wording.findings(metrics),
        noticed=wording.noticed(run),
        worth_a_look=wording.worth_a_look(metrics, settings.detect.confidence),
        last_good=wording.last_good(metrics),
        flags=wording.flags(metrics),
        confidence=settings.detect.confidence,
        metrics=metrics.flat(),
        figures={
            name: {"title": title, "data": html.embedded(path.read_bytes())}
            for name, title in FIGURES.items()
            if (path := run.figures / f"{name}.png").exists()
        },
        learned=(learned := ClassAccuracy.read(run)),
        unlearned=wording.unlearned(learned),
        next=wording.advice(metrics),
        listed=_with_pictures(listed.head(SHOWN), run),
        more=max(len(listed) - SHOWN, 0),
        groups=[
            {"words": wording.group(found.images, found.at_least, found.like), "listed": _of_group(found, run)}
            for found in groups
        ],
        aside=aside.head(SHOWN).to_dict("records"),
        set_aside=len(aside),
    )
    with files.replacing(run.report) as draft:
        draft.write_text(page, encoding="utf-8")
    return run.report


def _of_group(found: Group, run: RunDir) -> list[dict[str, Any]]:
    """Its first images; they are named as in scores.parquet."""
    table = files.load_table(run.scores)
    chosen = table[table["id"].isin(found.ids)]
    return _with_pictures(chosen.iloc[tiers.order(chosen)[:OF_GROUP]], run)


def _with_pictures(listed: pd.DataFrame, run: RunDir) -> list[dict[str, Any]]:
    images = packed.read(run.batch).images
    return [
        row._asdict() | {"picture": html.embedded(html.png(images[int(row.Index)].squeeze().numpy()))}
        for row in listed.itertuples()
    ]
