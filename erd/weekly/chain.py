"""The stages in their order: settings and a run folder in, files out.

    for stage in CHAIN:
        chain.run(stage, settings, folder)

The flow does the same with a Prefect task for each job, dvc.yaml with a command for each stage (erd/integrations/dvc.py
writes it), `erd stage NAME` with one of them: the same stage, the same files, the same bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from erd.base import progress
from erd.runs import stage_records
from erd.runs.folder import RunDir
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training import runners
from erd.weekly.stages import encode, evaluate, finetune, ingest, pretrain, score, validate
from erd.weekly.stages.base import Job, Stage

CHAIN: tuple[Stage, ...] = (ingest.STAGE, encode.STAGE, pretrain.STAGE, validate.STAGE, finetune.STAGE, score.STAGE,
                            evaluate.STAGE)  # fmt: skip
BY_NAME = {stage.name: stage for stage in CHAIN}


def up_to(name: str) -> tuple[Stage, ...]:
    """The chain up to a stage, and that stage."""
    return CHAIN[: CHAIN.index(BY_NAME[name]) + 1]


def run(stage: Stage, settings: Settings, folder: RunDir) -> list[Done]:
    """All jobs of a stage: here, or side by side in the runner of the settings."""
    jobs = jobs_of(stage, settings, folder)
    with watched(stage, jobs, folder):
        if not elsewhere(stage, jobs):
            done = [job.function(*job.arguments) for job in jobs]
        else:
            with runners.of(settings.run, len(jobs)) as runner:
                futures = [runner.submit(job.function, *job.arguments) for job in jobs]
                done = [future.result() for future in futures]
    return [*done, stage.finish(settings, folder)] if stage.finish else done


def elsewhere(stage: Stage, jobs: Sequence[Job]) -> bool:
    """Whether the runner does them."""
    return stage.side_by_side and not all(job.here for job in jobs)


def jobs_of(stage: Stage, settings: Settings, folder: RunDir) -> list[Job]:
    """What there is to do, which takes a while to find out where it depends on many images."""
    with watched(stage, [], folder):
        return stage.jobs(settings, folder)


@contextmanager
def watched(
    stage: Stage, jobs: Sequence[Job], folder: RunDir, on_progress: Callable[[float], None] = lambda share: None
) -> Iterator[None]:
    """While the block does the jobs: a bar, or a line a minute, on how far they are and how long they still take."""
    told = {job.name: job.told for job in jobs if job.told is not None}
    what = f"{stage.name} ×{len(jobs)}" if len(jobs) > 1 else stage.name
    with progress.watched(told, what, total=sum(job.epochs for job in jobs), unit=stage.unit,
                          usual=stage_records.seconds_before(folder, stage.name), on_progress=on_progress):  # fmt: skip
        yield
