"""What Prefect's UI shows of a weekly run: both tiers of images, the figures, links to MLflow and to the report."""

import socket

import pandas as pd
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from erd.integrations import mlflow_runs
from erd.integrations.registry import Registered
from erd.reporting import tiers, wording
from erd.runs.folder import RunDir
from erd.runs.results import Metrics

SHOWN = 100  # rows of a table; all of them are in scores.parquet


def show(run: RunDir, registered: Registered) -> None:
    metrics = Metrics.read(run)
    _table("flagged", tiers.flagged(run), wording.flags(metrics))
    _table("worth-a-look", tiers.worth_a_look(run), wording.worth_a_look(metrics))
    figures = {name: value for name, value in metrics.flat().items() if isinstance(value, float)}
    lines = [line for sentence in wording.summary(metrics, wording.noticed(run)) for line in (sentence, "")]
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


def _table(key: str, listed: pd.DataFrame, words: str) -> None:
    """Images, most novel first; none, no table."""
    if listed.empty:
        return
    cut = f" The first {SHOWN} of {len(listed):,}." if len(listed) > SHOWN else ""
    rows = listed.head(SHOWN).round({"score": 4, "p_value": 5}).to_dict("records")
    create_table_artifact(rows, key=key, description=f"{words}{cut}".strip())
