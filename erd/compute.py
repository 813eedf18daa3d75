"""Devices, threads and worker processes: who computes where.

Member i goes to GPU i mod n where there are GPUs. On the CPU every member has `run.threads` threads, whatever the
number of workers: the same thread count is the same bytes, and busy processes that share cores are many times slower.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

from erd import lifeline
from erd.errors import RunError, UserError, WorkerDied
from erd.params import Run


def cores() -> int:
    """Cores this process may use, which in a container or under a scheduler are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device(run: Run, member: int = 0) -> torch.device:
    gpus = torch.cuda.device_count()
    if run.device == "cuda" and not gpus:
        raise UserError("run.device is cuda but torch sees no GPU; set run.device=cpu or auto")
    if run.device == "cpu" or not gpus:
        return torch.device("cpu")
    _deterministic()
    return torch.device("cuda", member % gpus)


def worker_count(run: Run, jobs: int) -> int:
    """One process a GPU, or cores ÷ threads on the CPU; never more than there are jobs."""
    fitting = torch.cuda.device_count() if device(run).type == "cuda" else max(1, cores() // run.threads)
    return max(1, min(run.workers or fitting, jobs))


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """So many CPU threads in this block; None means all cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _deterministic() -> None:
    """GPU kernels that give the same bytes every time; the CPU's do so anyway."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)


class Workers:
    """The processes that train members, started once and shared by all of them; or this process, one job at a time.

    with Workers(settings.run, jobs=5) as workers:
        workers.call(function, *arguments)   # waits for the result; call it from as many threads as there are jobs
    """

    def __init__(self, run: Run, jobs: int) -> None:
        self.run, self.count = run, worker_count(run, jobs)
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *failure: object) -> None:
        self._closed = True  # no new processes for a member that is tried again
        if self._pool is not None:
            if failure[0] is not None:  # cancelled, or another member failed; checkpoints keep what was trained
                for process in list((self._pool._processes or {}).values()):
                    process.terminate()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.run.runner == "serial":
            with self._lock, threads(self.run.threads):
                return function(*arguments)
        with self._lock:
            if self._closed:
                raise RunError("the run was stopped; run the same command again: what is finished is kept")
            # Spawned, not forked: a fork of a process that has used threads or a GPU is broken.
            pool = self._pool = self._pool or ProcessPoolExecutor(
                self.count,
                get_context("spawn"),
                initializer=_start_worker,
                initargs=(self.run.threads, os.getpid()),
            )
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            with self._lock:
                if self._pool is pool:
                    self._pool = None  # another try gets new processes
            raise WorkerDied(
                "a worker process died (killed, or out of memory); run the same command again: what is finished is kept"
            ) from error


def _start_worker(count: int, parent: int) -> None:
    torch.set_num_threads(count)
    lifeline.end_with(parent)  # a worker of a killed run must not train on beside the workers of the next one
