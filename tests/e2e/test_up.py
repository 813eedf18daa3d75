"""`make up`: real servers, a real worker, the deployments of prefect.yaml; and nothing left of it afterwards."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pandas
import pictures_of_shapes
import psutil  # type: ignore[import-untyped]
import pytest
from mlflow import MlflowClient
from servers import free_port

from erd.base.errors import RunError
from erd.data import library
from flows import up

ROOT = Path(__file__).parents[2]
# Enough for the alarm to ring.
SMALL = ["pretrain.epochs=10", "finetune.epochs=5", "finetune.members=2", "run.runner=serial"]
LONG = ["pretrain.epochs=2", "finetune.epochs=100000", "finetune.patience=0", "finetune.members=2"]


LOAD = """
import sys, mlflow, pandas
from erd.data import packed
model = mlflow.pyfunc.load_model("models:/erd-digits-near@champion")
images = packed.read(packed.Path(sys.argv[1]) / "data" / "batch.safetensors").images.numpy()
print(model.predict(images)["score"].tolist() == pandas.read_parquet(sys.argv[1] + "/scores.parquet")["score"].tolist())
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The project's own files in another folder, a DVC repository with a remote beside it."""
    workspace = tmp_path / "workspace"
    for name in ("prefect.yaml", "params.yaml", "dvc.yaml", ".gitignore", ".dvcignore", ".dvc/config"):
        (workspace / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, workspace / name)
    with (workspace / ".dvc/config").open("a") as config:
        config.write(f"    remote = storage\n['remote \"storage\"']\n    url = {tmp_path / 'remote'}\n")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    return workspace


