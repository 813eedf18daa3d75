"""Jobs on a real Ray cluster of two nodes, on this machine: the bytes of other runners, whatever dies meanwhile."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chains import do, small, whole
from runs_to_kill import alive, until

from erd import cli
from erd.base.errors import RunError, UserError, WorkerDied
from erd.integrations import workspace_checks
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.settings.schema import Run
from erd.training import runners
from erd.training.ray_driver import Asked
from erd.training.runners import ray as of_ray

pytest.importorskip("ray", reason="Ray is not installed: pip install -c constraints.txt -e '.[dev]'")
from ray.cluster_utils import Cluster

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
ROOT = Path(__file__).parents[2]
NODES_SEE = os.pathsep.join(map(str, [ROOT, ROOT / "tests", Path(__file__).parent]))
# Long enough to be killed in the middle.
LONG = ["pretrain.epochs=2", "finetune.epochs=60", "finetune.members=4"]


def as_nodes_are_started(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("PYTHONPATH", NODES_SEE)


@contextlib.contextmanager
def started(nodes: int) -> Iterator[Cluster]:
    """A cluster whose nodes see this folder of tests too."""
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets need a short path
    # Where a head writes its address, whatever place it has: of a machine on which Ray never ran it would fail.
    Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        as_nodes_are_started(patch)
        cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False, "temp_dir": place})
        for _ in range(nodes - 1):
            cluster.add_node(**NODE)
    try:
        yield cluster
    finally:
        cluster.shutdown()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started(nodes=2) as found:
        yield found


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """As the settings ask for it, in a workspace of its own."""
    monkeypatch.chdir(tmp_path)
    return Run(runner="ray", ray_address=cluster.address)


def there(cluster: Cluster) -> list[str]:
    """Settings that ask for it."""
    return ["run.runner=ray", f"run.ray_address={cluster.address}"]


def weights(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(run.members.glob("[0-9]*.safetensors"))}


def _fails(text: str) -> None:
    raise ValueError(text)


def _ends_the_first_time(mark: str) -> int:
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(1)
    return os.getpid()


def _sleeps(name: str) -> None:
    Path(name).write_text(str(os.getpid()))
    time.sleep(600)


def test_jobs_give_results_and_errors_and_a_dead_worker_is_tried_again(run: Run) -> None:
    with runners.of(run, jobs=3) as runner:
        assert runner.count == 2, "a CPU on each of two nodes"
        assert runner.submit(max, 3, 5).result() == 5
        with pytest.raises(ValueError, match=r"so it is") as told:
            runner.submit(_fails, "so it is").result()
        assert "on a Ray node" in told.value.__notes__[0]
        with pytest.raises(WorkerDied, match=r"a node of the Ray cluster or a worker on it died"):
            runner.submit(os._exit, 1).result()
        [(_, worker)] = runners.each(runner, _ends_the_first_time, [("a",)])
        assert isinstance(worker, int)
        assert worker != os.getpid()
        assert len(list(Path().glob(".ray-*"))) == 1
    assert {path.name for path in Path().iterdir()} == {"a"}, "relative paths are those of the workspace"


def test_two_nodes_write_the_bytes_of_this_machine(cluster: Cluster, digits_run: RunDir, tmp_path: Path) -> None:
    other = whole(tmp_path / "run", *there(cluster))
    assert weights(other) == weights(digits_run)
    for name in ("pretrained.safetensors", "scores.parquet", "metrics.json", "figures/learning_curves.png"):
        assert (other.root / name).read_bytes() == (digits_run.root / name).read_bytes(), name


def test_a_run_of_which_a_node_is_killed_ends_with_the_bytes_of_an_undisturbed_one(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the whole flow: `erd run`, which knows a Prefect server that no node knows."""
    (place := tmp_path / "workspace").mkdir()
    words = [word for text in [*LONG, f"run.ray_address={cluster.address}"] for word in ("--set", text)]
    command = [sys.executable, "-m", "erd.cli", "run", "--runner", "ray", *words, "--json"]
    mine = RunDir(place / "runs" / "digits-near")
    as_nodes_are_started(monkeypatch)
    flow = subprocess.Popen(command, cwd=place, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: len(list(mine.members.glob(".*.checkpoint.safetensors"))) == 2)
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    said, errors = flow.communicate(timeout=300)
    cluster.add_node(**NODE)
    assert flow.returncode == 0, errors
    assert json.loads(said.splitlines()[-1])["scenario"] == "digits-near"
    assert "state-dump" not in errors, "Ray's own pages are not for the user"
    undisturbed = RunDir(tmp_path / "undisturbed" / "digits-near")
    do(settings_for(overrides=LONG, runner="serial"), undisturbed)
    assert weights(mine) == weights(undisturbed)
    assert len(weights(mine)) == 4
    for name in ("scores.parquet", "metrics.json"):
        assert (mine.root / name).read_bytes() == (undisturbed.root / name).read_bytes(), name
    assert not list(place.glob(".ray-*"))


def test_when_the_cluster_is_gone_one_sentence_says_so_and_another_runner_goes_on(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")

    def finished() -> list[Path]:
        return list(run.record("").parent.glob("finetune-*.json"))

    with started(nodes=1) as lonely:
        settings = small(*LONG, *there(lonely))
        do(settings, run, "ingest", "pretrain")
        outcome: Future[Any] = Future()

        def finetune() -> None:
            try:
                outcome.set_result(do(settings, run, "finetune"))
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=finetune, daemon=True).start()
        until(lambda: finished() and list(run.members.glob(".*.checkpoint.safetensors")))
    error = outcome.exception(timeout=120)
    assert isinstance(error, RunError)
    before = finished()
    assert 0 < len(before) < 4, "in the middle"
    elsewhere = small(*LONG)
    reused = [done.reused for done in do(elsewhere, run, "finetune")]
    assert reused.count(True) == len(before), "nothing is lost"
    do(elsewhere, other := RunDir(tmp_path / "other"), "ingest", "pretrain", "finetune")
    assert weights(run) == weights(other)


