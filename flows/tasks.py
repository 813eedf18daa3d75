"""The jobs of the stages, and what comes after them, as Prefect tasks: they pass paths and settings, never tensors.

Prefect's own result cache is off: it does not look at files, and would call a deleted member finished. The stages keep
records of their inputs and outputs and know themselves what need not be done again.
"""

import functools
import logging
import threading
from collections.abc import Callable

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.events import emit_event
from prefect.tasks import Task

from erd.base import progress
from erd.base.errors import RunError, WorkerDied
from erd.integrations import dvc, notify, registry
from erd.integrations.registry import Registered
from erd.reporting import history, report, wording
from erd.runs import alarm_ledger
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training import runners
from erd.weekly import chain
from erd.weekly.stages.base import Job, Stage
from flows import artifacts

log = logging.getLogger("erd")


def worth_another_try(task: Task, run: TaskRun, state: State) -> bool:
    """A new process can help where one was killed; bad data or a bad setting stays bad."""
    return isinstance(state.result(raise_on_failure=False), WorkerDied)


def do(stage: Stage, settings: Settings, run: RunDir, after: Callable[[], object] = lambda: None) -> list[Done]:
    """A stage, each of its jobs as a task; `after` is called when one has ended.

    Jobs that are done side by side have tasks that wait in threads; the work happens in the runner, for instance in
    processes that know no Prefect.
    """
    jobs = chain.jobs_of(stage, settings, run)
    if not chain.elsewhere(stage, jobs):
        found = []
        with chain.watched(stage, jobs, run):
            for job in jobs:
                found.append(_task(stage, functools.partial(job.function, *job.arguments))())
                after()
        return found + _finished(stage, settings, run)
    artifact = create_progress_artifact(0.0, key=stage.name, description=f"{stage.unit}s of all jobs of {stage.name}")
    shown = threading.Lock()

    def show(share: float) -> None:
        with shown:
            update_progress_artifact(artifact, round(100 * share, 1))  # type: ignore[arg-type]

    with runners.of(settings.run, len(jobs)) as runner, chain.watched(stage, jobs, run, on_progress=show):

        def elsewhere(job: Job) -> Done:
            return runner.submit(job.function, *job.arguments).result()

        futures = [_task(stage, functools.partial(elsewhere, job), job.name).submit() for job in jobs]
        found = []
        for future in futures:
            found.append(future.result())
            after()
    return found + _finished(stage, settings, run)


def _finished(stage: Stage, settings: Settings, run: RunDir) -> list[Done]:
    """What a stage does when all its jobs have ended, in a task of its own."""
    if stage.finish is None:
        return []
    with chain.watched(stage, [], run):
        return [_task(stage, functools.partial(stage.finish, settings, run))()]


def _task(stage: Stage, work: Callable[[], Done], name: str = "") -> Task[[], Done]:
    """`name` tells the jobs of a stage apart, where they are several: these are tried again when their process dies."""

    def job() -> Done:
        done = work()
        log.info("%s: %s", done.stage, "unchanged, kept" if done.reused else "done")
        return done

    job.__name__ = stage.name
    if not name:
        return task(name=stage.name, cache_policy=NO_CACHE)(job)
    return task(
        name=stage.name,
        task_run_name=f"{stage.name} {name}",
        tags=["member"],  # only here: Prefect asks the server for limits on every tag, two seconds a task
        cache_policy=NO_CACHE,
        retries=runners.TRIES - 1,
        retry_condition_fn=worth_another_try,
    )(job)


@task(name="alarm", cache_policy=NO_CACHE)
def sound(settings: Settings, run: RunDir) -> bool:
    """Enter this week's look; where it rings for the first time, tell Prefect's automations and the people named."""
    metrics = Metrics.read(run)
    verdict = metrics.verdict
    at, weeks = verdict.alarm_level, verdict.weeks_p
    look = alarm_ledger.enter(run.alarms, settings.stream, run.batch_name, verdict.alarm_p, at, weeks)
    log.info(wording.alarm(metrics))
    if look.first:
        emit_event(
            "erd.alarm",
            resource={"prefect.resource.id": f"erd.batch.{run.batch_name}", "prefect.resource.name": run.batch_name},
            payload={
                "batch": metrics.batch,
                "scenario": metrics.scenario,
                "images": metrics.images,
                "flagged": verdict.flagged,
                "alarm_p": verdict.alarm_p,
                "weeks_p": verdict.weeks_p,
                "novel_share": verdict.novel_share,
                "look_at": verdict.look_at,
                "look_at_novel": verdict.look_at_novel,
                "look_at_least": verdict.look_at_least,
            },
        )
        text = "\n".join(
            [*wording.summary(metrics, wording.noticed(run)), *(" ".join(step) for step in wording.advice(metrics)[:1])]
        )
        notify.send(notify.addresses(settings.alarm.notify), wording.subject(metrics), text)
    return look.rang


@task(name="version", cache_policy=NO_CACHE)
def version(settings: Settings, run: RunDir) -> dict[str, str]:
    """The data in DVC's cache, and in its remote where there is one. Trouble there takes nothing from the results."""
    hashes: dict[str, str] = {}
    try:
        with progress.watched({}, "version"):
            hashes = dvc.save(settings, run)
            dvc.push(hashes.values())
    except RunError as error:
        log.warning("%s; the results are in %s all the same", error, run.root)
    return hashes


@task(name="register", cache_policy=NO_CACHE)
def register(settings: Settings, run: RunDir) -> Registered:
    with progress.watched({}, "register"):
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
