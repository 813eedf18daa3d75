"""What a run's small files hold, typed: written and read here and nowhere else.

metrics = Metrics.read(run)
metrics.on_batch.auroc, metrics.verdict.flagged
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.base.records import made
from erd.data import packed
from erd.runs.folder import RunDir
from erd.statistics.metrics import Detection
from erd.statistics.verdict import Verdict

SCORES = {"id": str, "score": float, "p_value": float, "flagged": bool, "predicted": str, "wrong_at_most": float}
_HISTORY = TypeAdapter(list[dict[str, float]])
HOLDOUT = "holdout_"  # how the names of the holdout's figures begin


def scores(run: RunDir) -> pd.DataFrame:
    """scores.parquet: a row an image of the batch, in its order."""
    table = files.load_table(run.scores, SCORES)
    if run.batch.exists() and len(table) != len(packed.read(run.batch)):
        raise RunError(f"{run.scores} and {run.batch} are of different batches; run the batch again")
    return table


def scores_of_known(path: Path) -> pd.DataFrame:
    """A table of scores of known images, or of the holdout: what all of them have."""
    return files.load_table(path, {"id": str, "score": float})


def history_of(run: RunDir, net: Path, best: int = 1) -> list[dict[str, float]]:
    """A net's training, a record an epoch, up to the best one at least."""
    path = run.history(net)
    found = files.load_json(path, list)
    with files.understood(path):
        records = _HISTORY.validate_python(found)
        if not 1 <= best <= len(records) or any("epoch" not in one or "val_accuracy" not in one for one in records):
            raise ValueError(f"{len(records)} epochs, of which {best} was the best")
    return records


@dataclass(frozen=True)
class Ingested:
    """ingest.json: what the images are."""

    classes: list[str]
    sizes: dict[str, int]
    warnings: list[str]
    waiting: dict[str, str] = field(default_factory=dict)  # of these: a class that is not learned yet, and the sentence

    @classmethod
    def read(cls, run: RunDir) -> "Ingested":
        if not run.ingested.exists():
            raise UserError(f"{run.ingested} is missing; run the stage ingest first")
        return made(cls, files.load_json(run.ingested), run.ingested)


@dataclass(frozen=True)
class Encoded:
    """encode.json: what the nets see in place of images."""

    encoder: str | None  # None: the images themselves
    weights: str | None = None  # hash of its weights
    input_size: int | None = None  # pixels at which it was shown the images
    features: int | None = None  # of an image
    warnings: list[str] = field(default_factory=list)

    @property
    def sees(self) -> tuple[object, ...]:
        """The same where the nets of two runs can be shown each other's images."""
        return self.encoder, self.weights, self.input_size

    def write(self, run: RunDir) -> None:
        files.save_json(run.encoded, asdict(self))

    @classmethod
    def read(cls, run: RunDir) -> "Encoded":
        if not run.encoded.exists():  # the stage was left out, or there was none in the version that made the run
            return cls(None)
        return made(cls, files.load_json(run.encoded), run.encoded)


@dataclass(frozen=True)
class Group:
    """A candidate class: images of the batch that look alike, and unlike anything labelled."""

    images: int
    at_least: int  # so many of them are novel, with the confidence of the settings
    like: str  # the known class that they are nearest to
    ids: list[str]


@dataclass(frozen=True)
class Decided:
    """decision.json: what was decided of the batch, before anybody asks whether it was right."""

    verdict: Verdict
    warnings: list[str]
    groups: list[Group] = field(default_factory=list)  # the strongest first

    def write(self, run: RunDir) -> None:
        more = {"warnings": self.warnings, "groups": [asdict(group) for group in self.groups]}
        files.save_json(run.decision, asdict(self.verdict) | more)

    @classmethod
    def read(cls, run: RunDir) -> "Decided":
        found = files.load_json(run.decision)
        return made(cls, {**found, "verdict": made(Verdict, found, run.decision)}, run.decision)


@dataclass(frozen=True)
class OfNewClass:
    """A known class that was played as new."""

    name: str
    noticed_from: float | None  # share of the batch; None: at none that was tried


