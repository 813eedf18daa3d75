"""A cell of the bench in a worker process: images and classifier, then one method on them.

`prepare` makes what all methods of a place share, `hand_out` gives a method what it declares and nothing else,
`measure` fits, scores and compares with the truth.
"""

import contextlib
import io
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from erd import compute, evaluation, files, methods, params, progress, stages
from erd.data import ingest as packing
from erd.data import outliers
from erd.data.batches import Rows
from erd.ensemble import load_net
from erd.errors import RunError, UserError, why
from erd.methods import Data, Labeled, Method
from erd.params import Settings
from erd.rundir import RunDir
from erd.seeds import derive

TOLD = 1_000  # so many of the batch's novel images an oracle is told of, and never more than half of them
FIGURES = ("auroc", "tnr95", "aupr")


@dataclass(frozen=True)
class Place:
    """A scenario with a seed: what all methods share. `variant` names what a sweep sets otherwise (erd.sweeps)."""

    scenario: str
    seed: int
    settings: Settings
    run: RunDir
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.scenario} seed {self.seed}{self._at}"

    @property
    def _at(self) -> str:
        return f"@{self.variant}" if self.variant else ""

    @property
    def outliers(self) -> Path:
        return self.run.root / "data" / "outliers.safetensors"

    def record(self, method: str) -> Path:
        return self.run.root / "results" / f"{method}{self._at}.json"

    def progress(self, method: str | None = None) -> Path:
        """Where the one who makes the classifier, or a method, tells how far it is."""
        return self.run.progress(self.run.pretrained if method is None else self.record(method))

    def trouble(self, method: str) -> Path:
        return self.run.root / "results" / f"{method}{self._at}.traceback.txt"


@dataclass(frozen=True)
class Cell:
    place: Place
    method: str
    at: tuple[tuple[str, Any], ...] = ()  # where it stands on the axes of a sweep

    @property
    def name(self) -> str:
        return f"{self.place.name} {self.method}"

    def before(self) -> dict[str, Any]:
        """What was found the last time, be it with this key or with another."""
        path = self.place.record(self.method)
        return files.load_json(path) if path.exists() else {}


def prepare(place: Place, with_outliers: bool) -> dict[str, str]:
    """Images and classifier; returns the hashes of all that the methods get to see."""
    # Bars of several processes would write over each other.
    with contextlib.redirect_stderr(io.StringIO()), progress.telling(place.progress()):
        stages.ingest(place.settings, place.run)
        stages.pretrain(place.settings, place.run)
    inputs = [place.run.labeled, place.run.batch, place.run.holdout, place.run.pretrained]
    if with_outliers:
        found = outliers.collect(place.settings, packing.read(place.run.labeled).images.numpy())
        files.save_tensors(place.outliers, {"images": torch.from_numpy(found.images)}, {"source": found.source})
        inputs.append(place.outliers)
    return {path.name: files.sha256(path) for path in inputs}


def measure(cell: Cell, key: str, member: int, tapes: Path | None = None) -> dict[str, Any]:
    """Fit, score, compare with the truth; the record, which is also written down. `tapes` is a folder for fits that
    other cells may need too."""
    place, method = cell.place, methods.get(cell.method)
    place.trouble(method.name).unlink(missing_ok=True)
    data = hand_out(method, place, compute.device(place.settings.run, member), tapes)
    started, clock = datetime.now(UTC), time.perf_counter()
    try:
        with progress.telling(place.progress(method.name)):
            detector = method.fit(data)
            scores = {name: _scores(detector.score, packed, method) for name, packed in _scored(place.run).items()}
    except UserError:
        raise
    except Exception as error:  # a method's own mistake: whoever wrote it wants to see where
        with files.replacing(place.trouble(method.name)) as draft:
            draft.write_text(traceback.format_exc(), encoding="utf-8")
        where = f"the traceback is in {place.trouble(method.name)}"
        raise RunError(f"method '{method.name}' fails with {type(error).__name__}: {why(error)}; {where}") from None
    record = {
        "key": key,
        "figures": {name: _figures(scores[name], packed) for name, packed in _scored(place.run).items()},
        "seconds": time.perf_counter() - clock + data.saved,
        "batch_p": detector.batch_p,
        "outliers": files.load_facts(place.outliers)["source"] if "outliers" in method.sees else None,
        "started": started.isoformat(),
        "finished": datetime.now(UTC).isoformat(),
    }
    files.save_json(place.record(method.name), record)
    return record


def hand_out(method: Method, place: Place, device: torch.device, tapes: Path | None = None) -> Data:
    """What the method declares, and nothing else. Copies of S and V, since a view would show the other's images too."""
    run = place.run
    labeled, batch = packing.read(run.labeled), packing.read(run.batch)

    def copied(part: str) -> Labeled:
        rows = labeled.rows(part)
        return Labeled(Rows(rows.take(torch.arange(len(rows)))), labeled.labels_of(part))

    def novel() -> np.ndarray:
        truth = stages.truth_of(run.batch)
        if truth is None:
            raise RunError(f"method '{method.name}' must be told what is novel, and nobody knows that of this batch")
        return (truth == "novel").nonzero()[0]

    def told() -> Rows:
        rows = np.random.default_rng(derive(place.seed, "told")).permutation(novel())
        return Rows(batch.images[torch.from_numpy(np.sort(rows[: min(TOLD, math.ceil(len(rows) / 2))]))])

    has: dict[str, Callable[[], Any]] = {
        "train": lambda: copied("train"),
        "val": lambda: copied("val"),
        "classifier": lambda: load_net(run.pretrained, device)[0].eval(),
        "batch": lambda: Rows(batch.images),
        "outliers": lambda: Rows(packing.read(place.outliers).images),
        "novel": told,
        "novel_share": lambda: len(novel()) / len(batch.images),
        "weights": lambda: Path(place.settings.bench.weights or ""),
    }
    blank, _ = load_net(run.pretrained)
    seen = {name: has[name]() for name in method.sees}
    return Data(method.name, shown(place.settings), labeled.facts["classes"], device, blank, seen, tapes)


def shown(settings: Settings) -> Settings:
    """The settings a method sees: without those that tell how many of the batch's images are novel, and where."""
    hidden = {"data": params.Data(), "bench": params.Bench(), "alarm": params.Alarm(), "review": params.Review(),
              "track": params.Track(), "registry": params.Registry()}  # fmt: skip
    return settings.model_copy(update=hidden)


def _scored(run: RunDir) -> dict[str, Path]:
    return {"batch": run.batch, "holdout": run.holdout}


def _scores(score: Callable[[Rows], torch.Tensor], packed: Path, method: Method) -> np.ndarray:
    images = packing.read(packed).images
    if not len(images):
        return np.empty(0)
    scores = score(Rows(images)).detach().cpu().double().numpy()
    if scores.shape != (len(images),):
        raise RunError(f"method '{method.name}' gives scores of shape {scores.shape} for {len(images):,} images")
    if bad := int((~np.isfinite(scores)).sum()):
        raise RunError(f"method '{method.name}' gives {bad:,} of {len(images):,} images a score that is no number")
    return scores


def _figures(scores: np.ndarray, packed: Path) -> dict[str, float | None]:
    truth = stages.truth_of(packed)
    if truth is None or not len(truth):
        return dict.fromkeys(FIGURES)
    return evaluation.detection_metrics(scores, truth == "novel")
