"""Every look has its level, a batch keeps the one of its first look, and a year of looks keeps its rate."""

import json
import math
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from erd.base.errors import RunError, UserError
from erd.runs import alarm_ledger
from erd.runs.alarm_ledger import Look
from erd.settings.schema import Alarm
from erd.statistics.novelty_test import alarm


def look(ledger: Path, stream: str, batch: str, p: float, settings: Alarm | None = None) -> Look:
    """As a run does it: what the level is, then the look."""
    at = alarm_ledger.level_of(ledger, stream, batch, settings or Alarm())
    return alarm_ledger.enter(ledger, stream, batch, p, at)


def test_every_look_gets_the_same_level_for_ever(tmp_path: Path) -> None:
    ledger = tmp_path / "alarms.json"
    for week in range(120):
        look(ledger, "xray", f"W{week}", 0.5)
    assert {entry["level"] for entry in json.loads(ledger.read_text())["xray"].values()} == {0.05 / 52}


def test_an_alarm_rings_up_to_its_level(tmp_path: Path) -> None:
    ledger, settings = tmp_path / "workspace" / "alarms.json", Alarm(rate=0.05, looks=10)
    assert look(ledger, "xray", "W1", 0.005, settings) == Look(True, True)
    assert look(ledger, "xray", "W2", 0.0051, settings) == Look(False, False)
    assert json.loads(ledger.read_text()) == {
        "xray": {
            "W1": {"level": 0.005, "p": 0.005, "rang": True},
            "W2": {"level": 0.005, "p": 0.0051, "rang": False},
        }
    }


def test_a_rerun_keeps_the_level_and_takes_the_new_p_value(tmp_path: Path) -> None:
    ledger, changed = tmp_path / "alarms.json", Alarm(rate=0.5)
    look(ledger, "xray", "W1", 0.5)
    assert alarm_ledger.level_of(ledger, "xray", "W1", changed) == 0.05 / 52
    assert look(ledger, "xray", "W1", 0.0001, changed) == Look(True, True)
    assert json.loads(ledger.read_text())["xray"] == {"W1": {"level": 0.05 / 52, "p": 0.0001, "rang": True}}
    assert not look(ledger, "xray", "W1", 0.0001).first, "people were told already"


def test_streams_do_not_share_their_looks(tmp_path: Path) -> None:
    ledger = tmp_path / "alarms.json"
    look(ledger, "xray", "W1", 0.5)
    look(ledger, "ct", "W1", 0.5, Alarm(rate=0.1))
    found = json.loads(ledger.read_text())
    assert {stream: entries["W1"]["level"] for stream, entries in found.items()} == {"xray": 0.05 / 52, "ct": 0.1 / 52}


def test_a_year_of_looks_with_shared_calibration_images_keeps_its_rate(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    years, rate, looks, false_alarms = 150, 0.2, 3, 0
    for year in range(years):
        reference = rng.random(60)  # the same all year: its luck is every week's
        weeks = [alarm(rng.random(40), reference, seed=week, draws=99) for week in range(looks)]
        ledger, settings = tmp_path / f"{year}.json", Alarm(rate=rate, looks=looks)
        false_alarms += any([look(ledger, "xray", f"W{week}", p, settings).rang for week, p in enumerate(weeks)])
    assert 0.05 < false_alarms / years < rate + 4 * math.sqrt(rate * (1 - rate) / years)


def test_a_rate_finer_than_the_p_values_is_refused() -> None:
    with pytest.raises(UserError, match=r"could never ring.* set alarm.rate to 0\.0026 or more"):
        alarm_ledger.level(Alarm(rate=0.001))


@pytest.mark.parametrize("content", [b"{", b"\xff"])
def test_a_ledger_that_cannot_be_read_is_not_begun_anew(tmp_path: Path, content: bytes) -> None:
    ledger = tmp_path / "alarms.json"
    ledger.write_bytes(content)
    with pytest.raises(RunError, match=r"alarms\.json cannot be read .* delete it to begin a new one"):
        look(ledger, "xray", "W1", 0.5)
    assert ledger.read_bytes() == content


def enter_many(ledger: Path, stream: str) -> None:
    for week in range(20):
        look(ledger, stream, f"W{week}", 0.5)


def test_looks_taken_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    ledger = tmp_path / "alarms.json"
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=enter_many, args=(ledger, f"stream {number}")) for number in range(4)]
    for process in others:
        process.start()
    for process in others:
        process.join()
    assert {stream: len(entries) for stream, entries in json.loads(ledger.read_text()).items()} == {
        f"stream {number}": 20 for number in range(4)
    }
