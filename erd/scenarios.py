"""The scenarios as a table: which classes are known, which novel, how many images go where, which net, which training.

A scenario fills every setting that params.yaml leaves `null`. Sizes are the paper's (appendix: MNIST and FashionMNIST
50K/10K/10K + 10K, SVHN and CIFAR 40K/10K/5K + 5K, all divided by two where half of the classes are known). The paper
has no calibration set, and no holdout for the MNIST sets: those images are taken out of the training set, and `ingest`
says so.

    get("fmnist-c5-fog")          # clean Fashion-MNIST is known, foggy at severity 5 is novel
    expand("fmnist-c5")           # the fifteen of them, and `average_and_worst` of what they gave

What varies in more than one way has names by a pattern (`FAMILIES`), and is not listed one by one.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from erd.data.corruptions import CORRUPTIONS, SEVERITIES, Shift
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
    shift: Shift | None = None  # novel images that are corrupted


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
        row("cifar10-cifar100", everything("cifar10"), everything("cifar100"), _CIFAR),
        row("cifar100-cifar10", everything("cifar100"), everything("cifar10"), _CIFAR),
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


# ---------------------------------------------------------------------------------------------------- families

# Covariate shift: the classes are the same, the images are not. The paper evaluates five members on the batch. S and U
# are its own; V is smaller, so that no image is there twice, clean and corrupted, and a holdout is left.
_SHIFTED: dict[str, Any] = _CIFAR | {"members": 5, "evaluated_on": "batch", "val": 5_000, "holdout_known": 2_500,
                     "holdout_novel": 2_500}  # fmt: skip
_DIGITS = SCENARIOS["digits-near"]
_SHIFTED_SETS: dict[str, tuple[str, dict[str, Any]]] = {  # how it is called in a scenario → source, sizes
    "digits": ("digits", {size: getattr(_DIGITS, size) for size in SIZES} | {"train": 900, "val": 150}
               | {"net": "mlp", "members": 5, "image_size": 8, "evaluated_on": "batch", "settings": _DIGITS.settings}),
    "mnist": ("mnist", _MNIST_NEAR),
    "fmnist": ("fashion_mnist", _MNIST_NEAR),
    "cifar10": ("cifar10", _SHIFTED),
    "cifar100": ("cifar100", _SHIFTED),
}  # fmt: skip
_NEAR_SETS = ("digits-near", "mnist-near", "fmnist-near", "cifar10-near", "cifar100-near")

# The medical benchmark (Cao et al., 2020): DenseNet-121, two members, as many novel images as known ones in the batch.
# The paper says nothing of sizes; the benchmark's images are 224 pixels wide (--set data.image_size=224).
_MEDICAL: dict[str, Any] = {
    "net": "densenet121", "members": 2, "image_size": 64, "evaluated_on": "batch", "train": 20_000, "val": 2_500,
    "calibration": 625, "batch_known": 2_500, "batch_novel": 2_500, "holdout_known": 1_250, "holdout_novel": 1_250,
}  # fmt: skip
_MEDICAL_SETS = ("nih", "padchest", "drd", "pcam")  # of each the classes 0 and 1 are known
_FAR = {"noise": "noise", "mnist": "mnist", "fmnist": "fashion_mnist", "cifar10": "cifar10", "cifar100": "cifar100",
        "tinyimagenet": "tinyimagenet"}  # fmt: skip
_UNSEEN = (2, 3, 4, 5)  # cardiomegaly, pneumothorax, nodule, mass in both chest X-ray sets


def _few(novel: int) -> dict[str, int]:
    """Sizes where so few novel images exist: two thirds of them in the batch, and as many known ones."""
    batch, holdout = 2 * novel // 3, novel // 3
    return {"calibration": max(20, batch // 4), "batch_known": batch, "batch_novel": batch,
            "holdout_known": holdout, "holdout_novel": holdout}  # fmt: skip


def _shifted() -> list[Scenario]:
    """Clean images are known, the same classes corrupted are novel."""
    return [
        Scenario(f"{name}-c{severity}-{corruption}", source, None, source, None,
                 shift=Shift(corruption, severity, "novel"), **sizes)
        for name, (source, sizes) in _SHIFTED_SETS.items() for severity in SEVERITIES for corruption in CORRUPTIONS
    ]  # fmt: skip


def _shifted_at_test() -> list[Scenario]:
    """New classes, clean in the batch; in the holdout they are corrupted as well."""
    return [
        replace(SCENARIOS[name], name=f"{name}-c{severity}-{corruption}", members=5, evaluated_on="holdout",
                shift=Shift(corruption, severity, "holdout"))
        for name in _NEAR_SETS for severity in SEVERITIES for corruption in CORRUPTIONS
    ]  # fmt: skip


def _other_photographs() -> list[Scenario]:
    """Other sets of the same kind of photographs: CIFAR-10.1 has 2,000 images in all."""
    v2 = _SHIFTED | {"calibration": 400, "batch_known": 1_600, "batch_novel": 1_600,
                     "holdout_known": 400, "holdout_novel": 400}  # fmt: skip
    tiny = _SHIFTED | {"train": 80_000, "val": 10_000, "holdout_known": 5_000, "holdout_novel": 5_000}
    return [
        Scenario("cifar10-v2", "cifar10", None, "cifar10v2", None, **v2),
        Scenario("tinyimagenet-objectnet", "tinyimagenet", None, "objectnet", None, **tiny),
    ]


def _medical() -> list[Scenario]:
    """Use case 1: something else altogether; 2: taken otherwise than it should be; 3: a disease nobody has seen."""

    def row(name: str, novel: str, classes: tuple[int, ...] | None, **sizes: int) -> Scenario:
        known = name.partition("-")[0]
        return Scenario(name, known, (0, 1), novel, classes, **(_MEDICAL | sizes))

    far = [row(f"{name}-uc1-{other}", source, None) for name in _MEDICAL_SETS for other, source in _FAR.items()]
    return [
        *far,
        *(row(f"{name}-uc1-mura", "mura", None) for name in ("nih", "padchest")),
        row("pcam-uc1-malaria", "malaria", None),
        row("nih-uc2-lateral", "padchest", (0, 1, *_UNSEEN)),
        row("nih-uc2-ap", "padchest", (7,)),
        row("nih-uc2-ap-horizontal", "padchest", (8,)),
        row("nih-uc2-pediatric", "padchest", (9,)),
        row("padchest-uc2-pa", "padchest", (6,)),
        row("padchest-uc2-ap", "padchest", (7,)),
        row("padchest-uc2-ap-horizontal", "padchest", (8,)),
        row("padchest-uc2-pediatric", "padchest", (9,)),
        row("drd-uc2-drimdb", "drimdb", None, **_few(90)),
        row("pcam-uc2-idc", "idc", None),
        row("pcam-uc2-anhir", "anhir", None),
        row("nih-uc3-unseen", "nih", _UNSEEN),
        row("padchest-uc3-unseen", "padchest", _UNSEEN),
        row("drd-uc3-riga", "riga", None, **_few(750)),
    ]


def _thousand(row: Scenario) -> Scenario:
    """The same with a batch of 1,000, half of it novel: five members, evaluated on the batch, as in the paper."""
    return replace(row, name=f"{row.name}-1k", calibration=125, batch_known=500, batch_novel=500,
                   members=min(5, len(row.known)) if row.known else 5, evaluated_on="batch")  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Scenarios with names by a pattern."""

    pattern: str
    about: str
    example: str
    scenarios: tuple[Scenario, ...]


