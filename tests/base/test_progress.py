"""How far long work is, and how long it still takes."""

import logging
import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from erd.base import files, progress


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.005)
    caplog.set_level(logging.INFO, "erd")


def wait(until: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not until() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_the_share_of_all_jobs_epochs_is_told_up_to_the_end(tmp_path: Path) -> None:
    paths = {"0": tmp_path / "0.json", "1": tmp_path / "1.json"}
    files.save_json(paths["0"], {"epoch": 4, "epochs": 4})  # left by a run that was killed
    shares: list[float] = []
    with progress.watched(paths, "fine-tune", total=8, on_progress=shares.append):
        for epoch in range(1, 5):
            for path in paths.values():
                progress.to_file(path, 4)({"epoch": epoch, "loss": 0.1})
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert not any(path.exists() for path in paths.values())


def test_without_a_terminal_a_line_now_and_then_says_what_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.01)
    with progress.watched({"c=3": tmp_path / "3.json", "c=4": tmp_path / "4.json"}, "finetune ×2"):
        progress.begun(tmp_path / "4.json")
        progress.to_file(tmp_path / "3.json", 10)({"epoch": 2})
        wait(lambda: caplog.messages)
    assert "finetune ×2: after 0 min at c=3, epoch 2 of 10; c=4" in caplog.messages


def test_without_a_terminal_lines_say_how_far_it_is_and_how_long_it_still_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.2)
    began = time.monotonic()
    with progress.watched({"c=3": tmp_path / "3.json"}, "finetune", total=40):
        wait(lambda: caplog.messages)
        assert caplog.messages == ["finetune: 0 of 40 epochs after 0 min"], "also before the first epoch has ended"
        progress.to_file(tmp_path / "3.json", 40)({"epoch": 10})
        wait(lambda: len(caplog.messages) > 1)
        time.sleep(1)
    assert re.fullmatch(r"finetune: 10 of 40 epochs after 0 min; about \d s left", caplog.messages[1])
    assert len(caplog.messages) <= (time.monotonic() - began) / 0.2 + 1, "no more often than that"


def test_work_of_this_process_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.0)
    assert list(progress.each(["a", "b", "c"], "sensitivity", unit="class")) == ["a", "b", "c"]
    assert [re.sub(r"about \d s", "about … s", text) for text in caplog.messages] == [
        "sensitivity: 1 of 3 classes after 0 min; about … s left",
        "sensitivity: 2 of 3 classes after 0 min; about … s left",
        "sensitivity: 3 of 3 classes after 0 min",
    ]


def test_work_that_counts_nothing_is_expected_to_take_as_long_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.01)
    with progress.watched({}, "score", usual=200):
        wait(lambda: caplog.messages)
    assert caplog.messages[0] == "score: after 0 min; about 3 min left, by the batch before"


def test_of_work_within_work_only_the_inner_one_speaks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.02)
    with progress.watched({}, "ingest"):
        with progress.bar(2, "images", unit="image") as shown:
            time.sleep(0.3)
            shown.update()
        assert [text.partition(":")[0] for text in caplog.messages] == ["images"]
        wait(lambda: len(caplog.messages) > 1)
    assert caplog.messages[1].startswith("ingest: after")


@pytest.mark.parametrize(("seconds", "text"), [(30, "30 s"), (1200, "20 min"), (7200, "2.0 h")])
def test_the_time_left_is_told_in_words(seconds: float, text: str) -> None:
    assert progress.left(seconds, 1, 2) == f"; about {text} left"


BAR = """
import contextlib, sys
from erd.base import progress
with progress.hidden() if sys.argv[1:] else contextlib.nullcontext():
    for _ in progress.each([1, 2], "simulate", unit="week"):
        pass
"""


def on_a_terminal(*words: str) -> str:
    """What it draws there."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    subprocess.run([sys.executable, "-c", BAR, *words], stderr=theirs, check=True)
    os.write(theirs, b"end")
    drawn = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    return drawn


def test_a_bar_is_drawn_on_a_terminal_unless_it_is_hidden() -> None:
    assert "simulate: 100%" in on_a_terminal()
    assert on_a_terminal("quiet") == "end"


def test_nothing_but_plain_lines_is_written_where_there_is_no_terminal() -> None:
    assert subprocess.run([sys.executable, "-c", BAR], capture_output=True, check=True).stderr == b""
