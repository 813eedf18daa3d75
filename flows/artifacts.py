"""What Prefect's UI shows of a weekly run: the flag list, the figures, links to MLflow and to the report."""

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from erd.integrations import mlflow_runs
from erd.integrations.registry import Registered
from erd.reporting import report, wording
from erd.runs.folder import RunDir
from erd.runs.results import Metrics

SHOWN = 50  # rows of the flag list; all of them are in scores.parquet


def show(run: RunDir, registered: Registered) -> None:
    metrics = Metrics.read(run)
    table = report.flagged(run).head(SHOWN)
    create_table_artifact(
        table.round({"score": 4, "p_value": 5}).to_dict("records"),
        key="flagged",
        description=f"the {len(table)} highest-scoring of {metrics.verdict.flagged} flagged images",
    )
    figures = {name: value for name, value in metrics.flat().items() if isinstance(value, float)}
    lines = [wording.headline(metrics), "", wording.alarm(metrics), "", "| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value:.4f} |" for name, value in figures.items()]
    lines += ["", f"Model {registered.model}, version {registered.version}: {registered.reason}."]
    create_markdown_artifact("\n".join(lines), key="summary", description=f"batch {metrics.batch}")
    create_link_artifact(
        run.report.resolve().as_uri(), key="report", link_text="report.html", description="on the machine that ran it"
    )
    if address := mlflow_runs.address(run):
        create_link_artifact(address, key="mlflow-run", link_text="the run in MLflow")
