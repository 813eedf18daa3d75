"""A finished ensemble on new images: score, p-value, flag and class of each.

    scorer = Scorer.of_run(run)
    scorer.score(images)             # uint8, N×H×W or N×H×W×C → a table with a row an image

A score is the flow's own for the same images, to the last bit when they come in the flow's order. The p-values are not:
the flow compares with calibration images that were hidden in the batch its members learned (`mixed`), as the images it
scores were. New images were in no batch, so here they are compared with the calibration images that stayed clean. They
come in any number, so an image is flagged by `detect.fpr`: a false discovery rate takes a whole batch.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from erd.base import files
from erd.data import packed
from erd.data.packed import Rows
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import Ingested
from erd.settings.schema import Run, Settings
from erd.statistics import flags
from erd.statistics.disagreement import disagreement
from erd.training import devices
from erd.training.batches import Mixture
from erd.training.loop import predict
from erd.training.members import load_net
from erd.weekly.stages.finetune import member_labels


@dataclass(frozen=True)
class Facts:
    """What it takes beside the nets."""

    shape: list[int]  # of an image
    labels: list[int]  # of the members
    classes: list[str]
    distance: str
    fpr: float
    threads: int | None  # as the flow scores: another number may change the last bits
    device: str

    @classmethod
    def of(cls, settings: Settings, run: RunDir) -> "Facts":
        return cls(
            shape=list(packed.read(run.labeled).images.shape[1:]),
            labels=member_labels(settings, run),
            classes=Ingested.read(run).classes,
            distance=settings.score.distance,
            fpr=settings.detect.fpr,
            threads=settings.pretrain.threads,
            device="cpu" if settings.run.device == "cpu" else "auto",
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Scorer:
    def __init__(self, facts: Facts, classifier: Path, members: Sequence[Path], reference: Path) -> None:
        """`reference` is the table of scores of known images that were in no training."""
        self.facts = facts
        self.device = devices.device(Run(device="cpu" if facts.device == "cpu" else "auto"))
        self.nets = [load_net(net, self.device) for net in (classifier, *members)]
        self.reference = files.load_table(reference)["score"].to_numpy()

    @classmethod
    def of_run(cls, run: RunDir) -> "Scorer":
        facts = Facts.of(configure.read(run), run)
        return cls(facts, run.pretrained, [run.member(label) for label in facts.labels], run.clean_scores)

    def score(self, images: Any) -> pd.DataFrame:
        """One row an image. They go through the nets in the flow's own chunks, whatever their number."""
        checked = as_images(images, self.facts.shape)
        if not len(checked):
            return pd.DataFrame({"score": [], "p_value": [], "flagged": np.array([], bool), "predicted": []})
        rows = Mixture(Rows(torch.from_numpy(checked)), device=self.device)
        with devices.threads(self.facts.threads):
            classifier, *members = (predict(model, snapshots, rows) for model, snapshots in self.nets)
        scores = disagreement(torch.stack(members), self.facts.distance).numpy()
        return pd.DataFrame(
            {
                "score": scores,
                "p_value": flags.p_values(scores, self.reference),
                "flagged": scores > flags.threshold(self.reference, self.facts.fpr),
                "predicted": np.array(self.facts.classes)[classifier.argmax(1).numpy()],
            }
        )


def as_images(given: Any, shape: Sequence[int]) -> np.ndarray:
    """uint8 images of one image's `shape`, from an array or from what JSON became; one sentence where that fails."""
    wanted = f"N×{'×'.join(map(str, shape))}"
    try:
        images = np.asarray(given)
    except ValueError:
        raise ValueError(f"the images differ in size; send one array of {wanted} whole numbers 0 to 255") from None
    if images.dtype == object or not (np.issubdtype(images.dtype, np.number) or images.size == 0):
        raise ValueError(f"the images are {images.dtype}, not numbers; send one array of {wanted} numbers 0 to 255")
    if images.shape == (0,):
        return np.zeros((0, *shape), np.uint8)
    if list(images.shape[1:]) != list(shape):
        raise ValueError(f"the images are {'×'.join(map(str, images.shape))}; this model takes {wanted}")
    with np.errstate(invalid="ignore"):
        whole = images.astype(np.uint8)
    if images.dtype != np.uint8 and not np.array_equal(whole, images):
        raise ValueError("pixel values must be whole numbers from 0 to 255, as files hold them; do not normalise")
    return np.ascontiguousarray(whole)
