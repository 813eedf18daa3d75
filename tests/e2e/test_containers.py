"""compose.yaml's services for real, on a real PostgreSQL and without containers: four weeks at once, one that dies, the
review page, a back-up. What only a container engine can show is not here: that the image builds, and its network."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import composed
import postgres
import pytest
import yaml
from composed import ROOT, Services
from mlflow import MlflowClient
from mlflow import environment_variables as mlflow_variables
from postgres import Postgres
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.settings import Settings as PrefectSettings
from prefect.workers.base import BaseJobConfiguration
from servers import wait_for_answer

from flows import dead_runs

pytestmark = pytest.mark.timeout(1200)  # a busy machine may need many minutes for what takes two
WEEKS = [f"2026-W4{number}" for number in range(4)]
DEAD = "2026-W44"
SMALL = ["pretrain.epochs=1", "finetune.epochs=1", "finetune.members=2", "run.runner=serial"]
LONG = ["pretrain.epochs=1", "finetune.epochs=100000", "finetune.patience=0", "finetune.members=2", "run.runner=serial"]
TOKEN = "a-token"
GIVEN = {"POSTGRES_PASSWORD": postgres.PASSWORD, "BATCH": WEEKS[0], "ERD_REVIEW_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres.server(composed.SERVICES["configs"]["databases"]["content"]) as started:
        yield started


@pytest.fixture(scope="module")
def services(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Up, with the project's own files as workspace; only that a silent run is dead after 45 seconds."""
    stack = Services(tmp_path_factory.mktemp("composed"), database.port, GIVEN)
    workspace = stack.place("worker", "/workspace")
    workspace.mkdir()
    (workspace / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    deployments = (ROOT / "prefect.yaml").read_text()
    assert "mark_crashed: {seconds: 240}" in deployments
    (workspace / "prefect.yaml").write_text(deployments.replace("{seconds: 240}", "{seconds: 45}"))
    try:
        prefect, mlflow = stack.start("prefect"), stack.start("mlflow")
        wait_for_answer(f"{stack.address('prefect')}/api/health", prefect, 300)
        wait_for_answer(f"{stack.address('mlflow')}/health", mlflow, 300)
        quick = {"PREFECT_WORKER_QUERY_SECONDS": "1"}
        worker = stack.start("worker", **quick)
        wait_for(lambda: worker.poll() is not None or "Ctrl-C stops everything" in stack.said("worker"))
        assert worker.poll() is None, stack.said("worker")
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def weeks(services: Services) -> dict[str, dict[str, Any]]:
    """What `erd run --json` says of four batches at once; beside them a fifth, whose process is killed."""
    runs = {batch: start(services, batch, SMALL) for batch in WEEKS}
    victim = start(services, DEAD, LONG)
    folder = services.place("worker", "/workspace") / "runs"

    def tracked(batch: str) -> bool:
        record = folder / batch / "mlflow.json"
        return record.exists() and json.loads(record.read_text())["run_id"] is not None

    try:
        wait_for(lambda: all(tracked(batch) for batch in (*WEEKS, DEAD)) or victim.poll() is not None)
        assert victim.poll() is None, victim.communicate()
        os.killpg(victim.pid, signal.SIGKILL)
        answers = {}
        for batch, run in runs.items():
            out, err = run.communicate(timeout=600)
            assert run.returncode == 0, err
            answers[batch] = json.loads(out.splitlines()[-1]) | {"said": err}
        return answers
    finally:
        for process in (victim, *runs.values()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(services: Services, batch: str, settings: list[str]) -> subprocess.Popen[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    return subprocess.Popen(
        [sys.executable, "-m", "erd.cli", "run", "--batch", batch, *words, "--json"],
        cwd=services.place("worker", "/workspace"), env=services.environment("worker"), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def wait_for(condition: Callable[[], Any], seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.3)


def ask(services: Services, path: str, body: Any, method: str = "POST") -> Any:
    """Of Prefect's API."""
    headers = {"Content-Type": "application/json"}
    url = f"{services.address('prefect')}/api/{path}"
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or "null")


def states(services: Services, flow: str) -> dict[str, str]:
    found = ask(services, "flow_runs/filter", {"flows": {"name": {"any_": [flow]}}, "sort": "START_TIME_ASC"})
    return {run["name"]: run["state_type"] for run in found if run["state_type"] != "SCHEDULED"}


# ----------------------------------------------------------------------------------------------- four weeks, PostgreSQL


def test_four_weeks_at_once_all_complete_and_nothing_is_locked(
    services: Services, database: Postgres, weeks: dict[str, dict[str, Any]]
) -> None:
    assert {batch: states(services, "weekly")[batch] for batch in WEEKS} == dict.fromkeys(WEEKS, "COMPLETED")
    client = MlflowClient(services.address("mlflow"))
    for batch, said in weeks.items():
        run = client.get_run(said["mlflow_run_id"])
        assert run.info.run_name == batch
        assert run.info.status == "FINISHED"
        assert "metrics.json" in {file.path for file in client.list_artifacts(run.info.run_id)}
        children = client.search_runs([run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
        assert len(children) == 3, "the classifier and two members"
        assert not re.search("locked|deadlock|did not take|Traceback", said["said"])
    years = [run for run in client.search_runs([run.info.experiment_id]) if run.info.run_name == "the year"]
    assert [year.info.status for year in years] == ["FINISHED"]
    assert len(client.get_metric_history(years[0].info.run_id, "year/accuracy")) == len(WEEKS)
    assert sorted(said["model_version"] for said in weeks.values()) == [1, 2, 3, 4]
    assert database.ask("prefect", "SELECT count(*) FROM flow_run WHERE state_type = 'COMPLETED'") >= ["4"]
    assert not list(services.folder.rglob("*.db")), "all of it in PostgreSQL"
    for name in ("prefect", "mlflow", "worker"):
        assert not re.search("database is locked|deadlock detected", services.said(name))


def test_a_run_that_died_is_crashed_in_prefect_and_killed_in_mlflow_soon_after(
    services: Services, weeks: dict[str, dict[str, Any]]
) -> None:
    wait_for(lambda: states(services, "weekly")[DEAD] == "CRASHED", 120)
    [run] = [run for run in ask(services, "flow_runs/filter", {}) if run["name"] == DEAD]
    assert run["state"]["message"] == "Not heard of for 45 seconds."
    wait_for(lambda: "COMPLETED" in states(services, "on-crash").values(), 180)
    record = json.loads((services.place("worker", "/workspace") / "runs" / DEAD / "mlflow.json").read_text())
    assert MlflowClient(services.address("mlflow")).get_run(record["run_id"]).info.status == "KILLED"
    assert ended_after(services, "CRASHED") == "COMPLETED", "it was only cut off from the server, and completes"
    assert ended_after(services, "COMPLETED", then="CRASHED") == "COMPLETED", "what has ended stays as it is"
    automations = ask(services, "automations/filter", {})
    assert [one["name"] for one in automations].count("erd: runs that have died are CRASHED") == 1


def ended_after(services: Services, first: str, then: str = "COMPLETED") -> str:
    """How a flow run ends that was called one thing, and then another."""
    flow = ask(services, "flows/", {"name": "weekly"})["id"]
    run = ask(services, "flow_runs/", {"flow_id": flow, "name": "tried", "state": {"type": "RUNNING"}})["id"]
    for state in (first, then):
        ask(services, f"flow_runs/{run}/set_state", {"state": {"type": state}})
    return ask(services, f"flow_runs/{run}", None, "GET")["state_type"]


# ------------------------------------------------------------------------------------------------ the other services


def test_the_review_page_takes_its_token(services: Services, weeks: dict[str, dict[str, Any]]) -> None:
    review = services.start("review")
    wait_for(lambda: review.poll() is not None or "review of batch" in services.said("review"), 120)
    assert review.poll() is None, services.said("review")
    page = services.address("review")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(page)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    opener.open(f"{page}/?token={TOKEN}").close()
    with opener.open(f"{page}/api/batch") as answer:
        assert json.load(answer)["batch"] == WEEKS[0]


def test_mlflow_answers_by_its_names_and_no_other(services: Services) -> None:
    def status(host: str) -> int:
        url = f"{services.address('mlflow')}/api/2.0/mlflow/experiments/search?max_results=1"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host})) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    port = services.ports["mlflow"]
    assert [status(f"{name}:{port}") for name in ("mlflow", "localhost", "evil.example")] == [200, 200, 403]


@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_a_flow_run_in_a_pool_of_containers_has_workspace_servers_and_beats(services: Services, kind: str) -> None:
    """As `prefect deploy` moves a deployment to another pool, and as a worker makes a run's job from the two."""
    template = json.loads((ROOT / "deploy" / f"{kind}-pool.json").read_text())
    ask(services, "work_pools/", {"name": kind, "type": kind, "base_job_template": template})
    deployment = ask(services, "deployments/name/weekly/weekly", None, "GET")
    variables = deployment["job_variables"]
    path = f"deployments/{deployment['id']}"
    try:  # the server checks the variables of prefect.yaml against the pool's
        ask(services, path, {"work_pool_name": kind, "job_variables": variables}, "PATCH")
    finally:
        ask(services, path, {"work_pool_name": "local"}, "PATCH")
    with temporary_settings({PREFECT_API_URL: f"{services.address('prefect')}/api"}):
        job: Any = asyncio.run(Configuration.from_template_and_values(template, variables))
    made = job.model_dump()
    client = composed.SERVICES["services"]["worker"]["environment"]
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        assert made["env"][name] == client[name]
    assert made["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    image = composed.interpolated(composed.SERVICES["services"]["worker"]["image"], {})
    if kind == "docker":
        assert [volume.split(":")[1] for volume in made["volumes"]] == ["/workspace"]
        assert made["networks"] == [f"{composed.SERVICES['name']}_default"]
        assert made["image"] == image
    else:
        pod = made["job_manifest"]["spec"]["template"]["spec"]
        [container], [volume] = pod["containers"], pod["volumes"]
        assert container["image"] == image
        assert container["workingDir"] == container["volumeMounts"][0]["mountPath"] == "/workspace"
        assert container["volumeMounts"][0]["name"] == volume["name"]
        assert volume["persistentVolumeClaim"]["claimName"] == "erd-workspace"
        assert "nvidia.com/gpu" not in container["resources"]["limits"], "only where some are asked for"


class Configuration(BaseJobConfiguration):
    """All that a template makes, of whatever kind of worker."""

    model_config = {"extra": "allow"}  # noqa: RUF012


# ------------------------------------------------------------------------------------------------ back-up


def test_the_databases_come_back_from_a_dump(
    services: Services, database: Postgres, weeks: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """As docs/operate.md has it. The last test: the servers are stopped for it."""
    services.stop()
    assert services.started["worker"].returncode == 0, services.said("worker")
    counts = {
        "prefect": ["SELECT count(*) FROM flow_run", "SELECT count(*) FROM task_run", "SELECT count(*) FROM log"],
        "mlflow": ["SELECT count(*) FROM runs", "SELECT count(*) FROM metrics", "SELECT count(*) FROM model_versions"],
    }
    before = {name: [database.ask(name, query) for query in queries] for name, queries in counts.items()}
    for name in counts:
        database.run("pg_dump", "-Fc", "-f", str(tmp_path / f"{name}.dump"), name)
        database.run("dropdb", name)
        database.run("createdb", name)
        database.run("pg_restore", "-d", name, str(tmp_path / f"{name}.dump"))
    assert {name: [database.ask(name, query) for query in queries] for name, queries in counts.items()} == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", postgres.PASSWORD)
        client = MlflowClient(f"postgresql://{postgres.USER}@127.0.0.1:{database.port}/mlflow")
        assert client.get_run(weeks[WEEKS[3]]["mlflow_run_id"]).info.status == "FINISHED"


# ------------------------------------------------------------------------------------------------ what can be read


def test_services_ports_volumes_and_names_fit_each_other() -> None:
    whole, services = composed.SERVICES, composed.SERVICES["services"]
    text = (ROOT / "compose.yaml").read_text()
    assert set(services) == {"postgres", "prefect", "mlflow", "worker", "review"}
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services)
        for needed in service.get("depends_on", {}):
            assert "healthcheck" in services[needed], f"{name} waits for {needed}"
        for published in service.get("ports", []):
            host, outside, inside = published.split(":")
            assert (host, outside) == ("127.0.0.1", inside), "beyond this machine is a decision of its owner"
            assert inside == composed.PORTS[name]
            assert re.search(rf"--port {inside}\b", service["command"])
        for volume in service.get("volumes", []):
            source, target = composed.interpolated(volume, {}).split(":")
            assert source in whole["volumes"] or source.startswith("./")
            assert target in (*composed.FOLDERS, "/var/lib/postgresql/data")
    for host, port in re.findall(r"[@/](\w+):(\d+)", text):
        assert composed.PORTS.get(host, port) == port
    assert {source["source"] for source in services["postgres"]["configs"]} == set(whole["configs"])


def test_every_deployment_is_watched() -> None:
    names = [one["name"] for one in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]]
    assert names == dead_runs.FLOWS, "a deployment has its flow's name"


def test_every_variable_is_one_that_somebody_reads() -> None:
    told = dict(composed.image_environment())
    for service in composed.SERVICES["services"].values():
        told |= service["environment"]
    template = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    told |= template["deployments"][0]["work_pool"]["job_variables"]["env"]
    ours = "".join(path.read_text() for folder in ("erd", "flows") for path in (ROOT / folder).rglob("*.py"))
    others = {"HOME", "PYTHONUNBUFFERED", "PGPASSWORD", "POSTGRES_USER", "POSTGRES_PASSWORD", "DVC_NO_ANALYTICS"}
    for name in told:
        if name.startswith("PREFECT_"):
            known = name.removeprefix("PREFECT_").lower()
            assert known in prefect_names(), f"Prefect knows no {name}"
        elif name.startswith("MLFLOW_"):
            assert hasattr(mlflow_variables, name) or name == "MLFLOW_BACKEND_STORE_URI", f"MLflow knows no {name}"
        elif name not in others:
            assert name in ours, f"nobody reads {name}"


def prefect_names() -> set[str]:
    """All settings, as variables have them."""

    def names(model: Any, before: str = "") -> Iterator[str]:
        for name, about in model.model_fields.items():
            if hasattr(about.annotation, "model_fields"):
                yield from names(about.annotation, f"{before}{name}_")
            else:
                yield f"{before}{name}"

    return set(names(PrefectSettings))


def test_the_image_has_all_that_is_copied_and_nothing_of_a_workspace() -> None:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    assert copied >= {"params.yaml", "prefect.yaml"}, "`erd init` begins with them"
    assert not copied & {"runs", "library", "inbox", "mlruns", "mlflow.db", ".dvc", "."}
    [extras] = re.findall(r"\.\[([\w,]+)\]", "\n".join(lines))
    declared = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", declared, re.MULTILINE) for extra in extras.split(","))
    made = re.search(r"install -d -o erd (.+)", "\n".join(lines))
    assert made is not None
    assert set(made[1].split()) == set(composed.FOLDERS)
    assert re.search(r"^USER 1000$", "\n".join(lines), re.MULTILINE), "not as root"
