"""What MLflow is told of a run folder: a parent run, a child for pretraining and one for each member, then the results.

    send(client, run, record)           # all that MLflow does not have yet

Everything is derived from the run folder, and its record says what was sent. What is sent twice is there once: runs are
found again by a tag, and metrics have times that are the same each time.
"""

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from erd.base import files
from erd.data import packed
from erd.integrations import mlflow_record
from erd.integrations.mlflow_client import experiment_id, log_figures, log_values, milliseconds, now, shown
from erd.integrations.mlflow_record import END, RESULTS, Record
from erd.reporting import wording
from erd.runs import stage_records
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Encoded, Metrics, Sensitivity, history_of
from erd.runs.stage_records import StageRecord
from erd.statistics.metrics import COMPARED
from erd.statistics.verdict import Verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

ARTIFACTS = ("scores.parquet", "metrics.json", "learned.json", "quarantine.csv", "settings.json", "report.html")
# What a key of metrics.json begins with → its metric. MLflow draws a section of charts for each word before a slash, in
# alphabetical order: so what is looked at first has the first letters.
SECTIONS = {
    "holdout_": "holdout/",
    **{f"{name}_": f"scores/{name}_" for name in COMPARED},
    "val_accuracy": "classifier/val_accuracy",
    "images": "images/batch",
    "threshold": "batch/threshold",
    **{item.name: f"batch/{item.name}" for item in fields(Verdict)},
    "": "detection/",
}
# Keys of metrics.json that are settings, and sent as such.
ASKED = ("members", "fpr_target", "fdr_target", "catch_target", "alarm_level")
MOST_CLASSES = 200  # whose accuracies are sent; all are in learned.json
DIGEST_LENGTH = 36  # MLflow takes no longer one
INHERITED = ("mlflow.user", "mlflow.source.name", "mlflow.source.type", "batch", "scenario")  # tags of a child


def send(client: "MlflowClient", run: RunDir, record: Record) -> None:
    """All that MLflow does not have. After each step its name is saved; a step that is done twice does no harm."""

    def done(step: str) -> None:
        record.sent.append(step)
        mlflow_record.save(run, record)

    parent = _parent(client, record)
    mlflow_record.save(run, record)
    if parent.info.lifecycle_stage == "deleted":  # thrown away in the UI: nothing more is wanted
        return done(END)
    while record.earlier:
        old = Record(**record.earlier[0])
        _close(client, _parent(client, old), old)
        record.earlier.pop(0)
        mlflow_record.save(run, record)
    unsent = [net for net in _trained(run, record) if net.stage not in record.sent]
    existing = _children(client, parent) if unsent else {}
    for net in unsent:
        _send_child(client, run, record, net, existing.get(net.stage))
        done(net.stage)
    if record.status == "FINISHED" and RESULTS not in record.sent:
        _send_results(client, run, record, parent.info.run_id)
        done(RESULTS)
    if record.status != "RUNNING":
        _close(client, parent, record)
        done(END)


# ------------------------------------------------------------------------------------------------ the parent


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
    record.uri, record.experiment_id = shown(), experiment_id(client, record.experiment)
    found = client.search_runs([record.experiment_id], f"tags.`erd.key` = '{record.key}'", max_results=1)
    if found:
        parent = found[0]
    else:
        note = f"Which images of batch {record.name} are of a class nobody has seen? Its children: the training of the "
        note += "classifier, and a fine-tuning on the batch for each member. Where members disagree, an image is novel."
        tags = record.tags | {"erd.key": record.key, "mlflow.note.content": note}
        parent = client.create_run(record.experiment_id, milliseconds(record.started), tags, record.name)
    log_values(client, parent.info.run_id, params=record.params)
    record.run_id = parent.info.run_id
    return parent


def _close(client: "MlflowClient", parent: "Run", record: Record) -> None:
    if record.why:
        client.set_tag(parent.info.run_id, "mlflow.note.content", record.why)
    client.set_terminated(parent.info.run_id, record.status, milliseconds(record.ended or now()))


# ------------------------------------------------------------------------------------------------ the children


@dataclass(frozen=True)
class _Trained:
    """A net that is ready to be told of."""

    stage: str
    path: Path
    times: StageRecord
    reused: bool  # made by an earlier run, and taken over


def _trained(run: RunDir, record: Record) -> list[_Trained]:
    """All that is trained. Until a run has finished only what it trained itself: what else is there may be of an
    earlier run with other settings."""
    members = sorted(run.members.glob("[0-9]*.safetensors"), key=lambda path: int(path.stem))
    nets = {"pretrain": run.pretrained} | {f"finetune-{path.stem}": path for path in members}
    found = []
    for stage, path in nets.items():
        times = stage_records.read(run, stage)
        if times is None or not run.history(path).exists():
            continue
        reused = milliseconds(times.finished) < milliseconds(record.started)
        if record.status == "FINISHED" or not reused:
            found.append(_Trained(stage, path, times, reused))
    return found


def _children(client: "MlflowClient", parent: "Run") -> dict[str, str]:
    """Stage → id of the children that are there, whole or not."""
    info = parent.info
    found = client.search_runs([info.experiment_id], f"tags.`mlflow.parentRunId` = '{info.run_id}'")
    return {child.data.tags["stage"]: child.info.run_id for child in found}


