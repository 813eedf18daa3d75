"""`make up`: the local stack in one terminal, until Ctrl-C.

A Prefect server, the work pool `local` with a worker, the deployments of prefect.yaml, and an MLflow server on the
database that `erd run` uses without a server. Where PREFECT_API_URL or MLFLOW_TRACKING_URI names a server that is
running already, that one is used.

python -m flows.up --prefect-port 4200 --mlflow-port 5000
"""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from erd.base.addresses import bare, for_request
from erd.base.errors import RunError, UserError

HOST = "127.0.0.1"
POOL = "local"
LOGS, DEPLOYMENTS = Path("logs"), Path("prefect.yaml")
PATIENCE = 180  # seconds for a server to answer, on a busy machine
GRACE = 15  # seconds to end by itself what was asked to
# In the environment of all our processes: a flow run has a session of its own and can outlive its worker.
MARK = "ERD_STACK"
PREFECT = ("-m", "prefect", "--no-prompt")
SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # not used here, and half of the time to start
    # In memory, as by default, the slot of a run that was killed along with the server would be taken for ever.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
}
# The kernel's way to end a child when its parent is killed; elsewhere than on Linux such a child stays.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make up", description="Start the local stack; Ctrl-C stops it.")
    parser.add_argument("--prefect-port", type=int, default=4200, metavar="PORT")
    parser.add_argument("--mlflow-port", type=int, default=5000, metavar="PORT")
    arguments = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Said also for SIGINT: a shell that starts us in the background has it ignored, and so would our children.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    stack = Stack()
    try:
        start(stack, arguments.prefect_port, arguments.mlflow_port)
        while True:
            stack.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr)
        return 0
    except UserError as error:
        print(f"up: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        stack.stop()


def start(stack: "Stack", prefect_port: int, mlflow_port: int) -> None:
    if not DEPLOYMENTS.exists():
        raise RunError(f"there is no {DEPLOYMENTS} here: `erd init --labeled DIR` makes a workspace, or go to a clone")
    prefect, mlflow = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    api = os.environ.get("PREFECT_API_URL") or f"{prefect}/api"
    tracking = os.environ.get("MLFLOW_TRACKING_URI") or mlflow
    own_prefect = not running("PREFECT_API_URL", api, f"{prefect}/api")
    own_mlflow = not (tracking.startswith("http") and running("MLFLOW_TRACKING_URI", tracking, mlflow))
    if own_prefect:
        check_free(prefect_port, "PREFECT_PORT", f"PREFECT_API_URL={prefect}/api")
    if own_mlflow:
        check_free(mlflow_port, "MLFLOW_PORT", f"MLFLOW_TRACKING_URI={mlflow}")

    stack.environment["PREFECT_API_URL"] = api
    if own_prefect:
        stack.serve("Prefect server", *PREFECT, "server", "start", "--host", HOST, "--port", str(prefect_port))
    if own_mlflow:
        if tracking == mlflow:  # the database behind it is the one that is used without a server
            stack.environment.pop("MLFLOW_TRACKING_URI", None)
        stack.run("database", "-c", "from erd.integrations import mlflow_client as t; t.connect()")
        database = stack.environment.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').absolute()}"
        # An artifact root of files, as without a server: what is logged with the server is there without it, and back.
        store = ["--default-artifact-root", str(Path("mlruns").absolute())]
        stack.environment["MLFLOW_BACKEND_STORE_URI"] = database  # not as an option: everybody may list those
        where = ["--host", HOST, "--port", str(mlflow_port), "--workers", "1"]
        stack.serve("MLflow server", "-m", "mlflow", "server", *where, *store)
        del stack.environment["MLFLOW_BACKEND_STORE_URI"]
    stack.environment["MLFLOW_TRACKING_URI"] = tracking = mlflow if own_mlflow else tracking
    stack.wait_for(f"{api}/health", "Prefect server")
    stack.run("work pool", *PREFECT, "work-pool", "create", POOL, "--type", "process", fine="already exists")
    stack.run("deploy", *PREFECT, "deploy", "--all")
    stack.wait_for(f"{tracking}/health", "MLflow server")
    # Not a new name each time, which would leave a long list of dead workers.
    stack.serve("worker", *PREFECT, "worker", "start", "--pool", POOL, "--name", socket.gethostname())

    command = Path(sys.executable).parent / "prefect"
    command = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    print(f"Prefect  {bare(api).removesuffix('/api')}\nMLflow   {bare(tracking)}\nlogs     {LOGS}/\n")
    print("MLflow opens with pages for language models: choose 'Model training' at its top left, once a browser.\n")
    from erd.runs import workspace  # slow, and all servers are started by now

    scenario, week = workspace.scheduled(), f"{date.today():%G-W%V}"
    own = scenario == workspace.OWN
    demo = f"the demo {scenario}; your own images after `erd init --labeled DIR`"
    print(f"The schedule of prefect.yaml runs {f'scenario own, on the images of inbox/{week}' if own else demo}.")
    print("A run at once, from another terminal:\n")
    batch = f" -p batch={week}" if own else ""
    print(f"  PREFECT_API_URL={bare(api)} {command} deployment run 'weekly/weekly'{batch}\n")
    print("Ctrl-C stops everything.", flush=True)


def running(variable: str, address: str, own: str) -> bool:
    """Whether the server at `address` is somebody else's, which runs; ours is the one to start at `own`."""
    if os.environ.get(variable) and answers(f"{address}/health"):
        return True
    if address != own:
        raise RunError(f"{variable} is {bare(address)}, but no server answers there; start it, or unset {variable}")
    return False


def check_free(port: int, option: str, instead: str) -> None:
    try:
        socket.create_server((HOST, port)).close()
    except (OSError, OverflowError) as error:
        why = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else str(error)
        raise RunError(
            f"port {port} cannot be used: {why}; choose another one with `make up {option}=…`, "
            f"or set {instead} if that server is the one you want"
        ) from None


def answers(url: str) -> bool:
    plain, headers = for_request(url)
    asked = urllib.request.Request(plain, headers=headers)  # noqa: S310 (a server of ours)
    with suppress(OSError), urllib.request.urlopen(asked, timeout=5):  # noqa: S310
        return True
    return False


class Stack:
    """The processes of this stack, each with a file in logs/."""

    def __init__(self) -> None:
        self.mark = f"{os.getpid()}-{time.time_ns()}"
        self.environment = SETTINGS | os.environ | {MARK: self.mark}
        self.servers: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, name: str, *words: str) -> None:
        """Start what runs until the end."""
        print(f"starting the {name}", file=sys.stderr)
        self.servers[name] = self._start(name, *words)

    def run(self, name: str, *words: str, fine: str | None = None) -> str:
        """What a command says that ends by itself; an error that says `fine` is none."""
        process = self._start(name, *words)
        while process.poll() is None:
            self.check()
            time.sleep(0.1)
        said = log(name).read_text(errors="replace")
        if process.returncode and not (fine and fine in said):
            raise RunError(failure(name, process.returncode))
        return said

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        LOGS.mkdir(exist_ok=True)
        with log(name).open("wb") as output:
            return subprocess.Popen(
                [sys.executable, *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: runs must end before the server they report to
                preexec_fn=_end_with_parent,
            )

    def wait_for(self, url: str, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not answers(url):
            self.check()
            if time.monotonic() > deadline:
                raise RunError(f"the {name} does not answer at {url}; see {log(name)}")
            time.sleep(0.2)

    def check(self) -> None:
        """An error that tells which of the servers has ended."""
        for name, process in self.servers.items():
            if process.poll() is not None:
                raise RunError(failure(name, process.returncode))

    def stop(self) -> None:
        """End every process: first the flow runs, which tell the server; then the worker; then the servers."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        servers = {process.pid for process in self.servers.values()}
        worker = {self.servers["worker"].pid} if "worker" in self.servers else set()

        def runs() -> set[int]:
            return {group(process) for process in self.processes()} - servers - {0}  # 0: it ended meanwhile

        # Runs twice: one that crashes has `on-crash` started, which the worker may have taken before it ended.
        for chosen in (runs, lambda: worker, runs, lambda: servers - worker):
            leaders = chosen()
            for leader in leaders:
                with suppress(ProcessLookupError):
                    os.kill(leader, signal.SIGTERM)
            deadline = time.monotonic() + GRACE
            while time.monotonic() < deadline:
                followers = [process for process in self.processes() if group(process) in leaders]
                if not followers:
                    break
                # A run waits for the members it is training, and tries again one whose process has died.
                for process in followers:
                    if process.pid not in leaders:
                        with suppress(psutil.Error):
                            process.terminate()
                time.sleep(0.2)
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(self.processes(), timeout=GRACE)

    def processes(self) -> list[psutil.Process]:
        """All that are alive, whoever is their parent now."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # ended meanwhile, or another user's
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
        return found


def group(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return 0


def log(name: str) -> Path:
    return LOGS / f"{name.lower().replace(' ', '-')}.log"


def failure(name: str, code: int) -> str:
    end = log(name).read_text(errors="replace").rstrip().splitlines()[-20:]
    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return "\n".join([f"the {name} ended ({how}); the end of {log(name)}:", *(f"  {line}" for line in end)])


def _end_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
