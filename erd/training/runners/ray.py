"""On the nodes of a Ray cluster that is running (`run.ray_address`, or Ray's own RAY_ADDRESS).

The workspace is a folder that every node sees under the same path: jobs get paths and leave files, as everywhere. And
every node has the same erd, installed. Both are looked at on all nodes before the first job, and again in each job,
since nodes come and go (erd/training/ray_driver.py).

Ray itself is used in a process of its own, the driver. Where a cluster is gone Ray ends the process that uses it, and
writes pages before. When the driver ends, Ray ends its jobs on all nodes: so a stopped or killed run takes them along.
"""

import importlib.util
import itertools
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from erd.base.errors import RunError, UserError, WorkerDied, why
from erd.settings.schema import Run
from erd.training import ray_driver
from erd.training.ray_driver import ENDING, PACKAGE, Asked, answers
from erd.training.runners import STOPPED

DIED = (
    "a node of the Ray cluster or a worker on it died (killed, or out of memory); run the same command again: what is "
    "finished is kept"
)
PATIENCE = 90.0  # seconds for the driver to have looked at all nodes, on busy machines
GONE_AFTER = "12"  # seconds without the cluster's head after which Ray gives up; 60 are its default


def check(run: Run) -> None:
    """What can be said before anything starts."""
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            "run.runner=ray needs Ray, here and on every node: pip install -c constraints.txt -e '.[ray]' where erd is"
        )
    if (address := address_of(run)).startswith("ray://"):
        raise UserError(
            f"{address} is for Ray's client: start Ray on this machine, so that it is a node of the cluster, and give "
            "the address of the cluster itself, such as 10.0.0.1:6379"
        )
    if run.ray_gpus and run.ray_gpus > 1 and run.ray_gpus != int(run.ray_gpus):
        raise UserError(f"run.ray_gpus is {run.ray_gpus:g}: a job can have a part of one GPU, or whole ones")


def address_of(run: Run) -> str:
    if address := run.ray_address or os.environ.get("RAY_ADDRESS"):
        return address
    raise UserError(
        "run.runner=ray needs a cluster that is running: set run.ray_address, or RAY_ADDRESS, to its address, such as "
        "10.0.0.1:6379, or to auto where it runs on this machine"
    )


def asked_of(run: Run) -> Asked:
    """Without a GPU, unless one is asked for: `auto` on a node is then the CPU."""
    gpus = run.ray_gpus if run.ray_gpus is not None else float(run.device == "cuda")
    return Asked(
        address=address_of(run),
        cpus=run.ray_cpus or run.threads,
        gpus=0.0 if run.device == "cpu" else gpus,
        threads=run.threads,
        at_once=run.workers,
    )


class Runner:
    def __init__(self, run: Run, jobs: int) -> None:
        self.run, self._jobs = run, jobs
        self._driver: Driver | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def count(self) -> int:
        """As many as the nodes have CPUs and GPUs for."""
        return max(1, min(self.run.workers or self._connected().slots, self._jobs))

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._closed = True
        if self._driver is not None:
            self._driver.stop()
            self._driver = None

    def __del__(self) -> None:
        """Of one that was only asked for its count."""
        if self._driver is not None:
            self._driver.stop()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        told: Future[Any] = Future()
        told.set_running_or_notify_cancel()
        try:
            self._connected().submit(pickle.dumps((function, arguments)), told)
        except Exception as error:
            told.set_exception(error)
        return told

    def _connected(self) -> "Driver":
        with self._lock:
            if self._closed:
                raise RunError(STOPPED)
            if self._driver is None:
                asked = asked_of(self.run)
                if not answers(asked.address):
                    raise RunError(_no_cluster(asked.address))
                _mark(asked)
                self._driver = Driver(asked)
            return self._driver


class Driver:
    """The process that uses Ray, and what it was asked to do."""

    def __init__(self, asked: Asked) -> None:
        self.asked, self.slots = asked, 0
        self._waiting: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._ended: str | None = None  # why
        mine, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {ray_driver.__name__} import drive; drive({theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the run, which then stops it
                env=os.environ | {
                    "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
                    "RAY_gcs_rpc_server_reconnect_timeout_s": GONE_AFTER,
                },
            )  # fmt: skip
        self._pipe = Connection(mine.detach())
        try:
            self._pipe.send(asked)
            self.slots = self._look()
        except BaseException:
            self._end(kill=True)
            raise
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _look(self) -> int:
        """How many jobs the nodes do at a time; an error where one of them cannot."""
        with suppress(EOFError, ConnectionError):
            if self._pipe.poll(PATIENCE):
                if isinstance(found := self._pipe.recv(), int):
                    return found
                raise RunError(found)
        raise RunError(_no_cluster(self.asked.address))

    def submit(self, job: bytes, told: "Future[Any]") -> None:
        with self._lock:
            if self._ended is not None:
                raise RunError(self._ended)
            number = next(self._numbers)
            self._waiting[number] = told
            with suppress(OSError):  # it has just ended; whoever reads from it finds out
                self._pipe.send((number, job))

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                number, outcome = self._pipe.recv()
                _tell(self._waiting.pop(number), outcome)
        with self._lock:
            self._ended = self._ended or (
                f"the Ray cluster at {self.asked.address} is gone; start it again, or use --runner process, and give "
                "the same command again: what is finished is kept"
            )
        for told in self._waiting.values():
            told.set_exception(RunError(self._ended))

    def stop(self) -> None:
        """And all that it does."""
        with self._lock:
            self._ended = STOPPED
            with suppress(OSError):
                self._pipe.send(None)
        self._end()
        self._reader.join()

    def _end(self, kill: bool = False) -> None:
        if not kill:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING)
        self._process.kill()
        self._process.wait()
        self.asked.marked.unlink(missing_ok=True)


def _mark(asked: Asked) -> None:
    """By this file the nodes know that they see the same folder, and not another one of the same name."""
    try:
        asked.marked.touch()
    except OSError as error:
        raise RunError(f"cannot write to {asked.workspace}: {why(error)}; check path and rights") from error


def _no_cluster(address: str) -> str:
    return (
        f"no Ray cluster answers at {address}; start it (`ray start`), correct run.ray_address or RAY_ADDRESS, or use "
        "--runner process"
    )


def _tell(told: "Future[Any]", outcome: bytes | None) -> None:
    if outcome is None:
        told.set_exception(WorkerDied(DIED))
        return
    try:
        done, value = pickle.loads(outcome)  # noqa: S301  # of our own job, as from a process of a pool
    except Exception as error:
        done, value = False, error
    if done:
        told.set_result(value)
    else:
        told.set_exception(value)
