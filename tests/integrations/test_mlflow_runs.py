"""MLflow as the run folder tells it: against the embedded database, and a real server that comes and goes."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from servers import free_port, mlflow_server

from erd.base.locks import alone_in
from erd.integrations import mlflow_runs
from erd.integrations.mlflow_client import connect, experiment_id, location, milliseconds
from erd.integrations.mlflow_runs import Tracker
from erd.reporting import wording
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import Ingested, Metrics, Sensitivity
from erd.settings import schema
from erd.settings.schema import Settings
from erd.weekly.chain import BY_NAME
from erd.weekly.chain import run as do
from erd.weekly.stages.finetune import finetune, member_labels

SMALL = ["finetune.members=2", "pretrain.epochs=3", "finetune.epochs=2", "run.runner=serial"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(autouse=True)
def here(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One embedded database for all tests, since making it takes seconds; each test has an experiment of its own."""
    monkeypatch.chdir(workspace)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "runs" / "2026-W46")


@pytest.fixture
def tracker(run: RunDir) -> Tracker:
    return Tracker(run)


def settings(run: RunDir, *more: str) -> Settings:
    experiment = run.root.parent.parent.name  # the test's own
    return configure.resolve(schema.load(None, [*SMALL, f"track.experiment={experiment}", *more]))


def stages(chosen: Settings, run: RunDir, *names: str) -> None:
    for name in names:
        do(BY_NAME[name], chosen, run)


def train(chosen: Settings, run: RunDir) -> None:
    stages(chosen, run, "ingest", "pretrain", "finetune")


def conclude(chosen: Settings, run: RunDir) -> None:
    stages(chosen, run, "score", "evaluate")


def in_mlflow(run: RunDir) -> tuple[list[Run], list[Run]]:
    """Parents and children in the test's experiment, the oldest first."""
    client = MlflowClient(location())
    experiment = client.get_experiment_by_name(run.root.parent.parent.name)
    found = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"]) if experiment else []
    children = [each for each in found if "mlflow.parentRunId" in each.data.tags]
    return [each for each in found if each not in children], children


def curve(child: Run, metric: str) -> list[float]:
    history = MlflowClient(location()).get_metric_history(child.info.run_id, metric)
    assert [point.step for point in history] == list(range(1, len(history) + 1))
    assert all(child.info.start_time <= point.timestamp <= child.info.end_time for point in history)
    return [point.value for point in history]


def test_a_run_is_told_with_its_children_their_times_and_their_curves(run: RunDir, tracker: Tracker) -> None:
    chosen = settings(run)
    run_id = tracker.begin(chosen, {"prefect.flow_run": "f-1"})
    train(chosen, run)
    assert tracker.send()
    [parent], children = in_mlflow(run)
    assert (parent.info.run_id, parent.info.status, parent.info.run_name) == (run_id, "RUNNING", "2026-W46")
    assert len(children) == 3, "children are there before the run has ended"

    conclude(chosen, run)
    assert tracker.end("FINISHED", hashes={"data/batch.safetensors": "d" * 32})
    [parent], children = in_mlflow(run)
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["prefect.flow_run"] == "f-1"
    assert parent.data.tags["scenario"] == "digits-near"
    assert parent.data.params["finetune.epochs"] == "2"
    assert not [name for name in parent.data.params if name.startswith(("run.", "data.root"))]

    names = [Ingested.read(run).classes[label] for label in sorted(member_labels(chosen, run))]
    assert {child.info.run_name for child in children} == {"pretrain", *(f"member c={name}" for name in names)}
    assert all(child.data.tags["mlflow.parentRunId"] == run_id for child in children)
    assert all(child.info.status == "FINISHED" for child in children)
    assert all(parent.info.start_time <= child.info.start_time <= child.info.end_time for child in children)
    for child in children:
        stage = child.data.tags["stage"]
        net = run.pretrained if stage == "pretrain" else run.member(int(stage.partition("-")[2]))
        history = json.loads(run.history(net).read_text())
        assert curve(child, "accuracy/val") == [epoch["val_accuracy"] for epoch in history]
        assert curve(child, "loss/train") == [epoch["loss"] for epoch in history]
        assert child.data.metrics["best/epoch"] in (1, 2, 3)
        assert child.data.params["lr"] == "0.001"
    members = [child for child in children if child.info.run_name != "pretrain"]
    curves = {
        "accuracy/train",
        "accuracy/val",
        "accuracy/batch_known",
        "accuracy/batch_novel",
        "loss/train",
        "loss/val",
    }
    assert all(curves < set(child.data.metrics) for child in members)

    metrics = json.loads(run.metrics.read_text())
    sent = parent.data.metrics
    assert sent["detection/auroc"] == float(f"{metrics['auroc']:.4g}"), "as many digits as a person reads"
    assert sent["batch/flagged"] == metrics["flagged"]
    assert sent["batch/alarm_p"] == pytest.approx(metrics["alarm_p"], rel=1e-3)
    assert sent["holdout/tnr95"] == pytest.approx(metrics["holdout_tnr95"], rel=1e-3)
    for name in ("p20", "p50", "first", "found_20", "found_50", "found_100"):
        assert sent[f"detection/{name}"] == pytest.approx(metrics[name], rel=1e-3)
        assert sent[f"holdout/{name}"] == pytest.approx(metrics[f"holdout_{name}"], rel=1e-3)
    assert sent["scores/entropy_first"] == pytest.approx(metrics["entropy_first"], rel=1e-3)
    assert sent["scores/max_softmax_auroc"] == pytest.approx(metrics["max_softmax_auroc"], rel=1e-3)
    assert sent["classifier/val_accuracy"] == pytest.approx(metrics["val_accuracy"], rel=1e-3)
    sections = sorted({name.partition("/")[0] for name in sent})
    assert sections == ["batch", "classifier", "detection", "holdout", "images", "scores"], "as MLflow lists them"
    assert wording.headline(Metrics.read(run)) in parent.data.tags["mlflow.note.content"]

    assert parent.inputs is not None
    inputs = {each.dataset.name: each for each in parent.inputs.dataset_inputs}
    assert inputs["2026-W46-batch"].dataset.digest == "d" * 32
    assert json.loads(parent.data.tags["data_hashes"]) == {"data/batch.safetensors": "d" * 32}
    assert len(inputs["2026-W46-labeled"].dataset.digest) == 36
    assert {each.tags[0].value for each in inputs.values()} == {"training", "batch", "holdout"}
    client = MlflowClient(location())
    listed = {file.path for file in client.list_artifacts(run_id or "")}
    assert {"scores.parquet", "metrics.json", "quarantine.csv", "figures"} <= listed
    copy = client.download_artifacts(run_id or "", "scores.parquet")
    assert Path(copy).read_bytes() == run.scores.read_bytes()
    assert len(client.list_artifacts(run_id or "", "figures")) == 5