class Running:
    """A `flows/up.py` in a workspace, with nothing of this machine's Prefect and MLflow."""

    def __init__(self, workspace: Path, ports: tuple[int, int] | None = None) -> None:
        self.workspace, self.ports = workspace, ports or (free_port(), free_port())
        self.api, self.mlflow = f"http://127.0.0.1:{self.ports[0]}/api", f"http://127.0.0.1:{self.ports[1]}"
        foreign = ("PREFECT", "MLFLOW")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.environment |= {
            "PREFECT_HOME": str(workspace / "prefect"),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "3",
            "PYTHONPATH": str(ROOT),
        }
        options = ["--prefect-port", str(self.ports[0]), "--mlflow-port", str(self.ports[1])]
        words = [sys.executable, "-m", "flows.up", *options]
        self.errors = workspace / "stderr"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                words, cwd=workspace, env=self.environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def printed(self) -> str:
        """stdout, once all is up."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                return "".join(lines)
        raise AssertionError(self.errors.read_text())

    def watch(self, batch: str, overrides: Sequence[str]) -> None:
        """A run by the command that `up` tells, until it has completed."""
        command = [sys.executable, "-m", "prefect", "deployment", "run", "weekly/weekly", "--watch"]
        command += ["-p", f"batch={batch}", "-p", f"overrides={json.dumps(overrides)}"]
        environment = self.environment | {"PREFECT_API_URL": self.api}
        done = subprocess.run(command, cwd=self.workspace, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self, path: str, question: Any = None) -> Any:
        """Of Prefect's API: so much quicker than its command."""
        body = None if question is None else json.dumps(question).encode()
        request = urllib.request.Request(f"{self.api}/{path}", body, {"Content-Type": "application/json"})
        for _ in range(20):
            try:
                with urllib.request.urlopen(request) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # its SQLite is busy; Prefect's own client tries again too
                    raise
                time.sleep(0.5)
        raise AssertionError("the server stays busy")

    def states(self, flow: str = "weekly") -> dict[str | None, str]:
        """Batch → state of its flow run; None for those of the schedule."""
        found = self.ask("flow_runs/filter", {"flows": {"name": {"any_": [flow]}}})
        return {run["parameters"].get("batch"): run["state"]["name"] for run in found}

    def left(self) -> list[psutil.Process]:
        """Processes that `up` started, or that these started, and so on."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # ended meanwhile, or a zombie
                if process.environ().get(up.MARK, "").startswith(f"{self.process.pid}-"):
                    found.append(process)
        return found


@contextmanager
def running(workspace: Path, ports: tuple[int, int] | None = None) -> Iterator[Running]:
    stack = Running(workspace, ports)
    try:
        yield stack
    finally:  # a test that failed
        stack.process.kill()
        stack.process.wait()
        for process in stack.left():
            process.kill()


def wait_for(condition: Callable[[], Any], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)


@pytest.mark.timeout(900)  # a busy machine may need minutes for what takes one
def test_a_deployment_runs_through_the_worker_a_second_one_waits_and_ctrl_c_leaves_nothing(workspace: Path) -> None:
    with running(workspace) as stack:
        printed = stack.printed()
        assert f"http://127.0.0.1:{stack.ports[0]}\n" in printed
        assert f"{stack.mlflow}\n" in printed
        assert "The schedule of prefect.yaml runs the demo digits-near" in printed

        deployed = stack.ask("deployments/name/weekly/weekly")
        [schedule] = deployed["schedules"]
        assert schedule["schedule"] == {"cron": "0 3 * * 1", "timezone": "UTC", "day_or": True}
        assert schedule["active"]
        assert not deployed["paused"]
        assert deployed["global_concurrency_limit"]["limit"] == 1
        assert deployed["concurrency_options"]["collision_strategy"] == "ENQUEUE"
        [pull] = deployed["pull_steps"]
        assert pull["prefect.deployments.steps.set_working_directory"] == {"directory": str(workspace.resolve())}

        assert stack.ask("deployments/name/benchmark/benchmark")["schedules"] == []
        # With labelled images the same deployment is theirs: no demo under the name of a week that nobody has filled.
        library.take_in(pictures_of_shapes.files(workspace / "scans", {"rings": 3}), None, workspace / "library")
        stack.watch("2026-W45", [])
        assert stack.states()["2026-W45"] == "Nothing arrived"
        assert not (workspace / "runs").exists()
        shutil.rmtree(workspace / "library")
        wait_for(lambda: stack.states().get(None) == "Scheduled")

        with ThreadPoolExecutor() as threads:
            first = threads.submit(stack.watch, "2026-W46", SMALL)
            wait_for(lambda: stack.states().get("2026-W46") == "Running")
            second = {"parameters": {"batch": "2026-W47", "overrides": LONG}}
            stack.ask(f"deployments/{deployed['id']}/create_flow_run", second)
            wait_for(lambda: stack.states()["2026-W47"] == "AwaitingConcurrencySlot")
            first.result()
        assert stack.states()["2026-W46"] == "Completed"

        metrics = workspace / "runs" / "2026-W46" / "metrics.json"
        client = MlflowClient(stack.mlflow)
        experiment = client.get_experiment_by_name("digits-near")
        assert experiment is not None
        [run] = client.search_runs([experiment.experiment_id], "attributes.run_name = '2026-W46'")
        assert run.data.tags["flow_run_url"].startswith(stack.api.removesuffix("/api")), "the pages that are there"
        assert run.info.status == "FINISHED"
        shown = f"{stack.mlflow}/get-artifact?path=metrics.json&run_uuid={run.info.run_id}"
        with urllib.request.urlopen(shown) as answer:
            assert answer.read() == metrics.read_bytes(), "what the UI shows"
        assert Path(run.info.artifact_uri).parents[2] == workspace / "mlruns", "also for those who use no server"
        children = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
        assert {child.info.run_name for child in children} == {"pretrain", "member c=2", "member c=3"}
        md5 = json.loads(run.data.tags["data_hashes"])["data/batch.safetensors"]
        assert (workspace.parent / "remote" / "files" / "md5" / md5[:2] / md5[2:]).exists(), "pushed by the flow"
        assert md5 in (workspace / "runs" / "2026-W46" / "data" / "batch.safetensors.dvc").read_text()
        environment = stack.environment | {"MLFLOW_TRACKING_URI": stack.mlflow}
        words = [sys.executable, "-c", LOAD, "runs/2026-W46"]
        assert subprocess.run(words, cwd=workspace, env=environment, capture_output=True).stdout == b"True\n"

        # The alarm rang, and Prefect started what is to follow.
        wait_for(lambda: stack.states("on-alarm").get("2026-W46") == "Completed")
        flagged = pandas.read_parquet(workspace / "runs" / "2026-W46" / "scores.parquet")["flagged"].sum()
        assert len(list((workspace / "runs" / "2026-W46" / "flagged").glob("*.png"))) == flagged

        wait_for(lambda: list((workspace / "runs" / "2026-W47" / "members").glob(".*.safetensors")))
        stack.process.send_signal(signal.SIGINT)
        assert stack.process.wait(timeout=200) == 0, stack.errors.read_text()
        assert stack.left() == []
        for port in stack.ports:
            socket.create_server(("127.0.0.1", port)).close()
    with sqlite3.connect(workspace / "prefect" / "prefect.db") as database:
        states = dict(database.execute("SELECT json_extract(parameters, '$.batch'), state_name FROM flow_run"))
    assert states["2026-W47"] == "Crashed", "the server knows, and starts the next one"


def test_a_server_that_dies_is_named_with_its_last_words_and_takes_all_down(workspace: Path) -> None:
    with running(workspace) as stack:
        wait_for(lambda: len(stack.left()) > 1)  # the Prefect server, and the one that makes MLflow's database
        [server] = [process for process in stack.left() if "prefect" in process.cmdline()]
        server.kill()
        assert stack.process.wait(timeout=200) == 1
        assert stack.left() == []
    assert "up: the Prefect server ended (SIGKILL); the end of logs/prefect-server.log" in stack.errors.read_text()


def test_also_sigkill_leaves_no_servers(workspace: Path) -> None:
    with running(workspace) as stack:
        wait_for(lambda: up.answers(f"{stack.api}/health"))
        stack.process.kill()
        wait_for(lambda: not stack.left())


def test_a_port_in_use_is_one_sentence_with_what_to_do(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(workspace, (free_port(), port)) as stack:
            output, _ = stack.process.communicate(timeout=200)
    assert stack.process.returncode == 1
    assert output == ""
    [line] = stack.errors.read_text().splitlines()
    assert f"port {port} cannot be used: address already in use" in line
    assert "make up MLFLOW_PORT=" in line
    assert not (workspace / "logs").exists(), "nothing was started"


class Recorder(up.Stack):
    """Starts nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.database = ""  # that MLflow's server was told of

    def serve(self, name: str, *words: str) -> None:
        self.started.append(name)
        if name == "MLflow server":
            self.database = self.environment["MLFLOW_BACKEND_STORE_URI"]

    def run(self, name: str, *words: str, fine: str | None = None) -> str:
        self.started.append(name)
        return self.environment.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")

    def wait_for(self, url: str, name: str) -> None:
        pass


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path.endswith("/health") else 404)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


