"""Doing what a plan says: all detectors on the same images, each with no more than it may see.

    todo = plan.of(["digits-near"], ["all"], seeds=3)
    with runners.of(todo.settings.run, len(todo.cells)) as runner:
        rows = run.every_cell(todo, partial(runners.each, runner))

A cell whose record has the right key is not done again: the key is made of the settings, the hashes of the images and
of the classifier, and the code of the method. What fails is a row that says why.
"""

import contextlib
import logging
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from erd.base import code_digest, files, locks, progress
from erd.base.errors import RunError
from erd.bench import detectors, paper
from erd.bench.cells import collect, encode, measure, prepare, shown
from erd.bench.detectors import CHOOSING
from erd.bench.plan import Cell, Place, Plan, otherwise
from erd.bench.rows import CellRecord, Figures, Row
from erd.bench.sending import Sending
from erd.nets import registry
from erd.runs.folder import RunDir
from erd.settings import families
from erd.settings.schema import HERE
from erd.weekly.stages import encode as encoding

log = logging.getLogger("erd")
# Beside the code of a method: what it is handed out, and what is made of its scores.
AROUND = ("erd.bench.cells", "erd.statistics.metrics")

# function, jobs → number of the job, and what it returned or raised, as they finish. The first argument of a job is a
# place or a cell, whose name is the job's.
Each = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]
Inputs = dict[str, str]  # file → its hash


def every_cell(plan: Plan, each: Each) -> list[Row]:
    """Those that are not done yet are done; a row for each cell, those that failed with their `error`."""
    with contextlib.ExitStack() as stack:
        for place in plan.places:
            stack.enter_context(_alone_in(place.run.root))
        prepared = _prepare_all(plan, each)
        outcomes: dict[int, CellRecord | BaseException] = {}  # by the number of the cell
        keys: dict[int, str] = {}
        for number, cell in enumerate(plan.cells):
            inputs = prepared[cell.place.run]
            if isinstance(inputs, BaseException):
                outcomes[number] = inputs
                continue
            keys[number] = key_of(cell, inputs)
            before = cell.before()
            if before is not None and before.key == keys[number]:
                outcomes[number] = before
        todo = _in_order({number: plan.cells[number] for number in keys if number not in outcomes})
        log.info("%d cells to do, %d are done already", len(todo), len(keys) - len(todo))
        sending = Sending()
        for number, outcome in outcomes.items():
            if isinstance(outcome, CellRecord):
                sending.add(plan.cells[number], outcome)
        cells = [plan.cells[number] for number in todo]
        recordings = _recordings(cells, prepared)
        jobs = [
            (cell, keys[number], order, recordings[order])
            for order, (number, cell) in enumerate(zip(todo, cells, strict=True))
        ]
        told = {cell.name: cell.place.progress(cell.method) for cell in cells}
        began = time.monotonic()
        with progress.watched(told, "bench"):
            for count, (position, outcome) in enumerate(each(measure, jobs), 1):
                outcomes[todo[position]] = outcome
                cell, more = cells[position], progress.left(time.monotonic() - began, count, len(todo))
                log.info("%d of %d: %s, %s%s", count, len(todo), cell.name, _told(outcome, cell), more)
                if isinstance(outcome, CellRecord):
                    sending.add(cells[position], outcome)
        sending.flush()
        for folder in {recording.parent for recording in recordings if recording}:
            shutil.rmtree(folder, ignore_errors=True)
    return [row_of(cell, outcomes[number]) for number, cell in enumerate(plan.cells)]


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locks.alone_in(folder))
        except RunError as error:
            if not isinstance(error.__cause__, locks.Busy):
                raise
            raise RunError(
                f"another bench is working in {folder}; wait for it, or give this one another --folder"
            ) from None
        yield


def _prepare_all(plan: Plan, each: Each) -> dict[RunDir, Inputs | BaseException]:
    """Run folder → what is in it, or why it could not be made."""
    with_outliers = {cell.place.run for cell in plan.cells if "outliers" in detectors.get(cell.method).sees}
    places = plan.places
    prepared: dict[RunDir, Inputs | BaseException] = {}
    told = {f"the classifier of {place.name}": place.progress() for place in places}
    with progress.watched(told, "bench"):
        for number, outcome in each(collect, [(place,) for place in places]):
            if isinstance(outcome, BaseException):
                prepared[places[number].run] = outcome
        for place in places:  # one after another, each on all cores: what one has encoded the next one need not
            if place.run not in prepared and (trouble := _encode(place, each)):
                prepared[place.run] = trouble
        left = [place for place in places if place.run not in prepared]
        for number, outcome in each(prepare, [(place, place.run in with_outliers) for place in left]):
            prepared[left[number].run] = outcome
            if not isinstance(outcome, BaseException):
                log.info("%s is ready", left[number].name)
    failures = {place.name: prepared[place.run] for place in places if isinstance(prepared[place.run], BaseException)}
    for name, failure in failures.items():
        log.info("%s: %s", name, failure)
    if len(failures) == len(places):
        raise next(error for error in failures.values() if isinstance(error, BaseException))
    return prepared


