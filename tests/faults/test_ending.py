"""A run that is asked to end does so, with a sentence; and no run ends before it starts."""

import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from runs_to_kill import Running, until

from erd.integrations import mlflow_client, mlflow_record
from erd.integrations.mlflow_runs import Tracker
from erd.runs import configure, stage_records
from erd.runs.folder import RunDir

RUN = RunDir(Path("runs/digits-near"))
COMMAND = ["--set", "pretrain.epochs=3", "--set", "finetune.epochs=20", "--set", "finetune.members=2"]
MARKS = ("data/ingest.json", "", "stages/pretrain.json", "stages/finetune-*.json", "stages/score.json", "report.html")
SOON = 60.0  # seconds, on a busy machine


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n == 0 else pytest.mark.faults) for n in range(6)])
def test_a_terminated_run_ends_soon_with_a_sentence_and_is_closed(seed: int, tmp_path: Path) -> None:
    run, mark = Running(tmp_path / "workspace", *COMMAND), MARKS[seed]
    until(lambda: list((tmp_path / "workspace" / RUN.root).glob(mark)) if mark else run.children())
    time.sleep(random.Random(seed).uniform(0, 2))
    run.process.send_signal(signal.SIGTERM)
    if run.ended(SOON) == 0:  # it had come to its end before it was asked to
        assert mark == "report.html"
        assert "stopped" not in run.said()
        return
    assert run.process.returncode == 1
    assert run.said().splitlines()[-1] == "erd: stopped by SIGTERM; run the same command again to go on where it was"
    assert "Traceback" not in run.said()
    record = mlflow_record.read(RunDir(tmp_path / "workspace" / RUN.root))
    if record is not None:
        assert record.status != "RUNNING"


def test_a_stop_that_a_library_took_for_its_own_error_is_one_all_the_same() -> None:
    code = (
        "import os, signal\nfrom erd.base import endings\n"
        "def work():\n    try: os.kill(os.getpid(), signal.SIGTERM)\n    except BaseException: pass\n"
        "try:\n    with endings.terminable(): work()\nexcept endings.Stopped: raise SystemExit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "erd: stopped by SIGTERM; run the same command again to go on where it was\n"


def test_a_clock_that_is_set_back_gives_no_run_that_ends_before_it_starts(tmp_path: Path) -> None:
    """As if the run had been started tomorrow; ended, or killed and closed by another."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    runs = [RunDir(tmp_path / "runs" / name) for name in ("ended", "killed", "other")]
    settings = configure.settings_for(overrides=["track.experiment=clock"])
    for run in runs[:2]:
        Tracker(run).begin(settings)
        record = mlflow_record.read(run)
        assert record is not None
        record.started = tomorrow
        record.run_id, record.sent = None, []  # made anew, with that start
        record.key = run.batch_name
        mlflow_record.save(run, record)
    Tracker(runs[0]).end("FAILED")
    Tracker(runs[2]).begin(settings)
    client = mlflow_client.connect()
    for run in runs[:2]:
        record = mlflow_record.read(run)
        assert record is not None
        assert record.run_id is not None
        times = client.get_run(record.run_id).info
        assert times.end_time >= times.start_time


def test_a_stage_takes_as_long_as_it_takes_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "runs" / "2026-W46")

    class Clock(datetime):
        back = timedelta()

        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - cls.back

    def work(key: str) -> None:
        Clock.back = timedelta(days=1)

    monkeypatch.setattr(stage_records, "datetime", Clock)
    stage_records.once(run, "score", ["erd.base.seeds"], {}, [], [], work)
    record = stage_records.read(run, "score")
    assert record is not None
    assert record.started <= record.finished
