"""What follows an alarm: the flagged images, or else those worth a look, as files for the experts. Prefect starts it on
the event `erd.alarm`.

prefect deployment run 'on-alarm/on-alarm' -p batch=2026-W46
"""

from prefect import flow
from prefect.artifacts import create_link_artifact

from erd.base.errors import UserError
from erd.reporting import flagged_images
from erd.runs.folder import RUNS, RunDir


@flow(name="on-alarm", flow_run_name="{batch}")
def on_alarm(batch: str) -> str:
    run = RunDir(RUNS / batch)
    if not run.scores.exists():
        raise UserError(f"there are no scores of batch {batch} in {run.root}; run it first")
    folder = flagged_images.export(run)
    create_link_artifact(folder.resolve().as_uri(), key="flagged-images", link_text=f"images of {batch} to look at")
    return folder.as_posix()
