"""What all tests share: one thread a process, no data but what a test makes, and no skipping in CI."""

import os
import tempfile
from pathlib import Path

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

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
hypothesis.settings.load_profile("ci")  # the same examples every time, and no deadline on a busy machine


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    outcome = yield
    report = outcome.get_result()
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where everything must run: {report.longrepr}"
