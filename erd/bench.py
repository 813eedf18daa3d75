"""All detectors on the same images, each with no more than it may see: scenarios × methods × seeds.

    plan = bench.plan(["digits-near"], ["all"], seeds=3)
    with Workers(plan.settings.run, len(plan.cells)) as workers:
        rows = bench.run(plan, bench.side_by_side(workers))

A cell is a scenario, a method and a seed; a seed is a new split, a new classifier and new draws of the method.
bench/<scenario>/seed<k>/ is a run folder with the data and the classifier that all methods share, and
results/<method>.json. A cell whose record has the right key is not done again: the key is made of the settings, the
hashes of the images and of the classifier, and the code of the method. What fails is a row that says why.
"""

import ast
import contextlib
import functools
import importlib.util
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erd import __version__, compute, files, methods, paper, progress, tracking
from erd.cells import FIGURES, Cell, Place, measure, prepare, shown
from erd.errors import RunError, UserError, WorkerDied
from erd.locks import locked
from erd.methods import CHOOSING, Method
from erd.params import HERE, Settings, load
from erd.rundir import RunDir
from erd.scenarios import SIZES, expand, get, resolve, settings_for

log = logging.getLogger("erd")
ROOT = Path("bench")
TRIES = 3  # of a job whose process was killed
EXPERIMENT = "bench"
SEND_EVERY = 20.0  # seconds
# The images are dealt as in the paper: no calibration set, since nothing is flagged here. The batch is the row's.
AS_IN_THE_PAPER = ("detect.calibration=paper", "data.batch=null", "data.inbox=null")
# Modules that change no score (files, sentences) or whose part in it is in the key already (settings).
PLUMBING = ("erd.errors", "erd.files", "erd.lifeline", "erd.params", "erd.progress")

# function, jobs (arguments and a name) → number of the job, and what it returned or raised, as they finish
Each = Callable[[Callable[..., Any], Sequence[tuple[tuple[Any, ...], str]]], Iterator[tuple[int, Any]]]


@dataclass(frozen=True)
class Plan:
    root: Path
    cells: list[Cell]
    skipped: list[str]  # methods whose needs are not at hand

    @property
    def places(self) -> list[Place]:
        return list({cell.place.run: cell.place for cell in self.cells}.values())

    @property
    def settings(self) -> Settings:
        """Of the first cell: the block `run` is the same in all."""
        return self.cells[0].place.settings


def plan(
    scenarios: Iterable[str] = (),
    chosen: Iterable[str] = (),
    seeds: int = 3,
    *,
    data: str | None = None,
    overrides: Iterable[str] = (),
    runner: str | None = None,
    file: Path | None = None,
    root: Path = ROOT,
) -> Plan:
    """What there is to do; anything wrong with the request is said here. `file` is another params.yaml."""
    overrides = list(overrides)
    if seeds < 1:
        raise UserError(f"the bench needs one seed or more, not {seeds}")
    if any(text.partition("=")[0].strip() == "seed" for text in overrides):
        raise UserError("the bench takes the seeds 0, 1, …; say how many with --seeds, not with --set seed")
    places = [
        place(scenario, seed, data=data, overrides=overrides, runner=runner, file=file, root=root)
        for scenario in asked(scenarios)
        for seed in range(seeds)
    ]
    found, skipped = choose(chosen, places[0].settings)
    return Plan(root, [Cell(place, method.name) for place in places for method in found], skipped)


def asked(scenarios: Iterable[str]) -> list[str]:
    """The scenarios by name, those of a group one by one, none twice."""
    return list(dict.fromkeys(name for scenario in scenarios for name in expand(scenario))) or ["digits-near"]


def place(
    scenario: str,
    seed: int,
    *,
    data: str | None = None,
    overrides: Sequence[str] = (),
    runner: str | None = None,
    file: Path | None = None,
    root: Path = ROOT,
    variant: Mapping[str, Any] | None = None,
) -> Place:
    """Where a scenario with a seed is worked on; a variant that needs other images or another classifier is a folder
    of its own, any other shares those of the scenario."""
    own = [*AS_IN_THE_PAPER, f"seed={seed}"]
    varied = [f"{knob}={value}" for knob, value in (variant or {}).items()]
    settings = settings_for(
        scenario=scenario, data=data, overrides=[*own, *overrides, *varied], runner=runner, params=file
    )
    if settings.pretrain.threads is None:  # classifiers are trained side by side: all cores for each is slower
        settings = settings.override({"pretrain.threads": settings.run.threads})
    name = ",".join(text.partition(".")[2] for text in varied).replace(" ", "")
    apart = any(text.startswith(("data.", "model.", "pretrain.")) for text in varied)
    folder = root / scenario / name if apart else root / scenario
    return Place(scenario, seed, settings, RunDir(folder / f"seed{seed}"), name)


