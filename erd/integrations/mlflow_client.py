"""The way to MLflow, and what a run of ours and a cell of the bench log alike.

    client = connect()          # the server of MLFLOW_TRACKING_URI, else mlflow.db and mlruns/ in the current folder
    made = client.create_run(experiment_id(client, "digits-near"), tags=workspace_tags(settings, run))
    log_values(client, made.info.run_id, metrics, params=flatten(settings))

MLflow takes seconds to import: it is imported where it is needed, and `prepare` does it ahead of time.
"""

import getpass
import logging
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from erd.base.addresses import bare
from erd.base.errors import RunError, why
from erd.base.locks import held
from erd.integrations import mlflow_views
from erd.integrations.mlflow_views import STREAM, Look
from erd.runs.folder import RunDir
from erd.settings.schema import HERE, Settings

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

# Settings that are no parameters.
UNSENT: dict[str, Any] = HERE | {"run": True, "review": True, "track": True, "registry": True}
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
SQLITE = "sqlite:///"


class Unusable(RunError):
    """A database that no later try will open either."""


# ------------------------------------------------------------------------------------------------ to connect


def location() -> str:
    """The tracking server or database. Absolute: MLflow keeps one connection for each name it is given."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{Path('mlflow.db').absolute()}"


def shown() -> str:
    """The same for people and for records: without a password."""
    return bare(location())


def given() -> str:
    """The same for MLflow. Its errors repeat the address, so a user and a password go there by its own variables."""
    uri = location()
    place = urlsplit(uri)
    if not (place.scheme in {"http", "https"} and place.username):
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(place.username)
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(place.password or "")
    return bare(uri)


def prepare() -> None:
    """Import MLflow with our settings for it."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for the command's own answer
    }.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401

    logging.getLogger("alembic").setLevel(logging.WARNING)
    # That it tries again says nothing: we say where nobody answers.
    logging.getLogger("urllib3").setLevel(logging.ERROR)


def connect() -> "MlflowClient":
    """A client; makes the embedded database where there is none. Raises where nobody answers, after seconds."""
    prepare()
    from mlflow import MlflowClient

    uri = given()
    place = urlsplit(uri)
    if port := PORTS.get(place.scheme.partition("+")[0]):  # MLflow would ask a database that is down for minutes
        socket.create_connection((place.hostname or "localhost", place.port or port), timeout=5).close()
    if place.scheme != "sqlite":
        return MlflowClient(uri)
    path = Path(uri.removeprefix(SQLITE))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with held(path.parent):  # two processes that make one database at once would spoil it
            _make_database(path)
            client = MlflowClient(uri)
            client.search_experiments(max_results=1)
        return client
    except Exception as error:
        if "database is locked" in str(error):  # busy, which passes
            raise
        raise Unusable(
            f"the database of MLflow at {bare(uri)} cannot be used ({why(error)}): move it away, and a new one is "
            "made; `erd sync RUN_DIR` sends a run there"
        ) from error


def _make_database(path: Path) -> None:
    """Under another name first: MLflow takes seconds for it, and what is left when it is killed can never be used."""
    from mlflow import MlflowClient

    if path.exists():
        if not path.is_file():
            raise IsADirectoryError(f"{path} is no file")
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    for old in path.parent.glob(f".{path.name}.*.part*"):  # of one that was killed; we hold the lock
        old.unlink()
    MlflowClient(f"{SQLITE}{draft}").search_experiments(max_results=1)
    draft.replace(path)


def unreachable(error: BaseException | None) -> bool:
    """Whether an error is, or comes from, a server that does not answer."""
    import requests  # slow

    lost = (requests.ConnectionError, requests.Timeout, ConnectionError, TimeoutError, socket.gaierror)
    while error is not None and not isinstance(error, lost):
        error = error.__cause__ or error.__context__
    return error is not None


# ------------------------------------------------------------------------------------------------ to log


def experiment_id(client: "MlflowClient", name: str, look: Look = STREAM) -> str:
    """The experiment of that name: made where there is none, taken back where it was thrown away."""
    from mlflow.exceptions import MlflowException

    if (found := client.get_experiment_by_name(name)) is None:
        try:
            made = client.create_experiment(name)
        except MlflowException as error:  # another run was quicker
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)
    if found is not None:
        made = found.experiment_id
    if found is not None and found.lifecycle_stage == "deleted":
        client.restore_experiment(made)
    mlflow_views.dress(client, made, {} if found is None else found.tags, look)
    return made


def log_values(
    client: "MlflowClient",
    run_id: str,
    metrics: "Sequence[Metric]" = (),
    params: Mapping[str, str] | None = None,
) -> None:
    """In as few requests as MLflow takes: 1000 values, 100 parameters."""
    from mlflow.entities import Param

    listed = [Param(key, value) for key, value in (params or {}).items()]
    for first in range(0, len(listed), 100):
        client.log_batch(run_id, params=listed[first : first + 100])
    for first in range(0, len(metrics), 1000):
        client.log_batch(run_id, metrics=metrics[first : first + 1000])


def log_figures(client: "MlflowClient", run_id: str, figures: Mapping[str, Any], at: int) -> None:
    """One point each, at that time, with as many digits as a person reads: all of them are in metrics.json. Words, and
    figures nobody knows (None), are left out."""
    from mlflow.entities import Metric

    numbers = {
        name: value for name, value in figures.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    short = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in numbers.items()}
    log_values(client, run_id, [Metric(name, float(value), at, 0) for name, value in short.items()])


def flatten(settings: Settings) -> dict[str, str]:
    """All decided settings that can change a result, dotted."""
    blocks = settings.model_dump(exclude=UNSENT)
    flat = {"seed": blocks.pop("seed")}
    flat |= {f"{block}.{name}": value for block, values in blocks.items() for name, value in values.items()}
    return {name: str(value) for name, value in flat.items() if value is not None}


def workspace_tags(settings: Settings, run: RunDir) -> dict[str, str]:
    """What a run belongs to, who made it, and from which code."""
    tags = {"batch": run.batch_name, "scenario": settings.data.scenario}
    tags |= {"mlflow.source.name": "erd", "mlflow.source.type": "LOCAL"}
    with suppress(OSError, KeyError):  # a container's user may have no name
        tags["mlflow.user"] = getpass.getuser()
    if commit := git_commit():
        tags["mlflow.source.git.commit"] = commit
    return tags


def git_commit() -> str | None:
    """Of the workspace; None where it is no git repository."""
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["git", "rev-parse", "HEAD"]  # the user's own git, wherever it is
        head = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10)
        return head.stdout.strip()
    return None


def now() -> str:
    """The time, ISO: as our records keep times."""
    return datetime.now(UTC).isoformat()


def milliseconds(when: str) -> int:
    """An ISO time as MLflow takes it."""
    return int(datetime.fromisoformat(when).timestamp() * 1000)
