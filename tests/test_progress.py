"""How far work is that happens elsewhere."""

from pathlib import Path

import pytest

from erd import files, progress


def test_the_share_of_all_members_epochs_is_told_up_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.005)
    paths = [tmp_path / "0.json", tmp_path / "1.json"]
    files.save_json(paths[0], {"epoch": 4})  # left by a run that was killed
    shares: list[float] = []
    with progress.watching(paths, 4, "fine-tune", shares.append):
        for epoch in range(1, 5):
            for path in paths:
                progress.reporter(path, 4)({"epoch": epoch})
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert not any(path.exists() for path in paths)


def test_nobody_is_told_where_nobody_listens(tmp_path: Path) -> None:
    path = tmp_path / "at.json"
    with progress.telling(path):
        assert files.load_json(path) == {}, "begun"
        progress.tell(2, 5)
        assert files.load_json(path) == {"epoch": 2, "epochs": 5}
    progress.tell(3, 5)
    assert not path.exists()
