"""Each finished cell as one run of the experiment `bench` in MLflow.

    sending = Sending()
    sending.add(cell, record)          # now and then it sends
    sending.flush()

A server that is away stops nothing: a record says where it was sent, and the next bench sends what was not.
"""

import logging
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from erd.base.addresses import bare
from erd.base.errors import why
from erd.bench import detectors
from erd.bench.plan import Cell
from erd.bench.rows import CellRecord, Sent
from erd.integrations import mlflow_client, mlflow_views

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger("erd")
EXPERIMENT = "bench"
SEND_EVERY = 20.0  # seconds


class Sending:
    def __init__(self) -> None:
        self.waiting: list[tuple[Cell, CellRecord]] = []
        self.away, self.last = False, time.monotonic()

    def add(self, cell: Cell, record: CellRecord) -> None:
        if record.mlflow is not None and bare(record.mlflow.uri) == mlflow_client.shown():
            return
        self.waiting.append((cell, record))
        if not self.away and time.monotonic() - self.last > SEND_EVERY:
            self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        try:
            client = mlflow_client.connect()
            experiment = mlflow_client.experiment_id(client, EXPERIMENT, mlflow_views.BENCH)
            while self.waiting:
                _send(client, experiment, *self.waiting[0])
                self.waiting.pop(0)
        except Exception as error:  # tracking must not end a bench, whatever goes wrong in it
            if not self.away:
                trouble = "does not answer" if mlflow_client.unreachable(error) else why(error)
                where = mlflow_client.shown()
                log.warning("MLflow at %s: %s; the next bench sends what is missing", where, trouble)
            self.away = True
        self.last = time.monotonic()


def _send(client: "MlflowClient", experiment: str, cell: Cell, record: CellRecord) -> None:
    """The run, and into the record where it is. One that a killed bench has begun is taken up."""
    settings, method = cell.place.settings, detectors.get(cell.method)
    what = {"method": method.name, "setting": method.setting}
    tags = mlflow_client.workspace_tags(settings, cell.place.run) | what
    tags |= {"mlflow.source.name": "erd bench", "mlflow.note.content": f"{method.paper}: {method.formula}"}
    tags |= {"erd.key": record.key}
    started, finished = (mlflow_client.milliseconds(when) for when in (record.started, record.finished))
    found = client.search_runs([experiment], f"tags.`erd.key` = '{record.key}'", max_results=1)
    run_id = (found[0] if found else client.create_run(experiment, started, tags, cell.name)).info.run_id
    figures = {f"detection/{name}": value for name, value in asdict(record.figures["batch"]).items()}
    figures |= {f"holdout/{name}": value for name, value in asdict(record.figures["holdout"]).items()}
    figures |= {"seconds": record.seconds, "batch_p": record.batch_p}
    params = mlflow_client.flatten(settings) | {"scenario": cell.place.scenario} | what
    params |= {"outliers": record.outliers} if record.outliers else {}
    mlflow_client.log_values(client, run_id, params=params)
    mlflow_client.log_figures(client, run_id, figures, finished)
    client.set_terminated(run_id, "FINISHED", finished)
    replace(record, mlflow=Sent(mlflow_client.shown(), run_id)).write(cell.place.record(method.name))
