"""erd as a library: for notebooks and other people's code. docs/api.md has each in five lines.

found = erd.fit((x, y), batch=u)              # arrays, or a folder of class folders and an inbox
found.scores, found.alarm, found.score(new)

p = erd.p_values(scores, reference)           # any detector's scores against those of known images
flagged = erd.flags(scores, reference, fdr=0.05)

knn = erd.detector("knn", (x, y), batch=u)    # one of `erd methods`
run = erd.read_run("runs/2026-W46")           # what a weekly run left
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from erd.base.errors import UserError
from erd.bench import detectors
from erd.bench.cells import hand_out
from erd.bench.encoded import as_seen
from erd.bench.plan import Place
from erd.data import packed
from erd.data.packed import Rows
from erd.runs import configure, results
from erd.runs.answers import Answer, Answers
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Ingested, Metrics
from erd.settings import schema
from erd.settings.schema import Settings
from erd.statistics import flags as flagging
from erd.statistics import novelty_test
from erd.statistics.novel_share import Share
from erd.statistics.novel_share import novel_share as share_of
from erd.statistics.verdict import Verdict
from erd.training import devices
from erd.weekly import chain
from erd.weekly.scorer import Scorer

Labelled = tuple[np.ndarray, np.ndarray] | str | Path  # images and labels; or class folders, a manifest, an .npz
Batch = np.ndarray | str | Path  # N×H×W or N×H×W×3, uint8; or a folder, a manifest, an .npz


# ------------------------------------------------------------------------------------------------- an ensemble


@dataclass(frozen=True)
class Fitted:
    """What is novel in a batch, and an ensemble that scores further images. Its files last as long as it does, unless
    `fit` was told a folder."""

    run: RunDir
    scorer: Scorer
    _scratch: Any = field(default=None, repr=False)  # a temporary folder goes away with this object

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row an image of the batch: id, score, p_value, flagged, predicted, …"""
        return results.scores(self.run)

    @property
    def verdict(self) -> Verdict:
        """How many are flagged, whether the alarm rings, the novel share."""
        return Decided.read(self.run).verdict

    def score(self, images: np.ndarray) -> pd.DataFrame:
        """Images that were not in the batch: score, p_value, flagged at `detect.fpr`, predicted."""
        return self.scorer.score(images)


def fit(
    labelled: Labelled,
    batch: Batch,
    *,
    settings: Sequence[str] = (),
    folder: str | Path | None = None,
) -> Fitted:
    """An ensemble on labelled images and a batch: what in the batch is of a class nobody has labelled?

    `settings` are `a.b=v` as for `erd run --set`, such as "finetune.members=2" or "run.runner=process" (which needs
    `if __name__ == "__main__":` in a script, as all of multiprocessing does). `folder` keeps the files.
    """
    scratch = None if folder else tempfile.TemporaryDirectory(prefix="erd-")
    place = Path(folder or scratch.name)  # type: ignore[union-attr]
    chosen = _settings(labelled, batch, place, settings)
    run = RunDir(place / "run")
    for stage in chain.up_to("score"):
        chain.run(stage, chosen, run)
    return Fitted(run, Scorer.of_run(run), scratch)


# ------------------------------------------------------------------------------------------------- statistics on scores