def _families() -> tuple[Family, ...]:
    made = [
        Family(f"{'|'.join(_SHIFTED_SETS)}-c1…5-CORRUPTION", "known: clean images; novel: the same classes corrupted",
               "fmnist-c5-fog", tuple(_shifted())),
        Family("NEAR-c1…5-CORRUPTION", "as NEAR (digits-near, …), novel images corrupted in the holdout only",
               "cifar10-near-c2-snow", tuple(_shifted_at_test())),
        Family("cifar10-v2, tinyimagenet-objectnet", "novel: another set of the same kind of photographs",
               "cifar10-v2", tuple(_other_photographs())),
        Family(f"{'|'.join(_MEDICAL_SETS)}-uc1|2|3-NOVEL", "medical benchmark: 1 other images, 2 wrongly taken, "
               "3 unseen diseases", "nih-uc3-unseen", tuple(_medical())),
    ]  # fmt: skip
    every = [*SCENARIOS.values(), *(row for family in made for row in family.scenarios)]
    small = tuple(_thousand(row) for row in every if (row.batch_known or 0) > 500 and (row.batch_novel or 0) > 500)
    return (*made, Family("SCENARIO-1k", "any with more, with a batch of 500 + 500", "svhn-near-1k", small))


FAMILIES = _families()
ALL: dict[str, Scenario] = SCENARIOS | {row.name: row for family in FAMILIES for row in family.scenarios}


