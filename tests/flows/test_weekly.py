"""The weekly flow against a real, temporary Prefect server and a real MLflow database."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from chains import do
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, FlowRunFilter, FlowRunFilterId
from prefect.task_runners import ThreadPoolTaskRunner

from erd.base import files, progress
from erd.base.errors import RunError, UserError
from erd.integrations import audit_alarm, mlflow_client, mlflow_record
from erd.runs.answers import Answer, Answers, now
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.runs.stage_records import Done
from erd.weekly import chain
from erd.weekly.stages.base import Job, Stage, one
from flows import local, tasks, weekly
from flows.logs import told_to_prefect

SMALL = ["pretrain.epochs=3", "finetune.epochs=5", "finetune.members=2"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunDir, dict[str, Any]]]:
    """A flow run with two workers, in a workspace that stays the current folder."""
    with contextlib.chdir(tmp_path_factory.mktemp("workspace")):
        result = local.weekly(batch="2026-W46", overrides=[*SMALL, "run.workers=2"])
        yield RunDir(Path(result["run_dir"])), result


def ask(question: Any) -> Any:
    """Something only the API knows; `question` is a coroutine function of a client."""

    async def answer() -> Any:
        async with get_client() as client:
            return await question(client)

    return asyncio.run(answer())


def events(name: str, batch: str) -> list[Any]:
    """Of a batch; the server takes its time to show them."""
    wanted = {"filter": {"event": {"name": [name]}, "resource": {"id": [f"erd.batch.{batch}"]}}}
    deadline = time.monotonic() + 30
    found: list[Any] = []
    while not found and time.monotonic() < deadline:
        time.sleep(0.5)
        found = ask(lambda client: client._client.post("/events/filter", json=wanted)).json()["events"]
    return found


def flow_run_id(run: RunDir) -> Any:
    record = mlflow_record.read(run)
    assert record is not None
    return record.tags["flow_run_id"]


def test_prefect_shows_a_task_a_stage_and_a_member_and_what_came_out(finished: tuple[RunDir, dict]) -> None:
    run, _ = finished
    this = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id(run)]))
    flow_run = ask(lambda client: client.read_flow_run(flow_run_id(run)))
    assert flow_run.name == "2026-W46"
    assert flow_run.state_name == "Completed"
    assert set(flow_run.tags) == {"erd", "digits-near"}
    tasks = [task.name for task in ask(lambda client: client.read_task_runs(flow_run_filter=this))]
    plain = sorted(name.rpartition("-")[0] for name in tasks if not name.startswith("finetune"))
    assert plain == ["alarm", "encode", "evaluate", "ingest", "pretrain", "register", "report", "score", "validate",
                     "version"]  # fmt: skip
    assert sorted(name for name in tasks if name.startswith("finetune")) == ["finetune c=2", "finetune c=3"]
    of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id(run)]))
    shown = ask(lambda client: client.read_artifacts(artifact_filter=of_run))
    by_key = {artifact.key: artifact for artifact in shown}
    assert set(by_key) == {"finetune", "flagged", "worth-a-look", "summary"}, "no link where no server has the page"
    assert len(json.loads(by_key["worth-a-look"].data)) == 50
    assert float(by_key["finetune"].data) == 100
    assert "images of batch 2026-W46" in by_key["summary"].data
    assert str(run.report.resolve()) in by_key["summary"].data


def meet(here: Path, there: Path) -> Done:
    """Done once the other job has begun: alone, or one after the other, none of them ever is."""
    here.touch()
    deadline = time.monotonic() + 120
    while not there.exists():
        if time.monotonic() > deadline:
            raise RunError("the other job has not begun")
        time.sleep(0.01)
    return Done(here.name, ())


def test_jobs_of_a_stage_are_done_at_the_same_time_each_in_a_task(
    finished: tuple[RunDir, dict], tmp_path: Path
) -> None:
    places = [tmp_path / "one", tmp_path / "other"]
    jobs = [Job(here.name, meet, (here, there)) for here, there in (places, places[::-1])]
    stage = Stage("meeting", "two that wait for each other", (), lambda run: [], lambda run: [], lambda *_: jobs, True)

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=4))  # type: ignore[arg-type]
    def two() -> list[Done]:
        return tasks.do(stage, settings_for(overrides=["run.workers=2"]), RunDir(tmp_path))

    assert [done.stage for done in two()] == ["one", "other"]


def test_the_flow_writes_the_bytes_of_the_bare_stages(finished: tuple[RunDir, dict], tmp_path: Path) -> None:
    run, result = finished
    plain = RunDir(tmp_path / "2026-W46")
    settings = settings_for(batch="2026-W46", overrides=SMALL, runner="serial")
    do(settings, plain)
    names = [path.relative_to(plain.root) for path in plain.root.rglob("*") if path.is_file()]
    assert sum(name.parts[0] == "members" for name in names) == 4
    for name in names:
        if name.parts[0] != "stages":  # they hold times
            assert (run.root / name).read_bytes() == (plain.root / name).read_bytes(), name
    assert files.load_json(run.metrics).items() <= result.items()


def test_mlflow_has_the_run_its_children_and_the_model(finished: tuple[RunDir, dict]) -> None:
    _, result = finished
    client = mlflow_client.connect()
    found = client.get_run(result["mlflow_run_id"])
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "2026-W46"
    assert found.data.metrics["detection/auroc"] == pytest.approx(result["auroc"], rel=1e-3)
    children = client.search_runs(
        [found.info.experiment_id], f"tags.`mlflow.parentRunId` = '{result['mlflow_run_id']}'"
    )
    assert sorted(child.info.run_name or "" for child in children) == ["member c=2", "member c=3", "pretrain"]
    artifacts = {item.path for item in client.list_artifacts(result["mlflow_run_id"])}
    assert {"report.html", "scores.parquet", "metrics.json", "settings.json", "figures"} <= artifacts
    version = client.get_model_version("erd-digits-near", str(result["model_version"]))
    assert version.run_id == result["mlflow_run_id"]


def test_the_next_batch_takes_the_classifier_over_and_says_so(
    finished: tuple[RunDir, dict], caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = finished
    caplog.set_level(logging.INFO, "erd")
    local.weekly(batch="2026-W47", overrides=[*SMALL, "finetune.epochs=1"], runner="serial")
    assert "pretrain: unchanged, kept" in caplog.messages
    assert RunDir(Path("runs/2026-W47")).pretrained.read_bytes() == run.pretrained.read_bytes()


class Inbox(BaseHTTPRequestHandler):
    """What apprise posts."""

    got: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


def test_an_alarm_tells_prefect_and_people_once_and_no_secret_is_recorded(
    finished: tuple[RunDir, dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run twice: the second time nobody is told again."""
    with HTTPServer(("127.0.0.1", 0), Inbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("WHERE", f"json://user:secret@127.0.0.1:{server.server_port}")
        longer = ["pretrain.epochs=20", "finetune.epochs=10", "finetune.members=2", "alarm.notify=$WHERE"]
        for _ in range(2):
            result = local.weekly(batch="ringing", overrides=longer, runner="serial")
        server.shutdown()
    assert result["alarm"]
    [message] = Inbox.got
    assert message["title"] == "Something new in batch ringing"
    assert "Alarm: something in this batch is novel" in message["message"]
    ledger = files.load_json(RunDir(Path("runs/ringing")).alarms)["digits-near"]
    assert ledger["ringing"]["rang"]
    assert set(ledger) >= {"ringing", "2026-W46"}
    kept = [path.read_text(errors="replace") for path in Path("runs/ringing").glob("*.json")]
    assert not any("secret" in text for text in kept)
    assert "alarm.notify" not in mlflow_client.connect().get_run(result["mlflow_run_id"]).data.params

    [event] = events("erd.alarm", "ringing")
    assert event["payload"]["batch"] == "ringing"


def test_an_alarm_by_the_audit_tells_prefect_too_and_once(finished: tuple[RunDir, dict]) -> None:
    run, _ = finished
    image = files.load_table(run.scores)["id"].iloc[0]
    Answers(run.answers).add(Answer(image, "class", "walrus", "ada", "audit", now()))
    for _ in range(2):
        audit_alarm.sound(run)
    [event] = events("erd.audit-alarm", run.batch_name)
    assert (event["payload"]["images"], event["payload"]["novel"]) == (1, 1)
    assert event["payload"]["batch"] == run.batch_name


def test_a_failed_run_is_failed_in_prefect_and_in_mlflow(
    finished: tuple[RunDir, dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Done:
        raise UserError("the disk is on fire; put it out")

    broken = replace(chain.BY_NAME["score"], jobs=one(fails))
    monkeypatch.setattr(weekly, "CHAIN", tuple(broken if stage.name == "score" else stage for stage in chain.CHAIN))
    with pytest.raises(UserError, match="the disk is on fire"):
        local.weekly(batch="unlucky", overrides=[*SMALL, "finetune.epochs=1"], runner="serial")
    record = mlflow_record.read(RunDir(Path("runs/unlucky")))
    assert record is not None
    assert record.run_id is not None
    failed = mlflow_client.connect().get_run(record.run_id)
    assert failed.info.status == "FAILED"
    assert "the disk is on fire" in failed.data.tags["mlflow.note.content"]
    assert ask(lambda client: client.read_flow_run(record.tags["flow_run_id"])).state_name == "Failed"


def test_what_the_stages_say_is_in_prefects_log(finished: tuple[RunDir, dict]) -> None:
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

    run, _ = finished
    of_run = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run_id(run)]))
    said = [entry.message for entry in ask(lambda client: client.read_logs(of_run))]
    assert "digits-near → runs/2026-W46" in said
    assert "finetune-2: done" in said


def test_the_line_a_minute_on_long_work_belongs_to_the_flow_run(
    finished: tuple[RunDir, dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:  # fmt: skip
    monkeypatch.setattr(progress, "EVERY", 0.01)
    monkeypatch.setattr(progress, "SAY", 0.01)
    caplog.set_level(logging.INFO, "erd")

    @flow
    def long() -> None:
        with told_to_prefect(), progress.watched({"c=1": tmp_path / "at.json"}, "finetune"):
            progress.begun(tmp_path / "at.json")
            deadline = time.monotonic() + 30
            while not any("finetune: after" in text for text in caplog.messages) and time.monotonic() < deadline:
                time.sleep(0.01)

    long()
    assert any("finetune: after 0 min at c=1" in text for text in caplog.messages)
    assert not [warning for warning in recwarn if "without a flow run id" in str(warning.message)]
