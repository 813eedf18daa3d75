"""MLflow: one run a batch, with a child for pretraining and one for each member. The one module that talks to tracking.

    begin(settings, run)          # a parent run, RUNNING; what a killed run left open is closed
    send(run)                     # now and then: what is complete and was not sent yet
    end(run, "FINISHED")          # figures, scores, data sets, status

Everything in MLflow is derived from the run folder, and mlflow.json in it says what was sent. So a stopped server stops
no run: `send` says False, and `sync` or the next `begin` sends the rest. What is sent twice is there once: runs are
found again by a tag, and metrics have times that are the same each time.

Without MLFLOW_TRACKING_URI all goes to mlflow.db and mlruns/ in the current folder. Only the parent process comes here.
"""

import fcntl
import getpass
import json
import logging
import os
import re
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from erd import files, learned, report
from erd.errors import RunError, UserError
from erd.params import HERE, Settings
from erd.rundir import RunDir

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

log = logging.getLogger("erd")
Status = Literal["FINISHED", "FAILED", "KILLED"]

# Settings that are no parameters.
UNSENT: dict[str, Any] = HERE | {"run": True, "review": True, "track": True, "registry": True}
ARTIFACTS = ("scores.parquet", "metrics.json", "learned.json", "quarantine.csv", "settings.json", "report.html")
SECTIONS = {  # how a key of metrics.json begins → its metric: MLflow draws a section of charts for each prefix
    "holdout_": "holdout/",
    "max_softmax_": "baseline/max_softmax_",
    "entropy_": "baseline/entropy_",
    "val_accuracy": "classifier/val_accuracy",
    "images": "data/images",
    "": "detection/",
}
# Keys of metrics.json that are settings, and sent as such.
ASKED = ("members", "fpr_target", "fdr_target", "catch_target", "alarm_level")
MOST_CLASSES = 200  # whose accuracies are sent; all are in learned.json
DIGEST_LENGTH = 36  # MLflow takes no longer one
PAUSE = 60.0  # seconds without another try in the middle of a run when the server does not answer
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}

_quiet_until = 0.0  # time.monotonic() before which `send` does not try a server that did not answer
_warned = False


@dataclass
class Record:
    """mlflow.json: all that is not elsewhere in the run folder, and what MLflow has of it."""

    uri: str
    experiment: str
    name: str
    started: str  # ISO, as all times here
    params: dict[str, str]
    tags: dict[str, str]
    key: str = field(default_factory=lambda: uuid.uuid4().hex)  # finds the run again whose answer was lost
    experiment_id: str | None = None
    run_id: str | None = None
    status: str = "RUNNING"
    ended: str | None = None
    why: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)  # stages, RESULTS, END
    earlier: list[dict[str, Any]] = field(default_factory=list)  # of runs in this folder that could not be closed yet


RESULTS, END = "results", "end"


def begin(settings: Settings, run: RunDir, tags: Mapping[str, str] | None = None) -> str | None:
    """Open the run of this folder, before its first stage; its id, or None where MLflow cannot be reached.

    The caller holds the folder's lock or is the only one in it: a run that is still RUNNING here was killed.
    """
    run.root.mkdir(parents=True, exist_ok=True)
    try:
        connect()
    except Unusable:
        raise
    except Exception as error:  # a server that is away stops nothing
        log.debug("MLflow: %s", error)
    with _alone(run):
        old = read(run)
        if old is not None:
            _mark_killed(run, old)
            _attempt(run, old)
        new = Record(
            uri=location(),
            experiment=settings.stream,
            name=run.batch_name,
            started=_now(),
            params=flatten(settings),
            tags=_tags(settings, run) | dict(tags or {}),
        )
        if old is not None and END not in old.sent:
            new.earlier = [*old.earlier, asdict(old) | {"earlier": []}]
        _save(run, new)
        reached = _attempt(run, new)
    for path in sorted(run.root.parent.glob(f"*/{run.tracked.name}")):
        if path != run.tracked:
            reached = _tidy(RunDir(path.parent), reached)
    return new.run_id


def send(run: RunDir) -> bool:
    """Send what is complete and not yet there; whether nothing is left. Never raises, and never waits long."""
    if not run.tracked.exists() or time.monotonic() < _quiet_until:
        return False
    with _alone(run):
        record = read(run)
        return record is not None and _attempt(run, record)