def p_values(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """How unusual each score is among those of known images; larger scores mean more novel.

    `reference` are scores, by the same detector, of known images that are exchangeable with the batch's known ones: the
    detector must not have learned from one and not from the other.
    """
    return flagging.p_values(np.asarray(scores), np.asarray(reference))


def flags(scores: np.ndarray, reference: np.ndarray, fdr: float = 0.05, *, adaptive: bool = True) -> np.ndarray:
    """Which images to call novel, so that on average at most the share `fdr` of these are known."""
    return flagging.discoveries(np.asarray(scores), np.asarray(reference), fdr, adaptive)


def alarm(scores: np.ndarray, reference: np.ndarray, seed: int = 0) -> float:
    """The p-value of 'nothing in this batch is novel', exact at any number of images."""
    return novelty_test.alarm(np.asarray(scores), np.asarray(reference), seed)


def novel_share(scores: np.ndarray, reference: np.ndarray, confidence: float = 0.9) -> Share:
    """How much of the batch is novel: two estimates and an interval."""
    return share_of(np.asarray(scores), np.asarray(reference), confidence)


def wrong_at_most(scores: np.ndarray, reference: np.ndarray, confidence: float = 0.9) -> np.ndarray:
    """Entry k − 1: of the k highest scores at most so many are of known images; holds for all k at once."""
    return flagging.false_discovery_bounds(np.asarray(scores), np.asarray(reference), confidence).false


# ------------------------------------------------------------------------------------------------- one detector


@dataclass(frozen=True)
class FittedDetector:
    """One of `erd methods`, fitted. Larger scores mean more novel."""

    name: str
    score_rows: Callable[[Rows], torch.Tensor]
    batch: Rows  # as the detector sees it: images, or features
    seen: Callable[[torch.Tensor], torch.Tensor]  # images as the detector sees them
    _scratch: Any = field(default=None, repr=False)

    @cached_property
    def scores(self) -> np.ndarray:
        """Of the batch."""
        return self._scored(self.batch)

    def score(self, images: np.ndarray) -> np.ndarray:
        """Of other images, of the size and colours of the batch."""
        return self._scored(Rows(self.seen(torch.from_numpy(np.ascontiguousarray(images)))))

    def _scored(self, rows: Rows) -> np.ndarray:
        return self.score_rows(rows).detach().cpu().double().numpy()


def detector(name: str, labelled: Labelled, batch: Batch, *, settings: Sequence[str] = ()) -> FittedDetector:
    """One detector of the bench on one's own images; it sees what `erd methods` says, and nothing else."""
    method = detectors.get(name)
    if needs := {"outliers", "novel", "novel_share"} & set(method.sees):
        raise UserError(f"method '{name}' needs {', '.join(sorted(needs))}, which arrays do not have: use `erd bench`")
    scratch = tempfile.TemporaryDirectory(prefix="erd-")
    # As the bench deals them: nothing is flagged, so no image is kept for calibration.
    chosen = _settings(labelled, batch, Path(scratch.name), ["detect.calibration=paper", *settings])
    run = RunDir(Path(scratch.name) / "run")
    for stage in chain.up_to("pretrain"):
        chain.run(stage, chosen, run)
    place = Place("own", chosen.seed, chosen, run)
    fitted = method.fit(hand_out(method, place, devices.device(chosen.run)))
    batch_seen = Rows(packed.read(run.seen(run.batch, chosen)).images)
    return FittedDetector(name, fitted.score, batch_seen, partial(as_seen, place), scratch)


# ------------------------------------------------------------------------------------------------- a finished run


@dataclass(frozen=True)
class FinishedRun:
    """What a weekly run left in its folder."""

    run: RunDir

    @cached_property
    def metrics(self) -> Metrics:
        return Metrics.read(self.run)

    @cached_property
    def settings(self) -> Settings:
        return configure.read(self.run)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row an image of the batch, as it came."""
        return results.scores(self.run)

    @property
    def flagged(self) -> pd.DataFrame:
        """The flagged ones, most novel first."""
        return self.scores.query("flagged").sort_values("score", ascending=False, kind="stable")

    @property
    def classes(self) -> list[str]:
        """The known ones."""
        return Ingested.read(self.run).classes

    @property
    def images(self) -> np.ndarray:
        """The batch at its working size; row i of `scores` is image i."""
        return packed.read(self.run.batch).images.numpy()

    @property
    def answers(self) -> list[Answer]:
        """What experts said."""
        return Answers(self.run.answers).current()

    def scorer(self) -> Scorer:
        """Its ensemble, for further images."""
        return Scorer.of_run(self.run)


def read_run(folder: str | Path) -> FinishedRun:
    run = RunDir(Path(folder))
    if not run.metrics.exists():
        raise UserError(f"{folder} holds no finished run: it has no {run.metrics.name}")
    return FinishedRun(run)


# ------------------------------------------------------------------------------------------------- helpers


def _settings(labelled: Labelled, batch: Batch, place: Path, said: Sequence[str]) -> Settings:
    """Those of `own`, on files: arrays are written as .npz first."""
    place.mkdir(parents=True, exist_ok=True)
    if isinstance(labelled, tuple):
        images, labels = labelled
        source, path = "npz", place / "labelled.npz"
        np.savez(path, x_train=images, y_train=labels)
    else:
        path = Path(labelled)
        source = "folder" if path.is_dir() else "npz" if path.suffix == ".npz" else "manifest"
    if isinstance(batch, np.ndarray):
        np.savez(place / "batch.npz", x_batch=batch)
        batch = place / "batch.npz"
    base = Settings().override(
        {
            "data.scenario": "own",
            "data.source": source,
            "data.path": str(path),
            "data.inbox": str(batch),
            "data.settle": 0,
            "run.runner": "serial",
        }
    )
    return configure.resolve(schema.overridden(base, said))
