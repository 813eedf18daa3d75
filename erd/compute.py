"""Devices, threads and worker processes: who computes where.

Member i goes to GPU i mod n where there are GPUs. On the CPU every member has `run.threads` threads, whatever the
number of workers: the same thread count is the same bytes, and busy processes that share cores are many times slower.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

from erd.errors import RunError, UserError
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


def run_all(run: Run, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
    """`function(*job)` for every job with the runner of the settings; results in the order of the jobs."""
    if run.runner == "serial":
        with threads(run.threads):
            return [function(*job) for job in jobs]
    # Spawned, not forked: a fork of a process that has used threads or a GPU is broken.
    pool = ProcessPoolExecutor(
        worker_count(run, len(jobs)),
        get_context("spawn"),
        initializer=_start_worker,
        initargs=(run.threads, os.getpid()),
    )
    try:
        futures = [pool.submit(function, *job) for job in jobs]
        for future in as_completed(futures):
            future.result()  # the first failure ends the rest
        return [future.result() for future in futures]
    except BrokenProcessPool as error:
        raise RunError(
            "a worker process died (killed, or out of memory); run the same command again: what is finished is kept"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(count: int, parent: int) -> None:
    torch.set_num_threads(count)

    def die_with_parent() -> None:
        """A worker of a killed run must not train on beside the workers of the next one."""
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=die_with_parent, daemon=True).start()
