"""report.html: what a batch brought, on one page that needs no network and no other file."""

from pathlib import Path
from typing import Any

import pandas as pd

from erd.base import files
from erd.data import packed
from erd.reporting import html, wording
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Metrics

SHOWN = 100  # rows of the table of flagged images; all are in scores.parquet
FIGURES = {
    "most_novel": "The images on which the members disagree most",
    "scores": "Scores of the batch, and of known images for comparison",
    "learning_curves": "How the members learned",
    "roc": "Novel images caught against known images flagged wrongly",
}


def write(run: RunDir) -> Path:
    metrics = Metrics.read(run)
    aside = pd.read_csv(run.quarantine)
    page = html.template("report.html").render(
        headline=wording.headline(metrics),
        alarm=wording.alarm(metrics),
        confidence=configure.read(run).detect.confidence,
        metrics=metrics.flat(),
        figures={
            name: {"title": title, "data": html.embedded(path.read_bytes())}
            for name, title in FIGURES.items()
            if (path := run.figures / f"{name}.png").exists()
        },
        learned=ClassAccuracy.read(run),
        next=wording.advice(metrics),
        flagged=_with_pictures(flagged(run).head(SHOWN), run),
        aside=aside.head(SHOWN).to_dict("records"),
        set_aside=len(aside),
    )
    with files.replacing(run.report) as draft:
        draft.write_text(page, encoding="utf-8")
    return run.report


def flagged(run: RunDir) -> pd.DataFrame:
    """The flagged rows of scores.parquet, most novel first."""
    return files.load_table(run.scores).query("flagged").sort_values("score", ascending=False, kind="stable")


def _with_pictures(listed: pd.DataFrame, run: RunDir) -> list[dict[str, Any]]:
    images = packed.read(run.batch).images
    return [
        row._asdict() | {"picture": html.embedded(html.png(images[int(row.Index)].squeeze().numpy()))}
        for row in listed.itertuples()
    ]
