"""What follows an alarm: the flagged images, or else those worth a look, as files for the experts. Prefect starts it on
the event `erd.alarm`.

prefect deployment run 'on-alarm/on-alarm' -p batch=2026-W46
"""

import socket

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from erd.base.errors import UserError
from erd.reporting import flagged_images
from erd.runs.folder import RUNS, RunDir


@flow(name="on-alarm", flow_run_name="{batch}")
def on_alarm(batch: str) -> str:
    run = RunDir(RUNS / batch)
    if not run.scores.exists():
        raise UserError(f"there are no scores of batch {batch} in {run.root}; run it first")
    folder = flagged_images.export(run)
    # As text: browsers open no file from a page of the web.
    where = f"Images of {batch} to look at: `{folder.resolve()}` on {socket.gethostname()}"
    create_markdown_artifact(where, key="flagged-images")
    return folder.as_posix()
