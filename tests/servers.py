"""Real servers for tests, on free ports; ended hard, as machines do."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from erd.review import app, queue
from erd.runs.folder import RunDir


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[None]:
    """With its database and artifacts in `folder`: a second one there goes on with them."""
    words = ["mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", "sqlite:///server.db", "--artifacts-destination", "artifacts"]
    # Jobs are not used here, and are half of the time to start.
    with _server(words, folder, f"http://127.0.0.1:{port}/health", MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"):
        yield


class Prefect:
    """A Prefect server, and what `prefect deploy` and a worker tell it: at once, where those take many seconds."""

    def __init__(self, port: int) -> None:
        self.port, self.api = port, f"http://127.0.0.1:{port}/api"
        self.ask("work_pools/", {"name": "local", "type": "process"})

    def deploy(self, folder: Path, cron: str | None = "0 3 * * 1") -> str:
        """The deployment `weekly` of that folder; there is one of the name, as always. Its id."""
        schedule = {"active": True, "schedule": {"cron": cron, "timezone": "Europe/Zurich"}}
        step = {"prefect.deployments.steps.set_working_directory": {"directory": str(folder)}}
        return self.ask(
            "deployments/",
            {
                "name": "weekly",
                "flow_id": self.ask("flows/", {"name": "weekly"})["id"],
                "entrypoint": "flows/weekly.py:weekly",
                "pull_steps": [step],
                "work_pool_name": "local",
                "schedules": [schedule] if cron else [],
            },
        )["id"]

    def worker_is_there(self) -> None:
        self.ask("work_pools/local/workers/heartbeat", {"name": "w"})

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.api}/{path}", json.dumps(body).encode(), headers)
        for tries in range(10):  # as Prefect's own client does: its database may be busy with its services
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.loads(answer.read() or "null")
            except urllib.error.HTTPError as error:
                if error.code != 503 or tries == 9:
                    raise
                time.sleep(1)


@contextmanager
def prefect_server(folder: Path, port: int) -> Iterator[Prefect]:
    words = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    own = {"PREFECT_HOME": str(folder / "home"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    with _server(words, folder, f"http://127.0.0.1:{port}/api/health", **own):
        yield Prefect(port)


@contextmanager
def _server(words: list[str], folder: Path, health: str, **own: str) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"} | own
    with (folder / "log").open("a") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for_answer(health, process)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_answer(url: str, process: subprocess.Popen | None = None, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while True:
        assert process is None or process.poll() is None, "the server ended at once"
        assert time.monotonic() < deadline, "the server did not answer"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)


@contextmanager
def review_pages() -> Iterator[Callable[..., str]]:
    """What serves a batch's review page from this process and returns its address, as often as it is called."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(run: RunDir, token: str | None = None, **how: Any) -> str:
        port = free_port()
        application = app.make(queue.load(run), port, token, **how)
        threading.Thread(target=application.state.prepare, daemon=True).start()
        server = uvicorn.Server(uvicorn.Config(application, port=port, http="h11", log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.02)
        return f"http://127.0.0.1:{port}"

    yield start
    for server, thread in running:
        server.force_exit = server.should_exit = True
        thread.join()
