"""`erd doctor`: what is installed, which devices there are, which servers answer, which image sets are found.

    examine(data=None)["problems"]          # sentences that say what to do; none where all is well

What can be wrong with the workspace is in workspace_checks. It only looks: nothing is downloaded or trained.
"""

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import torch

from erd.base.addresses import bare, for_request
from erd.base.errors import UserError, why
from erd.base.processes import cores
from erd.base.version import VERSION
from erd.integrations import mlflow_client, workspace_checks
from erd.nets import encoders
from erd.runs import workspace
from erd.settings import families, schema

PACKAGES = ("torch", "torchvision", "prefect", "mlflow", "dvc", "pandas", "fastapi", "scikit-learn", "safetensors")
SETS = ("mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "chestxray64")
SERVERS = {"prefect": ("PREFECT_API_URL", "/health"), "mlflow": ("MLFLOW_TRACKING_URI", "/health")}
PARAMS = Path("params.yaml")
ROOM = 2 << 30  # bytes a run with the paper's sizes may need


def examine(data: Path | None) -> dict[str, Any]:
    problems: list[str] = []
    found: dict[str, Any] = {
        "erd": VERSION,
        "python": platform.python_version(),
        "packages": _packages(problems),
        "devices": _devices(),
        "torchvision_works": _torchvision(problems),
        "encoders": _encoders(problems),
        "servers": _servers(problems),
        "data": _sets(data, problems),
        "scenario": _scenario(problems),
        "scheduled": _scheduled(),
    }
    free = shutil.disk_usage(Path.cwd()).free
    found["free_disk_gb"] = round(free / (1 << 30), 1)
    if free < ROOM:
        problems.append(f"only {free >> 20} MB of disk are free here; free some or work in another folder")
    if not os.access(Path.cwd(), os.W_OK):
        problems.append("this folder is not writable; work in another one")
    problems += [text for text in workspace_checks.problems() if text not in problems]
    return found | {"notes": workspace_checks.notes(), "problems": problems}


def _packages(problems: list[str]) -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{name} is not installed; run make install")
    fastapi = tuple(int(part) for part in versions.get("fastapi", "0.140").split(".")[:2])
    if not (0, 139) <= fastapi < (0, 151):
        problems.append(f"fastapi {versions['fastapi']} breaks Prefect; install with -c constraints.txt")
    return versions


def _devices() -> list[str]:
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [*gpus, f"cpu, {cores()} cores"]


def _torchvision(problems: list[str]) -> bool:
    try:
        from erd.base.torchvision import torchvision  # noqa: F401
    except Exception as error:
        problems.append(f"torchvision does not import ({error}); install the build that matches torch")
        return False
    return True


def _encoders(problems: list[str]) -> dict[str, str]:
    """Which encoders need no file of weights, and whether they are the right ones."""
    found = {name: encoders.state(name) for name in encoders.BUNDLED}
    if found[encoders.DEFAULT] != encoders.SOUND:
        problems.append(f"the weights of {encoders.DEFAULT} are {found[encoders.DEFAULT]}; run make install")
    return found


def _servers(problems: list[str]) -> dict[str, str]:
    reached = {}
    for name, (variable, path) in SERVERS.items():
        address = os.environ.get(variable, "")
        if not address.startswith("http"):
            reached[name] = bare(address) or "embedded"
            if name == "mlflow" and _database():
                try:
                    mlflow_client.connect()
                except mlflow_client.Unusable as error:
                    problems.append(str(error))
            continue
        plain, headers = for_request(address)
        try:
            asked = Request(plain.rstrip("/") + path, headers=headers)  # noqa: S310 (it begins with http)
            with urlopen(asked, timeout=5):  # noqa: S310
                reached[name] = plain
        except (URLError, OSError) as error:
            reached[name] = "not reached"
            problems.append(
                f"{variable} is {plain}, which does not answer ({why(error)}); start it or unset the variable"
            )
    return reached


def _database() -> bool:
    """Whether MLflow's database is a file that is there."""
    place = mlflow_client.location()
    return place.startswith(mlflow_client.SQLITE) and Path(place.removeprefix(mlflow_client.SQLITE)).exists()


def _sets(data: Path | None, problems: list[str]) -> dict[str, str]:
    if data is None:
        return {"digits": "bundled"}
    if not data.is_dir():
        problems.append(f"the data folder {data} is not there; correct --data or ERD_DATA")
        return {"digits": "bundled"}
    found = {name: "found" for name in SETS if any(data.glob(f"{name}*.npz"))}
    return {"digits": "bundled"} | found


def _scenario(problems: list[str]) -> str:
    """What `erd run` runs here: as params.yaml says, else the default."""
    try:
        return families.get(schema.load(PARAMS if PARAMS.exists() else None).data.scenario).name
    except UserError as error:
        problems.append(str(error))
        return "not known"


def _scheduled() -> str:
    """What the schedule runs here, `make up` or not."""
    try:
        scenario = workspace.scheduled()
    except UserError:  # told as a problem of params.yaml already
        return "not known"
    return "own: the images of inbox/<week>" if scenario == workspace.OWN else f"the demo {scenario}"
