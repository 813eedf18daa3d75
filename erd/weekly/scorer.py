"""A finished ensemble on new images: score, p-value, flag and class of each.

    scorer = Scorer.of_run(run)
    scorer.score(images)             # arrays of any size, or contents of files → a table with a row an image

A score is the flow's own for images that were not in its batch, to the last bit when they come in the flow's order. The
batch's own images had other scores there where it was cross-fitted (by the folds that did not learn them), and other
p-values where calibration images were hidden in it (`mixed`). New images were in no batch, so they are compared with
calibration images that were not either. They come in any number, so an image is flagged by `detect.fpr`: a false
discovery rate takes a whole batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from erd.base import files
from erd.base.errors import RunError
from erd.data import packed
from erd.data.feature_store import as_stored
from erd.data.given import as_images
from erd.data.packed import Rows
from erd.nets import encoders, weights_file
from erd.nets.encoders import Encoder
from erd.runs import configure, pruned, results, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Encoded, Ingested
from erd.settings.schema import Run, Settings
from erd.statistics import flags
from erd.statistics.disagreement import disagreement
from erd.statistics.joint import Joint
from erd.training import devices
from erd.training.batches import Mixture
from erd.training.loop import predict
from erd.training.members import load_net
from erd.weekly.stages.finetune import member_labels


@dataclass(frozen=True)
class Facts:
    """What it takes beside the nets."""

    shape: list[int]  # of an image
    encoder: dict[str, Any] | None  # its name, hash of weights and input size, where the nets see its features
    labels: list[int]  # of the members
    classes: list[str]
    distance: str
    fpr: float
    threads: int | None  # as the flow scores: another number may change the last bits
    device: str
    hashes: dict[str, str] = field(default_factory=dict)  # of a registered model's files, by their names there

    @classmethod
    def of(cls, settings: Settings, run: RunDir) -> "Facts":
        seen = Encoded.read(run)
        return cls(
            shape=list(packed.read(run.batch).images.shape[1:]),
            encoder={"name": seen.encoder, "weights": seen.weights, "size": seen.input_size} if seen.encoder else None,
            labels=member_labels(settings, run),
            classes=Ingested.read(run).classes,
            distance=settings.score.distance,
            fpr=settings.detect.fpr,
            threads=settings.pretrain.threads,
            device="cpu" if settings.run.device == "cpu" else "auto",
        )

    def check(self, given: Mapping[str, Path]) -> None:
        """Refuse a file that is not the one that was registered, before anything is loaded from it."""
        for name, sha256 in self.hashes.items():
            if name not in given or files.sha256(given[name]) != sha256:
                raise RunError(
                    f"the model's file '{name}' is not the one that was registered: its hash is another; register the "
                    "model again, or restore the file from a back-up"
                )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Scorer:
    def __init__(
        self,
        facts: Facts,
        classifier: Path,
        members: Sequence[Path],
        reference: Path,
        neighbours: Path,
        weights: Path | None = None,
    ) -> None:
        """`reference` is the table of scores of known images that were in no training, `weights` the encoder's file
        where it is not bundled."""
        self.facts = facts
        self.joint = Joint.load(neighbours)
        self.device = devices.device(Run(device="cpu" if facts.device == "cpu" else "auto"))
        self.nets = [load_net(net, self.device) for net in (classifier, *members)]
        self.reference = results.scores_of_known(reference)["score"].to_numpy()
        self.encoder = self._encoder(weights)

    @classmethod
    def of_run(cls, run: RunDir) -> "Scorer":
        pruned.check(run)
        settings = configure.read(run)
        facts = Facts.of(settings, run)
        members = [run.member(label) for label in facts.labels]
        stage_records.verify(run, run.pretrained, *members, run.clean_scores, run.neighbour_index)
        weights = weights_file(settings.model.weights) if settings.encoder else None
        return cls(facts, run.pretrained, members, run.clean_scores, run.neighbour_index, weights)

    def _encoder(self, weights: Path | None) -> Encoder | None:
        """The one the nets were trained with, by its hash: features of another would mean nothing to them."""
        if (known := self.facts.encoder) is None:
            return None
        download = weights is None and known["name"] not in encoders.BUNDLED  # it came from the hub
        found = encoders.load(known["name"], weights=weights, size=known["size"], download=download, device=self.device)
        if known["weights"] != found.weights:
            raise RunError(
                f"the weights of encoder '{known['name']}' are not those that this model was trained with: their hash "
                f"is {found.weights[:12]}… and has to be {known['weights'][:12]}…"
            )
        return found

    def score(self, images: Any) -> pd.DataFrame:
        """One row an image. They go through the nets in the flow's own chunks, whatever their number."""
        checked = as_images(images, self.facts.shape)
        if not len(checked):
            return pd.DataFrame({"score": [], "p_value": [], "flagged": np.array([], bool), "predicted": []})
        seen = torch.from_numpy(checked)
        with devices.threads(self.facts.threads):
            if self.encoder is not None:
                seen = as_stored(self.encoder.features(seen))[:, None, None, :]
            rows = Mixture(Rows(seen), device=self.device)
            classifier, *members = (predict(model, snapshots, rows) for model, snapshots in self.nets)
            scores = disagreement(torch.stack(members), self.facts.distance).numpy()
            if self.joint is not None:
                table = self.joint.of_table(pd.DataFrame({"disagreement": scores}), seen.flatten(1))
                scores = table["score"].to_numpy()
        return pd.DataFrame(
            {
                "score": scores,
                "p_value": flags.p_values(scores, self.reference),
                "flagged": scores > flags.threshold(self.reference, self.facts.fpr),
                "predicted": np.array(self.facts.classes)[classifier.argmax(1).numpy()],
            }
        )
