"""pretrain: the classifier f̃ on S, best epoch on V. Taken over from an earlier batch where nothing has changed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from erd import nets
from erd.base import files, progress
from erd.base.seeds import derive
from erd.data import packed
from erd.data.feature_store import LEAST_SPREAD
from erd.data.packed import Packed, Rows
from erd.nets import Classifier, registry, timm_nets
from erd.runs import stage_records
from erd.runs.folder import RunDir
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training import devices
from erd.training.batches import Mixture
from erd.training.loop import Examples, Fit, Recipe, fit
from erd.training.members import save_net
from erd.training.step import Loss
from erd.weekly.stages.base import Job, Stage

HEAVIEST = 10.0  # an image of a rare class weighs at most as much as so many others: a few must not decide everything


def pretrain(settings: Settings, run: RunDir) -> Done:
    """f̃: train on S, keep the best epoch on V."""
    weights = _begins_with(settings)
    seen = run.seen(run.labeled, settings)
    outputs = [run.pretrained, run.history(run.pretrained)]
    chosen = {"seed": settings.seed, "net": settings.model.net, "recipe": settings.pretrain.model_dump(),
              "weights": files.sha256(weights) if weights else None}  # fmt: skip

    code = [__name__, registry.get(settings.model.net or "").module]

    def work(key: str) -> None:
        labeled = packed.read(seen)
        told = progress.to_file(run.progress(run.pretrained), Recipe.of(settings.pretrain).epochs)
        fitted = train(settings, labeled, checkpoint=run.checkpoint(run.pretrained), fingerprint=key, on_epoch=told)
        save_net(run.pretrained, *fitted, {"classes": labeled.facts["classes"]})
        files.save_json(run.history(run.pretrained), fitted[1].history)
        run.checkpoint(run.pretrained).unlink(missing_ok=True)

    return stage_records.once(run, "pretrain", code, chosen, [seen], outputs, work, shared=True)


def train(
    settings: Settings,
    labeled: Packed,
    *draw: str,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    on_epoch: Callable[[dict[str, float]], None] = lambda record: None,
) -> tuple[Classifier, Fit]:
    """A classifier of these labelled images; `draw` names other random numbers than a run's."""
    device = devices.device(settings.run)
    rows, labels = labeled.rows("train"), labeled.labels_of("train")
    mean, std = _feature_statistics(rows) if settings.encoder else _channel_statistics(rows)
    model = nets.build(
        settings.model.net or "",
        channels=len(mean),
        image_size=labeled.images.shape[1],
        classes=len(labeled.facts["classes"]),
        seed=derive(settings.seed, "pretrain", "weights", *draw),
        mean=mean,
        std=std,
    )
    weights = _begins_with(settings)
    if registry.get(settings.model.net or "").pretrained:
        timm_nets.begin_with_pretrained(model, settings.model.net or "", weights, download=settings.data.download)
    elif weights is not None:
        nets.load_weights(model, weights)
    with devices.threads(settings.pretrain.threads):
        result = fit(
            model.to(device),
            Examples(Mixture(rows, device=device), labels),
            Examples(Mixture(labeled.rows("val"), device=device), labeled.labels_of("val")),
            Recipe.of(settings.pretrain),
            torch.Generator().manual_seed(derive(settings.seed, "pretrain", *draw)),
            checkpoint=checkpoint,
            loss=_balanced(labels, len(labeled.facts["classes"]), device) if settings.pretrain.balance else None,
            fingerprint=fingerprint,
            on_epoch=on_epoch,
        )
    return model, result


def _begins_with(settings: Settings) -> Path | None:
    return None if settings.encoder else nets.weights_file(settings.model.weights)


def _balanced(labels: torch.Tensor, classes: int, device: torch.device) -> Loss:
    """Cross-entropy in which a class counts the same however many images it has, up to HEAVIEST times its own."""
    counts = torch.bincount(labels, minlength=classes).double()
    weight = (counts.mean() / counts).clamp_max(HEAVIEST).float().to(device)
    return lambda logits, target, part: torch.nn.functional.cross_entropy(logits, target, weight)


def _feature_statistics(rows: Rows) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each feature in S. NumPy adds up in one thread, always in the same order, and
    here some thousand images at a time."""

    def mean_of(value: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        chunks = torch.arange(len(rows)).split(8192)
        return sum(value(rows.take(chunk).flatten(1).numpy().astype(np.float64)).sum(0) for chunk in chunks) / len(rows)

    mean = mean_of(lambda seen: seen)
    std = np.sqrt(mean_of(lambda seen: (seen - mean) ** 2))
    return mean.tolist(), np.maximum(std, LEAST_SPREAD * np.median(std)).tolist()


def _channel_statistics(rows: Rows) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of S per channel, of values 0..1; counted, so that no thread count changes a bit."""
    channels = rows.images.shape[3] if rows.images.ndim == 4 else 1
    counts = torch.zeros(channels, 256, dtype=torch.int64)
    mixture = Mixture(rows)
    for positions in torch.arange(len(rows)).split(8192):
        images = mixture.take(positions)
        for channel in range(channels):
            counts[channel] += torch.bincount(images[..., channel].flatten(), minlength=256)
    values = torch.arange(256, dtype=torch.float64) / 255
    share = counts.double() / counts.sum(1, keepdim=True)
    mean = share @ values
    std = ((share @ values**2) - mean**2).clamp_min(0).sqrt()
    return mean.tolist(), std.tolist()


def _jobs(settings: Settings, run: RunDir) -> list[Job]:
    told = run.progress(run.pretrained)
    return [Job("pretrain", pretrain, (settings, run), told, Recipe.of(settings.pretrain).epochs)]


STAGE = Stage(
    "pretrain",
    "f̃: train on S, keep the best epoch on V",
    ("seed", "data.scenario", "model", "pretrain"),
    lambda run: [run.labeled, run.features],
    lambda run: [run.pretrained, run.history(run.pretrained)],
    _jobs,
)
