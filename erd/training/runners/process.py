"""In processes of this machine, side by side: one a GPU, or as many as there are cores for.

They are started with the first job and shared by all; a killed run takes them along.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import torch

from erd.base.errors import RunError, WorkerDied
from erd.base.processes import cores, end_with
from erd.settings.schema import Run
from erd.training.devices import device
from erd.training.runners import STOPPED

DIED = "a worker process died (killed, or out of memory); run the same command again: what is finished is kept"


class Runner:
    def __init__(self, run: Run, jobs: int) -> None:
        self.run, self.count = run, worker_count(run, jobs)
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._closed = True  # no new processes for a member that is tried again, or only now begins
            pool = self._pool
        if pool is not None:
            if failure[0] is not None:  # cancelled, or another member failed; checkpoints keep what was trained
                for process in list((pool._processes or {}).values()):  # there is no public way to them
                    process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        told: Future[Any] = Future()
        told.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                told.set_exception(RunError(STOPPED))
                return told
            # Spawned, not forked: a fork of a process that has used threads or a GPU is broken.
            pool = self._pool = self._pool or ProcessPoolExecutor(
                self.count,
                get_context("spawn"),
                initializer=_start_worker,
                initargs=(self.run.threads, os.getpid()),
            )
        try:
            job = pool.submit(function, *arguments)
        except BrokenProcessPool as error:  # it broke under another job, which nobody has looked at yet
            self._forget(pool)
            told.set_exception(_died(error))
            return told

        def done(job: "Future[Any]") -> None:
            try:
                told.set_result(job.result())
            except BrokenProcessPool as error:
                self._forget(pool)
                told.set_exception(_died(error))
            except CancelledError:
                told.set_exception(RunError(STOPPED))
            except BaseException as error:
                told.set_exception(error)

        job.add_done_callback(done)
        return told

    def _forget(self, pool: ProcessPoolExecutor) -> None:
        """Another try gets new processes."""
        with self._lock:
            if self._pool is pool:
                self._pool = None


def worker_count(run: Run, jobs: int) -> int:
    """One process a GPU, or cores ÷ threads on the CPU; never more than there are jobs."""
    fitting = torch.cuda.device_count() if device(run).type == "cuda" else max(1, cores() // run.threads)
    return max(1, min(run.workers or fitting, jobs))


def _died(error: BaseException) -> WorkerDied:
    death = WorkerDied(DIED)
    death.__cause__ = error
    return death


def _start_worker(count: int, parent: int) -> None:
    torch.set_num_threads(count)
    end_with(parent)  # a worker of a killed run must not train on beside the workers of the next one
