"""Runs to measure on: settings of a scenario, packed images that are noise, nets that were never trained.

settings = settings_of("fmnist-near", ["finetune.members=4"])
run = random_run(place, train=1000, val=100, batch=1000)
untrained(settings, run)
seconds = finetuned_and_scored(settings, run)
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from erd import nets
from erd.base import files
from erd.data import collect, packed
from erd.data.sources import Images
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.runs.results import Ingested
from erd.settings.schema import Settings
from erd.training.loop import Fit
from erd.training.members import save_net
from erd.weekly import chain
from erd.weekly.stages.finetune import member_labels

PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"  # ours, wherever the benchmark is started


def settings_of(scenario: str, overrides: Sequence[str], data: str | None = None) -> Settings:
    return settings_for(params=PARAMS, scenario=scenario, data=data, overrides=overrides)


def random_images(count: int, side: int, channels: int = 0) -> np.ndarray:
    shape = (count, side, side, channels) if channels else (count, side, side)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def random_run(
    root: Path, *, train: int, val: int, batch: int, calibration: int = 0, classes: int = 5, side: int = 28
) -> RunDir:
    """A run's packed images, all noise: what costs time and memory does not look at them."""

    def noise(count: int) -> Images:
        names = np.arange(count).astype(str)
        return Images(random_images(count, side), np.arange(count) % classes, names, names)

    part = np.repeat(np.arange(4), [train, val, calibration - calibration // 2, calibration // 2])
    truth = np.where(np.arange(batch) % 2, "novel", "known")
    names = [f"class {c}" for c in range(classes)]
    collected = collect.Collected(names, noise(len(part)), part, noise(batch), truth, noise(0), truth[:0])
    run = RunDir(root)
    collect.write(collected, run)
    return run


def untrained(settings: Settings, run: RunDir, with_members: bool = False) -> None:
    """A classifier with the weights it was drawn with, and members like it: where only the cost counts."""
    classes = Ingested.read(run).classes
    side = packed.read(run.labeled).images.shape[1]
    for path in [run.pretrained, *(map(run.member, member_labels(settings, run)) if with_members else [])]:
        model = nets.build(settings.model.net or "", channels=1, image_size=side, classes=len(classes), seed=0)
        save_net(path, model, Fit([model.state_dict()]), {"classes": classes})
        files.save_json(run.history(path), [])


def finetuned_and_scored(settings: Settings, run: RunDir) -> float:
    """Seconds from the packed images and the classifier to scores.parquet; nothing is taken from the time before."""
    without_members(run)
    run.record("score").unlink(missing_ok=True)
    started = time.perf_counter()
    finetuned(settings, run)
    scored(settings, run)
    return time.perf_counter() - started


def without_members(run: RunDir) -> None:
    """As before the fine-tuning."""
    shutil.rmtree(run.members, ignore_errors=True)
    for record in run.record("finetune").parent.glob("finetune-*.json"):
        record.unlink()


def finetuned(settings: Settings, run: RunDir) -> None:
    chain.run(chain.BY_NAME["finetune"], settings, run)


def scored(settings: Settings, run: RunDir) -> None:
    chain.run(chain.BY_NAME["score"], settings, run)
