"""What goes wrong in the middle of a run, and how the same command, or `erd sync`, mends it."""

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chains import do
from mlflow import MlflowClient
from servers import free_port, mlflow_server

from erd.integrations import mlflow_client
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from flows import local

ROOT = Path(__file__).parents[2]
RUN = RunDir(Path("runs/digits-near"))
SLOW = ["--set", "pretrain.epochs=5", "--set", "finetune.epochs=40", "--set", "finetune.members=3"]


def erd(*words: str, cwd: Path, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "erd.cli", *words, "--json"]
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {"said": done.stderr}


def wait_for(condition: Callable[[], Any], seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def members(workspace: Path) -> dict[str, tuple[bytes, int]]:
    found = (workspace / RUN.root / "members").glob("[0-9].safetensors")
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of its own, killed with SIGKILL while it fine-tunes: the flow alone, not its process group."""
    place = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "erd.cli", "run", *SLOW, "--set", "run.workers=1"]
    # Without a server to use: its own temporary one must not stay either.
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    victim = subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    folder = place / RUN.root / "members"
    wait_for(lambda: members(place) and list(folder.glob(".*.checkpoint.safetensors")))
    started = children(victim.pid)
    assert any("flows.local" in words for words in started.values()), "Prefect's temporary server"
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    wait_for(lambda: not any(alive(pid) for pid in started), 60)
    return place


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same work by the bare stages."""
    place = tmp_path_factory.mktemp("undisturbed")
    settings = settings_for(overrides=SLOW[1::2], runner="serial")
    with contextlib.chdir(place):
        do(settings, RUN)
    return place


def children(parent: int) -> dict[int, str]:
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    return {int(pid): words for pid, ppid, words in rows if int(ppid) == parent}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_flow_goes_on_where_it_was_and_ends_with_the_bytes_of_an_undisturbed_one(
    workspace: Path, undisturbed: Path
) -> None:
    before = members(workspace)
    assert 0 < len(before) < 3, "killed in the middle"
    record = json.loads((workspace / RUN.tracked).read_text())
    assert record["status"] == "RUNNING"
    result = erd("run", *SLOW, cwd=workspace)
    for name, member in before.items():
        assert members(workspace)[name] == member, "not trained again"
        assert f"finetune-{name[0]}: unchanged, kept" in result["said"]
    same(workspace, undisturbed)
    client = mlflow_client.connect()
    assert client.get_run(record["run_id"]).info.status == "KILLED", "closed by the next run"
    assert client.get_run(result["mlflow_run_id"]).info.status == "FINISHED"


def test_a_deleted_member_is_trained_again(undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = shutil.copytree(undisturbed, tmp_path / "workspace")
    name, *others = sorted(members(workspace))
    (workspace / RUN.root / "members" / name).unlink()
    caplog.set_level(logging.INFO, "erd")
    with contextlib.chdir(workspace):
        local.weekly(overrides=SLOW[1::2], runner="serial")
    assert f"finetune-{name[0]}: done" in caplog.messages
    assert all(f"finetune-{other[0]}: unchanged, kept" in caplog.messages for other in others)
    same(workspace, undisturbed)


def same(one: Path, other: Path) -> None:
    for name in ("scores.parquet", "metrics.json", "figures/learning_curves.png"):
        assert (one / RUN.root / name).read_bytes() == (other / RUN.root / name).read_bytes(), name
    for name, (weights, _) in members(one).items():
        assert members(other)[name][0] == weights, name


def test_a_run_outlives_its_mlflow_server_and_is_sent_later(tmp_path: Path) -> None:
    port = free_port()
    address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    client = MlflowClient(*address.values())
    with mlflow_server(tmp_path / "server", port):
        running = subprocess.Popen(
            [sys.executable, "-m", "erd.cli", "run", *SLOW, "--json"],
            cwd=tmp_path, env=os.environ | address, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for(lambda: list((tmp_path / RUN.root / "members").glob(".*.checkpoint.safetensors")))
    said, told = running.communicate()
    assert running.returncode == 0, told
    assert "does not answer; the run goes on" in told
    result = json.loads(said.splitlines()[-1])
    assert result["model_version"] is None
    assert (tmp_path / RUN.report).exists()

    with mlflow_server(tmp_path / "server", port):
        assert client.get_run(result["mlflow_run_id"]).info.status == "RUNNING"
        sent = erd("sync", str(RUN.root), cwd=tmp_path, **address)
        assert sent["model_version"] == 1
        assert erd("sync", str(RUN.root), cwd=tmp_path, **address)["model_version"] == 1, "twice is once"
        run = client.get_run(sent["mlflow_run_id"])
        assert (run.info.run_id, run.info.status) == (result["mlflow_run_id"], "FINISHED")
        assert run.data.metrics["detection/auroc"] == pytest.approx(result["auroc"], rel=1e-3)
        champion = client.get_model_version_by_alias("erd-digits-near", "champion")
        assert champion.run_id == run.info.run_id


def test_sync_of_what_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "erd.cli", "sync", "runs/nowhere"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("erd: runs/nowhere/settings.json is missing")
