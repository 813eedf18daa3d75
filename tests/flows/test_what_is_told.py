"""Both tiers in what people are told after a run: Prefect's tables, messages, events, the terminal."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from batches_to_review import make, most_novel

from erd.cli import main
from erd.integrations import mlflow_record
from erd.integrations.mlflow_record import Record
from erd.integrations.registry import Registered
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import Metrics, Sensitivity
from flows import artifacts, local, on_alarm, tasks

LOOK: dict[str, Any] = {"look_at_novel": 24.6, "look_at_least": 19, "last_good": 27}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Prefect is given, by its key."""
    found: dict[str, Any] = {}
    for kind in ("table", "markdown", "link"):
        monkeypatch.setattr(
            artifacts, f"create_{kind}_artifact", lambda what, key, **more: found.update({key: (what, more)})
        )
    return found


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(tasks, "emit_event", lambda name, resource, payload: found.append(payload))
    return found


def ids(run: RunDir) -> list[str]:
    return pd.read_parquet(run.scores)["id"].iloc[most_novel(run)].tolist()


def test_prefect_shows_a_table_for_each_tier(tmp_path: Path, shown: dict[str, Any]) -> None:
    run = make(tmp_path, flagged=12, budget=40, **LOOK)
    artifacts.show(run, Registered("erd-own", 1, "champion", "the first"))
    rows, about = shown["worth-a-look"]
    assert [row["id"] for row in rows] == ids(run)[:40]
    assert [row["flagged"] for row in rows] == [True] * 12 + [False] * 28
    assert "about 25 are expected to be, at least 19" in about["description"]
    assert [row["id"] for row in shown["flagged"][0]] == ids(run)[:12]
    text = shown["summary"][0]
    assert "12 of 60 images of batch 2026-W46 look like something" in text
    assert "Of the 40 images that look most novel about 25" in text
    assert json.dumps(rows), "what Prefect keeps is JSON"


@pytest.mark.parametrize("uri", ["http://mlflow.example:5000", "sqlite:///mlflow.db"])
def test_prefect_links_only_to_what_a_browser_opens(tmp_path: Path, shown: dict[str, Any], uri: str) -> None:
    run = make(tmp_path, flagged=12)
    record = Record(uri, "own", "2026-W46", "2026-11-09T03:00:00+00:00", {}, {}, experiment_id="7", run_id="abc")
    mlflow_record.save(run, record)
    artifacts.show(run, Registered("erd-own", 1, "champion", "the first"))
    assert str(run.report.resolve()) in shown["summary"][0], "where the report is, as text"
    links = {key: shown[key][0] for key in ("report", "mlflow-run", "mlflow-batches") if key in shown}
    if uri.startswith("sqlite"):
        assert links == {}
        return
    runs = f"{uri}/#/experiments/7/runs"
    assert links["report"] == f"{runs}/abc/artifacts/report.html?workflowType=machine_learning"
    assert links["mlflow-run"] == f"{runs}/abc?workflowType=machine_learning"
    assert links["mlflow-batches"].startswith(f"{runs}?workflowType=machine_learning&viewStateShareKey=")


def test_without_flags_there_is_no_empty_table_of_them(tmp_path: Path, shown: dict[str, Any]) -> None:
    artifacts.show(make(tmp_path, flagged=0, budget=40, **LOOK), Registered("erd-own", 1, "champion", "the first"))
    assert "flagged" not in shown
    assert len(shown["worth-a-look"][0]) == 40
    assert shown["summary"][0].startswith("Something in batch 2026-W46 is probably new: of the 40 images")


@pytest.mark.parametrize("flagged", [0, 12])
def test_a_message_about_an_alarm_has_both_tiers_and_what_to_do(
    tmp_path: Path, told: list[tuple[str, str]], events: list[dict[str, Any]], flagged: int
) -> None:
    run = make(tmp_path, flagged=flagged, budget=40, alarm=True, alarm_p=1e-6, **LOOK)
    for _ in range(2):
        tasks.sound.fn(configure.read(run), run)
    [(title, text)] = told
    assert title == "Something new in batch 2026-W46"
    assert ("12 of 60 images" in text) == (flagged > 0)
    assert "of the 40 images that look most novel about 25 are expected to be, at least 19" in text.lower()
    assert "Alarm: something in this batch is novel" in text
    assert text.endswith("erd review --batch 2026-W46")
    [payload] = events
    assert (payload["look_at"], payload["look_at_novel"], payload["look_at_least"]) == (40, 24.6, 19)


def test_weeks_that_ring_together_are_told_once(
    tmp_path: Path, told: list[tuple[str, str]], events: list[dict[str, Any]]
) -> None:
    weak: dict[str, Any] = {"alarm_p": 0.2, "weeks": 4, "weeks_p": 0.0002, "weeks_alarm": True, "look_at_novel": 0.8}
    run = make(tmp_path, flagged=0, **weak)
    assert tasks.sound.fn(configure.read(run), run)
    assert tasks.sound.fn(configure.read(run), run)
    [(_, text)] = told
    assert "Something has been new in the weeks up to batch 2026-W46" in text
    assert "The last 4 batches together say that something is new (p = 0.0002, the alarm rings at 0.001)." in text
    assert [payload["weeks_p"] for payload in events] == [0.0002]
    quiet = make(tmp_path, name="2026-W47", flagged=0, **weak | {"weeks_p": 0.01, "weeks_alarm": False})
    assert not tasks.sound.fn(configure.read(quiet), quiet)
    assert len(told) == len(events) == 1


def test_a_quiet_week_is_told_with_what_could_have_been_missed(tmp_path: Path, shown: dict[str, Any]) -> None:
    run = make(tmp_path, flagged=0, look_at_novel=0.2)
    Sensitivity(0.05, []).write(run)
    artifacts.show(run, Registered("erd-own", 1, "champion", "the first"))
    assert shown["summary"][0].startswith("No sign of a new class in batch 2026-W46. A class like those you know would")


def test_after_an_alarm_without_flags_the_experts_get_the_images_worth_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(tmp_path, flagged=0)
    told: list[str] = []
    monkeypatch.setattr(on_alarm, "create_markdown_artifact", lambda text, **more: told.append(text))
    monkeypatch.chdir(tmp_path)
    folder = Path(on_alarm.on_alarm.fn(run.batch_name))
    assert len(list(folder.glob("*.png"))) == 20
    assert not pd.read_csv(folder / "flagged.csv")["flagged"].any()
    assert str(folder.resolve()) in told[0], "as text: browsers refuse links to files"


@pytest.mark.parametrize("flagged", [0, 12])
def test_the_terminal_prints_both_tiers_and_json_has_their_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, flagged: int
) -> None:
    run = make(tmp_path, flagged=flagged, budget=40, mix_changed="the mix of known classes has changed", **LOOK)
    where = {"run_dir": run.root.as_posix(), "model_version": 1, "mlflow_run_id": None}
    monkeypatch.setattr(local, "weekly", lambda *_, **__: Metrics.read(run).flat() | where)
    monkeypatch.chdir(tmp_path)
    assert main(["run"]) == 0
    said = capsys.readouterr().out
    assert said.lower().count("of the 40 images that look most novel about 25 are expected to be, at least 19") == 1
    assert ("12 of 60 images of batch 2026-W46 look like" in said) == (flagged > 0)
    assert "Down to image 27 of the list" in said
    assert "The mix of known classes has changed." in said
    assert "No image" not in said
    assert main(["run", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {name: printed[name] for name in LOOK} == LOOK
    assert (printed["look_at"], printed["flagged"]) == (40, flagged)
