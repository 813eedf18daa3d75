"""The second week of somebody's photographs, as small as it can be and still do all that a weekly run does.

    week = SmallWeek(place)          # labelled images and a week before; this one is taken in, encoded, pretrained
    week.ingest()                    # a stage done again, as if it had not been done yet; encode, finetune, score

Three known classes, and a few images of a new one. They are so unlike that the last bits of a machine decide nothing:
whatever it is, the same is done.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image
from random_runs import PARAMS, finetuned, scored, without_members

from erd.data import library, reading
from erd.runs import alarm_ledger
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.settings.schema import Settings
from erd.statistics import scan
from erd.weekly import chain

KNOWN, NEW = ("bricks", "clouds", "grass"), "letters"
LABELLED, A_WEEK, OF_NEW = 50, 24, 18  # images: of a class, of a class in a week, of the new one
KEPT, SHOWN = 64, 32  # pixels a side, in the library and to the encoder
LARGE, SMALL = 256, 80  # of JPEGs, which are decoded at half their size, and of PNGs
DRAWS = 4  # random batches of an alarm: all are drawn where there is a group
TINY = ("data.settle=0", f"data.image_size={KEPT}", f"model.input_size={SHOWN}", "pretrain.epochs=2",
        "finetune.epochs=2", "detect.folds=2", "alarm.rate=0.9", "alarm.looks=1", "run.runner=serial",
        "run.device=cpu")  # fmt: skip


class SmallWeek:
    def __init__(self, place: Path) -> None:
        self.place, rng = place, np.random.default_rng(0)
        for kind, name in enumerate(KNOWN):
            draw(place / "labelled" / name, kind, LABELLED, rng)
            for week in ("first", "second"):
                draw(place / week, kind, A_WEEK, rng, name)
        draw(place / "second", len(KNOWN), OF_NEW, rng, NEW)
        library.take_in(place / "labelled", None, place / "library", largest=KEPT)
        self.before: set[Path] = set()  # files of features
        for week in ("first", "second"):
            self.settings, self.run = self._of(week)
            self.ingest()
            self.encode()
            if week == "first":
                self.before = self._features()
                alarm_ledger.enter(self.run.alarms, "own", week, p=0.5, at=0.0005)
        self._stage("pretrain")

    def ingest(self) -> None:
        """In this thread: what is counted is done here, and not by as many threads as there are cores."""
        with mock.patch.object(reading, "ThreadPoolExecutor", AtOnce):
            self._stage("ingest")

    def encode(self) -> None:
        """The labelled images and the first week are encoded already."""
        for path in self._features() - self.before if self.before else ():
            path.unlink()
        self.run.record("encode").unlink(missing_ok=True)
        self._stage("encode")

    def finetune(self) -> None:
        without_members(self.run)
        finetuned(self.settings, self.run)

    def score(self) -> None:
        if not self.run.members.exists():
            self.finetune()
        self.run.record("score").unlink(missing_ok=True)
        with mock.patch.object(scan, "DRAWS", DRAWS):
            scored(self.settings, self.run)

    def _of(self, week: str) -> tuple[Settings, RunDir]:
        said = ["data.source=library", f"data.path={self.place / 'library'}", f"data.inbox={self.place / week}",
                f"data.batch={week}", *TINY]  # fmt: skip
        settings = settings_for(params=PARAMS, scenario="own", overrides=said)
        return settings, RunDir.of(settings, self.place)

    def _stage(self, name: str) -> None:
        chain.run(chain.BY_NAME[name], self.settings, self.run)

    def _features(self) -> set[Path]:
        return {path for path in (self.place / "library" / "features").rglob("*.safetensors")}


class AtOnce(Executor):
    """In place of threads: done when it is submitted."""

    def __init__(self, workers: int) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future


def draw(folder: Path, kind: int, count: int, rng: np.random.Generator, name: str = "") -> None:
    """Files of one class: waves of a length and a colour of its own, with noise; half of them JPEG."""
    folder.mkdir(parents=True, exist_ok=True)
    colour = np.array([[90, 20, 20], [20, 90, 20], [20, 20, 90], [90, 90, 20]][kind])
    for number in range(count):
        side, ending = ((SMALL, "png"), (LARGE, "jpg"))[number % 2]
        wave = np.sin(np.arange(side) / side * 2 * np.pi * 16 / 2**kind)
        pixels = 128 + np.outer(wave, wave if kind % 2 else np.ones(side))[..., None] * colour
        pixels = pixels + rng.integers(-20, 21, (side, side, 1))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{name}{number:03}.{ending}")
