"""What experts find in the random audit is told once, whatever the scores say: ledger, report, history, message."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from batches_to_review import make

from erd.base import files
from erd.cli import main
from erd.integrations import audit_alarm
from erd.reporting import history, report
from erd.runs.answers import Answer, Answers
from erd.runs.folder import RunDir

QUIET: dict[str, Any] = {"flagged": 0, "alarm": False, "alarm_p": 0.4, "novel_share": None, "look_at_novel": 0.2}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A week without a flag and without an alarm, in which every fourth image is of an unknown class."""
    monkeypatch.chdir(tmp_path)
    made = make(Path(), images=200, **QUIET)
    pd.DataFrame({"file": [], "reason": []}).to_csv(made.quarantine, index=False)
    at = "2026-11-16T03:00:00+00:00"
    files.save_json(made.record("score"), {"key": "", "outputs": {}, "started": at, "finished": at})
    report.write(made)
    return made


def say(run: RunDir, rows: range, label: str | None, *, kind: str = "class", who: str = "ada") -> None:
    ids = pd.read_parquet(run.scores)["id"]
    for row in rows:
        at = f"2026-11-16T08:00:00.{row:06}+00:00"
        Answers(run.answers).add(Answer(ids.iloc[row], kind, label, who, "audit", at))


def entry(run: RunDir) -> dict:
    return json.loads(run.alarms.read_text())["digits-near"][run.batch_name]


def test_eight_viral_images_among_thirty_random_ones_are_news_everywhere(
    run: RunDir, told: list[tuple[str, str]]
) -> None:
    assert "No sign of a new class" in run.report.read_text()
    say(run, range(8), "viral")
    say(run, range(8, 30), "digit 1")
    for _ in range(2):
        assert audit_alarm.sound(run).rings
    page, looked_back = run.report.read_text(), history.write().read_text()
    news = "is of a class you do not know (14 to 44%): experts found 8 such among 30 random images."
    assert f"<h1>About 27% of this week {news}</h1>" in page
    assert "Alarm by the audit: the scores alone would not have rung it (p = 0.4)." in page
    assert "No sign of a new class" not in page
    assert f"About 27% of batch 2026-W46 {news.replace('is of', 'was of').replace('do not', 'did not')}" in looked_back
    assert "1 batch, 1 with an alarm." in looked_back
    assert "rang by the audit" in looked_back
    assert "no sign against" not in looked_back
    [(title, text)] = told
    assert title == "Experts found something new in batch 2026-W46"
    assert f"About 27% of batch 2026-W46 {news}" in text
    assert text.endswith("erd incorporate --batch 2026-W46")
    assert entry(run)["rang"]
    assert (entry(run)["p"], entry(run)["level"]) == (0.4, 0.001), "the test and its level are what they were"
    assert (entry(run)["audit"]["novel"], entry(run)["audit"]["images"]) == (8, 30)
    assert entry(run)["audit"]["low"] == pytest.approx(0.14, abs=0.01)


def test_an_audit_without_a_novel_image_rings_nothing_and_says_what_it_rules_out(
    run: RunDir, told: list[tuple[str, str]]
) -> None:
    say(run, range(20), "digit 1")
    say(run, range(20, 28), None, kind="not-novel")
    say(run, range(28, 30), None, kind="bad")
    assert not audit_alarm.sound(run).rings
    assert told == []
    assert not entry(run)["rang"]
    assert "Among 28 random images of this week experts found none of a class you do not know" in run.report.read_text()


def test_an_answer_that_is_taken_back_takes_the_alarm_back(run: RunDir, told: list[tuple[str, str]]) -> None:
    say(run, range(1), "viral")
    assert audit_alarm.sound(run).rings
    Answers(run.answers).undo("ada")
    assert not audit_alarm.sound(run).rings
    assert entry(run) == {"level": 0.001, "p": 0.4, "rang": False}
    assert "No sign of a new class" in run.report.read_text()


def test_answers_that_are_imported_ring_it_too(run: RunDir, told: list[tuple[str, str]]) -> None:
    image = pd.read_parquet(run.scores)["id"].iloc[0]
    table = {"image": [image], "kind": "class", "label": "viral", "reviewer": "ada", "list": "audit",
             "at": "2026-11-16T08:00:00+00:00"}  # fmt: skip
    pd.DataFrame(table).to_csv("answers.csv", index=False)
    assert main(["review", "--batch", run.batch_name, "--import", "answers.csv"]) == 0
    assert len(told) == 1


def test_an_address_that_is_wrong_loses_nothing(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    Path("params.yaml").write_text("alarm:\n  notify: $NOWHERE\n")
    say(run, range(1), "viral")
    assert audit_alarm.sound(run).rings
    assert "nobody was told: alarm.notify is $NOWHERE" in caplog.text
    assert entry(run)["rang"]
