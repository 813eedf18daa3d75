"""Passwords in the addresses of servers and of people are in no file and in nothing that is said."""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from servers import free_port, mlflow_server

from erd.base.errors import UserError
from erd.cli import main
from erd.integrations import doctor, mlflow_client, mlflow_record, notify
from erd.integrations.mlflow_runs import Tracker
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.settings import schema

SECRET = "s3cretw0rd"
NOWHERE = f"http://erd:{SECRET}@127.0.0.1:9"
SMALL = ("finetune.members=2", "pretrain.epochs=2", "finetune.epochs=2")


@pytest.fixture(autouse=True)
def _nobody_asks_after_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")


def with_secret(*roots: Path) -> list[str]:
    """Files that hold it, in whatever form they have."""
    found = (path for root in roots for path in root.rglob("*") if path.is_file())
    return [str(path) for path in found if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("address", [NOWHERE, f"postgresql://erd:{SECRET}@127.0.0.1:9/mlflow"])
def test_a_tracking_server_that_is_away_is_named_without_its_password(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    settings, run = configure.settings_for(), RunDir(Path("runs/2026-W46"))
    configure.keep(settings, run)
    assert Tracker(run).begin(settings) is None
    assert main(["sync", str(run.root)]) == 1
    main(["reproduce", "0" * 32])
    said = caplog.text + str(capsys.readouterr())
    assert "127.0.0.1:9" in said
    assert SECRET not in said
    assert with_secret(tmp_path) == []


def test_what_mlflow_raises_holds_no_password_and_still_says_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that shows a whole traceback shows its errors."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://erd:{SECRET}%40@127.0.0.1:9")
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as told:
        mlflow_client.connect().search_experiments()
    assert SECRET not in "".join(traceback.format_exception(told.value))
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == f"{SECRET}@"


def test_doctor_names_servers_without_their_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", f"{NOWHERE}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    told = json.dumps(doctor.examine(None))
    assert "MLFLOW_TRACKING_URI is http://127.0.0.1:9, which does not answer" in told
    assert SECRET not in told


def test_a_record_of_an_earlier_version_loses_its_password(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "2026-W46")
    run.root.mkdir(parents=True)
    record = {"uri": NOWHERE, "experiment": "own", "name": "2026-W46", "started": "2026-11-16T03:00:00+00:00"}
    run.tracked.write_text(json.dumps(record | {"params": {}, "tags": {}}))
    with mlflow_record.alone_with(run):
        found = mlflow_record.read(run)
        assert found is not None
        mlflow_record.mark_killed(run, found)
    assert with_secret(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [f"alarm.notify={SECRET}", f"alarm.notify=[{SECRET}", f"alarm.notify={{a: {SECRET}}}", f"alarm={SECRET}",
     f"alarm.notify: {SECRET}", f"alarm.notify=[json://localhost, {SECRET}]"],
)  # fmt: skip
def test_an_address_of_people_that_is_malformed_is_not_repeated(text: str) -> None:
    with pytest.raises(UserError) as told:
        notify.addresses(schema.load(None, [text]).alarm.notify)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    "said",
    [f"alarm.notify=json://me:{SECRET}@localhost", f"alarm.notify=[json://{SECRET}@a, $PATH]",
     f"alarm={{notify: 'json://{SECRET}@a', rate: 0.1}}"],
)  # fmt: skip
def test_a_flow_is_given_the_name_of_a_variable_and_tells_the_same_people(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ERD_NOTIFY_0", "ERD_NOTIFY_1"):
        monkeypatch.setenv(name, "")  # and is as before after the test
    asked = schema.load(None, ["seed=1", said])
    given = notify.by_variable(["seed=1", said], asked.alarm)
    assert SECRET not in str(given)
    got = schema.load(None, given)
    assert (got.seed, got.alarm.rate, got.alarm.looks) == (1, asked.alarm.rate, asked.alarm.looks)
    entries = asked.alarm.notify if isinstance(asked.alarm.notify, list) else [asked.alarm.notify]
    assert isinstance(got.alarm.notify, list)
    told = [os.environ[entry[1:]] for entry in got.alarm.notify]
    assert told == [os.environ["PATH"] if entry == "$PATH" else entry for entry in entries]


@pytest.mark.faults
@pytest.mark.timeout(1800)  # eight commands, on a busy machine
def test_a_whole_run_and_all_that_follows_it_leave_no_password_anywhere(tmp_path: Path) -> None:
    """MLflow's server is there, then it is not; Prefect's database holds what the flow was given."""
    workspace, home, port = tmp_path / "workspace", tmp_path / "prefect", free_port()
    workspace.mkdir()
    own = {"MLFLOW_TRACKING_URI": f"http://erd:{SECRET}@127.0.0.1:{port}", "PREFECT_HOME": str(home)}
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"} | own
    asked = [word for text in (*SMALL, f"alarm.notify=json://me:{SECRET}@127.0.0.1:9") for word in ("--set", text)]

    def erd(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "erd", *words], cwd=workspace, env=environment, capture_output=True, text=True
        )
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr

    for tool in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(tool, cwd=workspace, check=True)
    with mlflow_server(tmp_path / "server", port):
        assert f"mlflow   http://127.0.0.1:{port}/#/experiments" in erd("run", *asked)
        run_id = json.loads((workspace / "runs/digits-near/mlflow.json").read_text())["run_id"]
        assert f"is in MLflow at http://127.0.0.1:{port}, run {run_id}" in erd("sync", "runs/digits-near")
        assert "identical" in erd("reproduce", run_id)
        assert f"mlflow http://127.0.0.1:{port}" in erd("doctor"), "asked with the password, and it answers"
    assert "does not answer; the run goes on" in erd("run", "--batch", "away", *asked)
    assert "does not answer" in erd("reproduce", run_id)
    assert (home / "prefect.db").exists()
    assert with_secret(workspace, home, tmp_path / "server") == []
