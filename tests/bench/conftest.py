"""What tests of the bench share: a folder of their own, no MLflow, and methods of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from erd.bench import detectors
from erd.bench.detectors import Detector, Given, Method
from erd.bench.sending import Sending


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Sending, "flush", lambda self: None)  # each test would fill the database
    return tmp_path


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Methods of the test's own, beside those there are."""
    own = dict(detectors.table())
    monkeypatch.setattr(detectors, "table", lambda: own)

    def add(name: str, fit: Callable[[Given], Detector], *sees: str) -> None:
        # Its code is that of a detector there is: a module of the tests is not for everybody to import.
        own[name] = Method(name, "a test", "none", "unsupervised", sees, fit, "erd.bench.detectors.energy")

    return add
