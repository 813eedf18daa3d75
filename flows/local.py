"""A flow in this process, for the command line: against the server Prefect is set to use, or a temporary one.

Prefect can start a temporary server itself. Ours starts while torch is still being imported, which saves seconds, and
ends with this process also when that is killed; Prefect's would stay for ever.
"""

import _thread
import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from erd.base import endings
from erd.base.addresses import bare
from erd.base.errors import RunError
from erd.base.processes import end_with

# Before Prefect is imported, which is when it reads them.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")  # as prefect.yaml has it (flows/dead_runs.py)

import httpx
from prefect.context import refresh_global_settings_context
from prefect.settings import get_current_settings

NO_PAGES = {"PREFECT_UI_ENABLED": "0"}  # of a temporary server; the flow links to none then
PATIENCE = 180  # seconds for the server to answer, on a busy machine
GRACE = 10.0  # seconds for a flow to end whose server is gone


class TemporaryServer:
    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/api"
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flows.local", str(port), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,  # Ctrl-C is for the flow, which still has something to tell the server
            env=os.environ | NO_PAGES | {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"},
        )
        self.ended, self.gone = False, False  # by us, by somebody else
        atexit.register(self._end)  # after Prefect's threads have sent their last logs

    def wait(self) -> str:
        """Its address, once it answers. From then on the flow ends soon after it."""
        deadline = time.monotonic() + PATIENCE
        with httpx.Client() as client:
            while time.monotonic() < deadline and self.process.poll() is None:
                try:
                    if client.get(f"{self.address}/health").status_code == 200:
                        threading.Thread(target=self._watch, daemon=True).start()
                        return self.address
                except httpx.TransportError:
                    time.sleep(0.1)
        self.log.seek(0)
        said = self.log.read().strip().splitlines()
        raise RunError(f"Prefect's temporary server does not start: {said[-1] if said else 'no word from it'}")

    def _watch(self) -> None:
        """Prefect asks a server that is gone for minutes, and tells at length that it does not answer."""
        while self.process.poll() is None:
            time.sleep(0.2)
        if not self.ended:
            self.gone = True
            endings.end_within(GRACE, f"the temporary server of Prefect was ended from outside; {endings.AGAIN}")
            _thread.interrupt_main()

    def _end(self) -> None:
        self.ended = True
        self.process.terminate()


def weekly(first: Callable[[], dict[str, Any]] = dict, **parameters: Any) -> dict[str, Any]:
    """The weekly flow. `first` is done before it starts, in the time that the server takes: what is wrong with the
    settings is said then; what it returns are further parameters."""
    with connected() as server:  # torch, MLflow and all take seconds, in which the server starts
        parameters |= first()
        from erd.integrations import mlflow_client
        from flows.weekly import weekly as flow

        mlflow_client.prepare()
    try:
        return flow.with_options(on_running=[_take_sigterm])(**parameters)
    except (httpx.TransportError, RuntimeError, KeyboardInterrupt) as error:
        if server is not None and server.gone:
            raise endings.Stopped from error
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, RuntimeError) and "API" not in str(error)):
            raise
        address = bare(get_current_settings().api.url or "")
        raise RunError(
            f"the Prefect server at {address} does not answer; start it, or unset PREFECT_API_URL"
        ) from error


def _take_sigterm(flow: object, flow_run: object, state: object) -> None:
    """Prefect's own way with it ends without a word, and now and then not at all."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, endings.stop)


@contextmanager
def connected() -> Iterator[TemporaryServer | None]:
    """After the block there is a server; the block has the time in which it starts."""
    server = TemporaryServer() if get_current_settings().api.url is None else None
    yield server
    if server is not None:
        os.environ |= NO_PAGES | {"PREFECT_API_URL": server.wait()}  # Prefect's own threads look there too
        refresh_global_settings_context()


def _serve(port: int, parent: int) -> None:
    end_with(parent)
    import uvicorn

    uvicorn.run("prefect.server.api.server:create_app", factory=True, port=port, log_level="error", lifespan="on")


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