def end(run: RunDir, status: Status, why: str = "", hashes: Mapping[str, str] | None = None) -> bool:
    """Record how the run ended, on disk first; then send everything. `why` is for people, `hashes` are DVC's, by
    path in the run folder (`versioning.save` gives them)."""
    if not run.tracked.exists():
        return False
    with _alone(run):
        if (record := read(run)) is None:
            return False
        record.status, record.ended, record.why, record.hashes = status, _now(), why, dict(hashes or {})
        _save(run, record)
        return _attempt(run, record)


def sync(run: RunDir) -> bool:
    """Send all that an ended run could not send; a run that ended without a word was killed."""
    if not run.tracked.exists():
        return False
    with _alone(run):
        if (record := read(run)) is None:
            return False
        if not _alive(run):
            _mark_killed(run, record)
        return _attempt(run, record)


@dataclass(frozen=True)
class Recorded:
    """What it takes to make a finished run again: a folder with its settings.json, metrics.json and scores.parquet,
    the hashes of its data by path in the run folder, the commit of its code."""

    batch: str
    folder: Path
    hashes: dict[str, str]
    commit: str | None


def recorded(run_id: str, folder: Path) -> Recorded:
    """A run as MLflow knows it, its small files downloaded to `folder`."""
    from mlflow.exceptions import MlflowException

    try:
        client = connect()
        found = client.get_run(run_id)
    except MlflowException as error:
        if unreachable(error):
            raise RunError(
                f"MLflow at {location()} does not answer; start it, or correct MLFLOW_TRACKING_URI"
            ) from None
        raise UserError(f"MLflow at {location()} knows no run '{run_id}'; `erd run --json` prints the id") from None
    tags = found.data.tags
    if parent := tags.get("mlflow.parentRunId"):
        raise UserError(f"{run_id} is the record of one training; give its run's id, {parent}")
    if found.info.status != "FINISHED":
        raise UserError(f"run {run_id} is {found.info.status}, not FINISHED: there is nothing to compare with")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("settings.json", "metrics.json", "scores.parquet"):
        client.download_artifacts(run_id, name, str(folder))
    batch, hashes = _believed(run_id, tags)
    return Recorded(batch, folder, hashes, tags.get("mlflow.source.git.commit"))