def test_servers_that_run_already_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        stack = Recorder()
        up.start(stack, free_port(), free_port())
        assert stack.started == ["work pool", "deploy", "worker"]
        assert stack.environment["MLFLOW_TRACKING_URI"] == address
        server.shutdown()
    with pytest.raises(RunError, match=f"PREFECT_API_URL is {address}/api, but no server answers there"):
        up.start(stack, free_port(), free_port())


def test_an_address_that_is_ours_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are still set in the terminal in which one looked at an earlier stack."""
    ports = free_port(), free_port()
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{ports[0]}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{ports[1]}")
    stack = Recorder()
    up.start(stack, *ports)
    assert stack.started == ["Prefect server", "database", "MLflow server", "work pool", "deploy", "worker"]
    own = f"sqlite:///{Path('mlflow.db').absolute()}"
    assert stack.database == own, "the database that is used without a server"


def test_postgresql_is_behind_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For real in test_containers.py; here that `make up` hands both addresses on, and runs speak to the servers."""
    database, other = "postgresql://erd@db:5432/mlflow", "postgresql+asyncpg://erd@db:5432/prefect"
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", other)
    stack, ports = Recorder(), (free_port(), free_port())
    up.start(stack, *ports)
    assert stack.started == ["Prefect server", "database", "MLflow server", "work pool", "deploy", "worker"]
    assert stack.database == database
    assert stack.environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == other
    assert stack.environment["MLFLOW_TRACKING_URI"] == f"http://127.0.0.1:{ports[1]}"


def test_a_folder_without_deployments_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="`erd init --labeled DIR` makes a workspace"):
        up.start(Recorder(), free_port(), free_port())
