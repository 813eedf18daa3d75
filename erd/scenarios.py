"""The scenarios as a table: which classes are known, which novel, how many images go where, which net, which training.

A scenario fills every setting that params.yaml leaves `null`. Sizes are the paper's (appendix: MNIST and FashionMNIST
50K/10K/10K + 10K, SVHN and CIFAR 40K/10K/5K + 5K, all divided by two where half of the classes are known). The paper
has no calibration set, and no holdout for the MNIST sets: those images are taken out of the training set, and `ingest`
says so.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from erd.errors import UserError, nearest
from erd.params import Settings, load

# Training settings by net, from the paper's appendix. ERD++ fine-tunes on the pretraining schedule.
_MLP = {"epochs": 10, "batch_size": 128, "optimizer": "adam", "lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0,
        "milestones": [], "gamma": 1.0, "augment": False, "patience": 0}  # fmt: skip
_CONV = {"epochs": 100, "batch_size": 128, "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4,
         "milestones": [50, 70, 90], "gamma": 0.2, "augment": True, "patience": 0}  # fmt: skip
_CONV_FINETUNE = _CONV | {"epochs": 10, "lr": 1e-3, "milestones": []}
RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "mlp": {"pretrain": _MLP, "finetune": _MLP},
    "resnet20": {"pretrain": _CONV, "finetune": _CONV_FINETUNE},
    "resnet18": {"pretrain": _CONV, "finetune": _CONV_FINETUNE},
    "wrn28_10": {"pretrain": _CONV, "finetune": _CONV_FINETUNE},
    "vgg16": {"pretrain": _CONV, "finetune": _CONV_FINETUNE},
    "densenet121": {
        "pretrain": _CONV | {"batch_size": 32},
        "finetune": _CONV_FINETUNE | {"batch_size": 32, "lr": 1e-5},
    },
}
# What is kept of a fine-tuned member. Averaging its softmax over the later epochs finds more than the paper's best one
# (docs/decisions.md). Its file then holds the weights of each of them, so large nets average the weights instead.
SMALL = ("mlp", "resnet20")


@dataclass(frozen=True)
class Scenario:
    """One row. `known` and `novel` are class numbers of their source; None = all of them."""

    name: str
    known_source: str
    known: tuple[int, ...] | None
    novel_source: str
    novel: tuple[int, ...] | None
    net: str
    members: int | None  # None: three, or two where there are only two classes
    image_size: int
    train: int | None  # S, before calibration and what is not left for the holdout are taken out of it
    val: int | None  # None, here and below: a share of what there is (`erd.data.splits.own_sizes`)
    calibration: int | None
    batch_known: int | None
    batch_novel: int | None
    holdout_known: int | None
    holdout_novel: int | None
    evaluated_on: str = "holdout"  # where the paper's figures of this row are computed
    settings: dict[str, Any] = field(default_factory=dict)  # dotted, where the row departs from its net's recipe


SIZES = ("train", "val", "calibration", "batch_known", "batch_novel", "holdout_known", "holdout_novel")
# C is hidden among the batch with a wrong label, as are its known images (`detect.calibration: mixed`). So it is
# small against them: as many again cost .14 AUROC on the X-rays.
HALF = tuple(range(5)), tuple(range(5, 10))
_MNIST = {"net": "mlp", "members": 5, "image_size": 28, "evaluated_on": "batch",
          "train": 50_000, "val": 10_000, "calibration": 2_500, "batch_known": 10_000, "batch_novel": 10_000,
          "holdout_known": 2_500, "holdout_novel": 2_500}  # fmt: skip
_MNIST_NEAR = _MNIST | {"train": 25_000, "val": 5_000, "batch_known": 5_000, "batch_novel": 5_000}
_CIFAR = {"net": "resnet20", "members": 3, "image_size": 32,
          "train": 40_000, "val": 10_000, "calibration": 1_250, "batch_known": 5_000, "batch_novel": 5_000,
          "holdout_known": 5_000, "holdout_novel": 5_000}  # fmt: skip
_CIFAR_NEAR = _CIFAR | {"train": 20_000, "val": 5_000, "calibration": 625, "batch_known": 2_500, "batch_novel": 2_500,
                        "holdout_known": 2_500, "holdout_novel": 2_500}  # fmt: skip
_CIFAR_SIX = _CIFAR_NEAR | {"train": 24_000, "val": 6_000, "batch_known": 3_000, "batch_novel": 2_000,
                            "holdout_known": 3_000, "holdout_novel": 2_000}  # fmt: skip


def _six_four(source: str) -> list[Scenario]:
    """Six random classes known, four novel: five fixed draws a source, as in the paper's comparison."""
    rows = []
    for draw in range(5):
        known = tuple(sorted(random.Random(f"{source}-{draw}").sample(range(10), 6)))
        novel = tuple(sorted(set(range(10)) - set(known)))
        rows.append(Scenario(f"{source}-6v4-{draw}", source, known, source, novel, **_CIFAR_SIX))  # type: ignore[arg-type]
    return rows


