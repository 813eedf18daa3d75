"""What a person sees first in MLflow: the kind of the experiment, its description, its views, the year."""

import json
from pathlib import Path
from typing import Any

import pytest
from batches_to_review import make
from mlflow import MlflowClient
from mlflow.entities import Experiment

from erd.base import files
from erd.integrations import mlflow_client, mlflow_views, mlflow_year
from erd.integrations.mlflow_client import location
from erd.runs.answers import Answer, Answers
from erd.runs.folder import RunDir
from erd.settings.schema import Settings


@pytest.fixture
def client() -> MlflowClient:
    return mlflow_client.connect()


def experiment(client: MlflowClient, name: str) -> Experiment:
    return client.get_experiment(mlflow_client.experiment_id(client, name))


def scored(workspace: Path, name: str, stream: str, at: str, **decided: Any) -> RunDir:
    """A batch of that stream, scored at that time."""
    run = make(workspace, name=name, **decided)
    settings = Settings().override({"data.batch": name, "track.experiment": stream})
    files.save_json(run.settings, settings.model_dump())
    files.save_json(run.record("score"), {"key": "", "outputs": {}, "started": at, "finished": at})
    return run


def year(client: MlflowClient, stream: str) -> tuple[str, dict[str, dict[int, float]]]:
    """The id of its run, and its points."""
    [found] = client.search_runs([experiment(client, stream).experiment_id], "tags.year != ''")
    assert (found.info.run_name, found.info.status) == ("the year", "FINISHED")
    histories = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    points = {name: {point.step: point.value for point in history} for name, history in histories.items()}
    assert all(len(history) == len(points[name]) for name, history in histories.items()), "each week once"
    return found.info.run_id, points


def test_an_experiment_says_what_it_is_and_leads_to_its_views(client: MlflowClient, tmp_path: Path) -> None:
    found = experiment(client, tmp_path.name)
    assert found.tags["mlflow.experimentKind"] == "custom_model_development"
    note = found.tags["mlflow.note.content"]
    for view in (mlflow_views.WEEKS, mlflow_views.YEAR):
        place = f"#/experiments/{found.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={view.key}"
        assert place in note
        saved = json.loads(found.tags[f"mlflow.sharedViewState.{view.key}"])
        assert saved["name"] == view.name
        assert saved["name"] in note
        state = json.loads(saved["state"])
        drawn = [chart["metricKey"] for chart in state["compareRunCharts"] if "metricKey" in chart]
        assert drawn == [*view.bars, *view.lines]
        assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == {
            section["uuid"] for section in state["compareRunSections"]
        }


def test_what_somebody_wrote_about_an_experiment_stays_and_older_ones_get_the_views(
    client: MlflowClient, tmp_path: Path
) -> None:
    made = client.create_experiment(tmp_path.name)
    client.set_experiment_tag(made, "mlflow.note.content", "ours, since 2024")
    found = experiment(client, tmp_path.name)
    assert found.experiment_id == made
    assert found.tags["mlflow.note.content"] == "ours, since 2024"
    assert f"mlflow.sharedViewState.{mlflow_views.WEEKS.key}" in found.tags


def test_the_year_has_a_point_a_week_and_follows_what_is_said_of_old_weeks(
    client: MlflowClient, tmp_path: Path
) -> None:
    stream = tmp_path.name
    first = scored(tmp_path, "2026-W45", stream, "2026-11-02T03:00:00+00:00", flagged=0, alarm_p=0.4)
    scored(tmp_path, "2026-W46", stream, "2026-11-09T03:00:00+00:00", flagged=20, weeks_p=0.01)
    scored(tmp_path, "elsewhere", "another stream", "2026-11-09T03:00:00+00:00")
    assert mlflow_year.send(tmp_path / "runs", stream)
    run_id, points = year(client, stream)
    assert points["year/alarm_p"] == {1: 0.4, 2: 1e-6}
    assert points["year/weeks_p"] == {2: 0.01}
    assert points["year/flagged"] == {1: 0, 2: 20}
    assert points["year/alarm"] == {1: 0, 2: 1}
    assert points["year/accuracy"] == {1: 0.9, 2: 0.9}
    assert "year/flag_precision" not in points

    image = files.load_table(RunDir(tmp_path / "runs" / "2026-W46").scores).query("flagged")["id"].iloc[0]
    said = Answers(RunDir(tmp_path / "runs" / "2026-W46").answers)
    said.add(Answer(image, "class", "digit 7", "ada", "flagged", "2026-11-10T08:00:00+00:00"))
    scored(tmp_path, "2026-W47", stream, "2026-11-16T03:00:00+00:00", flagged=3)
    for _ in range(2):
        assert mlflow_year.send(tmp_path / "runs", stream)
    again, points = year(client, stream)
    assert again == run_id, "nothing had to be taken back"
    assert points["year/flag_precision"] == {2: 1}
    assert points["year/flagged"] == {1: 0, 2: 20, 3: 3}

    scored(tmp_path, "2026-W47", stream, "2026-11-16T05:00:00+00:00", flagged=7)
    assert mlflow_year.send(tmp_path / "runs", stream)
    anew, points = year(client, stream)
    assert anew != run_id, "MLflow changes no point: a week that came out otherwise takes a new run"
    assert points["year/flagged"] == {1: 0, 2: 20, 3: 7}
    assert first.root.exists()


def test_a_year_that_cannot_be_sent_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scored(tmp_path, "2026-W45", tmp_path.name, "2026-11-02T03:00:00+00:00")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert not mlflow_year.send(tmp_path / "runs", tmp_path.name)
    assert f"the year is not up to date: MLflow at {location()} does not answer" in caplog.text
