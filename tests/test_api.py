"""erd as a library: every example of docs/api.md runs, and what it gives is right."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import erd
from erd.base.errors import UserError
from erd.runs.folder import RunDir

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def page(digits_run: RunDir) -> dict[str, Any]:
    """All that the page names, after its code was run from top to bottom."""
    names: dict[str, Any] = {}
    for block in BLOCKS:
        code = block.replace('"runs/digits-near"', repr(str(digits_run.root)))
        exec(compile(code, "docs/api.md", "exec"), names)
    return names


def test_the_page_finds_the_new_digits(page: dict[str, Any]) -> None:
    truth = page["labels"][1200:] >= 5
    scores = page["found"].scores["score"].to_numpy()
    assert page["found"].verdict.alarm
    assert scores[truth].mean() > scores[~truth].mean() + 0.2
    later, novel = page["later"], page["labels"][1000:1200] >= 5
    assert list(later.columns) == ["score", "p_value", "flagged", "predicted"]
    assert later["score"][novel].mean() > later["score"][~novel].mean() + 0.2


def test_the_statistics_of_the_page_are_those_they_say(page: dict[str, Any]) -> None:
    assert np.median(page["p"][-50:]) < 0.01 < 0.4 < page["p"][:450].mean()
    assert 40 <= page["flagged"].sum() <= 60
    assert page["alarm_p"] < 0.001
    assert page["share"].low <= 0.1 <= page["share"].high
    assert page["wrong"] < 20


def test_a_detector_of_the_bench_scores_the_batch_and_other_images(page: dict[str, Any]) -> None:
    assert page["knn"].scores.shape == (len(page["u"]),)
    assert np.isfinite(page["knn"].score(page["new"])).all()
    with pytest.raises(UserError, match="needs outliers, which arrays do not have: use `erd bench`"):
        erd.detector("oe", (page["x"], page["y"]), batch=page["u"])


def test_a_finished_run_is_read_and_scores_as_it_did(digits_run: RunDir) -> None:
    run = erd.read_run(digits_run.root)
    assert run.metrics.batch == digits_run.batch_name
    assert len(run.scores) == len(run.images) == run.metrics.images
    assert run.flagged["score"].is_monotonic_decreasing
    assert run.scorer().score(run.images)["score"].tolist() == run.scores["score"].tolist(), "to the last bit"
    with pytest.raises(UserError, match="holds no finished run"):
        erd.read_run(digits_run.root / "data")


def test_files_are_taken_as_arrays_are(tmp_path: Path, page: dict[str, Any]) -> None:
    np.savez(tmp_path / "labelled.npz", x_train=page["x"], y_train=page["y"])
    np.savez(tmp_path / "batch.npz", x_batch=page["u"])
    quick = ["model.net=mlp", "pretrain.epochs=2", "finetune.epochs=1"]
    arrays = erd.fit((page["x"], page["y"]), batch=page["u"], settings=quick)
    settings = [*quick, "data.image_size=8"]
    stored = erd.fit(
        tmp_path / "labelled.npz", batch=tmp_path / "batch.npz", settings=settings, folder=tmp_path / "kept"
    )
    assert stored.scores["score"].tolist() == arrays.scores["score"].tolist()
    assert (tmp_path / "kept" / "run" / "scores.parquet").exists()


def test_importing_costs_next_to_nothing_and_the_names_are_there() -> None:
    probe = "import sys, erd; assert set(erd.__all__) <= set(dir(erd)); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0
    assert all(callable(getattr(erd, name)) for name in erd.__all__)
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        erd.fitt  # noqa: B018
