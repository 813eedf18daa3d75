"""report.html: what a batch brought, on one page that needs no network and no other file."""

import base64
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from erd import files
from erd.rundir import RunDir

SHOWN = 100  # rows of the table of flagged images; all are in scores.parquet
FIGURES = {  # in reading order
    "most_novel": "The images on which the members disagree most",
    "scores": "Scores of the batch, and of known images for comparison",
    "learning_curves": "How the members learned",
    "roc": "Novel images caught against known images flagged wrongly",
}


def write(run: RunDir) -> Path:
    metrics = files.load_json(run.metrics)
    flagged = pd.read_parquet(run.scores).query("flagged").sort_values("score", ascending=False)
    aside = pd.read_csv(run.quarantine)
    page = _template().render(
        headline=headline(metrics),
        metrics=metrics,
        figures=[
            {"title": title, "data": base64.b64encode(path.read_bytes()).decode()}
            for name, title in FIGURES.items()
            if (path := run.figures / f"{name}.png").exists()
        ],
        flagged=flagged.head(SHOWN).to_dict("records"),
        aside=aside.head(SHOWN).to_dict("records"),
        set_aside=len(aside),
    )
    with files.replacing(run.report) as draft:
        draft.write_text(page, encoding="utf-8")
    return run.report


def headline(metrics: dict[str, Any]) -> str:
    """What a person wants to know first, in one sentence."""
    return (
        f"{metrics['flagged']:,} of {metrics['images']:,} images of batch {metrics['batch']} look like something the "
        f"classifier has never seen; of the images it does know about {metrics['fpr_target']:.0%} are flagged wrongly."
    )


def _template() -> jinja2.Template:
    folder = Path(__file__).with_name("templates")
    return jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=True).get_template("report.html")
