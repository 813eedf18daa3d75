"""`kill -9` of the flow, a worker or the temporary server, at random moments: the same command again ends in the bytes
of a run that nobody disturbed."""

import random
import time
from pathlib import Path

import pytest
from chains import do
from mlflow import MlflowClient
from runs_to_kill import SERVER, WORKER, Running, kill, until

from erd.runs.configure import settings_for
from erd.runs.folder import RunDir

SETTINGS = ("pretrain.epochs=3", "finetune.epochs=20", "finetune.members=3")
COMMAND = [word for text in SETTINGS for word in ("--set", text)]
RUN = RunDir(Path("runs/digits-near"))
VICTIMS = ("worker", "server", "flow")
# What a run has come to, in order; a kill comes within seconds after one of these.
MARKS = ("", "data/ingest.json", "stages/pretrain.json", "stages/finetune-*.json", "stages/score.json", "report.html")
TIMED = ("stages", "mlflow.json", "report.html", ".mlflow.lock")  # these tell when, and differ
IN_CI = 2  # of the kills; that of a flow is in tests/e2e/test_recovery.py


def results(root: Path) -> dict[str, bytes]:
    found = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(TIMED)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By the bare stages, in this process."""
    run = RunDir(tmp_path_factory.mktemp("undisturbed") / RUN.root)
    do(settings_for(overrides=SETTINGS, runner="serial"), run)
    return results(run.root)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n < IN_CI else pytest.mark.faults) for n in range(20)])
def test_after_a_kill_the_same_command_ends_in_the_bytes_of_an_undisturbed_run(
    seed: int, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    chance, victim = random.Random(seed), VICTIMS[seed % len(VICTIMS)]
    workspace, mark, delay = tmp_path / "workspace", chance.choice(MARKS), chance.uniform(0, 2)
    # The databases of MLflow and Prefect are made, too, while the run is killed.
    own = {"MLFLOW_TRACKING_URI": None, "PREFECT_HOME": str(tmp_path / "prefect")} if seed >= IN_CI else {}
    first = Running(workspace, *COMMAND, **own)
    if victim == "worker":
        until(lambda: first.children(WORKER))
    else:
        until(lambda: list((workspace / RUN.root).glob(mark)) if mark else first.children(SERVER))
    time.sleep(delay)
    kind = {"worker": WORKER, "server": SERVER}.get(victim)
    assert any(map(kill, first.children(kind)[:1] if kind else [first.process.pid])), "there was nobody to kill"
    code = first.ended()
    when = "a worker" if victim == "worker" else mark or "the start"
    print(f"\n{seed}: {victim} killed {delay:.1f} s after {when}; exit {code}")
    assert "Traceback" not in first.said()
    assert len(first.said()) < 4000
    if victim == "server" and code:
        assert "temporary server" in first.said().splitlines()[-1], "one sentence, the last"

    again = Running(workspace, *COMMAND, **own)
    assert again.ended() == 0, again.said()
    found = results(workspace / RUN.root)
    assert sorted(found) == sorted(undisturbed), "no half file, nothing missing"
    assert [name for name, content in found.items() if content != undisturbed[name]] == []
    if own:
        client = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("digits-near")
        assert experiment is not None
        states = [run.info.status for run in client.search_runs([experiment.experiment_id])]
        assert "FINISHED" in states
        assert "RUNNING" not in states, "what was killed is closed"
