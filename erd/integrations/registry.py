"""The model registry: each ensemble is a version, and a gate decides which one is served.

    register(settings, run)      # a new version, `challenger`; `champion` too where it is as good as the present one

The gate compares the classifiers' accuracy, and the AUROC where the truth is known. Both may be worse than the
champion's by what params.yaml allows. Where the champion's run is still in the workspace, both classifiers are asked
about the same images: else a new class, which is hard at first, would keep out the only classifier that knows it.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from erd.base import files
from erd.base.errors import RunError, why
from erd.integrations import mlflow_client, mlflow_record
from erd.integrations.mlflow_record import Record
from erd.nets import encoders, weights_file
from erd.reporting import model_card
from erd.runs import stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings.schema import Registry, Settings
from erd.weekly import class_accuracy
from erd.weekly.scorer import Facts

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

log = logging.getLogger("erd")
CHAMPION, CHALLENGER = "champion", "challenger"
ABOUT = (
    "Says of images whether they show something that nobody has labelled. Each batch makes a version; the alias "
    "`champion` is the last one that is as good as those before it, `challenger` the last one of all. A version's "
    "description is its model card."
)
# What served_model.py imports, and nothing that only training needs.
REQUIRED = (
    "mlflow", "numpy", "pandas", "pillow", "pyarrow", "pydantic", "pyyaml", "safetensors", "scipy", "torch", "tqdm"
)  # fmt: skip


@dataclass(frozen=True)
class Registered:
    """A version of a model, None where MLflow could not be reached (ask again later), and what became of it."""

    model: str
    version: int | None
    alias: str | None
    reason: str

    @property
    def champion(self) -> bool:
        return self.alias == CHAMPION


def model_name(settings: Settings) -> str:
    return settings.registry.model or f"erd-{settings.data.scenario}"


def register(settings: Settings, run: RunDir) -> Registered:
    """The run's ensemble as a version of its model, once: a second call finds the version and does what is left to do.

    A version belongs to a run that MLflow knows: call it after `Tracker.send`, which makes the run where the server was
    down at its start, or after `mlflow_runs.sync`.
    """
    name = model_name(settings)
    record = mlflow_record.read(run)
    if record is None or record.run_id is None:
        return Registered(name, None, None, "MLflow knows no run of this folder yet; `erd sync` tries again")
    try:
        stage_records.verify(
            run, run.pretrained, *run.members.glob("*.safetensors"), run.clean_scores, run.neighbour_index
        )
    except RunError as error:
        log.warning("no model is registered: %s", error)
        return Registered(name, None, None, str(error))
    try:
        client = mlflow_client.connect()
        found = client.search_model_versions(f"name = '{name}' and run_id = '{record.run_id}'")
        if found:
            version = found[0]
        else:
            model_id = _log(client, settings, run, record, name)
            version = _create_version(client, name, model_id, run, record.run_id)
        return _decide(client, settings, run, version)
    except Exception as error:  # the run's results are on disk: no trouble with the registry may end it
        trouble = "does not answer" if mlflow_client.unreachable(error) else f"did not take the model: {why(error)}"
        reason = f"MLflow at {mlflow_client.shown()} {trouble}; `erd sync` tries again"
        log.warning(reason)
        return Registered(name, None, None, reason)


@dataclass(frozen=True)
class InUse:
    """Of a model: runs that are a version of it, and batches whose version has an alias, so that the next is compared
    with it."""

    runs: set[str]
    batches: set[str]


def in_use(name: str) -> InUse:
    """What MLflow has of a model; a RunError where it cannot be asked."""
    from mlflow.exceptions import MlflowException

    try:
        client = mlflow_client.connect()
        versions: list[ModelVersion] = []
        token: str | None = None
        while token != "":
            page = client.search_model_versions(f"name = '{name}'", page_token=token)
            versions += page
            token = page.token or ""
        aliases = set(map(str, client.get_registered_model(name).aliases.values())) if versions else set()
    except MlflowException as error:
        said = "does not answer" if mlflow_client.unreachable(error) else why(error)
        raise RunError(f"MLflow at {mlflow_client.shown()} {said}; which models are in use is not known") from error
    named = {version.tags.get("batch", "") for version in versions if str(version.version) in aliases}
    return InUse({str(version.run_id) for version in versions}, named)


def gate(mine: Mapping[str, str], champion: Mapping[str, str], allowed: Registry) -> tuple[bool, str]:
    """Whether a version with these figures may replace the champion, and why in words. Tags are text."""
    if "val_accuracy" not in champion:
        return False, "the champion has no figures to compare with: it was registered by hand"
    said = []
    for figure, words, drop in (
        ("val_accuracy", "accuracy of the classifier", allowed.accuracy_drop),
        ("auroc", "AUROC on its batch", allowed.auroc_drop),
    ):
        if figure not in mine or figure not in champion:
            continue
        new, old = float(mine[figure]), float(champion[figure])
        said.append(f"{words} {new:.4f}, the champion's {old:.4f}, allowed drop {drop:g}")
        if old - new > drop + 1e-9:  # 0.92 − 0.91 is a little more than 0.01
            return False, f"worse than the champion: {said[-1]}"
    return True, "as good as the champion: " + "; ".join(said)


def _log(client: "MlflowClient", settings: Settings, run: RunDir, record: Record, name: str) -> str:
    """Log the model to the run, unless an earlier try came so far; its id."""
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema

    assert record.experiment_id is not None
    logged = client.search_logged_models([record.experiment_id], f"source_run_id = '{record.run_id}'")
    if ready := [model for model in logged if model.status == "READY"]:
        return ready[0].model_id
    facts = Facts.of(settings, run)
    columns = {"score": "float", "p_value": "double", "flagged": "boolean", "predicted": "string"}
    answer = Schema([ColSpec(kind, name) for name, kind in columns.items()])
    with TemporaryDirectory() as folder, _global_location():
        artifacts = {"classifier": run.pretrained, "reference": run.clean_scores, "neighbours": run.neighbour_index}
        if settings.encoder and (weights := weights_file(settings.model.weights)):
            artifacts["encoder"] = weights  # a bundled one comes with its package, and is known by its hash
        artifacts |= {f"member-{label}": run.member(label) for label in facts.labels}
        facts = replace(facts, hashes={key: files.sha256(path) for key, path in artifacts.items()})
        artifacts |= {"facts": Path(folder) / "facts.json"}
        artifacts["facts"].write_text(json.dumps(facts.as_json()), encoding="utf-8")
        # Model.log, since mlflow.pyfunc.log_model takes no run's id: it would start, and end, a run of its own.
        model = client.create_logged_model(record.experiment_id, name, record.run_id, params=record.params)
        Model.log(
            artifact_path=None,
            flavor=mlflow.pyfunc,
            run_id=record.run_id,
            model_id=model.model_id,
            python_model=str(Path(__file__).with_name("served_model.py")),
            artifacts={key: str(path.absolute()) for key, path in artifacts.items()},
            code_paths=[str(Path(__file__).parents[1])],  # the whole package: nets and distances are found by name
            signature=ModelSignature(outputs=answer),  # of the input: see served_model.py
            input_example=np.zeros((2, *facts.shape), np.uint8),  # blank: nobody's images leave the run with the model
            pip_requirements=[f"{name}=={metadata.version(name).partition('+')[0]}" for name in _required(settings)],
        )
    return model.model_id


def _required(settings: Settings) -> list[str]:
    required = [*REQUIRED, *(["pydicom"] if find_spec("pydicom") else [])]  # DICOM can be sent where it could be read
    if settings.encoder is None:
        return required
    known = encoders.BUNDLED.get(settings.encoder) if settings.model.weights is None else None
    return [*required, "timm", "torchvision", *([known.package] if known else [])]


def _create_version(client: "MlflowClient", name: str, model_id: str, run: RunDir, run_id: str) -> "ModelVersion":
    """A version with the figures the gate looks at."""
    from mlflow.exceptions import MlflowException
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

    metrics = Metrics.read(run)
    figures = {"batch": metrics.batch, "val_accuracy": f"{metrics.val_accuracy:.4f}"}
    if metrics.on_batch.auroc is not None:
        figures["auroc"] = f"{metrics.on_batch.auroc:.4f}"
    try:
        client.create_registered_model(name, description=ABOUT)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version(name, f"models:/{model_id}", run_id, tags=figures, model_id=model_id)
    link = json.dumps([{"name": name, "version": version.version}])
    client.set_logged_model_tags(model_id, {MLFLOW_MODEL_VERSIONS: link})  # the page of the run shows it
    return version


def _decide(client: "MlflowClient", settings: Settings, run: RunDir, version: "ModelVersion") -> Registered:
    """Aliases and the reason, the last of which says that it was decided: such a version is left as it is."""
    name, number = version.name, str(version.version)
    if "reason" in version.tags:
        alias = CHAMPION if version.tags["gate"] == "passed" else CHALLENGER
        return Registered(name, int(number), alias, version.tags["reason"])
    client.set_registered_model_alias(name, CHALLENGER, number)
    champion = _champion(client, name)
    if champion is None or str(champion.version) == number:
        passed, reason = True, "there is no other champion"
    else:
        passed, reason = gate(*_comparable(settings, run, version.tags, champion.tags), settings.registry)
    if passed:
        client.set_registered_model_alias(name, CHAMPION, number)
    words = f"{'Champion' if passed else 'Challenger'}: {reason}."
    client.update_model_version(name, number, f"{words}\n\n{model_card.write(settings, run)}")
    client.set_model_version_tag(name, number, "gate", "passed" if passed else "not passed")
    client.set_model_version_tag(name, number, "reason", reason)
    return Registered(name, int(number), CHAMPION if passed else CHALLENGER, reason)


def _comparable(
    settings: Settings, run: RunDir, mine: Mapping[str, str], champion: Mapping[str, str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The figures of both, with accuracies on the same images where that can be had."""
    other = RunDir(run.root.parent / champion["batch"]) if "batch" in champion else run
    if other.root == run.root or not class_accuracy.fits(other, run):
        return mine, champion
    found = class_accuracy.side_by_side(settings, run, other)
    if found.accuracy is None or found.accuracy_before is None:
        return mine, champion
    now, before = f"{found.accuracy}", f"{found.accuracy_before}"
    return {**mine, "val_accuracy": now}, {**champion, "val_accuracy": before}


def _champion(client: "MlflowClient", name: str) -> "ModelVersion | None":
    aliases = client.get_registered_model(name).aliases
    return client.get_model_version(name, str(aliases[CHAMPION])) if CHAMPION in aliases else None


@contextmanager
def _global_location() -> Iterator[None]:
    """MLflow logs models only to its global server, and leaves that in the environment."""
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(mlflow_client.given())
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
        if before is not None:
            os.environ["MLFLOW_TRACKING_URI"] = before