def test_figures_nobody_knows_are_left_out(run: RunDir, tracker: Tracker) -> None:
    chosen = settings(run)
    tracker.begin(chosen)
    train(chosen, run)
    conclude(chosen, run)
    metrics = json.loads(run.metrics.read_text())
    run.metrics.write_text(json.dumps(metrics | {"auroc": None, "holdout_auroc": None}))
    assert tracker.end("FINISHED")
    [parent], _ = in_mlflow(run)
    assert not [name for name in parent.data.metrics if name in ("detection/auroc", "holdout/auroc")]
    assert "AUROC" not in parent.data.tags["mlflow.note.content"]


def test_from_which_share_a_new_class_is_noticed_is_a_metric_whenever_somebody_asks(
    run: RunDir, tracker: Tracker
) -> None:
    chosen = settings(run)
    tracker.begin(chosen)
    train(chosen, run)
    conclude(chosen, run)
    assert tracker.end("FINISHED")
    assert "batch/noticed_from" not in in_mlflow(run)[0][0].data.metrics, "nobody has asked yet"
    Sensitivity(0.05, []).write(run)
    assert mlflow_runs.send_sensitivity(run)
    assert in_mlflow(run)[0][0].data.metrics["batch/noticed_from"] == 0.05


@pytest.mark.parametrize("lost", [{"sent": []}, {"sent": [], "run_id": None}], ids=["what was sent", "the run's id"])
def test_what_is_sent_twice_is_there_once(run: RunDir, tracker: Tracker, lost: dict) -> None:
    """A process killed, or an answer lost, between MLflow's deed and our note of it."""
    chosen = settings(run)
    tracker.begin(chosen)
    train(chosen, run)
    conclude(chosen, run)
    assert tracker.end("FINISHED")
    before = in_mlflow(run)
    run.tracked.write_text(json.dumps(json.loads(run.tracked.read_text()) | lost))
    assert mlflow_runs.sync(run)
    after = in_mlflow(run)
    assert [[each.info.run_id for each in runs] for runs in after] == [
        [each.info.run_id for each in runs] for runs in before
    ]
    for was, now in zip([*before[0], *before[1]], [*after[0], *after[1]], strict=True):
        assert now.data.metrics == was.data.metrics
        assert (now.info.start_time, now.info.end_time) == (was.info.start_time, was.info.end_time)
        assert str(now.inputs) == str(was.inputs)
    assert len(curve(after[1][0], "accuracy/val")) == 3


