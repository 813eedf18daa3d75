"""Cells in MLflow: each once, also where the server was away."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from servers import free_port
from small_bench import run

from erd.bench import sending
from erd.integrations import mlflow_client


def test_each_cell_is_sent_once_even_if_the_server_was_away(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()  # `flush` as it is
    monkeypatch.chdir(here)
    monkeypatch.setattr(sending, "EXPERIMENT", "bench of a test")
    with monkeypatch.context() as away:
        away.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
        [row] = run("max-softmax")
        assert row.error is None
        assert "does not answer; the next bench sends what is missing" in caplog.text
    assert run("max-softmax") == [row]
    assert run("max-softmax") == [row]

    client = MlflowClient(mlflow_client.location())
    experiment = client.get_experiment_by_name("bench of a test")
    assert experiment is not None
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert "erd bench" in experiment.tags["mlflow.note.content"]
    [sent] = client.search_runs([experiment.experiment_id])
    assert (sent.info.run_name, sent.info.status) == ("digits-near seed 0 max-softmax", "FINISHED")
    asked = {"scenario": "digits-near", "method": "max-softmax", "setting": "unsupervised", "seed": "0"}
    assert asked.items() <= sent.data.params.items()
    assert sent.data.params["pretrain.epochs"] == "3"
    assert sent.data.metrics["detection/auroc"] == pytest.approx(row.batch_auroc, rel=1e-3)
    assert sent.data.metrics["holdout/tnr95"] == pytest.approx(row.holdout_tnr95, rel=1e-3)
    assert sent.data.metrics["detection/p50"] == pytest.approx(row.batch_p50, rel=1e-3)
    assert sent.data.metrics["holdout/first"] == pytest.approx(row.holdout_first, rel=1e-3)
    assert sent.data.metrics["detection/share"] == 0.5
    assert {"detection/p20", "detection/found_20", "holdout/found_100"} < set(sent.data.metrics)
    assert sent.data.metrics["seconds"] == pytest.approx(row.seconds, rel=1e-3)
    assert sent.data.tags["method"] == "max-softmax"
    assert sent.data.tags["mlflow.source.name"] == "erd bench"
