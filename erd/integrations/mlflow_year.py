"""The year in MLflow: one run beside those of the batches, with a point a week.

    send(Path("runs"), "own")        # after a run, and after experts have spoken

It is derived from the run folders (history.py). MLflow cannot change a point: where one has changed, as when a week was
run again, the run is thrown away and made anew.
"""

import hashlib
import logging
from collections.abc import Mapping
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erd.base.errors import why
from erd.base.locks import held
from erd.integrations import mlflow_client
from erd.integrations.mlflow_client import milliseconds
from erd.integrations.mlflow_views import NOTE, YEAR_TAG
from erd.reporting import history

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger("erd")
NAME = "the year"
# Of a week's row in the history.
DRAWN = ("alarm", "alarm_p", "weeks_p", "flagged", "flag_precision", "accuracy")
ABOUT = (
    "One point a week, in the order in which the batches were scored: the alarm (1 where it rang), its p-value, that "
    "of the last weeks together, how many images were flagged, which share of the flags experts called right, and the "
    "accuracy of the classifier."
)
Points = Mapping[str, Mapping[int, float]]  # metric → number of the week → value


def send(runs: Path, stream: str) -> bool:
    """Bring the run up to date; whether it is. Nothing that goes wrong here may end anything."""
    try:
        with held(runs / ".year.lock"):  # weeks that end at once would make one each
            weeks = [week for week in history.weeks(runs) if week["stream"] == stream]
            if weeks:
                _send(mlflow_client.connect(), key_of(runs, stream), stream, weeks)
    except Exception as error:
        trouble = "does not answer" if mlflow_client.unreachable(error) else f"did not take it: {why(error)}"
        log.warning("the year is not up to date: MLflow at %s %s", mlflow_client.shown(), trouble)
        return False
    return True


def key_of(runs: Path, stream: str) -> str:
    """The tag `erd.key` of its run: several workspaces may send to the same experiment."""
    return hashlib.sha256(f"{runs.absolute()} {stream}".encode()).hexdigest()


def _send(client: "MlflowClient", key: str, stream: str, weeks: list[dict[str, Any]]) -> None:
    from mlflow.entities import Metric

    wanted = _points(weeks)
    experiment = mlflow_client.experiment_id(client, stream)
    found = client.search_runs([experiment], f"tags.`erd.key` = '{key}'", max_results=1)
    run_id = found[0].info.run_id if found else None
    there = _there(client, run_id, wanted) if run_id else {}
    if run_id and not _agree(there, wanted):
        client.delete_run(run_id)
        run_id, there = None, {}
    if run_id is None:
        tags = {"erd.key": key, YEAR_TAG: stream, NOTE: ABOUT, "mlflow.source.name": "erd"}
        run_id = client.create_run(experiment, milliseconds(weeks[0]["scored"]), tags, NAME).info.run_id
    times = [milliseconds(week["scored"]) for week in weeks]
    missing = [
        Metric(name, value, times[number - 1], number)
        for name, points in wanted.items()
        for number, value in points.items()
        if number not in there.get(name, {})
    ]
    mlflow_client.log_values(client, run_id, missing)
    client.set_terminated(run_id, "FINISHED", times[-1])


def _points(weeks: list[dict[str, Any]]) -> Points:
    return {
        f"year/{name}": {
            number: float(f"{week[name]:.4g}")
            for number, week in enumerate(weeks, start=1)
            if week.get(name) is not None
        }
        for name in DRAWN
    }


def _there(client: "MlflowClient", run_id: str, wanted: Points) -> Points:
    return {name: {point.step: point.value for point in client.get_metric_history(run_id, name)} for name in wanted}


def _agree(there: Points, wanted: Points) -> bool:
    """Whether nothing has to be taken back."""
    return all(
        number in wanted[name] and isclose(value, wanted[name][number], rel_tol=1e-6)
        for name, points in there.items()
        for number, value in points.items()
    )
