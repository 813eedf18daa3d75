"""report.html: what a batch brought, on one page that needs no network and no other file."""

import base64
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from PIL import Image

from erd import files, learned, params
from erd.data import ingest as packing
from erd.rundir import RunDir

SHOWN = 100  # rows of the table of flagged images; all are in scores.parquet
FIGURES = {
    "most_novel": "The images on which the members disagree most",
    "scores": "Scores of the batch, and of known images for comparison",
    "learning_curves": "How the members learned",
    "roc": "Novel images caught against known images flagged wrongly",
}


def write(run: RunDir) -> Path:
    metrics = files.load_json(run.metrics)
    listed = flagged(run)
    aside = pd.read_csv(run.quarantine)
    page = template("report.html").render(
        headline=headline(metrics),
        alarm=alarm(metrics),
        confidence=params.read(run.settings).detect.confidence,
        metrics=metrics,
        figures={
            name: {"title": title, "data": base64.b64encode(path.read_bytes()).decode()}
            for name, title in FIGURES.items()
            if (path := run.figures / f"{name}.png").exists()
        },
        learned=learned.read(run),
        next=advice(metrics),
        flagged=_with_pictures(listed.head(SHOWN), run),
        aside=aside.head(SHOWN).to_dict("records"),
        set_aside=len(aside),
    )
    with files.replacing(run.report) as draft:
        draft.write_text(page, encoding="utf-8")
    return run.report


def flagged(run: RunDir) -> pd.DataFrame:
    """The flagged rows of scores.parquet, most novel first."""
    return files.load_table(run.scores).query("flagged").sort_values("score", ascending=False, kind="stable")


def headline(metrics: Mapping[str, Any]) -> str:
    """What a person wants to know first, in one sentence."""
    few = "No image" if not metrics["flagged"] else f"{metrics['flagged']:,} of {metrics['images']:,} images"
    looks = "look" if metrics["flagged"] > 1 else "looks"
    text = f"{few} of batch {metrics['batch']} {looks} like something the classifier has never seen"
    return f"{text}{promise(metrics)}."


def promise(metrics: Mapping[str, Any]) -> str:
    """The stated error rate, as the end of a sentence about flags."""
    if not metrics["flagged"]:
        return ""
    if not metrics["promised"]:
        return "; how many of these are false alarms is not known"
    if metrics["fdr_target"] is not None:
        return f"; at most about {_one_in(metrics['fdr_target'])} of these is expected to be a false alarm"
    if metrics["fpr_target"] is not None:
        return f"; about {_one_in(metrics['fpr_target'])} of the images it does know is flagged wrongly"
    return f"; about {metrics['catch_target']:.0%} of the novel images are meant to be among them"


def alarm(metrics: Mapping[str, Any]) -> str:
    """Whether there is anything at all, in one sentence."""
    p = f"p = {metrics['alarm_p']:.2g}"
    if not metrics["alarm"]:
        return f"No alarm: as a whole the batch does not look different from known images ({p})."
    low, high = (f"{metrics[key]:.0%}" for key in ("novel_share_low", "novel_share_high"))
    return (
        f"Alarm: something in this batch is novel ({p}): about {metrics['novel_share']:.0%} of the images, "
        f"{low} to {high}, and at least {metrics['novel_at_least']:,}."
    )


def advice(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What to do next, in the order of doing it: a sentence, and the command."""
    review = f"erd review --batch {metrics['batch']}"
    if metrics["flagged"]:
        first = "Look at the flagged images and say what they are:"
    elif metrics["alarm"]:
        some = math.ceil(metrics["novel_share"] * metrics["images"])
        first = (
            f"Something is novel, but no single image can be flagged at this error rate: look at the {some:,} images "
            "with the highest scores:"
        )
    else:
        first = "Nothing has to be done. The audit, some random images of the batch, keeps the calibration fresh:"
    return [(first, review), ("Let the classifier learn what was said:", f"erd incorporate --batch {metrics['batch']}")]


def _with_pictures(listed: pd.DataFrame, run: RunDir) -> list[dict[str, Any]]:
    images = packing.read(run.batch).images
    return [row._asdict() | {"picture": _png(images[int(row.Index)].squeeze().numpy())} for row in listed.itertuples()]


def _png(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _one_in(rate: float) -> str:
    return f"1 in {1 / rate:.0f}"


def template(name: str) -> jinja2.Template:
    folder = Path(__file__).with_name("templates")
    return jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=True).get_template(name)