def choose(names: Iterable[str], settings: Settings) -> tuple[list[Method], list[str]]:
    """The methods by name, or all; and the names of those that cannot be had here."""
    asked = list(dict.fromkeys(names)) or ["all"]
    weights = settings.bench.weights
    if weights is not None and not Path(weights).is_file():
        raise UserError(f"there is no file of weights at {weights}; correct bench.weights")
    found = [methods.get(name) for name in asked if name != "all"]
    skipped: list[str] = []
    if "all" in asked:
        found = list(methods.table().values())
        skipped = [method.name for method in found if "weights" in method.sees and weights is None]
        found = [method for method in found if method.name not in skipped]
    for method in found:
        if "weights" in method.sees and weights is None:
            raise UserError(
                f"method '{method.name}' starts from a net that was pretrained on other images: "
                "name the file of its weights with --set bench.weights=FILE"
            )
    return found, skipped


def run(plan: Plan, each: Each) -> list[dict[str, Any]]:
    """All cells that are not done yet; a row for each cell, those that failed with their `error`."""
    with contextlib.ExitStack() as stack:
        for place in plan.places:
            _lock(stack, place.run.root)
        prepared = _prepare_all(plan, each)
        records: dict[int, dict[str, Any]] = {}  # by the number of the cell
        keys: dict[int, str] = {}
        for number, cell in enumerate(plan.cells):
            inputs = prepared[cell.place.run]
            if isinstance(inputs, BaseException):
                records[number] = {"error": str(inputs)}
                continue
            keys[number] = key_of(cell, inputs)
            if (before := cell.before()).get("key") == keys[number]:
                records[number] = before
        left = {number: plan.cells[number] for number in set(keys) - set(records)}
        todo = sorted(left, key=lambda number: _expected(left[number]), reverse=True)
        modules = {methods.get(cell.method).module for cell in left.values()}
        todo.sort(key=lambda number: _follows(left[number], modules))
        log.info("%d cells to do, %d are done already", len(todo), sum("key" in record for record in records.values()))
        sending = Sending()
        for number in sorted(records):
            sending.add(plan.cells[number], records[number])
        tapes = _tapes([plan.cells[number] for number in todo], prepared)
        jobs = [((plan.cells[n], keys[n], order, tapes[order]), plan.cells[n].name) for order, n in enumerate(todo)]
        stack.enter_context(
            progress.saying({cell.name: cell.place.progress(cell.method) for (cell, *_), _ in jobs}, log.info)
        )
        for count, (position, outcome) in enumerate(each(measure, jobs), 1):
            number = todo[position]
            failed = isinstance(outcome, BaseException)
            records[number] = {"error": str(outcome) or type(outcome).__name__} if failed else outcome
            row = row_of(plan.cells[number], records[number])
            log.info("%d of %d: %s, %s", count, len(todo), plan.cells[number].name, _told(row))
            sending.add(plan.cells[number], records[number])
        sending.flush()
        for folder in {tape.parent for tape in tapes if tape}:
            shutil.rmtree(folder, ignore_errors=True)
    return [row_of(cell, records[number]) for number, cell in enumerate(plan.cells)]


def _tapes(cells: Sequence[Cell], prepared: Mapping[RunDir, dict[str, str]]) -> list[Path | None]:
    """Where each of the cells writes its fits down: for others with the same images that train on the same schedules.
    They stay until the bench is through, so that one that was stopped goes on with them."""
    folders: list[Path] = []
    for cell in cells:
        settings = cell.place.settings
        schedules = [block.model_dump(exclude={*CHOOSING, "labels", "members"})
                     for block in (settings.pretrain, settings.finetune)]  # fmt: skip
        same = [prepared[cell.place.run], schedules, _code("erd.ensemble"), settings.run.device]
        folders.append(cell.place.run.root / "tapes" / files.digest(same)[:16])
    return [folder if folders.count(folder) > 1 else None for folder in folders]