def test_a_runner_whose_cluster_is_gone_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with started(nodes=1) as lonely:
        address = str(lonely.address)
        asked = Run(runner="ray", ray_address=address)
        with runners.of(asked, jobs=2) as runner:
            running = runner.submit(_sleeps, "one")
            until(Path("one").exists)
            lonely.shutdown()
            assert isinstance(running.exception(timeout=60), RunError)
            again = runner.submit(_sleeps, "two").exception(timeout=60)
            assert str(again) == (
                f"the Ray cluster at {address} is gone; start it again, or use --runner process, and give the "
                "same command again: what is finished is kept"
            )
    with runners.of(asked, jobs=1) as runner, pytest.raises(RunError, match=r"no Ray cluster answers at") as refused:
        runner.submit(pow, 2, 2).result()
    assert address in str(refused.value)
    assert {path.name for path in Path().iterdir()} == {"one"}


def test_the_bench_has_the_same_figures(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def figures(*words: str) -> list[tuple[Any, ...]]:
        options = ["--method", "erd", "--method", "max-softmax", "--seeds", "1", "--json"]
        fast = ["--set", "pretrain.epochs=3", "--set", "finetune.epochs=2", "--set", "finetune.members=2"]
        assert cli.main(["bench", *options, *fast, *words]) == 0
        rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
        return [(row["method"], row["auroc"], row["holdout_tnr95"]) for row in rows]

    remote = figures("--runner", "ray", "--set", f"run.ray_address={run.ray_address}")
    assert remote == figures("--runner", "serial", "--folder", "other")
    assert len(remote) == 2


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_a_run_that_is_ended_takes_its_jobs_along(run: Run, signal: str) -> None:
    code = (
        "import signal, test_ray; from erd.training import runners; from erd.settings.schema import Run\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background a shell has it ignored
        f"with runners.of(Run(runner='ray', ray_address='{run.ray_address}'), 1) as runner:\n"
        "    runner.submit(test_ray._sleeps, 'pid').result()"
    )
    environment = os.environ | {"PYTHONPATH": NODES_SEE}
    asking = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    until(lambda: Path("pid").exists() and Path("pid").read_text())
    job = int(Path("pid").read_text())
    assert alive(job)
    asking.send_signal(getattr(__import__("signal"), signal))
    asking.wait(60)
    until(lambda: not alive(job), 30)
    until(lambda: not list(Path().glob(".ray-*")), 30)


def test_a_node_that_would_do_something_else_is_refused_before_the_first_job(run: Run) -> None:
    asked = of_ray.asked_of(run)
    asked.marked.touch()
    with pytest.raises(RunError, match=r"has torch .* and this machine 1.0: install the same on both"):
        of_ray.Driver(replace(asked, versions={"torch": "1.0"}))
    unmarked = replace(asked, mark=".ray-of-another-folder")
    with pytest.raises(RunError, match=r"does not see .*: it has to be a folder that all nodes share"):
        of_ray.Driver(unmarked)
    with pytest.raises(RunError, match=r"no node of the Ray cluster at .* has 8 CPUs for a job; change run.ray_cpus"):
        assert runners.of(run.model_copy(update={"ray_cpus": 8.0}), 1).count
    assert not list(Path().iterdir())


def test_what_is_missing_is_one_sentence_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(UserError, match=r"set run.ray_address, or RAY_ADDRESS, to its address, such as 10.0.0.1:6379"):
        settings_for(runner="ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    settings_for(runner="ray")
    Path("params.yaml").write_text("run: {runner: ray}\n")
    assert any("no Ray cluster answers at 127.0.0.1:1; start it" in text for text in workspace_checks.problems())
    with pytest.raises(UserError, match=r"ray://10.0.0.1:10001 is for Ray's client: start Ray on this machine"):
        settings_for(runner="ray", overrides=["run.ray_address=ray://10.0.0.1:10001"])
    with pytest.raises(UserError, match=r"run.ray_gpus is 1.5: a job can have a part of one GPU, or whole ones"):
        settings_for(runner="ray", overrides=["run.ray_gpus=1.5"])
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"run.runner=ray needs Ray, here and on every node: .*'\.\[ray\]'"):
        settings_for(runner="ray")


def test_a_job_asks_for_its_cpus_and_for_gpus_only_where_they_are_wanted() -> None:
    def asked(**more: Any) -> Asked:
        return of_ray.asked_of(Run(runner="ray", ray_address="auto", **more))

    assert (asked().cpus, asked().gpus) == (1, 0)
    assert (asked(threads=4).cpus, asked(threads=4, ray_cpus=0.5).cpus) == (4, 0.5)
    assert [asked(device=kind).gpus for kind in ("auto", "cpu", "cuda")] == [0, 0, 1]
    assert asked(device="cuda", ray_gpus=0.25).gpus == 0.25
    assert asked(device="cpu", ray_gpus=0.25).gpus == 0
    node = {"CPU": 16.0, "GPU": 2.0}
    assert asked(threads=3).slots(node) == 5
    assert asked(device="cuda").slots(node) == 2
    assert asked(device="cuda", ray_gpus=0.3).slots(node) == 6, "no job has a part of two GPUs"
    assert asked(device="cuda", ray_gpus=2.0).slots(node) == 1
    assert asked(device="cuda").slots({"CPU": 16.0}) == 0