def _believed(run_id: str, tags: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Name of the batch and hashes of its data. Whoever may write to the server has written these: they choose which
    of our own files are made, and never a path of their own."""
    batch, said = tags.get("batch", ""), tags.get("data_hashes", "{}")
    try:
        Settings().override({"data.batch": batch})
        hashes = json.loads(said)
    except (UserError, ValueError, RecursionError):
        batch, hashes = "", None
    blank = RunDir(Path())
    packed = [blank.labeled, blank.batch, blank.holdout]
    names = {path.as_posix() for path in (*packed, *map(blank.manifest, packed), blank.ingested)}
    sound = isinstance(hashes, dict) and all(
        name in names and isinstance(md5, str) and re.fullmatch(r"[0-9a-f]{32}", md5) for name, md5 in hashes.items()
    )
    if not batch or not sound:
        raise RunError(f"the record of run {run_id} at {location()} is damaged (its tags batch and data_hashes)")
    return batch, hashes


def send_review(run: RunDir) -> bool:
    """What experts said of a batch's flags (`erd.history.keep`), as metrics of its run; whether they arrived."""
    record = read(run)
    if record is None or record.run_id is None or not run.retrospect.exists():
        return False
    from mlflow.entities import Metric

    found = files.load_json(run.retrospect)
    at = _ms(found.pop("at") or _now())  # the last answer's: sent again it is the same point
    try:
        metrics = [Metric(f"review/{name}", float(value), at, 0) for name, value in found.items() if _is_number(value)]
        _log(connect(), record.run_id, metrics)
    except Exception as error:
        log.warning("MLflow at %s did not take the review's figures (%s); `erd sync %s` tries again",
                    location(), "no answer" if unreachable(error) else one_line(error), run.root)  # fmt: skip
        return False
    return True


def read(run: RunDir) -> Record | None:
    """None where the run was never tracked, or its record is cut off: then it begins anew."""
    found = files.load_json_if_whole(run.tracked)
    try:
        return None if found is None else Record(**found)
    except TypeError:
        log.warning("note: %s is passed over: it is no record of a run", run.tracked)
        return None


def address(run: RunDir) -> str | None:
    """Where a browser shows the run; None where there is no server, or none that knows the run."""
    record = read(run)
    if record is None or record.run_id is None or not record.uri.startswith("http"):
        return None
    return f"{record.uri.rstrip('/')}/#/experiments/{record.experiment_id}/runs/{record.run_id}"


def location() -> str:
    """The tracking server or database. Absolute: MLflow keeps one connection for each name it is given."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').absolute()}"


def prepare() -> None:
    """Import MLflow, which takes seconds, with our settings for it."""
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


def connect() -> "MlflowClient":
    """A client; makes the embedded database where there is none. Raises where nobody answers, after seconds."""
    prepare()
    from mlflow import MlflowClient

    uri = location()
    place = urlsplit(uri)
    if port := PORTS.get(place.scheme.partition("+")[0]):  # MLflow would ask a database that is down for minutes
        socket.create_connection((place.hostname or "localhost", place.port or port), timeout=5).close()
    if place.scheme != "sqlite":
        return MlflowClient(uri)
    handle = os.open(Path(), os.O_RDONLY)  # two processes that make one database at once would spoil it
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _make_database(Path(uri.removeprefix("sqlite:///")))
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
        return client
    except Exception as error:
        if "database is locked" in str(error):  # busy, which passes
            raise
        raise Unusable(
            f"the database of MLflow at {uri} cannot be used ({one_line(error)}): move it away, and a new one is made; "
            "`erd sync RUN_DIR` sends a run there"
        ) from error
    finally:
        os.close(handle)


class Unusable(RunError):
    """A database that no later try will open either."""


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
    path.parent.mkdir(parents=True, exist_ok=True)
    MlflowClient(f"sqlite:///{draft}").search_experiments(max_results=1)
    draft.replace(path)


def unreachable(error: BaseException | None) -> bool:
    """Whether an error is, or comes from, a server that does not answer."""
    import requests

    lost = (requests.ConnectionError, requests.Timeout, ConnectionError, TimeoutError, socket.gaierror)
    while error is not None and not isinstance(error, lost):
        error = error.__cause__ or error.__context__
    return error is not None


def flatten(settings: Settings) -> dict[str, str]:
    """All decided settings that can change a result, dotted."""
    blocks = settings.model_dump(exclude=UNSENT)
    flat = {"seed": blocks.pop("seed")}
    flat |= {f"{block}.{name}": value for block, values in blocks.items() for name, value in values.items()}
    return {name: str(value) for name, value in flat.items() if value is not None}


def _attempt(run: RunDir, record: Record) -> bool:
    """Send; whether all went well. A server that does not answer is told of once."""
    global _quiet_until, _warned
    if END in record.sent:
        return True
    try:
        _send(run, record)
    except Exception as error:  # tracking must not end a run, whatever goes wrong in it
        later = f"`erd sync {run.root}` or the next run sends what is missing"
        if not unreachable(error):
            log.warning("MLflow did not take all of %s: %s; %s", run.root, one_line(error), later)
        elif not _warned:
            log.warning("MLflow at %s does not answer; the run goes on, and %s", location(), later)
        if unreachable(error):
            _quiet_until, _warned = time.monotonic() + PAUSE, True
        return False
    _quiet_until, _warned = 0.0, False
    return True


def _send(run: RunDir, record: Record) -> None:
    """All that MLflow does not have. After each step its name is saved; a step that is done twice does no harm."""
    client = connect()

    def done(step: str) -> None:
        record.sent.append(step)
        _save(run, record)

    parent = _parent(client, record)
    _save(run, record)
    if parent.info.lifecycle_stage == "deleted":  # thrown away in the UI: nothing more is wanted
        return done(END)
    while record.earlier:
        old = Record(**record.earlier[0])
        _close(client, _parent(client, old), old)
        record.earlier.pop(0)
        _save(run, record)
    unsent = {stage: net for stage, net in _trained(run, record).items() if stage not in record.sent}
    existing = _children(client, parent) if unsent else {}
    for stage, net in unsent.items():
        _send_child(client, run, record, stage, net, existing.get(stage))
        done(stage)
    if record.status == "FINISHED" and RESULTS not in record.sent:
        _send_results(client, run, record, parent.info.run_id)
        done(RESULTS)
    if record.status != "RUNNING":
        _close(client, parent, record)
        done(END)


def _parent(client: "MlflowClient", record: Record) -> "Run":
    """The run of a record, made with its original start where it is not there. Fills in the ids."""
    from mlflow.exceptions import MlflowException

    if record.run_id is not None:
        try:
            return client.get_run(record.run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            record.run_id, record.sent = None, []  # another server, or a new database: it gets everything
    record.uri, record.experiment_id = location(), _experiment(client, record.experiment)
    found = client.search_runs([record.experiment_id], f"tags.`erd.key` = '{record.key}'", max_results=1)
    if found:
        parent = found[0]
    else:
        note = f"Which images of batch {record.name} are of a class nobody has seen? Its children: the training of the "
        note += "classifier, and a fine-tuning on the batch for each member. Where members disagree, an image is novel."
        tags = record.tags | {"erd.key": record.key, "mlflow.note.content": note}
        parent = client.create_run(record.experiment_id, _ms(record.started), tags, record.name)
    _log(client, parent.info.run_id, params=record.params)
    record.run_id = parent.info.run_id
    return parent


def _experiment(client: "MlflowClient", name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        return client.create_experiment(name)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def _close(client: "MlflowClient", parent: "Run", record: Record) -> None:
    if record.why:
        client.set_tag(parent.info.run_id, "mlflow.note.content", record.why)
    client.set_terminated(parent.info.run_id, record.status, _ms(record.ended or _now()))


def _trained(run: RunDir, record: Record) -> dict[str, Path]:
    """Stage → net of all that is trained. Until a run has finished only what it trained itself: what else is there may
    be of an earlier run with other settings."""
    members = sorted(run.member(0).parent.glob("[0-9]*.safetensors"), key=lambda path: int(path.stem))
    nets = {"pretrain": run.pretrained} | {f"finetune-{path.stem}": path for path in members}
    return {
        stage: net
        for stage, net in nets.items()
        if files.load_json_if_whole(run.record(stage))
        and run.history(net).exists()
        and (record.status == "FINISHED" or not _reused(run, record, stage))
    }


def _reused(run: RunDir, record: Record, stage: str) -> bool:
    times = files.load_json_if_whole(run.record(stage))
    return times is not None and _ms(times["finished"]) < _ms(record.started)


def _children(client: "MlflowClient", parent: "Run") -> dict[str, str]:
    """Stage → id of the children that are there, whole or not."""
    info = parent.info
    found = client.search_runs([info.experiment_id], f"tags.`mlflow.parentRunId` = '{info.run_id}'")
    return {child.data.tags["stage"]: child.info.run_id for child in found}


def _send_child(
    client: "MlflowClient", run: RunDir, record: Record, stage: str, net: Path, existing: str | None
) -> None:
    from mlflow.entities import Metric

    times = files.load_json(run.record(stage))
    started, finished = _ms(times["started"]), _ms(times["finished"])
    facts, history = files.load_facts(net), files.load_json(run.history(net))
    block = stage.partition("-")[0]
    name = f"member c={facts['classes'][facts['label']]}" if "label" in facts else stage
    own = ("mlflow.user", "mlflow.source.name", "mlflow.source.type", "batch", "scenario")
    tags = {key: value for key, value in record.tags.items() if key in own}
    tags |= {"mlflow.parentRunId": record.run_id or "", "stage": stage}
    if _reused(run, record, stage):
        tags["reused"] = "true"
    if existing is None:
        assert record.experiment_id is not None
        existing = client.create_run(record.experiment_id, started, tags, name).info.run_id

    def at(epoch: float) -> int:
        """Epochs have no times of their own, and take about the same time each."""
        return started + int((finished - started) * epoch / len(history))

    metrics = [
        Metric(_curve(key), value, at(epoch["epoch"]), int(epoch["epoch"]))
        for epoch in history
        for key, value in epoch.items()
        if key != "epoch"
    ]
    best = facts["best_epoch"]
    metrics += [
        Metric("best/epoch", best, finished, 0),
        Metric("best/val_accuracy", history[best - 1]["val_accuracy"], finished, 0),
    ]
    params = {key.partition(".")[2]: value for key, value in record.params.items() if key.startswith(f"{block}.")}
    _log(client, existing, metrics, params | {"net": str(facts["net"]["name"])})
    client.set_terminated(existing, "FINISHED", finished)


def _send_results(client: "MlflowClient", run: RunDir, record: Record, run_id: str) -> None:
    from mlflow.entities import Metric

    found = files.load_json(run.metrics)
    ended = _ms(record.ended or _now())
    figures = {_metric(key): value for key, value in found.items() if _is_number(value) and key not in ASKED}
    figures |= {f"data/{part}": size for part, size in found["sizes"].items()}
    figures |= _learned(run)
    _log(client, run_id, [Metric(key, float(value), ended, 0) for key, value in figures.items()])
    _log_inputs(client, run, record, run_id)
    for name in ARTIFACTS:
        if (run.root / name).exists():
            client.log_artifact(run_id, str(run.root / name))
    if run.figures.exists():
        client.log_artifacts(run_id, str(run.figures), "figures")
    client.set_tag(run_id, "mlflow.note.content", _summary(found))


def _learned(run: RunDir) -> dict[str, float]:
    """Accuracy per class, of this classifier and the one before."""
    found = learned.read(run)
    if found is None:
        return {}
    figures = {"classifier/accuracy": found.accuracy, "classifier/accuracy_before": found.accuracy_before}
    for row in found.classes[:MOST_CLASSES]:
        name = re.sub(r"[^\w. :-]", "_", row["name"], flags=re.ASCII)  # what MLflow takes in a name
        figures |= {f"accuracy/{name}": row["now"], f"accuracy_before/{name}": row["before"]}
    return {name: value for name, value in figures.items() if value is not None}


def _log_inputs(client: "MlflowClient", run: RunDir, record: Record, run_id: str) -> None:
    """The packed sets, by the hashes that bring them back."""
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    inputs = []
    for packed, context in ((run.labeled, "training"), (run.batch, "batch"), (run.holdout, "holdout")):
        rows = len(files.load_tensors(packed)[0]["images"])
        known = record.hashes.get(packed.relative_to(run.root).as_posix())
        digest = known or files.sha256(packed)
        source = {"uri": packed.as_posix(), "hash": digest, "by": "dvc" if known else "sha256"}
        inputs.append(
            DatasetInput(
                Dataset(
                    name=f"{record.name}-{packed.stem}",
                    digest=digest[:DIGEST_LENGTH],
                    source_type="local",
                    source=json.dumps(source),
                    profile=json.dumps({"num_rows": rows}),
                ),
                [InputTag(MLFLOW_DATASET_CONTEXT, context)],
            )
        )
    client.log_inputs(run_id, inputs)
    if record.hashes:  # of manifests and the like too: all it takes to make the run again from its id
        client.set_tag(run_id, "data_hashes", json.dumps(record.hashes))


def _log(
    client: "MlflowClient", run_id: str, metrics: "list[Metric] | None" = None, params: Mapping[str, str] | None = None
) -> None:
    """In as few requests as MLflow takes: 1000 values, 100 parameters."""
    from mlflow.entities import Param

    metrics, listed = metrics or [], [Param(key, value) for key, value in (params or {}).items()]
    for first in range(0, len(listed), 100):
        client.log_batch(run_id, params=listed[first : first + 100])
    for first in range(0, len(metrics), 1000):
        client.log_batch(run_id, metrics=metrics[first : first + 1000])


def _metric(key: str) -> str:
    """auroc → detection/auroc, holdout_auroc → holdout/auroc, max_softmax_auroc → baseline/max_softmax_auroc."""
    start = next(start for start in SECTIONS if key.startswith(start))
    return SECTIONS[start] + key[len(start) :]


def _curve(key: str) -> str:
    """loss → loss/train, val_loss → loss/val, batch_known_accuracy → accuracy/batch_known."""
    part, _, kind = key.rpartition("_")
    return f"{kind}/{part or 'train'}"


def _summary(found: Mapping[str, Any]) -> str:
    text = f"**{report.headline(found)}** {report.alarm(found)}"
    if found["auroc"] is not None:
        text += f" AUROC {found['auroc']:.3f}."
    text += f" The classifier is right on {found['val_accuracy']:.1%} of known validation images."
    return text + "".join(f"\n\nNote: {warning}" for warning in found["warnings"])


def _tags(settings: Settings, run: RunDir) -> dict[str, str]:
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
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10)
        return head.stdout.strip()
    return None


def _tidy(run: RunDir, reached: bool) -> bool:
    """Close and send what another folder's run left; whether MLflow (still) answers."""
    with _alone(run):
        record = read(run)
        if record is None or END in record.sent or (record.status == "RUNNING" and _alive(run)):
            return reached
        _mark_killed(run, record)
        return reached and _attempt(run, record)


def _mark_killed(run: RunDir, record: Record) -> None:
    """A RUNNING record of a run that is no more ended when it last wrote something."""
    if record.status == "RUNNING":
        last = max(path.stat().st_mtime for path in run.root.rglob("*") if path.is_file())
        record.status, record.ended = "KILLED", datetime.fromtimestamp(last, UTC).isoformat()
        _save(run, record)


def _alive(run: RunDir) -> bool:
    """Whether a process holds the folder's lock."""
    handle = os.open(run.root, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


@contextmanager
def _alone(run: RunDir) -> Iterator[None]:
    """One at a time with a run's mlflow.json: its own run, a `sync` by hand, and other runs that tidy up."""
    with (run.root / ".mlflow.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _save(run: RunDir, record: Record) -> None:
    files.save_json(run.tracked, asdict(record))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _ms(when: str) -> int:
    return int(datetime.fromisoformat(when).timestamp() * 1000)


def one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