def _rows() -> list[Scenario]:
    def row(name: str, known: tuple[str, Any], novel: tuple[str, Any], sizes: dict[str, Any], **more: Any) -> Scenario:
        return Scenario(name, *known, *novel, **(sizes | more))

    def everything(source: str) -> tuple[str, None]:
        return source, None

    return [
        row("digits-near", ("digits", HALF[0]), ("digits", HALF[1]),
            {"net": "mlp", "members": 5, "image_size": 8, "train": 450, "val": 91, "calibration": 200,
             "batch_known": 180, "batch_novel": 180, "holdout_known": 180, "holdout_novel": 180},
            settings={"pretrain.epochs": 40, "pretrain.batch_size": 32,
                      "finetune.epochs": 20, "finetune.batch_size": 32}),
        row("mnist-near", ("mnist", HALF[0]), ("mnist", HALF[1]), _MNIST_NEAR),
        row("fmnist-near", ("fashion_mnist", (0, 2, 3, 7, 8)), ("fashion_mnist", (1, 4, 5, 6, 9)), _MNIST_NEAR),
        row("mnist-fmnist", everything("mnist"), everything("fashion_mnist"), _MNIST),
        row("fmnist-mnist", everything("fashion_mnist"), everything("mnist"), _MNIST),
        row("cifar10-near", ("cifar10", HALF[0]), ("cifar10", HALF[1]), _CIFAR_NEAR),
        row("cifar100-near", ("cifar100", tuple(range(50))), ("cifar100", tuple(range(50, 100))), _CIFAR_NEAR),
        row("svhn-near", ("svhn", HALF[0]), ("svhn", HALF[1]), _CIFAR_NEAR),
        row("cifar10-svhn", everything("cifar10"), everything("svhn"), _CIFAR),
        row("svhn-cifar10", everything("svhn"), everything("cifar10"), _CIFAR),
        row("cifar100-svhn", everything("cifar100"), everything("svhn"), _CIFAR),
        *_six_four("cifar10"),
        *_six_four("svhn"),
        row("xray-viral", ("chestxray64", (0, 1)), ("chestxray64", (2,)),
            {"net": "resnet20", "members": 2, "image_size": 32, "train": 2_660, "val": 400, "calibration": 100,
             "batch_known": 400, "batch_novel": 260, "holdout_known": 350, "holdout_novel": 250,
             "evaluated_on": "batch"},
            # An epoch has only some 25 steps here: fewer epochs to pretrain, and larger steps to fine-tune
            settings={"pretrain.epochs": 30, "pretrain.milestones": [15, 21, 27], "finetune.lr": 1e-2}),
        # The user's own images: data.source, data.path, data.known and data.novel say which. A weekly run stops early.
        row("own", everything("own"), everything("own"),
            {"net": "resnet20", "members": None, "image_size": 32, "evaluated_on": "batch"} | dict.fromkeys(SIZES),
            settings={"pretrain.epochs": 60, "pretrain.milestones": [30, 42, 54], "pretrain.patience": 15,
                      "finetune.lr": 1e-2, "finetune.patience": 3}),
    ]  # fmt: skip


SCENARIOS: dict[str, Scenario] = {row.name: row for row in _rows()}


def get(name: str) -> Scenario:
    if name not in SCENARIOS:
        raise UserError(f"unknown scenario '{name}': {nearest(name, SCENARIOS)}")
    return SCENARIOS[name]


def resolve(settings: Settings) -> Settings:
    """The settings with every `null` decided, as far as that is possible before the images are seen.

    What the user set stays; then comes the scenario's row; then the recipe of the net.
    """
    scenario = get(settings.data.scenario)
    net = settings.model.net or scenario.net
    if net not in RECIPES:
        raise UserError(f"unknown net '{net}' in model.net: {nearest(net, RECIPES)}")
    same_net = net == scenario.net
    decided: dict[str, Any] = {"model.net": net, "finetune.members": scenario.members,
                               "data.image_size": scenario.image_size}  # fmt: skip
    decided |= {f"data.{size}": getattr(scenario, size) for size in SIZES}
    for block in ("pretrain", "finetune"):
        schedule = "pretrain" if settings.finetune.init == "random" else block
        for name, value in RECIPES[net][schedule].items():
            decided[f"{block}.{name}"] = value
            if same_net and f"{schedule}.{name}" in scenario.settings:
                decided[f"{block}.{name}"] = scenario.settings[f"{schedule}.{name}"]
            if schedule != block:  # ERD++ follows the pretraining schedule as the user set it
                asked = getattr(settings.pretrain, name)
                decided[f"{block}.{name}"] = asked if asked is not None else decided[f"{block}.{name}"]
    average = "softmax-average" if net in SMALL else "weight-average"
    # ERD++ begins with random weights, whose first epochs are worth nothing.
    decided["finetune.keep"] = "best" if settings.finetune.init == "random" else average
    if settings.finetune.labels is not None:
        decided["finetune.members"] = len(settings.finetune.labels)
    if settings.detect.calibration == "paper":
        decided["data.calibration"] = 0  # the paper has none: its threshold comes from V
    weekly = scenario.name == "own" and settings.data.source in (None, "library")
    if weekly and settings.data.batch and not settings.data.novel:  # with novel classes it is a trial
        decided["data.inbox"] = f"inbox/{settings.data.batch}"
    decided["pretrain.balance"] = scenario.name == "own"  # public sets have as many of each
    if net == "mlp":
        decided["pretrain.threads"] = 1  # its steps are too small to share
    asked = settings.model_dump()
    open_ones = {}
    for key, value in decided.items():
        block, _, name = key.partition(".")
        if asked[block][name] is None:
            open_ones[key] = value
    return settings.override(open_ones)


def settings_for(
    *,
    params: Path | None = None,
    overrides: Iterable[str] = (),
    scenario: str | None = None,
    batch: str | None = None,
    inbox: str | None = None,
    data: str | None = None,
    runner: str | None = None,
) -> Settings:
    """What a command or a flow runs with: params.yaml of the workspace, then what was said, all decided."""
    path = params or (Path("params.yaml") if Path("params.yaml").exists() else None)
    said = {
        "data.scenario": scenario,
        "data.batch": batch,
        "data.inbox": inbox,
        "data.root": data,
        "run.runner": runner,
    }
    settings = load(path, overrides)
    return resolve(settings.override({k: v for k, v in said.items() if v is not None}, "the command line"))