def test_a_database_that_does_not_know_the_run_gets_all_of_it(run: RunDir, tracker: Tracker) -> None:
    chosen = settings(run)
    tracker.begin(chosen)
    train(chosen, run)
    tracker.send()
    elsewhere = {"run_id": "0" * 32, "key": "another"}
    run.tracked.write_text(json.dumps(json.loads(run.tracked.read_text()) | elsewhere))
    assert tracker.end("FAILED")
    parents, children = in_mlflow(run)
    assert sorted(child.data.tags["mlflow.parentRunId"] for child in children) == sorted(
        parent.info.run_id for parent in parents for _ in range(3)
    )


def test_a_run_thrown_away_in_the_ui_stays_away(run: RunDir, tracker: Tracker) -> None:
    chosen = settings(run)
    run_id = tracker.begin(chosen)
    MlflowClient(location()).delete_run(run_id or "")
    assert tracker.end("FAILED")
    assert in_mlflow(run) == ([], [])


def test_a_failed_run_ends_failed_with_its_reason_and_without_results_of_an_earlier_one(
    run: RunDir, tracker: Tracker
) -> None:
    first = settings(run)
    tracker.begin(first)
    train(first, run)
    conclude(first, run)
    tracker.end("FINISHED")
    second = settings(run, "finetune.lr=0.01")
    tracker.begin(second)
    finetune(second, run, member_labels(second, run)[:1])
    assert tracker.end("FAILED", "the disk is full")
    [_, parent], children = in_mlflow(run)
    assert parent.info.status == "FAILED"
    assert parent.data.tags["mlflow.note.content"] == "the disk is full"
    assert parent.data.metrics == {}
    own = [child for child in children if child.data.tags["mlflow.parentRunId"] == parent.info.run_id]
    assert [child.data.params["lr"] for child in own] == ["0.01"], "only what this run trained"


def test_the_next_run_in_a_folder_is_a_run_of_its_own_with_what_it_reused(run: RunDir, tracker: Tracker) -> None:
    chosen = settings(run)
    ids = []
    for _ in range(2):
        ids.append(tracker.begin(chosen))
        train(chosen, run)
        conclude(chosen, run)
        assert tracker.end("FINISHED")
    parents, children = in_mlflow(run)
    assert [parent.info.run_id for parent in parents] == ids
    assert parents[0].data.metrics == parents[1].data.metrics
    reused = [child.data.tags.get("reused") for child in children if child.data.tags["mlflow.parentRunId"] == ids[1]]
    assert reused == ["true"] * 3


def test_a_killed_run_is_closed_at_the_next_start_there_or_beside_it_and_a_living_one_is_not(
    run: RunDir, tracker: Tracker
) -> None:
    chosen = settings(run)
    dead, alive = (RunDir(run.root.with_name(name)) for name in ("dead", "alive"))
    with alone_in(run.root), alone_in(alive.root):
        tracker.begin(chosen)
        Tracker(alive).begin(chosen)
        Tracker(dead).begin(chosen)
        train(chosen, dead)
        trained = time.time() * 1000
        tracker.begin(chosen)
    parents, children = in_mlflow(run)
    status = {(parent.info.run_name, parent.info.status) for parent in parents}
    assert status == {("2026-W46", "KILLED"), ("2026-W46", "RUNNING"), ("dead", "KILLED"), ("alive", "RUNNING")}
    killed = next(parent for parent in parents if parent.info.run_name == "dead")
    assert killed.info.end_time <= trained, "it ended when it last wrote something"
    assert len(children) == 3, "what the killed run had trained is there"
    assert not mlflow_runs.sync(RunDir(run.root.with_name("never begun")))
    assert mlflow_runs.sync(alive)
    assert json.loads(alive.tracked.read_text())["status"] == "KILLED"


def test_a_dead_run_is_closed_without_a_next_one_and_a_living_one_is_not(run: RunDir) -> None:
    chosen = settings(run)
    dead, alive = (RunDir(run.root.with_name(name)) for name in ("died", "lives"))
    with alone_in(alive.root), alone_in(dead.root):
        Tracker(alive).begin(chosen)
        Tracker(dead).begin(chosen)
    with alone_in(alive.root):
        assert mlflow_runs.close_dead(run.root.parent) == [dead]
        assert mlflow_runs.close_dead(run.root.parent) == [], "and only once"
    parents, _ = in_mlflow(run)
    assert {parent.info.run_name: parent.info.status for parent in parents} == {"died": "KILLED", "lives": "RUNNING"}


def test_an_experiment_that_another_run_makes_at_the_same_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect()
    made = experiment_id(client, "made twice")
    look = client.get_experiment_by_name
    answers = iter([None])
    monkeypatch.setattr(client, "get_experiment_by_name", lambda name: next(answers, look(name)))
    assert experiment_id(client, "made twice") == made