@dataclass(frozen=True)
class Sensitivity:
    """sensitivity.json: from which share of the batch on a class like the known ones would have been noticed."""

    noticed_from: float | None  # by half of the classes
    classes: list[OfNewClass]

    def write(self, run: RunDir) -> None:
        files.save_json(run.sensitivity, asdict(self))

    @classmethod
    def read(cls, run: RunDir) -> "Sensitivity | None":
        """None where nobody has asked."""
        found = files.load_json_if_whole(run.sensitivity)
        return None if found is None else made(cls, found, run.sensitivity)


@dataclass(frozen=True)
class Metrics:
    """metrics.json: the figures of a run. In the file they are one flat table, the holdout's with `holdout_` before."""

    batch: str
    scenario: str
    on_batch: Detection
    on_holdout: Detection
    images: int
    verdict: Verdict
    threshold: float | None  # the lowest score that is flagged
    val_accuracy: float  # of the classifier
    members: int
    sizes: dict[str, int]
    warnings: list[str] = field(default_factory=list)
    assumes: list[str] = field(default_factory=list)  # what the stated rates rest on, in words

    def flat(self) -> dict[str, Any]:
        """As the file has it, and as the commands print it."""
        return {
            "batch": self.batch,
            "scenario": self.scenario,
            **asdict(self.on_batch),
            **{f"{HOLDOUT}{name}": value for name, value in asdict(self.on_holdout).items()},
            "images": self.images,
            **asdict(self.verdict),
            "threshold": self.threshold,
            "val_accuracy": self.val_accuracy,
            "members": self.members,
            "sizes": self.sizes,
            "warnings": self.warnings,
            "assumes": self.assumes,
        }

    def write(self, run: RunDir) -> None:
        files.save_json(run.metrics, self.flat())

    @classmethod
    def read(cls, run: RunDir) -> "Metrics":
        return cls.of(files.load_json(run.metrics), str(run.metrics))

    @classmethod
    def of(cls, found: Mapping[str, Any], where: str = "metrics") -> "Metrics":
        if not isinstance(found, Mapping):
            raise RunError(f"{where} is no table of figures; delete it and run again")
        holdout = {name.removeprefix(HOLDOUT): value for name, value in found.items() if name.startswith(HOLDOUT)}
        parts = {
            "on_batch": made(Detection, found, where),
            "on_holdout": made(Detection, holdout, where),
            "verdict": made(Verdict, found, where),
        }
        return made(cls, {**found, **parts}, where)


@dataclass(frozen=True)
class OfClass:
    """How a classifier does on a class; None: there is no such figure."""

    name: str
    images: int
    now: float | None
    before: float | None
    lost: int = 0  # images that the earlier one had right, and this one has not
    won: int = 0


@dataclass(frozen=True)
class Refused:
    """What made the classifier worse when it was learned: it waits, and the run is without it."""

    what: str  # a class; or a batch, whose answers are left out
    images: int
    needs: int | None  # so many a class takes before it is tried again; None for a batch
    right: float | None  # how the classifier did on the class itself
    fell: OfClass | None  # the known class that suffered most, or all of them; None where none did
    reviews: list[str]  # batches that it came from, the latest last


@dataclass(frozen=True)
class ClassAccuracy:
    """learned.json: a run's classifier beside the one before it, on images that neither was trained on."""

    before: str | None  # the batch of the earlier classifier; None where there is none to compare with
    classes: list[OfClass]
    images: int
    accuracy: float | None
    accuracy_before: float | None
    refused: list[Refused] = field(default_factory=list)
    worse: bool = False  # than the one before, and not by what came with reviews since

    def write(self, run: RunDir) -> None:
        files.save_json(run.class_accuracy, asdict(self))

    @classmethod
    def read(cls, run: RunDir) -> "ClassAccuracy | None":
        """None where nobody has compared."""
        found = files.load_json_if_whole(run.class_accuracy)
        return None if found is None else made(cls, found, run.class_accuracy)


@dataclass(frozen=True)
class Week:
    """A week of `erd simulate`, where the truth is known."""

    week: str
    images: int
    true_share: float  # of images whose class the classifier has not learned
    alarm_p: float
    alarm: bool  # of this week, or of the weeks together
    alarm_level: float
    weeks_p: float | None
    flagged: int
    precision: float | None  # of the flags; None without any
    recall: float | None  # of the novel images; None without any
    accuracy: float  # of the classifier on all images of the week, novel ones included: it is wrong on those
    new_class_share: float
    new_class_accuracy: float | None  # None while it is not known, or not there
    labeled: int  # images that were labelled when the week began
