"""In this process, one job at a time, at once."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from erd.settings.schema import Run
from erd.training.devices import threads


class Runner:
    def __init__(self, run: Run, jobs: int) -> None:
        self.run, self.count = run, 1
        self._turn = threading.Lock()  # tasks of a flow ask from threads of their own

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """The job is done when it returns. What is no error, such as Ctrl-C, goes to the caller."""
        future: Future[Any] = Future()
        try:
            with self._turn, threads(self.run.threads):
                future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future
