"""Which code makes a result: a detector in a new file, and what it imports."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from erd.base import code_digest
from erd.bench import detectors


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], dict[str, str]]]:
    """The code that counts for a method in a new file, where what it imports has a certain text."""
    known = list(detectors.__path__)

    def counted(aid: str) -> dict[str, str]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))  # a new one: what was read of a file is kept
        folder.mkdir()
        (folder / "mine.py").write_text("from erd.bench.detectors.aid import aid\n")
        (folder / "aid.py").write_text(aid)
        monkeypatch.setattr(detectors, "__path__", [*known, str(folder)])
        forget()
        return code_digest.of("erd.bench.detectors.mine")

    def forget() -> None:
        code_digest.of.cache_clear()
        sys.modules.pop("erd.bench.detectors.aid", None)  # to ask whether `aid` in it is a module imports it

    yield counted
    forget()


def test_the_code_of_a_method_is_what_it_imports_too_but_no_comments(code: Callable[[str], dict[str, str]]) -> None:
    before = code("from erd.training import loop\ndef aid():\n    return 1\n")
    assert set(before) > {"erd.bench.detectors.mine", "erd.bench.detectors.aid", "erd.training", "erd.data.packed"}
    assert "erd.bench.detectors.erd" not in before, "another method is no part of it"
    commented = '"""Aid."""\nfrom erd.training import loop\ndef aid():\n    """One."""\n    return 1  # one\n'
    assert code(commented) == before
    changed = code("from erd.training import loop\ndef aid():\n    return 2\n")
    assert {name for name in before if before[name] != changed[name]} == {"erd.bench.detectors.aid"}
