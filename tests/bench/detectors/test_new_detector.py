"""A new detector is one file: the example of docs/extend.md."""

import re
from pathlib import Path

import pytest
from small_bench import run

from erd.bench import detectors

ROOT = Path(__file__).parents[3]


def test_the_example_in_the_docs_is_a_whole_method(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 25
    (here / "nearest_mean.py").write_text(example)
    before = dict(detectors.METHODS)
    monkeypatch.setattr(detectors, "__path__", [*detectors.__path__, str(here)])
    detectors.table.cache_clear()
    try:
        assert "nearest-mean" in detectors.table(), "a file is found by itself"
        [row] = run("nearest-mean")
        assert row.error is None
        assert (row.auroc or 0) > 0.6
    finally:
        detectors.METHODS.clear()
        detectors.METHODS.update(before)
        detectors.table.cache_clear()
