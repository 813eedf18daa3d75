"""`erd status`: what waits for whom, what runs, what is scheduled, and what fills the disk."""

import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import batches_to_review
import numpy as np
import pytest
import servers

from erd.base import files, progress
from erd.base.locks import alone_in
from erd.bench import plan
from erd.cli import main
from erd.data import library
from erd.data.library import Library
from erd.integrations import status
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir
from erd.weekly import incorporate


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_PORT", str(servers.free_port()))
    return tmp_path


def scored(here: Path, name: str = "2026-W46", **how: Any) -> RunDir:
    run = batches_to_review.make(here, name=name, **how)
    at = datetime.now(UTC).isoformat()
    files.save_json(run.record("score"), {"key": "", "outputs": {}, "started": at, "finished": at})
    return run


def answer(run: RunDir, images: list[str], label: str = "seven") -> None:
    for image in images:
        Answers(run.answers).add(Answer(image, "class", label, "ann", "flagged", now()))


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["status"]) == 0
    return capsys.readouterr().out


def test_an_empty_folder(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys)
    assert "no Prefect server answers; `make up` starts one" in said
    assert "last batches\n  none yet" in said
    found = status.look()
    assert found["server"] is None
    assert not any(found[name] for name in ("scheduled", "running", "to_review", "to_incorporate", "last"))


def test_a_batch_waits_for_review_until_all_its_flags_are_answered(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = scored(here, flagged=3)
    (waits,) = status.look()["to_review"]
    assert (waits["batch"], waits["flagged"], waits["unanswered"]) == ("2026-W46", 3, 3)
    assert "3 of 3 flagged images unanswered" in printed(capsys)
    ids = batches_to_review.ids(run)
    answer(run, ids[:2])
    assert status.look()["to_review"][0]["unanswered"] == 1
    answer(run, ids[:3])
    assert status.look()["to_review"] == []
    said = printed(capsys)
    assert "waits for review\n  nothing" in said
    told = " ".join(said.split())  # on lines that fit
    assert "3 of 60 images of batch 2026-W46 look like something the classifier has never seen" in told
    assert max(map(len, said.splitlines())) <= 100


def test_an_alarm_without_flags_waits_until_somebody_has_looked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = scored(here, flagged=0, alarm=True)
    scored(here, "2026-W47", flagged=0)
    assert [one["batch"] for one in status.look()["to_review"]] == ["2026-W46"], "the other week is quiet"
    said = printed(capsys)
    assert "nobody has looked at the 20 most novel" in said
    assert "erd review --batch 2026-W46" in said
    answer(run, batches_to_review.ids(run)[:1])
    assert status.look()["to_review"] == []


def test_a_trial_with_known_truth_waits_for_nobody(digits_run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(digits_run.root.parent.parent)
    found = status.look()
    assert digits_run.batch_name in [one["batch"] for one in found["last"]]
    assert found["to_review"] == []


def test_answers_wait_until_they_are_incorporated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [f"first/{number}" for number in range(10)]
    pixels = np.random.default_rng(0).integers(0, 256, (10, 8, 8), dtype=np.uint8)
    table = library.table({"id": ids, "sha256": ids, "label": "digit 0", "group": ids}, 10)
    library.save(Library(pixels, table))
    run = scored(here)
    flagged = batches_to_review.ids(run)
    answer(run, flagged[:4])
    (waits,) = status.look()["to_incorporate"]
    assert waits == {"batch": "2026-W46", "images": 4, "command": "erd incorporate --batch 2026-W46"}
    assert "4 labelled images" in printed(capsys)
    incorporate.incorporate(run)
    assert status.look()["to_incorporate"] == []
    answer(run, flagged[:1], "eight")  # said otherwise since
    answer(run, flagged[4:5])
    assert status.look()["to_incorporate"][0]["images"] == 2
    incorporate.incorporate(run)
    assert status.look()["to_incorporate"] == []
    incorporate.take_back(run)
    assert status.look()["to_incorporate"][0]["images"] == 5


def test_a_run_at_work_tells_its_stage_and_how_far_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir(Path("runs/2026-W48"))
    with alone_in(run.root):
        assert "2026-W48     at work" in printed(capsys)
        for label in (1, 2):
            progress.to_file(run.progress(run.member(label)), 20)({"epoch": 6})
        assert "2026-W48     finetune, 12 of 40 epochs" in printed(capsys)
    assert "running\n  nothing" in printed(capsys)


def test_a_bench_at_work_tells_its_detectors(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = plan.of(["digits-near"], ["vanilla"], 1, plan.Asked()).places[0]
    with alone_in(place.run.root):
        assert "  bench        digits-near/seed0: at work" in printed(capsys)
        progress.begun(place.progress("vanilla"))
        assert "  bench        digits-near/seed0: vanilla" in printed(capsys)
    assert "running\n  nothing" in printed(capsys)


def test_the_disk_is_told_by_what_fills_it(here: Path) -> None:
    for path, size in {"runs/a/x": 5, "runs/.features/k/y": 7, "library/images": 11, "library/features/z": 13}.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(bytes(size * 1000))
    disk = status.look()["disk"]
    assert (disk["runs"], disk["library"], disk["features"]) == (5000, 11000, 20000)
    assert disk["free"] > 0


def test_damaged_results_do_not_stop_it(here: Path) -> None:
    scored(here, "2026-W45").metrics.write_text("{")
    scored(here, "2026-W46")
    assert [one["batch"] for one in status.look()["last"]] == ["2026-W46"]


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Prefect]:
    with servers.prefect_server(tmp_path_factory.mktemp("prefect"), servers.free_port()) as server:
        yield server


def test_what_is_scheduled_and_what_runs_is_told_by_the_server(
    prefect: servers.Prefect, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect.api)
    deployment = prefect.deploy(here)
    prefect.ask(f"deployments/{deployment}/schedule", {"min_runs": 3})  # as its scheduler does each minute
    (planned,) = status.look()["scheduled"]
    at = datetime.fromisoformat(planned["next"])
    assert (at - datetime.now(UTC)).days < 8
    said = printed(capsys)
    assert f"(Prefect at http://127.0.0.1:{prefect.port})" in said
    assert "03:00 Europe/Zurich; no worker is there to take it" in said, "Mondays, where we are"
    prefect.worker_is_there()
    assert "no worker" not in printed(capsys)
    running = {"name": "2026-W47", "state": {"type": "RUNNING"}}
    prefect.ask(f"deployments/{deployment}/create_flow_run", running)
    assert "2026-W47     weekly: running since" in printed(capsys)


def test_a_server_that_hangs_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/api")
        began = time.monotonic()
        assert status.look()["server"] is None
        assert time.monotonic() - began < 8, "two seconds, and what a busy machine adds"
