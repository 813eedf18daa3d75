"""What Prefect's UI shows of a weekly run: both tiers of images, the figures, links to MLflow and to the report."""

import logging
import socket

import pandas as pd
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed

from erd.integrations import mlflow_runs
from erd.integrations.registry import Registered
from erd.reporting import answer_words, tiers, wording
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Metrics

log = logging.getLogger("erd")
SHOWN = 100  # rows of a table; all of them are in scores.parquet


def show(run: RunDir, registered: Registered) -> None:
    metrics = Metrics.read(run)
    _table("flagged", tiers.flagged(run), wording.flags(metrics))
    _table("worth-a-look", tiers.worth_a_look(run), wording.worth_a_look(metrics))
    figures = {name: value for name, value in metrics.flat().items() if isinstance(value, float)}
    lines = [line for sentence in wording.summary(metrics, wording.noticed(run)) for line in (sentence, "")]
    lines += [line for step in answer_words.unlearned(ClassAccuracy.read(run)) for line in (" ".join(step), "")]
    lines += ["| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value:.3g} |" for name, value in figures.items()]
    # As text: browsers open no file from a page of the web. MLflow has a copy where it is a server, see below.
    lines += ["", f"Report: `{run.report.resolve()}` on {socket.gethostname()}"]
    lines += ["", f"Model {registered.model}, version {registered.version}: {registered.reason}."]
    create_markdown_artifact("\n".join(lines), key="summary", description=f"batch {metrics.batch}")
    for key, text, address in (
        ("report", "the report", mlflow_runs.address(run, run.report.name)),
        ("mlflow-run", "the run in MLflow", mlflow_runs.address(run)),
        ("mlflow-batches", "all batches, in MLflow", mlflow_runs.overview(run)),
    ):
        if address:
            create_link_artifact(address, key=key, link_text=text)


def nothing_arrived(batch: str, inbox: str) -> State:
    """How the run of a scheduled week ends that has no images: neither a failure nor a quiet week."""
    words = wording.nothing_arrived(batch, inbox)
    log.warning(words)
    create_markdown_artifact(words, key="nothing-arrived", description=f"batch {batch}")
    return Completed(name="Nothing arrived", message=words)


def _table(key: str, listed: pd.DataFrame, words: str) -> None:
    """Images, most novel first; none, no table."""
    if listed.empty:
        return
    cut = f" The first {SHOWN} of {len(listed):,}." if len(listed) > SHOWN else ""
    rows = tiers.readable(listed.head(SHOWN)).to_dict("records")
    create_table_artifact(rows, key=key, description=f"{words}{cut}".strip())
