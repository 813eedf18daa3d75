"""The process that uses Ray for the runner of that name, and what it has the nodes do.

The parent sends jobs through a pipe and gets their outcomes back, all of them as bytes: what they are only the parent
and the nodes know. On the nodes this module is all that has to be there before a job begins.
"""

import functools
import hashlib
import importlib.metadata
import logging
import os
import pickle
import platform
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

from erd.base.errors import RunError, UserError, why
from erd.base.version import VERSION

ANSWER = 5.0  # seconds for the cluster's head to answer
ENDING = 15.0  # seconds for jobs that are stopped, and this process, to end
PACKAGE = Path(__file__).parents[1]


@functools.cache
def what_decides() -> dict[str, str]:
    """Of the bytes of a result, beside the processor."""
    code = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        code.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    python = ".".join(platform.python_version_tuple()[:2])
    libraries = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {"Python": python, **libraries, "erd": f"{VERSION} (code {code.hexdigest()[:8]})"}


@dataclass(frozen=True)
class Asked:
    """What every job is told."""

    address: str
    cpus: float
    gpus: float
    threads: int
    at_once: int | None
    workspace: str = field(default_factory=os.getcwd)
    mark: str = field(default_factory=lambda: f".ray-{uuid4().hex}")  # a file that is in this workspace and no other
    versions: Mapping[str, str] = field(default_factory=what_decides)

    @property
    def marked(self) -> Path:
        return Path(self.workspace, self.mark)

    def refused_here(self) -> str | None:
        """Why a job would not do on this node what it does on the machine that asks."""
        if not self.marked.exists():
            return (
                f"does not see {self.workspace}: it has to be a folder that all nodes share, under the same path; work "
                "in such a folder, or use run.runner=process"
            )
        for what, wanted in self.versions.items():
            if (found := what_decides()[what]) != wanted:
                return (
                    f"has {what} {found} and this machine {wanted}: install the same on both, with the "
                    "same constraints.txt"
                )
        return None

    def slots(self, resources: Mapping[str, float]) -> int:
        """Jobs that a node with these resources does at a time."""
        found = int(resources.get("CPU", 0) / self.cpus)
        if not self.gpus:
            return found
        gpus = int(resources.get("GPU", 0))
        return min(found, gpus * int(1 / self.gpus) if self.gpus < 1 else int(gpus / self.gpus))


def answers(address: str) -> bool:
    """Whether anything is there; Ray would wait for minutes. Of `auto` only Ray knows."""
    host, colon, port = address.rpartition(":")
    try:
        if colon and port.isdecimal():
            socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except (OSError, OverflowError):
        return False
    return True


def drive(handle: int) -> None:
    """Do jobs on the cluster until the parent says so, or has ended."""
    pipe = Connection(handle)
    asked: Asked = pipe.recv()
    try:
        pipe.send(_connect(asked))
    except RunError as refused:
        pipe.send(str(refused))
        return
    except Exception as error:
        pipe.send(
            f"cannot use the Ray cluster at {asked.address}: {why(error)}; this machine has to be one of its nodes "
            "(`ray start --address=…`)"
        )
        return
    jobs = _Jobs(pipe, asked)
    with suppress(EOFError, OSError):
        while (job := pipe.recv()) is not None:
            jobs.add(*job)
    jobs.cancel()
    asked.marked.unlink(missing_ok=True)  # also for a parent that was killed
    os._exit(0)  # the cluster cleans up after us; Ray's own way takes seconds


