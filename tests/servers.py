"""Real servers for tests, on free ports; ended hard, as machines do."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
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


def wait_for_answer(url: str, process: subprocess.Popen, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while True:
        assert process.poll() is None, "the server ended at once"
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
        server = uvicorn.Server(uvicorn.Config(application, port=port, log_level="warning", lifespan="off"))
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
