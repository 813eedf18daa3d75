"""How far work is that happens elsewhere."""

import logging
import time
from pathlib import Path

import pytest

from erd.base import files, progress


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.005)


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
    caplog.set_level(logging.INFO, "erd")
    with progress.watched({"c=3": tmp_path / "3.json", "c=4": tmp_path / "4.json"}, "finetune ×2"):
        progress.begun(tmp_path / "4.json")
        progress.to_file(tmp_path / "3.json", 10)({"epoch": 2})
        deadline = time.monotonic() + 10
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "finetune ×2: after 0 min at c=3, epoch 2 of 10; c=4" in caplog.messages
