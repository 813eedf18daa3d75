"""The services of compose.yaml without containers: the same commands in the same environment, on free ports."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from servers import free_port

ROOT = Path(__file__).parents[1]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
HOSTS = tuple(SERVICES["services"])
PORTS = {"postgres": "5432", "prefect": "4200", "mlflow": "5000", "review": "8600"}  # in the containers
FOLDERS = ("/workspace", "/state", "/artifacts")
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


class Services:
    """Each with a log; `given` are the variables of the shell in which `docker compose up` is called."""

    def __init__(self, folder: Path, postgres: int, given: Mapping[str, str]) -> None:
        self.folder, self.given = folder, given
        self.ports = {name: str(free_port()) for name in PORTS} | {"postgres": str(postgres)}
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def environment(self, name: str) -> dict[str, str]:
        """As the container has it: the image's, then the service's; nothing of this machine's Prefect and MLflow."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW", "PG"))}
        told = {key: self._here(name, str(value)) for key, value in SERVICES["services"][name]["environment"].items()}
        image = {key: value for key, value in image_environment().items() if key != "HOME"}
        return own | image | told | {"PYTHONPATH": str(ROOT)}

    def start(self, name: str, **more: str) -> subprocess.Popen[bytes]:
        for folder in FOLDERS:
            self.place(name, folder).mkdir(parents=True, exist_ok=True)
        program, *words = shlex.split(self._here(name, SERVICES["services"][name]["command"]))
        module = {"python": [], "erd": ["-m", "erd.cli"]}.get(program, ["-m", program])
        with (self.folder / f"{name}.log").open("w") as log:
            self.started[name] = subprocess.Popen(
                [sys.executable, *module, *words],
                cwd=self.place(name, "/workspace"), env=self.environment(name) | more,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self.started[name]

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def place(self, name: str, inside: str) -> Path:
        """A folder of the container; the workspace is everybody's."""
        return self.folder / (inside if inside == "/workspace" else f"{name}{inside}").lstrip("/")

    def stop(self) -> None:
        """As `docker compose down`: what was started last ends first, asked first."""
        for process in reversed(self.started.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

    def _here(self, name: str, text: str) -> str:
        text = interpolated(text, self.given).replace("0.0.0.0", "127.0.0.1")
        text = re.sub(rf"(?<=[/@])({'|'.join(HOSTS)})(?=:\d)", "127.0.0.1", text)
        for service, port in PORTS.items():
            text = re.sub(rf"\b{port}\b", self.ports[service], text)
        for folder in FOLDERS:
            text = re.sub(rf"(?<!\S){folder}\b", str(self.place(name, folder)), text)
        return text


def interpolated(text: str, given: Mapping[str, str]) -> str:
    """As Compose does: ${A:-else}, and an error for ${A:?why}."""

    def value(found: re.Match[str]) -> str:
        name, sign, rest = found.groups()
        if given.get(name):
            return given[name]
        assert sign == "-", f"{name}: {rest or 'not given'}"
        return rest

    return VARIABLE.sub(value, text)


def image_environment() -> dict[str, str]:
    """ENV of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("ENV ")]
    return dict(word.split("=", 1) for line in lines for word in shlex.split(line)[1:])
