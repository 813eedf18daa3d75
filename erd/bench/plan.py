"""What there is to do: scenarios × methods × seeds, each a cell.

    asked = Asked(overrides=("pretrain.epochs=3",))
    todo = plan.of(["digits-near"], ["all"], seeds=3, asked=asked)
    todo.cells, todo.places

A seed is a new split, a new classifier and new draws of the method. A scenario with a seed is a place: the run folder
bench/<scenario>/seed<k>/ has the data and the classifier that all methods share, and results/<method>.json for each.
Anything wrong with the request is said here, before anything is begun.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erd.base.errors import UserError
from erd.bench import detectors
from erd.bench.detectors import Method
from erd.bench.rows import CellRecord
from erd.runs.configure import resolve, settings_for
from erd.runs.folder import BENCH, RunDir
from erd.settings import families
from erd.settings.scenarios import SIZES
from erd.settings.schema import Settings, load

MOST_SEEDS = 1000
# The images are dealt as in the paper: no calibration set, since nothing is flagged here. The batch is the row's.
AS_IN_THE_PAPER = ("detect.calibration=paper", "data.batch=null", "data.inbox=null")


@dataclass(frozen=True)
class Asked:
    """How it is to be done, as a user says it: the same for all cells."""

    data: str | None = None  # the folder with the image sets
    overrides: tuple[str, ...] = ()  # a.b=value
    runner: str | None = None
    params: Path | None = None  # another params.yaml
    root: Path = BENCH  # where results are kept


AS_USUAL = Asked()


@dataclass(frozen=True)
class Place:
    """A scenario with a seed: what all methods share. `variant` names what a sweep sets otherwise."""

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

    def before(self) -> CellRecord | None:
        """What was found the last time, be it with this key or with another."""
        return CellRecord.read(self.place.record(self.method))


@dataclass(frozen=True)
class Plan:
    root: Path
    cells: list[Cell]

    @property
    def places(self) -> list[Place]:
        return list({cell.place.run: cell.place for cell in self.cells}.values())

    @property
    def settings(self) -> Settings:
        """Of the first cell: the block `run` is the same in all."""
        return self.cells[0].place.settings


def of(scenarios: Iterable[str] = (), methods: Iterable[str] = (), seeds: int = 3, asked: Asked = AS_USUAL) -> Plan:
    """Scenarios by name or group (digits-near where none is named), methods by name (all of them), seeds 0, 1, …"""
    places = [place(scenario, seed, asked) for scenario, seed in with_seeds(scenarios, seeds, asked)]
    found = choose(methods)
    return Plan(asked.root, [Cell(place, method.name) for place in places for method in found])


def with_seeds(scenarios: Iterable[str], seeds: int, asked: Asked) -> list[tuple[str, int]]:
    """Each scenario, those of a group one by one and none twice, with each seed."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise UserError(f"the bench takes 1 to {MOST_SEEDS:,} seeds, not {seeds}")
    if any(text.partition("=")[0].strip() == "seed" for text in asked.overrides):
        raise UserError("the bench takes the seeds 0, 1, …; say how many with --seeds, not with --set seed")
    names = dict.fromkeys(name for scenario in scenarios for name in families.expand(scenario))
    return [(name, seed) for name in names or ["digits-near"] for seed in range(seeds)]


def place(scenario: str, seed: int, asked: Asked = AS_USUAL, variant: Mapping[str, Any] | None = None) -> Place:
    """Where a scenario with a seed is worked on; a variant that needs other images or another classifier is a folder
    of its own, any other shares those of the scenario."""
    own = [*AS_IN_THE_PAPER, f"seed={seed}"]
    varied = [f"{knob}={value}" for knob, value in (variant or {}).items()]
    settings = settings_for(
        scenario=scenario,
        data=asked.data,
        overrides=[*own, *asked.overrides, *varied],
        runner=asked.runner,
        params=asked.params,
    )
    if scenario == "own" and not settings.data.novel:
        raise UserError(
            "the bench compares with the truth: name classes of yours to be played as novel, such as "
            "--set 'data.novel=[dog]'"
        )
    if settings.pretrain.threads is None:  # classifiers are trained side by side: all cores for each is slower
        settings = settings.override({"pretrain.threads": settings.run.threads})
    name = ",".join(text.partition(".")[2] for text in varied).replace(" ", "")
    apart = any(text.startswith(("data.", "model.", "pretrain.")) for text in varied)
    played = "+".join(map(str, settings.data.novel or []))  # of `own`: with other classes other images are novel
    folder = asked.root / scenario / played
    folder = folder / name if apart else folder
    return Place(scenario, seed, settings, RunDir(folder / f"seed{seed}"), name)


def choose(names: Iterable[str]) -> list[Method]:
    """The methods by name, or all."""
    wanted = list(dict.fromkeys(names)) or ["all"]
    return list(detectors.table().values()) if "all" in wanted else [detectors.get(name) for name in wanted]


def otherwise(place: Place) -> dict[str, Any]:
    """Settings that decide results and are not the scenario's own. Another net brings its own recipe."""
    net = place.settings.model.net or ""
    usual = _usual(place.scenario, net)
    others = {knob: value for knob, value in _deciding(place.settings).items() if value != usual[knob]}
    return others if net == families.get(place.scenario).net else {"model.net": net} | others


@functools.cache
def _usual(scenario: str, net: str) -> dict[str, Any]:
    return _deciding(resolve(load(None, [*AS_IN_THE_PAPER, f"data.scenario={scenario}", f"model.net={net}"])))


def _deciding(settings: Settings) -> dict[str, Any]:
    blocks: dict[str, Any] = {
        "data": {*SIZES, "image_size", "source", "path", "known", "novel"},
        "model": True,
        "pretrain": True,
        "finetune": True,
        "score": True,
    }
    dumped = settings.model_dump(include=blocks, exclude={"pretrain": {"threads"}})
    return {f"{block}.{name}": value for block, knobs in dumped.items() for name, value in knobs.items()}
