"""Novelty detectors, one file each; larger scores mean more novel.

    @method("max-softmax", paper="…", formula="…", setting="unsupervised", sees=("classifier",))
    def fit(given: Given) -> Detector:
        return Detector(lambda images: 1 - given.softmax(given.classifier, images).amax(1))

A file in this folder is found by itself: nothing has to be told of it. `fit` gets only what its record says it may
see; anything else is not in its `Given` at all, and asking for it raises `Undeclared`. `erd bench` runs them side by
side, docs/extend.md has a whole example.
"""

import functools
import importlib
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from erd import nets
from erd.base import progress
from erd.base.errors import RunError, UserError, nearest
from erd.base.files import digest
from erd.base.locks import Busy
from erd.base.seeds import derive
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.settings.schema import Settings
from erd.training import loop
from erd.training.batches import Mixture, in_order
from erd.training.checkpoint import Recording, recorded
from erd.training.loop import Examples, Recipe
from erd.training.step import Loss

Setting = Literal["unsupervised", "known outliers", "semi-supervised", "pretrained", "oracle"]
SEES = {  # what a method may declare → what it gets under that name
    "train": "labelled known images S, a `Labeled`",
    "val": "labelled known images V, a `Labeled`",
    "classifier": "a net trained on S, best epoch on V; the method's own copy",
    "batch": "the unlabelled batch U, `Rows`",
    "outliers": "images that are neither known nor of the novel classes, `Rows`",
    "novel": "some of the batch's novel images, told to be novel, `Rows` (oracle)",
    "novel_share": "the true share of novel images in the batch (oracle)",
    "encoder": "`Rows` → their features by a frozen net pretrained on other images, `model.encoder` or the bundled one",
}

T = TypeVar("T")
CHOOSING = ("epochs", "patience", "monitor", "keep", "ema_steps")  # of a recipe: what is kept of a fit, not how it goes
RECORDED_AT_MOST = 256e6  # bytes of a fit that are written down


class Undeclared(RunError):
    """A method read what its record does not say it may see."""


@dataclass(frozen=True)
class Labeled:
    images: Rows
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Detector:
    """What `fit` returns. The score of an image must not depend on which others are scored with it."""

    score: Callable[[Rows], Tensor]  # N images → N scores
    batch_p: float | None = None  # of methods that test a whole batch: "nothing is novel"


@dataclass(frozen=True)
class Method:
    """The record of a detector: what a reader of the table must know."""

    name: str
    paper: str  # who and when
    formula: str  # the score in a line
    setting: Setting
    sees: tuple[str, ...]  # of SEES
    fit: Callable[["Given"], Detector]
    module: str  # where its code is
    ensemble: str = ""  # methods that name the same one look at the same nets: drawn alike, and trained once for all


