"""The benchmark flow on a real Prefect server: a row of means and spreads, and nothing done twice."""

import logging
from pathlib import Path
from typing import Any

import pytest

from erd import files, tracking
from flows import local
from flows.benchmark import _spread, benchmark

SMALL = ["pretrain.epochs=2", "finetune.epochs=1", "finetune.members=2", "run.runner=serial"]


def test_a_scenario_is_a_row_and_a_second_benchmark_reuses_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "erd")
    with local.connected():
        pass
    first = benchmark(["digits-near"], seeds=2, overrides=SMALL)
    caplog.clear()
    second = benchmark(["digits-near"], seeds=2, overrides=SMALL)
    kept = [message for message in caplog.messages if message.endswith(": unchanged, kept")]
    assert len(kept) == 8, "pretrain, two members and score, of two seeds"
    found = [files.load_json(tmp_path / f"runs/benchmark-digits-near-{seed}/metrics.json") for seed in range(2)]
    assert found[0]["auroc"] != found[1]["auroc"], "a seed is another split"
    row = {"scenario": "digits-near", "seeds": 2, "auroc": _spread(found, "auroc"), "tnr95": _spread(found, "tnr95")}
    assert first == second == [row]

    client = tracking.connect()
    assert client.get_experiment_by_name("benchmark-digits-near") is not None
    champion = client.get_model_version_by_alias("benchmark-digits-near", "champion")
    assert champion is not None, "and the model that serves is another one"


@pytest.mark.parametrize(
    ("values", "shown"), [([0.5, 0.7], "0.6000 ± 0.1414"), ([0.5], "0.5000 ± 0.0000"), ([None, None], "–")]
)
def test_a_spread_is_of_the_seeds_whose_truth_is_known(values: list[float | None], shown: str) -> None:
    found: list[dict[str, Any]] = [{"auroc": value} for value in values]
    assert _spread(found, "auroc") == shown
