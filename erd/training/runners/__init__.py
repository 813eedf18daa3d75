"""Where jobs are done: `run.runner` names one of the modules of this folder, and a new runner is a new file in it.

    with runners.of(settings.run, jobs=5) as runner:
        future = runner.submit(function, *arguments)          # a concurrent.futures.Future
        for number, outcome in runners.each(runner, function, jobs): …      # all of them; those of dead workers again

A job is a function of a module with arguments that can be pickled; its results are files, and what it returns is small.
The bytes it writes are the same whoever runs it. A module has a class `Runner` as below, made from the settings and the
number of jobs; a function `check(run)` may say before anything starts what is missing. Where a process dies under a
job, the job's future raises `WorkerDied`: another try may succeed.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol

from erd.base.errors import UserError, WorkerDied, nearest
from erd.settings.schema import Run

TRIES = 3  # of a job whose process was killed
STOPPED = "the run was stopped; run the same command again: what is finished is kept"


class Runner(Protocol):
    """As a context: at its end all that it started has ended; at once, if the block fails."""

    @property
    def count(self) -> int: ...  # jobs it does at a time
    def __enter__(self) -> "Runner": ...
    def __exit__(self, *failure: object) -> None: ...
    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]": ...


def names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__)]


def check(run: Run) -> None:
    if run.runner not in names():
        raise UserError(f"setting 'run.runner' is '{run.runner}', which is no runner: {nearest(run.runner, names())}")
    getattr(_module(run), "check", lambda run: None)(run)


def of(run: Run, jobs: int) -> Runner:
    check(run)
    return _module(run).Runner(run, jobs)


def _module(run: Run) -> Any:
    return importlib.import_module(f"{__name__}.{run.runner}")


def each(runner: Runner, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
    """Number of the job and what it returned or raised, as they finish. No more are under way than the runner does at a
    time: a process that dies takes along all that wait for it."""
    waiting = [(number, TRIES) for number in reversed(range(len(jobs)))]
    under_way: dict[Future[Any], tuple[int, int]] = {}
    try:
        while waiting or under_way:
            while waiting and len(under_way) < runner.count:
                number, tries = waiting.pop()
                under_way[runner.submit(function, *jobs[number])] = number, tries
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                number, tries = under_way.pop(future)
                error = future.exception()
                if isinstance(error, WorkerDied) and tries > 1:
                    waiting.append((number, tries - 1))
                else:
                    yield number, future.result() if error is None else error
    finally:
        for future in under_way:
            future.cancel()