def _send_child(client: "MlflowClient", run: RunDir, record: Record, net: _Trained, existing: str | None) -> None:
    """Its learning curves, its best epoch, its own settings."""
    from mlflow.entities import Metric

    started, finished = milliseconds(net.times.started), milliseconds(net.times.finished)
    facts, history = files.load_facts(net.path), history_of(run, net.path)
    name = f"member c={facts['classes'][facts['label']]}" if "label" in facts else net.stage
    tags = {key: value for key, value in record.tags.items() if key in INHERITED}
    tags |= {"mlflow.parentRunId": record.run_id or "", "stage": net.stage}
    if net.reused:
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
    block = net.stage.partition("-")[0]
    params = {key.partition(".")[2]: value for key, value in record.params.items() if key.startswith(f"{block}.")}
    log_values(client, existing, metrics, params | {"net": str(facts["net"]["name"])})
    client.set_terminated(existing, "FINISHED", finished)


def _curve(key: str) -> str:
    """loss → loss/train, val_loss → loss/val, batch_known_accuracy → accuracy/batch_known."""
    part, _, kind = key.rpartition("_")
    return f"{kind}/{part or 'train'}"


# ------------------------------------------------------------------------------------------------ the results


def _send_results(client: "MlflowClient", run: RunDir, record: Record, run_id: str) -> None:
    """Figures, data sets, files, and a summary in words."""
    metrics = Metrics.read(run)
    figures = {_metric(key): value for key, value in metrics.flat().items() if key not in ASKED}
    figures |= {f"images/{part}": size for part, size in metrics.sizes.items()}
    figures |= _class_accuracy(run) | sensitivity(run)
    log_figures(client, run_id, figures, milliseconds(record.ended or now()))
    _log_inputs(client, run, record, run_id)
    for name in ARTIFACTS:
        if (run.root / name).exists():
            client.log_artifact(run_id, str(run.root / name))
    if run.figures.exists():
        client.log_artifacts(run_id, str(run.figures), "figures")
    client.set_tag(run_id, "mlflow.note.content", _summary(metrics))


def _metric(key: str) -> str:
    """auroc → detection/auroc, flagged → batch/flagged, max_softmax_auroc → scores/max_softmax_auroc."""
    start = key if key in SECTIONS else next(start for start in SECTIONS if key.startswith(start))
    return SECTIONS[start] + key[len(start) :]


def _class_accuracy(run: RunDir) -> dict[str, float | None]:
    """Accuracy per class, of this classifier and the one before."""
    found = ClassAccuracy.read(run)
    if found is None:
        return {}
    figures = {"classifier/accuracy": found.accuracy, "classifier/accuracy_before": found.accuracy_before}
    for each in found.classes[:MOST_CLASSES]:
        name = re.sub(r"[^\w. :-]", "_", each.name, flags=re.ASCII)  # what MLflow takes in a name
        figures |= {f"per_class/{name}": each.now, f"per_class_before/{name}": each.before}
    return figures


def sensitivity(run: RunDir) -> dict[str, float | None]:
    """From which share of the batch on a new class would have been noticed, where somebody has asked."""
    found = Sensitivity.read(run)
    return {} if found is None else {"batch/noticed_from": found.noticed_from}


def _log_inputs(client: "MlflowClient", run: RunDir, record: Record, run_id: str) -> None:
    """The packed sets, by the hashes that bring them back."""
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    inputs = []
    for path, context in ((run.labeled, "training"), (run.batch, "batch"), (run.holdout, "holdout")):
        known = record.hashes.get(path.relative_to(run.root).as_posix())
        digest = known or files.sha256(path)
        source = {"uri": path.as_posix(), "hash": digest, "by": "dvc" if known else "sha256"}
        inputs.append(
            DatasetInput(
                Dataset(
                    name=f"{record.name}-{path.stem}",
                    digest=digest[:DIGEST_LENGTH],
                    source_type="local",
                    source=json.dumps(source),
                    profile=json.dumps({"num_rows": len(packed.read(path))}),
                ),
                [InputTag(MLFLOW_DATASET_CONTEXT, context)],
            )
        )
    client.log_inputs(run_id, inputs)
    if (seen := Encoded.read(run)).encoder:
        log_values(client, run_id, params={"encoder.weights": str(seen.weights), "encoder.input_size":
                                           str(seen.input_size), "encoder.features": str(seen.features)})  # fmt: skip
    if record.hashes:  # of manifests and the like too: all it takes to make the run again from its id
        client.set_tag(run_id, "data_hashes", json.dumps(record.hashes))


def _summary(metrics: Metrics) -> str:
    text = f"**{wording.headline(metrics)}** {wording.alarm(metrics)}"
    if metrics.on_batch.auroc is not None:
        text += f" AUROC {metrics.on_batch.auroc:.3f}."
    text += f" The classifier is right on {metrics.val_accuracy:.1%} of known validation images."
    return text + "".join(f"\n\nNote: {warning}" for warning in metrics.warnings)
