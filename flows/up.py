"""The local stack: Prefect server, work pool, worker, deployments, MLflow UI. Ctrl-C stops all of it.

make up                                        # ports: PREFECT_PORT (4200), MLFLOW_PORT (5000)
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

HOST = "127.0.0.1"
POOL = "local"
PATIENCE = 180  # seconds for a server to answer; a first start migrates its database


def main() -> int:
    prefect_port, mlflow_port = os.environ.get("PREFECT_PORT", "4200"), os.environ.get("MLFLOW_PORT", "5000")
    os.environ["PREFECT_API_URL"] = f"http://{HOST}:{prefect_port}/api"
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    store = os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        # A group of its own: Ctrl-C reaches this process alone, which then stops the others in order.
        running.append(subprocess.Popen(tool(*command), start_new_session=True))

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        start("prefect", "server", "start", "--host", HOST, "--port", prefect_port)
        wait_for(f"http://{HOST}:{prefect_port}/api/health", running)
        pools = subprocess.run(tool("prefect", "work-pool", "inspect", POOL), capture_output=True)
        if pools.returncode:
            subprocess.run(tool("prefect", "work-pool", "create", POOL, "--type", "process"), check=True)
        subprocess.run(tool("prefect", "--no-prompt", "deploy", "--all"), check=True)
        start("prefect", "worker", "start", "--pool", POOL)
        if not store.startswith("http"):
            ui = ("mlflow", "server", "--host", HOST, "--port", mlflow_port, "--backend-store-uri", store)
            start(*ui, "--default-artifact-root", "mlruns", "--workers", "1")
            wait_for(f"http://{HOST}:{mlflow_port}/health", running)
            store = f"http://{HOST}:{mlflow_port}"
        print(f"\nPrefect   http://{HOST}:{prefect_port}\nMLflow    {store}", flush=True)
        print(f"\nexport PREFECT_API_URL={os.environ['PREFECT_API_URL']}", flush=True)
        print("prefect deployment run 'weekly/weekly' -p batch=2026-W46\n\nCtrl-C stops everything.", flush=True)
        while all(process.poll() is None for process in running):
            time.sleep(0.5)
        print("a server ended by itself; stopping the others", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, SystemExit):
        return 0
    except subprocess.CalledProcessError as error:
        print(f"up: '{' '.join(map(str, error.cmd))}' failed; its words are above", file=sys.stderr)
        return 1
    finally:
        for process in reversed(running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
        for process in reversed(running):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def tool(name: str, *arguments: str) -> list[str]:
    """A command of this environment, whether or not it is on the PATH."""
    return [str(Path(sys.executable).with_name(name)), *arguments]


def wait_for(address: str, running: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and all(process.poll() is None for process in running):
        try:
            with urlopen(address, timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.3)
    print(f"up: {address} does not answer; is its port taken?", file=sys.stderr)
    raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