def _connect(asked: Asked) -> int:
    """Join the cluster, look at all nodes that have room for a job, and say for how many at a time."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address=asked.address, log_to_driver=False, logging_level=logging.CRITICAL)
    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and asked.slots(node["Resources"])}
    if not nodes:
        gpus = f" and {asked.gpus:g} GPUs" * bool(asked.gpus)
        raise RunError(
            f"no node of the Ray cluster at {asked.address} has {asked.cpus:g} CPUs{gpus} for a job; change "
            "run.ray_cpus and run.ray_gpus, or add nodes"
        )

    told = pickle.dumps(asked)

    def look() -> str | None:  # within, so that Ray sends its code: a node without erd can say so
        try:
            import erd.training.ray_driver  # noqa: F401
        except ImportError as error:
            return f"cannot import erd ({error}): install it there as here, with the same constraints.txt"
        return pickle.loads(told).refused_here()  # noqa: S301  # sent by us

    def on(node: str) -> Any:
        return ray.remote(num_cpus=0, max_retries=0)(look).options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        )

    looks = {node: on(node).remote() for node in nodes}
    for node, found in looks.items():
        try:
            refused = ray.get(found)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError:  # it has just gone
            del nodes[node]
            continue
        if refused:
            raise RunError(f"the Ray node {nodes[node]['NodeManagerAddress']} {refused}")
    return sum(asked.slots(node["Resources"]) for node in nodes.values())


class _Jobs:
    """Those under way, and those that wait where no more than `at_once` are wanted; all others wait in Ray."""

    def __init__(self, pipe: Connection, asked: Asked) -> None:
        import ray

        self._pipe, self._asked = pipe, asked
        self._head = ray.get_runtime_context().gcs_address
        self._remote = ray.remote(
            num_cpus=asked.cpus, num_gpus=asked.gpus, max_retries=0, scheduling_strategy="SPREAD"
        )(work)
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._under_way: dict[int, Any] = {}
        self._lock = threading.RLock()

    def add(self, number: int, job: bytes) -> None:
        with self._lock:
            self._waiting.append((number, job))
            self._start()

    def cancel(self) -> None:
        """And wait a little, so that nothing is written any more when this returns."""
        import ray

        with self._lock:
            self._waiting.clear()
            left = list(self._under_way.values())
        for one in left:
            with suppress(Exception):
                ray.cancel(one, force=True)
        if left:
            ray.wait(left, num_returns=len(left), timeout=ENDING / 3)

    def _start(self) -> None:
        while self._waiting and len(self._under_way) < (self._asked.at_once or sys.maxsize):
            number, job = self._waiting.popleft()
            self._under_way[number] = self._remote.remote(job, self._asked)
            self._under_way[number].future().add_done_callback(functools.partial(self._done, number))

    def _done(self, number: int, found: "Future[bytes]") -> None:
        outcome = self._outcome(found)
        with self._lock, suppress(OSError):
            self._under_way.pop(number, None)
            self._pipe.send((number, outcome))
            self._start()

    def _outcome(self, found: "Future[bytes]") -> bytes | None:
        """None where the node or its worker died. Where the whole cluster did, this process ends, and so says it."""
        from ray.exceptions import LocalRayletDiedError, RayTaskError

        error = found.exception()
        if isinstance(error, RayTaskError):  # before the job itself, which tells its errors itself
            return pickle.dumps((False, RunError(f"a node of the Ray cluster cannot do a job: {why(error)}")))
        if isinstance(error, LocalRayletDiedError) or (error is not None and not answers(self._head)):
            os._exit(1)
        return found.result() if error is None else None


# On a node.


def work(job: bytes, asked: Asked) -> bytes:
    """Whether it could be done, and what it returned or raised."""
    try:
        if refused := asked.refused_here():
            raise RunError(f"the Ray node {socket.gethostname()} {refused}")
        if not asked.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks: `auto` is no GPU where none was asked for
        import torch

        os.chdir(asked.workspace)
        torch.set_num_threads(asked.threads)
        function, arguments = pickle.loads(job)  # noqa: S301  # of the run that asks, as in a process of a pool
        return pickle.dumps((True, function(*arguments)))
    except Exception as error:
        if not isinstance(error, UserError):
            error.add_note(f"on a Ray node:\n{traceback.format_exc()}")
        try:
            return pickle.dumps((False, error))
        except Exception:
            return pickle.dumps((False, RuntimeError("".join(traceback.format_exception(error)))))
