"""What all tests share: one thread a process, no data but what a test makes, and no skipping in CI."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Before torch is imported anywhere: tests run side by side, and threads that share cores crawl.
os.environ["OMP_NUM_THREADS"] = "1"
# And many processes are started: compiling all of our code in each would take a minute in all.
for name in ("ERD_DATA", "PREFECT_API_URL", "MLFLOW_TRACKING_URI", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(name, None)
# One Prefect home and one MLflow database for each process of the tests: to make new ones takes many seconds.
_scratch = Path(tempfile.mkdtemp(prefix="erd-tests-"))
os.environ |= {
    "PREFECT_HOME": str(_scratch / "prefect"),
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
    "MLFLOW_TRACKING_URI": f"sqlite:///{_scratch / 'mlflow.db'}",
    "DVC_NO_ANALYTICS": "1",
}

import chains  # noqa: E402
import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from erd.base import locks  # noqa: E402
from erd.runs.folder import RunDir  # noqa: E402

torch.set_num_threads(1)
hypothesis.settings.load_profile("ci")  # the same examples every time, and no deadline on a busy machine


# What starts servers, browsers and processes, or trains for long: `make fast` leaves it to `make test`.
SLOW = ("e2e/", "flows/", "integrations/", "bench/", "benchmarks/", "test_one_registration.py", "test_loss_of_data.py",
        "faults/", "test_docs_run.py", "data/test_many_files.py", "data/test_new_source.py",
        "weekly/test_stale_results.py", "weekly/test_class_accuracy.py", "weekly/test_encode.py",
        "weekly/test_simulation.py",
        "statistics/test_decisions.py", "base/test_torchvision.py", "nets/test_heads.py", "nets/test_encoders.py",
        "review/test_library_runs.py", "statistics/test_neighbours.py", "statistics/test_crossfit.py",
        "statistics/test_scan.py", "weekly/test_window.py", "weekly/test_sealed.py",
        "weekly/test_validate.py", "weekly/test_one_class.py", "training/test_ray.py", "fuzz/")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(SLOW):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A small finished run, trained once for all tests that only read it, whatever the number of processes."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared" / "runs" / "run"
    with locks.held(place.parent.parent / "lock"):
        if not RunDir(place).metrics.exists():
            chains.whole(place)
    return RunDir(place)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    outcome = yield
    report = outcome.get_result()
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where everything must run: {report.longrepr}"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Messages, as (title, text)."""
    from erd.integrations import notify

    found: list[tuple[str, str]] = []
    monkeypatch.setattr(notify, "send", lambda urls, title, text: found.append((title, text)))
    return found


# The review page, and reviewers who open it in a real browser. Imported here: most tests need neither.


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    import browsers

    with browsers.chromium() as started:
        yield started


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve a batch from this process; returns the page's address."""
    from servers import review_pages

    with review_pages() as start:
        yield start


@pytest.fixture
def visit(browser: "Browser") -> "Iterator[Callable[..., Page]]":
    import browsers

    with browsers.reviewers(browser) as open_page:
        yield open_page