def side_by_side(workers: compute.Workers) -> Each:
    """Jobs in worker processes, as many at a time as there are of these; or one after the other in this process."""

    def call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        for left in reversed(range(TRIES)):
            try:
                return workers.call(function, *arguments)
            except WorkerDied as error:
                if not left:
                    return error
            except Exception as error:
                return error
        return None

    def each(function: Callable[..., Any], jobs: Sequence[tuple[tuple[Any, ...], str]]) -> Iterator[tuple[int, Any]]:
        if workers.run.runner == "serial":
            yield from ((number, call(function, arguments)) for number, (arguments, _) in enumerate(jobs))
            return
        waiting = ThreadPoolExecutor(workers.count)
        try:
            futures = {waiting.submit(call, function, job[0]): number for number, job in enumerate(jobs)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            waiting.shutdown(wait=False, cancel_futures=True)

    return each


def key_of(cell: Cell, inputs: dict[str, str]) -> str:
    """Changes with all that can change a result."""
    place, method = cell.place, methods.get(cell.method)
    used = {name: value for name, value in inputs.items() if name != place.outliers.name or "outliers" in method.sees}
    weights = files.sha256(Path(place.settings.bench.weights or "")) if "weights" in method.sees else None
    settings = shown(place.settings).model_dump(exclude=HERE)
    return files.digest([__version__, method.name, method.sees, settings, used, weights, _code(method.module)])


@functools.cache
def _code(module: str) -> dict[str, str]:
    """The code of a method, and of all of ours that it imports, without comments and docstrings; by module."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name in PLUMBING or (spec := _find(name)) is None or not spec.origin:
            continue
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names if alias.name.startswith("erd.")]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "erd":
                waiting += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        found[name] = files.digest(ast.dump(tree))
    return found


def _find(name: str) -> "importlib.machinery.ModuleSpec | None":
    """None for what is a function or a class in a module."""
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return None


def _prepare_all(plan: Plan, each: Each) -> dict[RunDir, Any]:
    """Run folder → hashes of what is in it, or why it could not be made."""
    with_outliers = {cell.place.run for cell in plan.cells if "outliers" in methods.get(cell.method).sees}
    places = plan.places
    jobs = [((p, p.run in with_outliers), p.name) for p in places]
    prepared: dict[RunDir, Any] = {}
    with progress.saying({f"the classifier of {place.name}": place.progress() for place in places}, log.info):
        for number, outcome in each(prepare, jobs):
            prepared[places[number].run] = outcome
            trouble = f": {outcome}" if isinstance(outcome, BaseException) else " is ready"
            log.info("%s%s", jobs[number][1], trouble)
    failures = [prepared[place.run] for place in places if isinstance(prepared[place.run], BaseException)]
    if len(failures) == len(places):
        raise failures[0]
    return prepared


def _lock(stack: contextlib.ExitStack, folder: Path) -> None:
    try:
        stack.enter_context(locked(folder))
    except RunError as error:
        if not isinstance(error.__context__, BlockingIOError):
            raise
        raise RunError(
            f"another bench is working in {folder}; wait for it, or give this one another --folder"
        ) from None


def _expected(cell: Cell) -> tuple[float, int]:
    """How long a cell may take: as long as the last time, with any seed; new ones first, and the larger first."""
    folder = cell.place.run.root.parent
    known = [files.load_json(path)["seconds"] for path in folder.glob(f"seed*/results/{cell.method}.json")]
    return max(known, default=math.inf), get(cell.place.scenario).train or 0


def _follows(cell: Cell, modules: Iterable[str]) -> bool:
    """Whether its method builds on another's, whose members it only looks at: side by side, one waits for the other."""
    own = methods.get(cell.method).module
    return any(module != own and module in _code(own) for module in modules)


def row_of(cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
    """A row of the table, from the record of a cell."""
    scenario, method = get(cell.place.scenario), methods.get(cell.method)
    nothing = {name: dict.fromkeys(FIGURES) for name in ("batch", "holdout")}
    figures = record.get("figures", nothing)
    where = scenario.evaluated_on
    if figures[where]["auroc"] is None and figures["batch"]["auroc"] is not None:  # the user wanted no holdout
        where = "batch"
    quoted = paper.of(scenario.name, method.name)
    return {
        "scenario": scenario.name,
        "at": dict(cell.at),
        "method": method.name,
        "setting": method.setting,
        "seed": cell.place.seed,
        **figures[where],
        "evaluated_on": where,
        **{f"{name}_{figure}": figures[name][figure] for name in figures for figure in ("auroc", "tnr95")},
        "seconds": record.get("seconds"),
        "paper_auroc": quoted.auroc if quoted else None,
        "paper_tnr95": quoted.tnr95 if quoted else None,
        "batch_p": record.get("batch_p"),
        "outliers": record.get("outliers"),
        "otherwise": _otherwise(cell.place),
        "error": record.get("error"),
    }


def _otherwise(place: Place) -> dict[str, Any]:
    """Settings that decide results and are not the scenario's own. Another net brings its own recipe."""
    net = place.settings.model.net or ""
    usual = _usual(place.scenario, net)
    others = {knob: value for knob, value in _deciding(place.settings).items() if value != usual[knob]}
    return others if net == get(place.scenario).net else {"model.net": net} | others


@functools.cache
def _usual(scenario: str, net: str) -> dict[str, Any]:
    return _deciding(resolve(load(None, [*AS_IN_THE_PAPER, f"data.scenario={scenario}", f"model.net={net}"])))


def _deciding(settings: Settings) -> dict[str, Any]:
    blocks: dict[str, Any] = {
        "data": {*SIZES, "image_size"},
        "model": True,
        "pretrain": True,
        "finetune": True,
        "score": True,
    }
    dumped = settings.model_dump(include=blocks, exclude={"pretrain": {"threads"}})
    return {f"{block}.{name}": value for block, knobs in dumped.items() for name, value in knobs.items()}


def _told(row: dict[str, Any]) -> str:
    if row["error"]:
        return f"failed: {row['error']}"
    if row["auroc"] is None:
        return f"{row['seconds']:.1f} s"
    return f"AUROC {row['auroc']:.3f}, TNR@95 {row['tnr95']:.2f}, {row['seconds']:.1f} s"


# ------------------------------------------------------------------------------------------------ MLflow


class Sending:
    """Each finished cell as one run of the experiment `bench`. A server that is away stops nothing: a record says
    where it was sent, and the next bench sends what was not."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Cell, dict[str, Any]]] = []
        self.away, self.last = False, time.monotonic()

    def add(self, cell: Cell, record: dict[str, Any]) -> None:
        if "error" in record or record.get("mlflow", {}).get("uri") == tracking.location():
            return
        self.waiting.append((cell, record))
        if not self.away and time.monotonic() - self.last > SEND_EVERY:
            self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        try:
            client = tracking.connect()
            experiment = tracking._experiment(client, EXPERIMENT)
            while self.waiting:
                _send(client, experiment, *self.waiting[0])
                self.waiting.pop(0)
        except Exception as error:  # tracking must not end a bench, whatever goes wrong in it
            if not self.away:
                trouble = "does not answer" if tracking.unreachable(error) else tracking.one_line(error)
                log.warning("MLflow at %s: %s; the next bench sends what is missing", tracking.location(), trouble)
            self.away = True
        self.last = time.monotonic()


def _send(client: Any, experiment: str, cell: Cell, record: dict[str, Any]) -> None:
    from mlflow.entities import Metric

    settings, method = cell.place.settings, methods.get(cell.method)
    tags = tracking._tags(settings, cell.place.run) | {"mlflow.source.name": "erd bench", "erd.key": record["key"]}
    tags |= {"method": method.name, "setting": method.setting, "batch": cell.place.run.batch_name}
    tags |= {"mlflow.note.content": f"{method.paper}: {method.formula}"}
    started, finished = (tracking._ms(record[when]) for when in ("started", "finished"))
    found = client.search_runs([experiment], f"tags.`erd.key` = '{record['key']}'", max_results=1)
    run_id = (found[0] if found else client.create_run(experiment, started, tags, cell.name)).info.run_id
    figures = {"detection/" + name: value for name, value in record["figures"]["batch"].items()}
    figures |= {"holdout/" + name: value for name, value in record["figures"]["holdout"].items()}
    figures |= {"seconds": record["seconds"], "batch_p": record["batch_p"]}
    own = {"scenario": cell.place.scenario, "method": method.name, "setting": method.setting}
    own |= {"outliers": record["outliers"]} if record["outliers"] else {}
    metrics = [Metric(name, value, finished, 0) for name, value in figures.items() if value is not None]
    tracking._log(client, run_id, metrics, tracking.flatten(settings) | own)
    client.set_terminated(run_id, "FINISHED", finished)
    record["mlflow"] = {"uri": tracking.location(), "run_id": run_id}
    files.save_json(cell.place.record(method.name), record)
