"""Looking back on weeks: what experts said makes the figures, and the page shows all weeks."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from batches_to_review import make

from erd.base import files
from erd.reporting import history
from erd.runs.answers import Answer, Answers
from erd.runs.folder import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make(tmp_path)


def say(run: RunDir, row: int, label: str | None, *, kind: str = "class", on: str = "flagged") -> None:
    image = pd.read_parquet(run.scores)["id"].iloc[row]
    Answers(run.answers).add(Answer(image, kind, label, "ada", on, f"2026-11-16T08:00:00.{row:06}+00:00"))


def test_precision_is_of_flags_looked_at_and_recall_of_the_audit(run: RunDir) -> None:
    flagged = pd.read_parquet(run.scores)["flagged"].to_numpy()
    on, off = np.flatnonzero(flagged), np.flatnonzero(~flagged)
    for row in on[:3]:
        say(run, row, "digit 7")
    say(run, on[3], None, kind="not-novel")
    say(run, on[4], None, kind="bad")
    say(run, on[5], "digit 7", on="audit")
    say(run, off[0], "digit 7", on="audit")
    say(run, off[1], "digit 1", on="audit")
    found = history.retrospect(run)
    assert found["flags_reviewed"] == 5
    assert found["flag_precision"] == pytest.approx(4 / 5)
    assert (found["audited"], found["audit_novel"]) == (3, 2)
    assert found["audit_recall"] == pytest.approx(1 / 2)
    assert found["audit_false_positives"] == 0
    assert found["drift_p"] is None, "one known image says nothing"


def test_answers_below_the_flags_count_as_looked_at_but_not_as_flags(run: RunDir) -> None:
    flagged = pd.read_parquet(run.scores)["flagged"].to_numpy()
    on, off = np.flatnonzero(flagged), np.flatnonzero(~flagged)
    say(run, on[0], "digit 7")
    say(run, on[1], None, kind="not-novel")
    for row in off[:3]:
        say(run, row, "digit 7")
    say(run, off[3], "digit 1")
    say(run, off[4], None, kind="bad")
    say(run, off[5], "digit 7", on="audit")
    found = history.retrospect(run)
    assert (found["flags_reviewed"], found["flag_precision"]) == (2, 0.5)
    assert (found["looked_at"], found["looked_novel"]) == (6, 4), (
        "the audit is no look at the list, a bad image is none"
    )


def audited(run: RunDir, p: np.ndarray) -> dict:
    """The figures where experts call as many audited images known as there are p-values."""
    scores = pd.read_parquet(run.scores)
    scores.loc[: len(p) - 1, "p_value"] = p
    files.save_table(run.scores, scores)
    known = files.load_json(run.ingested)["classes"][0]
    for row in range(len(p)):
        say(run, row, known, on="audit")
    return history.retrospect(run)


def test_known_images_with_small_p_values_are_drift_and_others_are_not(tmp_path: Path) -> None:
    uniform = (np.arange(25) + 0.5) / 25
    assert audited(make(tmp_path, name="2026-W45"), uniform)["drift_p"] > 0.5
    assert audited(make(tmp_path, name="2026-W46"), uniform**4)["drift_p"] < 0.001
    assert audited(make(tmp_path, name="2026-W47"), uniform**0.25)["drift_p"] > 0.5, "large ones do no harm"


def in_history(run: RunDir, scored: str, **changes: object) -> RunDir:
    """A batch with what a run leaves beside its scores."""
    metrics = files.load_json(run.metrics) | {"alarm_level": 0.001, "val_accuracy": 0.9}
    files.save_json(run.metrics, metrics | changes)
    files.save_json(run.record("score"), {"key": "", "outputs": {}, "started": scored, "finished": scored})
    return run


def test_the_page_shows_the_weeks_in_order_with_what_experts_said(tmp_path: Path) -> None:
    later = in_history(make(tmp_path, name="2026-W46"), "2026-11-16T03:00:00+00:00", alarm=False, alarm_p=0.4)
    in_history(make(tmp_path, name="2026-W45"), "2026-11-09T03:00:00+00:00")
    (tmp_path / "runs" / "half-made").mkdir()
    rows = np.flatnonzero(pd.read_parquet(later.scores)["flagged"])
    say(later, rows[0], "digit 7")
    say(later, rows[1], None, kind="not-novel")
    page = history.write(tmp_path / "runs").read_text()
    found = history.weeks(tmp_path / "runs")
    assert [week["batch"] for week in found] == ["2026-W45", "2026-W46"]
    assert (found[1]["flags_reviewed"], found[1]["flag_precision"]) == (2, 0.5)
    assert "2 batches, 1 with an alarm." in page
    assert "Of 2 flagged images that experts looked at, 1 were novel (50%)." in page
    assert page.index("2026-W46</") < page.index("2026-W45</"), "the latest first"
    assert re.search(r'src="data:image/png;base64,\w', page), "and the picture"
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page), "it needs no network"


def test_the_page_says_what_was_found_below_the_flags_and_when_weeks_rang_together(tmp_path: Path) -> None:
    quiet = {"alarm": False, "weeks_alarm": True}
    run = in_history(make(tmp_path, flagged=0), "2026-11-16T03:00:00+00:00", **quiet)
    say(run, 0, "digit 7")
    say(run, 1, None, kind="not-novel")
    page = history.write(tmp_path / "runs").read_text()
    assert "1 batches, 1 with an alarm." in page
    assert "rang over weeks" in page
    assert "Of 2 that were not flagged but worth a look, 1 were novel (50%)." in page
    assert "flagged images that experts looked at" not in page, "there was none"


def test_without_a_run_the_page_says_what_to_do(tmp_path: Path) -> None:
    assert "erd run" in history.write(tmp_path / "runs").read_text()


def test_a_hostile_file_name_stays_text(tmp_path: Path) -> None:
    run = in_history(make(tmp_path, name="2026-W46"), "2026-11-16T03:00:00+00:00")
    settings = files.load_json(run.settings)
    files.save_json(run.settings, settings | {"track": {"experiment": "<script>alert(1)</script>"}})
    assert "<script>" not in history.write(tmp_path / "runs").read_text()
