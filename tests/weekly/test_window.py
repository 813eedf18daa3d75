"""Weeks together (`data.window`), and what a quiet week is worth."""

from pathlib import Path

import numpy as np
import pytest
import torch
from chains import do
from test_encode import fill, own, picture

from erd.base import files
from erd.base.errors import RunError
from erd.cli import main
from erd.data import library, packed
from erd.runs import alarm_ledger
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Sensitivity
from erd.weekly import sensitivity
from erd.weekly.stages.finetune import folds_of, learned_without, older_groups


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """75 labelled images in the library, and three weeks in the inbox: 20 images, of them 6 of no known class."""
    for name in ("bricks", "grass", "sky"):
        fill(tmp_path / "labeled" / name, {name: 25}, 0)
    for week in (1, 2, 3):
        fill(tmp_path / "inbox" / f"W{week}", {"bricks": 5, "grass": 5, "sky": 4, "zebra": 6}, 100 * week)
    monkeypatch.chdir(tmp_path)
    library.take_in(Path("labeled"), None)
    return tmp_path


def week(name: str, *more: str) -> tuple[RunDir, Decided]:
    """As the flow does it, up to the alarm."""
    settings = own(name, *more)
    run = RunDir.of(settings)
    do(settings, run, "ingest", "encode", "pretrain", "finetune", "score")
    decided = Decided.read(run)
    verdict = decided.verdict
    alarm_ledger.enter(run.alarms, settings.stream, name, verdict.alarm_p, verdict.alarm_level, verdict.weeks_p)
    return run, decided


def remembered(run: RunDir) -> tuple[list[str], int]:
    return files.load_facts(run.older)["batches"], len(packed.read(run.older).images)


def test_earlier_weeks_are_learned_with_this_one_and_only_this_one_is_scored(workspace: Path) -> None:
    first, alone = week("W1")
    assert remembered(first) == ([], 0)
    assert (alone.verdict.weeks, alone.verdict.weeks_p) == (1, None)
    second, both = week("W2")
    assert remembered(second) == (["W1"], 20)
    assert torch.equal(packed.read(second.older).images, packed.read(first.features_of(first.batch)).images)
    assert both.verdict.weeks == 2
    assert both.verdict.weeks_p is not None
    assert len(files.load_table(second.scores)) == 20
    third, _ = week("W3", "data.window=2")
    assert remembered(third) == (["W2"], 20)
    again, _ = week("W2")
    assert remembered(again) == (["W1"], 20), "what came later is not remembered when a week is run again"
    forgetful, single = week("W4", "data.window=1", f"data.inbox={workspace / 'inbox' / 'W3'}")
    assert remembered(forgetful) == ([], 0)
    assert single.verdict.alarm_level == 2 * both.verdict.alarm_level, "the whole rate is for the one test"


def test_images_that_were_labelled_since_are_not_remembered(workspace: Path) -> None:
    """As calibration images they would otherwise be compared with what had learned from them."""
    week("W1")
    more = workspace / "labeled" / "grass"
    for number in range(100, 105):
        picture("grass", number).save(more / f"grass-{number:03}.png")
    library.take_in(Path("labeled"), None)
    second, _ = week("W2")
    assert remembered(second) == (["W1"], 15)


def test_files_of_two_weeks_that_bear_the_same_name_are_two_images_and_patients_come_again(workspace: Path) -> None:
    """As one group they would be exchanged together, and random batches would be smaller than the real one."""
    for name in ("W1", "W2", "W3"):
        for number, file in enumerate(sorted((workspace / "inbox" / name).iterdir())):
            file.rename(file.with_name(f"{number:02}.png"))
    first, _ = week("W1")
    table = packed.table(first.batch)
    ada = table["id"].isin(["03.png", "07.png"])
    files.save_table(packed.manifest(first.batch), table.assign(group=table["group"].mask(ada, "Ada")))
    week("W2")
    third, _ = week("W3")
    whose = older_groups(third)
    assert len(whose) == 40
    assert len(set(whose)) == 39
    assert whose.count("Ada") == 2
    assert not set(whose) & set(packed.table(third.batch)["group"])


def test_all_images_of_a_patient_are_scored_by_what_learned_none_of_them() -> None:
    """Members that know an image's siblings know it, and nobody of C."""
    whose = np.repeat([f"patient {number}" for number in range(10)], [1, 2, 3, 4, 5, 5, 4, 3, 2, 1])
    folds = folds_of(own("W1", "detect.calibration=crossfit"), whose)
    assert len(folds) == 4
    assert sorted(row for _, rows in folds for row in rows) == list(range(30))
    for _, rows in folds:
        assert not set(whose[rows]) & set(whose[learned_without(rows, 30)])
        assert 5 <= len(rows) <= 10
    with pytest.raises(RunError, match="all of one group: cross-fitting takes two or more"):
        folds_of(own("W1", "detect.calibration=crossfit"), np.array(["patient 1"] * 3))


def test_the_alarm_rings_where_weeks_together_say_so(tmp_path: Path) -> None:
    ledger = tmp_path / "alarms.json"
    assert alarm_ledger.before(ledger, "own", "W1") == []
    assert not alarm_ledger.enter(ledger, "own", "W1", p=0.4, at=0.001).rang
    look = alarm_ledger.enter(ledger, "own", "W2", p=0.4, at=0.001, weeks_p=0.0005)
    assert look.rang
    assert look.first
    assert not alarm_ledger.enter(ledger, "own", "W2", p=0.4, at=0.001, weeks_p=0.0005).first
    assert files.load_json(ledger)["own"]["W2"]["weeks_p"] == 0.0005
    assert alarm_ledger.before(ledger, "own", "W2") == ["W1"]
    assert alarm_ledger.before(ledger, "own", "W3") == ["W1", "W2"]


def test_a_quiet_week_says_what_it_is_worth(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = week("W1")
    found = sensitivity.measure(own("W1"), run)
    assert {one.name for one in found.classes} == {"bricks", "grass", "sky"}
    assert all(one.noticed_from is None or one.noticed_from in sensitivity.SHARES for one in found.classes)
    assert Sensitivity.read(run) == found
    assert main(["sensitivity", "--batch", "W1"]) == 0
    assert "bricks: " in capsys.readouterr().out
    assert main(["sensitivity", "--batch", "W9"]) == 2
    assert "holds no scored batch" in capsys.readouterr().err
