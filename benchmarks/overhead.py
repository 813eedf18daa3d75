"""The fixed cost of orchestration: `erd run` (Prefect, MLflow, DVC) minus the bare stages, side by side.

    python benchmarks/overhead.py --json
    python benchmarks/overhead.py --scenario digits-near --scenario fmnist-near --data DIR --json

Each repetition runs the bare stages, the flow against a running Prefect server, and the flow with a temporary one, in
new processes and new workspaces that are DVC repositories. Seconds; medians, and the smallest and largest. `--quick`
leaves out the running server.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
QUICK = ["pretrain.epochs=1", "finetune.epochs=1", "finetune.members=2"]
BARE = """
import sys
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.weekly import chain

if __name__ == "__main__":
    scenario, data, *overrides = sys.argv[1:]
    settings = settings_for(scenario=scenario, data=data or None, overrides=overrides)
    run = RunDir.of(settings)
    for stage in chain.CHAIN:
        chain.run(stage, settings, run)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", help="repeatable; default digits-near")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="with a temporary server only")
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"))
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    data = str(Path(arguments.data).resolve()) if arguments.data else ""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        script = place / "bare.py"
        script.write_text(BARE)
        with nullcontext("") if arguments.quick else prefect_server(place / "server") as address:
            for scenario in arguments.scenario or ["digits-near"]:
                flow = [sys.executable, "-m", "erd.cli", "run", "--scenario", scenario, "--json"]
                flow += [word for setting in QUICK for word in ("--set", setting)]
                flow += ["--data", data] if data else []
                ways = {
                    "bare stages": ([sys.executable, str(script), scenario, data, *QUICK], {}),
                    "running server": (flow, {"PREFECT_API_URL": address}),
                    "temporary server": (flow, {"PREFECT_HOME": str(place / "ephemeral")}),
                }
                if arguments.quick:
                    del ways["running server"]
                seconds: dict[str, list[float]] = {way: [] for way in ways}
                for repetition in range(arguments.repetitions + 1):  # the first fills the file system's cache
                    for way, (command, environment) in ways.items():
                        if arguments.quick and not repetition and way == "bare stages":
                            continue  # the flow imports all that they do
                        taken = timed(command, environment, place / "workspace")
                        if repetition:
                            seconds[way].append(taken)
                row = {"scenario": scenario, "bare_seconds": round(statistics.median(seconds["bare stages"]), 1)}
                for way in list(ways)[1:]:
                    extra = [a - b for a, b in zip(seconds[way], seconds["bare stages"], strict=True)]
                    row[way] = {
                        "overhead_seconds": round(statistics.median(extra), 1),
                        "from": round(min(extra), 1),
                        "to": round(max(extra), 1),
                    }
                rows.append(row)
                if not arguments.json:
                    print(json.dumps(row), flush=True)
    print(json.dumps({"goal_seconds": 15, "rows": rows}))


def timed(command: list[str], environment: dict[str, str], workspace: Path) -> float:
    shutil.rmtree(workspace, ignore_errors=True)
    (workspace / ".dvc").mkdir(parents=True)
    for name in ("params.yaml", "dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config"):
        shutil.copy(ROOT / name, workspace / name)
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DVC_NO_ANALYTICS": "1", **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return time.monotonic() - started


@contextmanager
def prefect_server(home: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("prefect")), "server", "start", "--port", str(port)]
    environment = os.environ | {"PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    try:
        address = f"http://127.0.0.1:{port}/api"
        while server.poll() is None:
            try:
                urlopen(f"{address}/health", timeout=5).close()
                break
            except (URLError, OSError):
                time.sleep(0.3)
        yield address
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
