"""Weeks on own images in a moment: a library of digits, inboxes with others, stages as the command line does them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from chains import do
from sklearn.datasets import load_digits

from erd.data import library
from erd.data.library import Library
from erd.reporting import report
from erd.runs import configure
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir
from erd.settings.schema import Settings

FAST = ("model.net=mlp", "pretrain.epochs=15", "pretrain.batch_size=32", "finetune.epochs=4", "finetune.batch_size=32",
        "finetune.members=2", "data.image_size=8", "data.settle=0", "data.calibration=60",
        "run.runner=serial")  # fmt: skip


class Digits:
    """Images are handed out once, whoever asks."""

    def __init__(self, seed: int = 0) -> None:
        digits, labels = load_digits(return_X_y=True)
        self.images = (digits.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
        order = np.random.default_rng(seed).permutation(len(labels))
        self.rows = {digit: list(order[labels[order] == digit]) for digit in range(10)}

    def some(self, counts: Mapping[int, int]) -> tuple[np.ndarray, list[int]]:
        """Images, and which digit each shows."""
        rows = [(self.rows[digit].pop(), digit) for digit, count in counts.items() for _ in range(count)]
        return self.images[[row for row, _ in rows]], [digit for _, digit in rows]


def labelled(images: np.ndarray, labels: list[str], batch: str = "") -> Library:
    ids = [f"{batch or 'first'}/{number}" for number in range(len(labels))]
    columns = {"id": ids, "sha256": ids, "label": labels, "group": ids, "batch": batch}
    return Library(images, library.table(columns, len(ids)))


def settings(name: str, *more: str) -> Settings:
    return configure.settings_for(
        scenario="own", batch=name, inbox=f"inbox/{name}.npz", overrides=[*FAST, *more], runner="serial"
    )


def week(digits: Digits, name: str, counts: Mapping[int, int], *more: str) -> tuple[RunDir, dict[str, str]]:
    """A finished run of this workspace, and the truth by image."""
    images, truth = digits.some(counts)
    Path("inbox").mkdir(exist_ok=True)
    np.savez(f"inbox/{name}.npz", x_batch=images)
    run = finish(name, *more)
    ids = pd.read_parquet(run.scores)["id"]
    return run, {image: f"digit {digit}" for image, digit in zip(ids, truth, strict=True)}


def finish(name: str, *more: str) -> RunDir:
    chosen = settings(name, *more)
    run = RunDir.of(chosen)
    do(chosen, run)
    report.write(run)
    return run


def answer(run: RunDir, said: Mapping[str, str], on: str = "flagged") -> None:
    Answers(run.answers).merge(Answer(image, "class", label, "ada", on, now()) for image, label in said.items())
