"""Where everything of a run is: the one place that knows the names."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from erd.settings.schema import Settings

RUNS = Path("runs")
REPLACED = Path("replaced")  # runs that made room for another one of their name
HISTORY = RUNS / "history.html"
KEPT_WEEKS = RUNS / ".weeks.json"  # what the history says of each run, until one of its files changes
BENCH = Path("bench")  # of detectors side by side


@dataclass(frozen=True)
class RunDir:
    root: Path

    @classmethod
    def of(cls, settings: Settings, workspace: Path = Path()) -> "RunDir":
        """runs/<batch>, and the scenario's name where the batch has none."""
        return cls(workspace / RUNS / (settings.data.batch or settings.scenario_name))

    def move_away(self) -> Path | None:
        """Make room for another batch of this name; where the old one is now."""
        if not self.root.exists():
            return None
        target = self.root.parent.parent / REPLACED / f"{self.batch_name}-{datetime.now():%Y%m%dT%H%M%S}"
        target.parent.mkdir(exist_ok=True)
        return self.root.rename(target)

    @property
    def batch_name(self) -> str:
        return self.root.name

    # ingest
    @property
    def labeled(self) -> Path:
        return self.root / "data" / "labeled.safetensors"  # images, labels, part (an index into PARTS)

    @property
    def batch(self) -> Path:
        return self.root / "data" / "batch.safetensors"  # images

    @property
    def holdout(self) -> Path:
        return self.root / "data" / "holdout.safetensors"  # images

    @property
    def ingested(self) -> Path:
        return self.root / "data" / "ingest.json"  # classes, sizes, warnings

    @staticmethod
    def manifest(packed: Path) -> Path:
        return packed.with_suffix(".parquet")  # row → id, group, label, truth

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine.csv"

    # encode
    @property
    def features(self) -> Path:
        return self.root / "features"  # what an encoder makes of the packed sets, a file each

    def features_of(self, packed: Path) -> Path:
        return self.features / packed.name

    @property
    def older(self) -> Path:
        return self.features / "older.safetensors"  # features of earlier batches (`data.window`); none without them

    @property
    def encoded(self) -> Path:
        return self.features / "encode.json"  # which encoder, if any

    def seen(self, packed: Path, settings: Settings) -> Path:
        """What the nets see of a packed set: its features where there is an encoder, else the images themselves."""
        return self.features_of(packed) if settings.encoder else packed

    # pretrain, finetune
    @property
    def pretrained(self) -> Path:
        return self.root / "pretrained.safetensors"

    @property
    def members(self) -> Path:
        return self.root / "members"  # the ensemble, a file a member and its history

    def member(self, label: int) -> Path:
        return self.members / f"{label}.safetensors"

    @staticmethod
    def history(net: Path) -> Path:
        return net.with_suffix(".history.json")

    @staticmethod
    def checkpoint(net: Path) -> Path:
        return net.with_name(f".{net.stem}.checkpoint.safetensors")

    @staticmethod
    def progress(net: Path) -> Path:
        return net.with_name(f".{net.stem}.progress.json")

    # score, evaluate
    @property
    def scores(self) -> Path:
        return self.root / "scores.parquet"

    @property
    def reference_scores(self) -> Path:
        return self.root / "reference_scores.parquet"  # what the batch is compared with: C; V in `paper` mode

    @property
    def validation_scores(self) -> Path:
        return self.root / "validation_scores.parquet"  # V, on which no member was trained

    @property
    def clean_scores(self) -> Path:
        return self.root / "clean_scores.parquet"  # what new images are compared with: known, and in no training

    @property
    def neighbour_index(self) -> Path:
        return self.root / "neighbours.safetensors"  # what new images are compared with; empty without `score.join`

    @property
    def decision(self) -> Path:
        return self.root / "decision.json"  # alarm, novel share, bounds

    @property
    def sensitivity(self) -> Path:
        return self.root / "sensitivity.json"  # `erd sensitivity`: from which share on a new class is noticed

    @property
    def holdout_scores(self) -> Path:
        return self.root / "holdout_scores.parquet"

    @property
    def settings(self) -> Path:
        return self.root / "settings.json"  # all decided, and nothing of this machine: what `erd reproduce` runs again

    @property
    def tracked(self) -> Path:
        return self.root / "mlflow.json"  # the MLflow run, and what of it was sent

    @property
    def pruned(self) -> Path:
        return self.root / "pruned.json"  # what `erd prune` cleared away

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.json"

    @property
    def class_accuracy(self) -> Path:
        return self.root / "learned.json"  # accuracy per class, of this classifier and the one before

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def plots(self) -> Path:
        return self.root / "plots"  # numbers behind the figures, for `dvc plots`

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    @property
    def alarms(self) -> Path:
        return self.root.parent / "alarms.json"  # the ledger of all looks in the workspace

    # review
    @property
    def review(self) -> Path:
        return self.root / "review"

    @property
    def answers(self) -> Path:
        return self.review / "answers.jsonl"  # what reviewers said; only ever appended to

    @property
    def retrospect(self) -> Path:
        return self.review / "retrospect.json"  # how good the flags were, by what reviewers said

    @property
    def neighbours(self) -> Path:
        return self.review / "neighbours.json"  # row of the batch → the nearest training images

    @property
    def overview(self) -> Path:
        return self.review / "overview.json"  # the map of the batch, and its most useful images

    def record(self, stage: str) -> Path:
        return self.root / "stages" / f"{stage}.json"
