"""A bench of seconds: `rows = small_bench.run("max-softmax", seeds=2)`; `code, out, err = small_bench.erd("bench")`."""

import contextlib
import io
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from erd.bench import cells, plan
from erd.bench import run as bench
from erd.bench.plan import Asked, Place, Plan
from erd.bench.rows import Row
from erd.cli import main
from erd.data.packed import Rows
from erd.runs.folder import BENCH
from erd.training import runners
from erd.weekly.stages import encode as encoding

FAST = ("pretrain.epochs=3", "run.runner=serial")


def run(*methods: str, seeds: int = 1, overrides: tuple[str, ...] = (), root: Path = BENCH) -> list[Row]:
    """digits-near with these methods."""
    return done(plan.of([], methods, seeds, Asked(overrides=(*FAST, *overrides), root=root)))


def done(todo: Plan) -> list[Row]:
    with runners.of(todo.settings.run, len(todo.cells)) as runner:
        return bench.every_cell(todo, partial(runners.each, runner))


def ready(place: Place, with_outliers: bool = True) -> Place:
    """A place with images, their features where its nets see those, classifier and outliers, as the bench makes it."""
    cells.collect(place)
    for job in encoding.STAGE.jobs(place.settings, place.run):
        cells.encode(place, *job.arguments[2:])
    cells.prepare(place, with_outliers)
    return place


def timeless(rows: list[Row]) -> list[Row]:
    return [replace(row, seconds=0.0) for row in rows]


def erd(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command."""
    fast = [part for setting in FAST for part in ("--set", setting)]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([*words, *(fast if words[0] == "bench" else [])])
    return code, out.getvalue(), err.getvalue()


def brightness(images: Rows) -> torch.Tensor:
    """A score that takes no time."""
    return images.take(torch.arange(len(images))).flatten(1).float().mean(1)