def _encode(place: Place, each: Each) -> BaseException | None:
    """The features of a place's images, where its nets see those; what went wrong, if anything."""
    try:
        jobs = encoding.STAGE.jobs(place.settings, place.run)
    except RunError as error:
        return error
    if jobs:
        log.info("%s: %d images to encode", place.name, sum(job.epochs for job in jobs))
    told = {job.name: job.told for job in jobs if job.told}
    with progress.watched(told, "encode", total=sum(job.epochs for job in jobs), unit=encoding.STAGE.unit):
        outcomes = [found for _, found in each(encode, [(place, *job.arguments[2:]) for job in jobs])]
    return next((found for found in outcomes if isinstance(found, BaseException)), None)


def key_of(cell: Cell, inputs: Inputs) -> str:
    """Changes with all that can change a result."""
    place, method = cell.place, detectors.get(cell.method)
    used = {name: value for name, value in inputs.items() if name != place.outliers.name or "outliers" in method.sees}
    settings = shown(place.settings).model_dump(exclude=HERE)
    around = [*AROUND, "erd.nets.encoders", "erd.bench.encoded"] if "encoder" in method.sees else AROUND
    code = code_digest.of(method.module, _net(cell)) | {name: code_digest.of(name)[name] for name in around}
    return files.digest([method.name, method.sees, settings, used, code])


def _net(cell: Cell) -> str:
    """The module of the scenario's net."""
    return registry.get(cell.place.settings.model.net or "").module


def _in_order(left: Mapping[int, Cell]) -> list[int]:
    """The slowest first. But of those that look at the same nets all but one at the end: side by side, one would wait
    for the other to train them."""
    led: set[tuple[str, str]] = set()
    first: list[int] = []
    last: list[int] = []
    for number in sorted(left, key=lambda number: _expected(left[number]), reverse=True):
        cell = left[number]
        ensemble = detectors.get(cell.method).ensemble
        nets = (cell.place.name, ensemble)
        (last if nets in led else first).append(number)
        if ensemble:
            led.add(nets)
    return [*first, *last]


def _expected(cell: Cell) -> tuple[float, int]:
    """How long a cell may take: as long as the last time, with any seed; new ones first, and the larger first."""
    paths = cell.place.run.root.parent.glob(f"seed*/results/{cell.method}.json")
    known = [record.seconds for path in paths if (record := CellRecord.read(path))]
    return max(known, default=math.inf), families.get(cell.place.scenario).train or 0


def _recordings(cells: Sequence[Cell], prepared: Mapping[RunDir, Inputs | BaseException]) -> list[Path | None]:
    """Where each of the cells writes its fits down: for others with the same images that train on the same schedules.
    They stay until the bench is through, so that one that was stopped goes on with them."""
    folders: list[Path] = []
    for cell in cells:
        settings, code = cell.place.settings, code_digest.of("erd.training.members", _net(cell))
        schedules = [block.model_dump(exclude={*CHOOSING, "labels", "members"})
                     for block in (settings.pretrain, settings.finetune)]  # fmt: skip
        same = files.digest([prepared[cell.place.run], schedules, code, settings.run.device])
        folders.append(cell.place.run.root / "recordings" / same[:16])
    asked = Counter(folders)
    return [folder if asked[folder] > 1 else None for folder in folders]


def row_of(cell: Cell, outcome: CellRecord | BaseException) -> Row:
    """A cell as the tables have it, done or failed."""
    scenario, method = families.get(cell.place.scenario), detectors.get(cell.method)
    record = outcome if isinstance(outcome, CellRecord) else None
    figures = record.figures if record else {"batch": Figures(), "holdout": Figures()}
    where = scenario.evaluated_on
    if figures[where].auroc is None and figures["batch"].auroc is not None:  # the user wanted no holdout
        where = "batch"
    quoted = paper.of(scenario.name, method.name)
    return Row(
        scenario=scenario.name,
        at=dict(cell.at),
        method=method.name,
        setting=method.setting,
        seed=cell.place.seed,
        **asdict(figures[where]),
        evaluated_on=where,
        batch_auroc=figures["batch"].auroc,
        batch_tnr95=figures["batch"].tnr95,
        batch_p50=figures["batch"].p50,
        batch_first=figures["batch"].first,
        batch_share=figures["batch"].share,
        holdout_auroc=figures["holdout"].auroc,
        holdout_tnr95=figures["holdout"].tnr95,
        holdout_p50=figures["holdout"].p50,
        holdout_first=figures["holdout"].first,
        seconds=record.seconds if record else None,
        paper_auroc=quoted.auroc if quoted else None,
        paper_tnr95=quoted.tnr95 if quoted else None,
        batch_p=record.batch_p if record else None,
        outliers=record.outliers if record else None,
        otherwise=otherwise(cell.place),
        error=None if isinstance(outcome, CellRecord) else _why(outcome),
    )


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _told(outcome: CellRecord | BaseException, cell: Cell) -> str:
    row = row_of(cell, outcome)
    if row.error:
        return f"failed: {row.error}"
    if row.auroc is None:
        return f"{row.seconds:.1f} s"
    return f"AUROC {row.auroc:.3f}, TNR@95 {row.tnr95:.2f}, {row.seconds:.1f} s"
