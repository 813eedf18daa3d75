"""What a Prefect server knows of this workspace: what is scheduled, what runs. It is asked, or told of an event, and
never started.

    server = ask()          # None where nobody answers in time

By plain requests: Prefect's own client tries again for a minute where a server hangs.
"""

import base64
import json
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

from erd.base.addresses import bare, for_request

PATIENCE = 2.0  # seconds for an answer
PORT = "4200"  # of `make up`, unless PREFECT_PORT says another


@dataclass(frozen=True)
class Deployment:
    name: str
    schedules: list[str]  # those that are on: cron or interval, and time zone
    timezone: str | None
    next: str | None  # ISO; None: no run is planned
    parameters: dict[str, Any]
    worker: bool  # whether somebody takes its runs


@dataclass(frozen=True)
class FlowRun:
    deployment: str
    name: str
    state: str  # Running, Pending, Late, …
    since: str  # ISO


class Server(NamedTuple):
    address: str  # as people may see it
    deployments: list[Deployment]  # from this folder
    elsewhere: list[str]  # folders from which others of the same names were deployed
    runs: list[FlowRun]  # that run, or should


def named() -> bool:
    """Whether Prefect is set to use a server."""
    return bool(_settings().url)


def address() -> str:
    """The API of that server, else where `make up` has it."""
    return _settings().url or f"http://127.0.0.1:{os.environ.get('PREFECT_PORT') or PORT}/api"


def ask() -> Server | None:
    """What it knows; None where nothing that is a Prefect server answers."""
    api = address()
    try:
        whole = _post(api, "deployments/filter", {"limit": 200})
        found = [one for one in whole if (one.get("entrypoint") or "").startswith(("flows/", "flows."))]
        here = {one["id"]: one for one in found if _folder(one) in (None, Path.cwd())}
        wanted = {"deployment_id": {"any_": list(here)}, "state": {"type": {"any_": [*PLANNED, *UNDER_WAY]}}}
        asked = {"flow_runs": wanted, "sort": "EXPECTED_START_TIME_ASC", "limit": 200}
        runs = _post(api, "flow_runs/filter", asked) if here else []
        pools = {one["work_pool_name"] for one in here.values() if one["work_pool_name"]}
        workers = {pool: _post(api, f"work_pools/{pool}/workers/filter", {}) for pool in pools}
    except (URLError, OSError, ValueError, KeyError, TypeError, AttributeError):  # nobody, or somebody else
        return None
    online = {pool for pool, some in workers.items() if any(worker["status"] == "ONLINE" for worker in some)}
    planned = [run for run in runs if run["state_type"] in PLANNED and run["state_name"] != LATE]
    return Server(
        bare(api),
        [_deployment(one, planned, online) for one in here.values()],
        sorted({str(_folder(one)) for one in found if one["id"] not in here}),
        [FlowRun(here[run["deployment_id"]]["name"], run["name"], run["state_name"],
                 run["start_time"] or run["expected_start_time"])
         for run in runs if run not in planned],
    )  # fmt: skip


def tell(event: str, batch: str, payload: dict[str, Any]) -> bool:
    """An event of a batch, for automations; whether a server has taken it. There need not be one."""
    resource = {"prefect.resource.id": f"erd.batch.{batch}", "prefect.resource.name": batch}
    about = {"id": str(uuid.uuid4()), "occurred": datetime.now(UTC).isoformat()}
    with suppress(URLError, OSError, ValueError):
        _post(address(), "events", [about | {"event": event, "resource": resource, "payload": payload}])
        return True
    return False


PLANNED, UNDER_WAY, LATE = ("SCHEDULED",), ("PENDING", "RUNNING", "CANCELLING"), "Late"


def _deployment(one: dict[str, Any], planned: list[dict[str, Any]], online: set[str]) -> Deployment:
    on = [] if one.get("paused") else [item["schedule"] for item in one["schedules"] if item["active"]]
    times = [run["expected_start_time"] for run in planned if run["deployment_id"] == one["id"]]
    return Deployment(
        name=one["name"],
        schedules=[str(schedule.get("cron") or schedule.get("rrule") or schedule.get("interval")) for schedule in on],
        timezone=next((schedule["timezone"] for schedule in on if schedule.get("timezone")), None),
        next=min(times, default=None),
        parameters=one["parameters"],
        worker=one["work_pool_name"] in online,
    )


def _folder(one: dict[str, Any]) -> Path | None:
    """Where its runs work; None: it does not say."""
    for step in one.get("pull_steps") or []:
        for name, inputs in step.items():
            if name.endswith("set_working_directory"):
                return Path(inputs["directory"])
    return None


def _post(api: str, path: str, body: dict[str, Any] | list[dict[str, Any]]) -> Any:
    plain, user = for_request(api)
    headers = {"Content-Type": "application/json"} | user | _authorization()
    request = Request(f"{plain.rstrip('/')}/{path}", json.dumps(body).encode(), headers)  # noqa: S310 (Prefect's own)
    with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
        return json.loads(answer.read() or "null")


def _authorization() -> dict[str, str]:
    settings = _settings()
    if settings.key:
        return {"Authorization": f"Bearer {settings.key.get_secret_value()}"}
    if settings.auth_string:
        basic = base64.b64encode(settings.auth_string.get_secret_value().encode()).decode()
        return {"Authorization": f"Basic {basic}"}
    return {}


def _settings() -> Any:
    """As environment and profile have them now."""
    from prefect.settings import Settings  # slow

    return Settings().api
