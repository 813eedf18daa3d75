"""The stages, and what comes after them, as Prefect tasks. They pass paths, hashes and settings, never tensors.

Prefect's own result cache is off: it does not look at files, and would call a deleted member finished. The stages keep
records of their inputs and outputs and know themselves what need not be done again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.events import emit_event
from prefect.tasks import Task

from erd import alarm, files, history, learned, notify, registry, report, stages, versioning
from erd.compute import Workers
from erd.errors import RunError, WorkerDied
from erd.params import Settings
from erd.registry import Registered
from erd.rundir import ALARMS, RunDir
from erd.stages import Done
from flows import artifacts

log = logging.getLogger("erd")
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
    log.info("%s: %s", done.stage, "unchanged, kept" if done.reused else "done")
    return done


@task(name="ingest", cache_policy=NO_CACHE)
def ingest(settings: Settings, run: RunDir) -> Done:
    done = stages.ingest(settings, run)
    facts = files.load_json(run.ingested)
    log.info("images: %s", ", ".join(f"{name} {size:,}" for name, size in facts["sizes"].items()))
    for warning in facts["warnings"]:
        log.warning("note: %s", warning)
    return done


@task(name="pretrain", cache_policy=NO_CACHE)
def pretrain(settings: Settings, run: RunDir) -> Done:
    return _tell(stages.pretrain(settings, run))


@task(
    name="finetune",
    task_run_name="finetune c={name}",
    tags=["member"],  # only here: Prefect asks the server for limits on every tag, two seconds a task
    cache_policy=NO_CACHE,
    retries=2,
    retry_condition_fn=_worth_another_try,
)
def finetune(settings: Settings, run: RunDir, label: int, member: int, name: str) -> Done:
    """One member. The task waits here in a thread; the training happens in a worker process that knows no Prefect."""
    assert _workers is not None, "call the task inside `using`"
    return _tell(_workers.call(stages.finetune, settings, run, label, member))


@task(name="score", cache_policy=NO_CACHE)
def score(settings: Settings, run: RunDir) -> Done:
    return _tell(stages.score(settings, run))


@task(name="evaluate", cache_policy=NO_CACHE)
def evaluate(settings: Settings, run: RunDir) -> Done:
    return _tell(stages.evaluate(settings, run))


@task(name="compare", cache_policy=NO_CACHE)
def compare(settings: Settings, run: RunDir) -> None:
    """What the classifier has learned since the batch before, class by class."""
    found = learned.compare(settings, run)
    if found.before is not None and found.accuracy is not None and found.accuracy_before is not None:
        log.info("classifier: right on %.1f%% of %d images nobody trained on, the one of %s on %.1f%%",
                 100 * found.accuracy, found.images, found.before, 100 * found.accuracy_before)  # fmt: skip
        for row in found.classes:
            before = "new" if row["before"] is None else f"{row['before']:.1%}"
            now = "–" if row["now"] is None else f"{row['now']:.1%}"
            log.info("  %s: %s → %s (%d images)", row["name"], before, now, row["images"])


@task(name="alarm", cache_policy=NO_CACHE)
def sound(settings: Settings, run: RunDir) -> bool:
    """Enter this week's look; where it rings for the first time, tell Prefect's automations and the people named."""
    metrics = files.load_json(run.metrics)
    look = alarm.look(
        ALARMS, settings.stream, run.batch_name, metrics["alarm_p"], settings.alarm.rate, settings.alarm.looks
    )
    log.info(report.alarm(metrics))
    if look.first:
        emit_event(
            "erd.alarm",
            resource={"prefect.resource.id": f"erd.batch.{run.batch_name}", "prefect.resource.name": run.batch_name},
            payload={key: metrics[key] for key in ("batch", "scenario", "images", "flagged", "alarm_p", "novel_share")},
        )
        text = f"{report.headline(metrics)} {report.alarm(metrics)}"
        notify.send(notify.addresses(settings.alarm.notify), f"Something new in batch {run.batch_name}", text)
    return look.rang


@task(name="version", cache_policy=NO_CACHE)
def version(settings: Settings, run: RunDir) -> dict[str, str]:
    """The data in DVC's cache, and in its remote where there is one. Trouble there takes nothing from the results."""
    hashes: dict[str, str] = {}
    try:
        hashes = versioning.save(settings, run)
        versioning.push(hashes.values())
    except RunError as error:
        log.warning("%s; the results are in %s all the same", error, run.root)
    return hashes


@task(name="register", cache_policy=NO_CACHE)
def register(settings: Settings, run: RunDir) -> Registered:
    registered = registry.register(settings, run)
    if registered.version is not None:
        log.info("model %s version %s is %s: %s", *(registered.model, registered.version),
                 *(registered.alias, registered.reason))  # fmt: skip
    return registered


@task(name="report", cache_policy=NO_CACHE)
def show(run: RunDir, registered: Registered) -> None:
    """report.html, the page of all weeks, and what a person wants to see of the run in Prefect's UI."""
    report.write(run)
    history.write(run.root.parent)
    artifacts.show(run, registered)
