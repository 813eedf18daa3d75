"""What follows a weekly run that crashed: its run in MLflow ends too, KILLED, and does not wait for the next week's.
Prefect starts it on the event of the state.

prefect deployment run 'on-crash/on-crash'
"""

import logging

from prefect import flow

from erd.integrations import mlflow_runs
from erd.runs.folder import RUNS
from flows.logs import told_to_prefect

log = logging.getLogger("erd")


@flow(name="on-crash")
def on_crash() -> list[str]:
    with told_to_prefect():
        closed = [run.batch_name for run in mlflow_runs.close_dead(RUNS)]
        log.info("closed in MLflow: %s", ", ".join(closed) or "none, all had ended")
    return closed
