"""Looking back on weeks: what experts said makes the figures, and the page shows all weeks."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from batches_to_review import make
from matplotlib.axes import Axes

from erd.base import files
from erd.reporting import history, week_figures
from erd.runs.answers import Answer, Answers
from erd.runs.folder import RunDir
from erd.runs.results import Sensitivity


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
    assert "Of 2 flagged images that experts looked at, 1 was novel (50%)." in page
    assert page.index("2026-W46</") < page.index("2026-W45</"), "the latest first"
    assert re.search(r'src="data:image/png;base64,\w', page), "and the picture"
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page), "it needs no network"


def test_the_page_says_what_was_found_below_the_flags_and_when_weeks_rang_together(tmp_path: Path) -> None:
    quiet = {"alarm": False, "weeks_alarm": True}
    run = in_history(make(tmp_path, flagged=0), "2026-11-16T03:00:00+00:00", **quiet)
    say(run, 0, "digit 7")
    say(run, 1, None, kind="not-novel")
    page = history.write(tmp_path / "runs").read_text()
    assert "1 batch, 1 with an alarm." in page
    assert "rang over weeks" in page
    assert "Of 2 that were not flagged but worth a look, 1 was novel (50%)." in page
    assert "flagged images that experts looked at" not in page, "there was none"


def panels(runs: Path) -> list[Axes]:
    return week_figures.history(history.weeks(runs)).axes


def test_what_nobody_has_measured_is_neither_drawn_nor_a_column(tmp_path: Path) -> None:
    run = in_history(make(tmp_path, flagged=0), "2026-11-16T03:00:00+00:00", alarm=False, alarm_p=0.4)
    drawn = [panel.get_ylabel() for panel in panels(tmp_path / "runs")]
    assert drawn == ["happens by chance", "classifier right, %"]
    page = history.write(tmp_path / "runs").read_text()
    table = page[page.index("<table ") : page.index("</table>")]
    assert [name for name in ("audited", "drift", "a new class noticed", "before") if name in table] == []
    say(run, 0, "digit 7")
    assert [panel.get_ylabel() for panel in panels(tmp_path / "runs")][1] == "images", "found below the flags"


def test_shares_end_at_a_hundred_and_counts_are_whole(tmp_path: Path) -> None:
    run = in_history(make(tmp_path, flagged=2), "2026-11-16T03:00:00+00:00", val_accuracy=1.0)
    say(run, np.flatnonzero(pd.read_parquet(run.scores)["flagged"])[0], "digit 7")
    by_name = {panel.get_ylabel(): panel for panel in panels(tmp_path / "runs")}
    for name, panel in by_name.items():
        if "%" in name:
            assert panel.get_ylim()[1] == 100
            assert panel.get_ylim()[0] >= 0
    assert all(float(tick).is_integer() for tick in by_name["images"].get_yticks())


def test_both_alarms_are_drawn_against_the_level(tmp_path: Path) -> None:
    in_history(make(tmp_path, name="2026-W45"), "2026-11-09T03:00:00+00:00", alarm=False, alarm_p=0.4)
    together = {"weeks": 2, "weeks_p": 0.0004, "weeks_alarm": True}
    in_history(make(tmp_path, name="2026-W46"), "2026-11-16T03:00:00+00:00", alarm=False, alarm_p=0.03, **together)
    evidence = panels(tmp_path / "runs")[0]
    lines = {str(line.get_label()): np.asarray(line.get_ydata(), float) for line in evidence.lines}
    assert lines["this week alone"].tolist() == [0.4, 0.03]
    assert lines["weeks together"][1] == lines["weeks together: alarm"][0] == 0.0004
    assert "this week alone: alarm" not in lines
    assert evidence.get_ylim()[0] > evidence.get_ylim()[1], "the stronger, the higher"
    page = history.write(tmp_path / "runs").read_text()
    assert ">1 in 33</td>" in page
    assert ">1 in 2,500</td>" in page


def test_what_a_quiet_week_was_worth_is_told_where_it_was_measured(tmp_path: Path) -> None:
    run = in_history(make(tmp_path, name="2026-W45"), "2026-11-09T03:00:00+00:00")
    Sensitivity(0.05, []).write(run)
    in_history(make(tmp_path, name="2026-W46"), "2026-11-16T03:00:00+00:00")
    page = history.write(tmp_path / "runs").read_text()
    assert "2026-W45: A class like those you know would have been noticed from about 5% of the batch on" in page
    assert page.count(">from 5% on</td>") == 1
    assert "% of the batch" in [panel.get_ylabel() for panel in panels(tmp_path / "runs")]
    Sensitivity(None, []).write(run)
    assert "not seen at any" in history.write(tmp_path / "runs").read_text()


def test_without_a_run_the_page_says_what_to_do(tmp_path: Path) -> None:
    assert "erd run" in history.write(tmp_path / "runs").read_text()


def test_a_hostile_file_name_stays_text(tmp_path: Path) -> None:
    run = in_history(make(tmp_path, name="2026-W46"), "2026-11-16T03:00:00+00:00")
    settings = files.load_json(run.settings)
    files.save_json(run.settings, settings | {"track": {"experiment": "<script>alert(1)</script>"}})
    assert "<script>" not in history.write(tmp_path / "runs").read_text()


def scored(workspace: Path, name: str, week: int) -> RunDir:
    run = make(workspace, name=name)
    at = f"2026-{week // 28 + 1:02}-{week % 28 + 1:02}T03:00:00+00:00"
    files.save_json(run.record("score"), {"key": "", "outputs": {}, "started": at, "finished": at})
    say(run, 0, "digit 7")
    return run


def test_weeks_that_did_not_change_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, third = [scored(tmp_path, f"2026-W{week}", week) for week in (1, 2, 3)][1:]
    before = history.weeks(tmp_path / "runs")
    assert [row["batch"] for row in before] == ["2026-W1", "2026-W2", "2026-W3"]
    read: list[Path] = []

    def noted(load: Callable[..., Any]) -> Callable[..., Any]:
        def loaded(path: Path, *needed: Any) -> Any:
            if path.parent != tmp_path / "runs":
                read.append(path)
            return load(path, *needed)

        return loaded

    for name in ("load_json", "load_table"):
        monkeypatch.setattr(files, name, noted(getattr(files, name)))
    assert history.weeks(tmp_path / "runs") == before
    assert not read
    say(second, 1, "digit 7")
    after = history.weeks(tmp_path / "runs")
    assert {path.relative_to(tmp_path / "runs").parts[0] for path in read} == {"2026-W2"}
    assert after[1]["reviewed"] == before[1]["reviewed"] + 1
    assert [after[0], after[2]] == [before[0], before[2]]
    third.metrics.unlink()
    assert [row["batch"] for row in history.weeks(tmp_path / "runs")] == ["2026-W1", "2026-W2"]


@pytest.mark.parametrize(
    "damage", ["", "{", "[1]", '{"2026-W1": 5}', '{"2026-W1": {"key": "x", "row": {}}}', "[" * 9999]
)
def test_what_was_kept_of_the_weeks_may_be_damaged_or_changed(tmp_path: Path, damage: str) -> None:
    scored(tmp_path, "2026-W1", 1)
    before = history.weeks(tmp_path / "runs")
    kept = tmp_path / "runs" / ".weeks.json"
    changed = files.load_json(kept)
    changed["2026-W1"]["row"]["flagged"] = 999
    for content in (damage, json.dumps(changed)):
        kept.write_text(content)
        assert history.weeks(tmp_path / "runs") == before


def test_of_two_hundred_weeks_some_are_named_and_the_last_is_among_them(run: RunDir) -> None:
    scored(run.root.parent.parent, run.batch_name, 1)
    row = history.weeks(run.root.parent)[0]
    figure = week_figures.history([row | {"batch": f"week {n}"} for n in range(1, 201)])
    names = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert 10 < len(names) <= 26
    assert "week 200" in names
