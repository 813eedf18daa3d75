"""The stages as Prefect tasks. They pass paths and settings, never tensors.

Prefect's own result cache is off: it does not look at files, and would call a deleted member finished. The stages keep
records of their inputs and outputs and know themselves what need not be done again.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from erd import stages
from erd.compute import Workers
from erd.errors import WorkerDied
from erd.params import Settings
from erd.rundir import RunDir
from erd.stages import Done

_workers: Workers | None = None  # of the flow that runs in this process; too alive to be a task's parameter


@contextmanager
def using(workers: Workers) -> Iterator[None]:
    """Let the fine-tuning tasks in this block train their members in `workers`."""
    global _workers
    _workers = workers
    try:
        yield
    finally:
        _workers = None


def _worth_another_try(task: Task, run: TaskRun, state: State) -> bool:
    """A new process can help where one was killed; bad data or a bad setting stays bad."""
    return isinstance(state.result(raise_on_failure=False), WorkerDied)


def _tell(done: Done) -> Done:
    get_run_logger().info("%s: %s", done.stage, "unchanged, kept" if done.reused else "done")
    return done


@task(name="ingest", tags=["erd"], cache_policy=NO_CACHE)
def ingest(settings: Settings, run: RunDir) -> Done:
    return _tell(stages.ingest(settings, run))


@task(name="pretrain", tags=["erd"], cache_policy=NO_CACHE)
def pretrain(settings: Settings, run: RunDir) -> Done:
    return _tell(stages.pretrain(settings, run))


@task(
    name="finetune",
    task_run_name="finetune c={name}",
    tags=["erd", "member"],
    cache_policy=NO_CACHE,
    retries=2,
    retry_condition_fn=_worth_another_try,
)
def finetune(settings: Settings, run: RunDir, label: int, member: int, name: str) -> Done:
    """One member. The task waits here in a thread; the training happens in a worker process that knows no Prefect."""
    assert _workers is not None, "call the task inside `using`"
    return _tell(_workers.call(stages.finetune, settings, run, label, member))


@task(name="score", tags=["erd"], cache_policy=NO_CACHE)
def score(settings: Settings, run: RunDir) -> Done:
    return _tell(stages.score(settings, run))


@task(name="evaluate", tags=["erd"], cache_policy=NO_CACHE)
def evaluate(settings: Settings, run: RunDir) -> Done:
    return _tell(stages.evaluate(settings, run))