class Given:
    """What a method works with: what it declared, and of the bench the kind of net, the schedules, seed and device."""

    train: Labeled
    val: Labeled
    classifier: Classifier
    batch: Rows
    outliers: Rows
    novel: Rows
    novel_share: float
    encoder: Callable[[Rows], Tensor]

    def __init__(
        self,
        method: Method,
        settings: Settings,
        classes: list[str],
        device: torch.device,
        blank: Classifier,
        seen: Mapping[str, Any],
        *,
        recordings: Path | None = None,
        told: Path | None = None,
    ) -> None:
        """`blank` is any net of the scenario's kind: what it is made of and how it normalises is taken from it.
        `recordings` is a folder for fits that others may ask for too, with the same images; `told` is a file that
        tells whoever watches how far a training is."""
        self.method, self.settings, self.classes, self.device = method, settings, classes, device
        self._kind = dict(blank.made_of)
        self._mean, self._std = blank.mean.flatten().tolist(), blank.std.flatten().tolist()
        self._weights = sum(tensor.nbytes for tensor in blank.state_dict().values())
        self._recordings, self.saved = recordings, 0.0  # seconds of training that were done for another before
        self._told = told
        self.__dict__.update(seen)

    def __getattr__(self, name: str) -> Any:  # called only for what is not there
        if name in SEES:
            remedy = "add it to `sees`, and the table will say so"
            raise Undeclared(f"method '{self.method.name}' reads `{name}`, which its record does not declare; {remedy}")
        raise AttributeError(name)

    @property
    def _trained_as(self) -> str:
        """Whose draws and whose fits: the method's own, or those of all that look at the same nets."""
        return self.method.ensemble or self.method.name

    def seed(self, *what: str | int) -> int:
        """For one random purpose of this method."""
        return derive(self.settings.seed, "method", self._trained_as, *what)

    def generator(self, *what: str | int) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed("generator", *what))

    def net(self, outputs: int | None = None, *what: str | int) -> Classifier:
        """A fresh net of the scenario's kind; `what` tells apart the nets of one method."""
        kind = self._kind | {"classes": outputs or len(self.classes)}
        model = nets.build(**kind, seed=self.seed("net", *what), mean=self._mean, std=self._std)  # type: ignore[arg-type]
        return model.to(self.device)

    @property
    def pretraining(self) -> Recipe:
        """The schedule on which a net is trained from scratch."""
        return Recipe.of(self.settings.pretrain)

    @property
    def finetuning(self) -> Recipe:
        """The schedule on which a trained net is fine-tuned, with the best epoch kept."""
        return replace(Recipe.of(self.settings.finetune), keep="best")

    def examples(self, *sets: tuple[Rows, Tensor]) -> Examples:
        """Sets of images with their labels, to be shuffled together; `part` in a loss is the number of the set."""
        part = torch.cat([torch.full((len(rows),), number, dtype=torch.int8) for number, (rows, _) in enumerate(sets)])
        names = tuple(f"set{number}" for number in range(len(sets)))
        mixture = Mixture(*(rows for rows, _ in sets), device=self.device)
        return Examples(mixture, torch.cat([labels for _, labels in sets]), part, names)

    def on_epoch(self, recipe: Recipe) -> Callable[[dict[str, float]], None]:
        """For a training on that schedule that is not by `fit`: it tells whoever watches how far it is."""
        return progress.to_file(self._told, recipe.epochs) if self._told else lambda record: None

    def fit(
        self,
        model: Classifier,
        train: Examples,
        recipe: Recipe,
        *what: str | int,
        loss: Loss | None = None,
        watch: Callable[[Classifier], tuple[float, float]] | None = None,
        recording: Recording | None = None,
    ) -> Classifier:
        """Train in place with `erd.training.loop.fit`; V, or what `watch` says, decides which epoch is kept."""
        val = train if watch else self.examples((self.val.images, self.val.labels))
        result = loop.fit(model, train, val, recipe, self.generator("fit", *what), loss=loss, watch=watch,
                          recording=recording, on_epoch=self.on_epoch(recipe))  # fmt: skip
        model.load_state_dict(result.snapshots[-1])
        return model.eval()

    def each(self, numbers: Sequence[int], recipe: Recipe, train: Callable[[int, Recording | None], T]) -> list[T]:
        """`train` for each of the numbers: nets of an ensemble. One that was trained for another method with the same
        `ensemble`, or for another point of a sweep, on the same images and the same schedule, is played back; those
        that others train just now come last."""
        if self._recordings is None or recipe.keep == "ema" or self._weights * recipe.epochs > RECORDED_AT_MOST:
            return [train(number, None) for number in numbers]
        schedule = {name: value for name, value in asdict(recipe).items() if name not in CHOOSING}
        folders = {number: self._recordings / digest([self._trained_as, number, schedule])[:16] for number in numbers}
        found: dict[int, T] = {}
        while left := [number for number in numbers if number not in found]:
            before = len(found)
            for number in left:
                with suppress(Busy), recorded(folders[number], wait=False) as recording:
                    found[number] = train(number, recording)
                    self.saved += recording.saved
            if len(found) == before:
                since = time.perf_counter()
                with recorded(folders[left[0]], wait=True):
                    self.saved -= time.perf_counter() - since  # now it is recorded, which counts as training
        return [found[number] for number in numbers]

    @torch.inference_mode()
    def outputs(self, model: Classifier, images: Rows) -> Tensor:
        """What a net gives for images, in their order, on the CPU."""
        model.eval()
        batches = in_order(Mixture(images, device=self.device), loop.EVAL_BATCH)
        return torch.cat([model(batch).cpu() for batch in batches])

    def softmax(self, model: Classifier, images: Rows) -> Tensor:
        return self.outputs(model, images).softmax(1)


METHODS: dict[str, Method] = {}


def method(
    name: str, *, paper: str, formula: str, setting: Setting, sees: tuple[str, ...], ensemble: str = ""
) -> Callable[[Callable[[Given], Detector]], Callable[[Given], Detector]]:
    """Enter a `fit` function into the table."""
    if unknown := set(sees) - set(SEES):
        raise ValueError(f"{name} declares {sorted(unknown)}; there is {', '.join(SEES)}")

    def enter(fit: Callable[[Given], Detector]) -> Callable[[Given], Detector]:
        METHODS[name] = Method(name, paper, formula, setting, sees, fit, fit.__module__, ensemble)
        return fit

    return enter


@functools.cache
def table() -> dict[str, Method]:
    """All methods by name, in the order of settings and names."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    order = list(Setting.__args__)  # type: ignore[attr-defined]
    return dict(sorted(METHODS.items(), key=lambda item: (order.index(item[1].setting), item[0])))


def get(name: str) -> Method:
    if name not in table():
        raise UserError(f"unknown method '{name}': {nearest(name, table())}")
    return table()[name]