def _groups() -> dict[str, list[str]]:
    """Names for several at once: cifar10-c5, cifar10-near-c2, cifar10-c5-1k, cifar10-6v4, nih-uc1, medical."""
    found: dict[str, list[str]] = {}
    medical = {row.name for row in _medical()}
    for name, row in ALL.items():
        if row.shift is not None:
            small = "-1k" * name.endswith("-1k")
            found.setdefault(name.removesuffix(small).removesuffix(f"-{row.shift.corruption}") + small, []).append(name)
        elif name in SCENARIOS and "-6v4-" in name:
            found.setdefault(name.rpartition("-")[0], []).append(name)
        elif name in medical:
            found.setdefault("-".join(name.split("-")[:2]), []).append(name)
            found.setdefault("medical", []).append(name)
    return found


GROUPS = _groups()


def get(name: str) -> Scenario:
    if name not in ALL:
        if name in GROUPS:
            first, last = GROUPS[name][0], GROUPS[name][-1]
            raise UserError(f"'{name}' is {len(GROUPS[name])} scenarios, {first} to {last}: take one, or the bench")
        raise UserError(f"unknown scenario '{name}': {_nearest(name)}")
    return ALL[name]


def _nearest(name: str) -> str:
    close = nearest(name, [*ALL, *GROUPS])
    return close if close.startswith("did you mean") else nearest(name, SCENARIOS)


def like(name: str) -> Scenario:
    """The scenario of that name; for `cifar10-c5 (A)`, over all of a group, the first of them."""
    group, summed, _ = name.partition(" (")
    return ALL[GROUPS[group][0]] if summed and group in GROUPS else get(name)


def expand(name: str) -> list[str]:
    """The scenario of that name, or all of the group of that name."""
    return GROUPS[name] if name in GROUPS else [get(name).name]


def average_and_worst(
    rows: Iterable[dict[str, Any]], figures: Iterable[str] = ("auroc", "tnr95", "aupr")
) -> list[dict[str, Any]]:
    """Over the corruptions of each set and severity, for each method and seed: two rows, as the paper has them.

    `rows` have scenario, method and seed, as the bench makes them; others than of corruptions are passed over. The
    average is called `cifar10-c5 (A)`, the worst `cifar10-c5 (W)`, of each figure on its own. `corruptions` says of how
    many; where a figure is missing for one, it is missing, and `error` is the first. All else is that of the first row.
    """
    figures = tuple(figures)
    group_of = {name: group for group, names in GROUPS.items() for name in names if ALL[name].shift is not None}
    found: dict[tuple[str, Any, Any], list[dict[str, Any]]] = {}
    for row in rows:
        if group := group_of.get(row["scenario"]):
            found.setdefault((group, row.get("method"), row.get("seed")), []).append(row)
    told = []
    for (group, method, seed), of_group in found.items():
        for sign, over in (("A", lambda values: sum(values) / len(values)), ("W", min)):
            values = {name: [row[name] for row in of_group] for name in figures}
            summed = {name: None if None in each else over(each) for name, each in values.items()}
            errors = [row["error"] for row in of_group if row.get("error")]
            named = {"scenario": f"{group} ({sign})", "method": method, "seed": seed, "corruptions": len(of_group)}
            told.append(of_group[0] | summed | named | {"error": errors[0] if errors else None})
    return told


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
    # ERD++ begins with random weights, whose first epochs are worth nothing: no average over all of them.
    from_scratch = settings.finetune.init == "random"
    decided["finetune.keep"] = "best" if from_scratch and average == "weight-average" else average
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