def test_the_commit_of_a_workspace_is_recorded(
    run: RunDir, tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", location())
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q", str(tmp_path)], check=True)
    subprocess.run([*git, "-C", str(tmp_path), "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    monkeypatch.chdir(tmp_path)
    tracker.begin(settings(run))
    tracker.end("KILLED")
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    [parent], _ = in_mlflow(run)
    assert parent.data.tags["mlflow.source.git.commit"] == head


def test_without_a_server_a_run_goes_on_and_is_sent_later_with_its_first_start(
    run: RunDir, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = settings(run)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    began = time.time()
    assert tracker.begin(chosen) is None, "killed, and begun again"
    killed = json.loads(run.tracked.read_text())
    assert tracker.begin(chosen) is None
    assert not tracker.send()
    assert time.time() - began < 15
    started = time.time() * 1000
    train(chosen, run)
    conclude(chosen, run)
    assert not tracker.end("FINISHED")
    assert mlflow_runs.address(run) is None
    assert len([each for each in caplog.records if each.name == "erd"]) == 1, "said once"
    assert f"erd sync {run.root}" in caplog.text

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert mlflow_runs.sync(run)
    parents, children = in_mlflow(run)
    assert [parent.info.status for parent in parents] == ["KILLED", "FINISHED"]
    assert parents[0].info.start_time == milliseconds(killed["started"])
    assert parents[1].info.start_time <= started
    assert len(children) == 3
    assert "detection/auroc" in parents[1].data.metrics
    assert mlflow_runs.sync(run), "and nothing more to send"
    assert len(in_mlflow(run)[0]) == 2


def test_each_tracker_has_its_own_pause_and_its_own_word_about_it(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen, (first, second) = settings(run), (Tracker(RunDir(run.root.with_name(name))) for name in ("one", "two"))
    away = f"http://127.0.0.1:{free_port()}"
    with alone_in(first.run.root), alone_in(second.run.root):
        with monkeypatch.context() as down:
            down.setenv("MLFLOW_TRACKING_URI", away)
            assert first.begin(chosen) is None
        assert second.begin(chosen), "the server is back, and this one asks at once"
        assert not first.send(), "this one does not for a minute"
        assert [parent.info.run_name for parent in in_mlflow(run)[0]] == ["two"]
        with monkeypatch.context() as down:
            down.setenv("MLFLOW_TRACKING_URI", away)
            assert not second.send()
        assert caplog.text.count(f"{away} does not answer") == 2, "each says so once"
        assert first.end("FAILED"), "the end is told in any case"
        assert first.send(), "and the pause is over"
        assert not second.send()
        assert Tracker(second.run).send(), "a new one has no pause"
    assert {parent.info.run_name: parent.info.status for parent in in_mlflow(run)[0]} == {
        "one": "FAILED",
        "two": "RUNNING",
    }


def test_a_database_server_that_is_down_costs_no_minutes(
    run: RunDir, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgresql://127.0.0.1:{free_port()}/mlflow")
    began = time.monotonic()
    assert tracker.begin(settings(run)) is None
    assert time.monotonic() - began < 10


def test_a_refusal_of_mlflow_is_told_and_ends_no_run(
    run: RunDir, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://here")
    assert tracker.begin(settings(run)) is None
    assert "MLflow did not take all of" in caplog.text


def test_a_server_that_stops_in_the_middle_gets_the_rest_later_and_everything_once(
    run: RunDir, tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    chosen = settings(run)
    with mlflow_server(tmp_path / "server", port):
        run_id = tracker.begin(chosen)
        stages(chosen, run, "ingest", "pretrain")
        assert tracker.send()
        page = f"http://127.0.0.1:{port}/#/experiments/1/runs/{run_id}"
        assert mlflow_runs.address(run) == f"{page}?workflowType=machine_learning"
    stages(chosen, run, "finetune")
    assert not tracker.send()
    conclude(chosen, run)
    began = time.monotonic()
    assert not tracker.end("FINISHED")
    assert time.monotonic() - began < 15
    with mlflow_server(tmp_path / "server", port):
        [parent], children = in_mlflow(run)
        assert (parent.info.status, len(children)) == ("RUNNING", 1)
        assert mlflow_runs.sync(run)
        [parent], children = in_mlflow(run)
        assert (parent.info.run_id, parent.info.status) == (run_id, "FINISHED")
        assert parent.info.end_time == milliseconds(json.loads(run.tracked.read_text())["ended"])
        assert sorted(child.data.tags["stage"].partition("-")[0] for child in children) == [
            "finetune",
            "finetune",
            "pretrain",
        ]
        assert len(curve(children[0], "accuracy/val")) == 3
        listed = {file.path for file in MlflowClient().list_artifacts(parent.info.run_id)}
        assert {"scores.parquet", "figures"} <= listed
    assert capsys.readouterr().out == "", "stdout is for the command's own answer"
