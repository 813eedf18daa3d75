"""A cell of the bench in a worker process: images and classifier, then one method on them.

`prepare` makes what all methods of a place share, `hand_out` gives a method what it declares and nothing else,
`measure` fits, scores and compares with the truth.
"""

import contextlib
import io
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch

from erd.base import files, progress
from erd.base.errors import RunError, UserError, why
from erd.base.seeds import derive
from erd.bench import detectors
from erd.bench.detectors import Given, Labeled, Method
from erd.bench.encoded import Encoded, as_seen
from erd.bench.plan import Cell, Place
from erd.bench.rows import CellRecord, Figures
from erd.data import outliers, packed
from erd.data.packed import Rows
from erd.runs.folder import RunDir
from erd.settings import schema
from erd.settings.schema import Settings
from erd.statistics import metrics
from erd.training import devices
from erd.training.members import load_net
from erd.weekly.stages import encode as encoding
from erd.weekly.stages.ingest import ingest
from erd.weekly.stages.pretrain import pretrain

TOLD = 1_000  # so many of the batch's novel images an oracle is told of, and never more than half of them


def collect(place: Place) -> None:
    """The images."""
    # Bars of several processes would write over each other.
    with contextlib.redirect_stderr(io.StringIO()), _under_way(place.progress()):
        ingest(place.settings, place.run)


def encode(place: Place, todo: Sequence[encoding.Todo], number: int) -> None:
    """A part of the images that no place has encoded yet."""
    encoding.encode(place.settings, place.run, todo, number)


def prepare(place: Place, with_outliers: bool) -> dict[str, str]:
    """The classifier; returns the hashes of all that the methods get to see, by the name of the file."""
    with contextlib.redirect_stderr(io.StringIO()), _under_way(place.progress()):
        encoding.gather(place.settings, place.run)
        pretrain(place.settings, place.run)
    sets = [place.run.labeled, place.run.batch, place.run.holdout]
    inputs = [*(place.run.seen(path, place.settings) for path in sets), place.run.pretrained]
    if with_outliers:
        labeled = packed.read(place.run.labeled)
        # As many as there are labelled ones, and like them: of a library's rows any do for that.
        found = outliers.collect(place.settings, labeled.images[: len(labeled)].numpy())
        seen = as_seen(place, torch.from_numpy(found.images))
        files.save_tensors(place.outliers, {"images": seen}, {"source": found.source})
        inputs.append(place.outliers)
    return {path.name: files.sha256(path) for path in inputs}


def measure(cell: Cell, key: str, number: int, recordings: Path | None = None) -> CellRecord:
    """Fit, score, compare with the truth; the record, which is also written down. The cell's number picks its GPU.
    `recordings` is a folder for fits that other cells may need too."""
    place, method = cell.place, detectors.get(cell.method)
    trouble = place.trouble(method.name)
    trouble.unlink(missing_ok=True)
    told = place.progress(method.name)
    given = hand_out(method, place, devices.device(place.settings.run, number), recordings=recordings, told=told)
    started, clock = datetime.now(UTC), time.perf_counter()
    try:
        with _under_way(told):
            detector = method.fit(given)
            scores = {name: _scores(detector.score, images, method) for name, images in _scored(place).items()}
    except UserError:
        raise
    except Exception as error:  # a method's own mistake: whoever wrote it wants to see where
        with files.replacing(trouble) as draft:
            draft.write_text(traceback.format_exc(), encoding="utf-8")
        where = f"the traceback is in {trouble}"
        raise RunError(f"method '{method.name}' fails with {type(error).__name__}: {why(error)}; {where}") from None
    took = time.perf_counter() - clock
    record = CellRecord(
        key=key,
        figures={name: _figures(scores[name], images) for name, images in _truths(place.run).items()},
        seconds=took + given.saved,
        batch_p=detector.batch_p,
        outliers=files.load_facts(place.outliers)["source"] if "outliers" in method.sees else None,
        started=started.isoformat(),
        finished=(started + timedelta(seconds=took)).isoformat(),
    )
    record.write(place.record(method.name))
    return record


def hand_out(
    method: Method,
    place: Place,
    device: torch.device,
    *,
    recordings: Path | None = None,
    told: Path | None = None,
) -> Given:
    """What the method declares, and nothing else. Copies of S and V, since a view would show the other's images too."""
    run = place.run
    labeled, batch = (packed.read(run.seen(path, place.settings)) for path in (run.labeled, run.batch))

    def copied(part: str) -> Labeled:
        return Labeled(Rows(labeled.rows(part).every()), labeled.labels_of(part))

    def novel() -> np.ndarray:
        truth = packed.truth_of(run.batch)
        if truth is None:
            raise RunError(f"method '{method.name}' must be told what is novel, and nobody knows that of this batch")
        return (truth == "novel").nonzero()[0]

    def told_to_be_novel() -> Rows:
        rows = np.random.default_rng(derive(place.seed, "told")).permutation(novel())
        return Rows(batch.images[torch.from_numpy(np.sort(rows[: min(TOLD, math.ceil(len(rows) / 2))]))])

    has: dict[str, Callable[[], Any]] = {
        "train": lambda: copied("train"),
        "val": lambda: copied("val"),
        "classifier": lambda: load_net(run.pretrained, device)[0].eval(),
        "batch": lambda: Rows(batch.images),
        "outliers": lambda: Rows(packed.read(place.outliers).images),
        "novel": told_to_be_novel,
        "novel_share": lambda: len(novel()) / len(batch.images),
        "encoder": lambda: Encoded(place),
    }
    blank, _ = load_net(run.pretrained)
    seen = {name: has[name]() for name in method.sees}
    settings, classes = shown(place.settings), labeled.facts["classes"]
    return Given(method, settings, classes, device, blank, seen, recordings=recordings, told=told)


def shown(settings: Settings) -> Settings:
    """The settings a method sees: without those that tell how many of the batch's images are novel, and where."""
    hidden = {"data": schema.Data(), "bench": schema.Bench(), "alarm": schema.Alarm(), "review": schema.Review(),
              "track": schema.Track(), "registry": schema.Registry()}  # fmt: skip
    return settings.model_copy(update=hidden)


@contextlib.contextmanager
def _under_way(path: Path) -> Iterator[None]:
    """Whoever watches the path is told that this is being done, until it is."""
    progress.begun(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _truths(run: RunDir) -> dict[str, Path]:
    return {"batch": run.batch, "holdout": run.holdout}


def _scored(place: Place) -> dict[str, Path]:
    return {name: place.run.seen(path, place.settings) for name, path in _truths(place.run).items()}


def _scores(score: Callable[[Rows], torch.Tensor], path: Path, method: Method) -> np.ndarray:
    images = packed.read(path).images
    if not len(images):
        return np.empty(0)
    scores = score(Rows(images)).detach().cpu().double().numpy()
    if scores.shape != (len(images),):
        raise RunError(f"method '{method.name}' gives scores of shape {scores.shape} for {len(images):,} images")
    if bad := int((~np.isfinite(scores)).sum()):
        raise RunError(f"method '{method.name}' gives {bad:,} of {len(images):,} images a score that is no number")
    return scores


def _figures(scores: np.ndarray, path: Path) -> Figures:
    truth = packed.truth_of(path)
    if truth is None or not len(truth):
        return Figures()
    novel = truth == "novel"
    return Figures(
        **metrics.detection_metrics(scores, novel), **metrics.first_looks(scores, novel), share=float(novel.mean())
    )
