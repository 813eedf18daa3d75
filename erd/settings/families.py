"""Scenarios that vary in more than one way have names by a pattern; and every scenario by its name.

get("fmnist-c5-fog")          # clean Fashion-MNIST is known, foggy at severity 5 is novel
expand("fmnist-c5")           # the fifteen of them
get("mnist-one-3-at-2")       # all digits but the 3 are known, 2% of the batch are 3s
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

from erd.base.errors import UserError, nearest
from erd.settings.scenarios import (
    CIFAR,
    CORRUPTIONS,
    ENCODER,
    MNIST_NEAR,
    SCENARIOS,
    SEVERITIES,
    SIZES,
    Scenario,
    Shift,
    held_out,
)

# Covariate shift: the classes are the same, the images are not. The paper evaluates five members on the batch. S and U
# are its own; V is smaller, so that no image is there twice, clean and corrupted, and a holdout is left.
_SHIFTED: dict[str, Any] = CIFAR | {"members": 5, "evaluated_on": "batch", "val": 5_000, "holdout_known": 2_500,
                     "holdout_novel": 2_500}  # fmt: skip
_DIGITS = SCENARIOS["digits-near"]
_SHIFTED_SETS: dict[str, tuple[str, dict[str, Any]]] = {  # how it is called in a scenario → source, sizes
    "digits": ("digits", {size: getattr(_DIGITS, size) for size in SIZES} | {"train": 900, "val": 150}
               | {"net": "mlp", "members": 5, "image_size": 8, "evaluated_on": "batch", "settings": _DIGITS.settings}),
    "mnist": ("mnist", MNIST_NEAR),
    "fmnist": ("fashion_mnist", MNIST_NEAR),
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
# One new class among known ones, which is how novelty comes to a classifier in use.
_ONE_SHARES = (10, 5, 3, 2, 1)  # per cent of the batch; the first is meant where the name has none
_ONE_SIZES = {"train": 4_500, "val": 500, "calibration": 250}
_ONE_DIGITS = {"train": 900, "val": 150, "calibration": 200}
_ONE_XRAYS = {"train": 2_400, "val": 300, "calibration": 100}
_ONE_SETS: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    # how it is called in a scenario → whose net, members and training it has; classes, images in the batch, sizes
    "digits": ("digits-near", 10, 300, _ONE_DIGITS),
    "mnist": ("mnist-near", 10, 1_000, _ONE_SIZES),
    "fmnist": ("fmnist-near", 10, 1_000, _ONE_SIZES),
    "cifar10": ("cifar10-near", 10, 1_000, _ONE_SIZES),
    "svhn": ("svhn-near", 10, 1_000, _ONE_SIZES),
    "xray": ("xray-viral", 3, 500, _ONE_XRAYS),
}
# Half of the X-rays are of class 1: without them there are fewer to train on, and the batch shall be as its name says.
_ONE_SMALLER = {"xray-one-1": {"train": 1_600}}
_FAR = {"noise": "noise", "mnist": "mnist", "fmnist": "fashion_mnist", "cifar10": "cifar10", "cifar100": "cifar100",
        "tinyimagenet": "tinyimagenet"}  # fmt: skip
_LARGER = {"chestxray64": 64} | dict.fromkeys(_MEDICAL_SETS, 224)  # pixels: an encoder makes use of them
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


def _one_new_class() -> list[Scenario]:
    """All classes of a set but one are known; the holdout has the same mixture and half as many images."""
    rows = []
    for (name, (like, classes, images, sizes)), share in itertools.product(_ONE_SETS.items(), _ONE_SHARES):
        batch, holdout = images * share // 100, math.ceil(images * share / 200)
        for new in range(classes):
            mixed = {"batch_known": images - batch, "batch_novel": batch,
                     "holdout_known": images // 2 - holdout, "holdout_novel": holdout}  # fmt: skip
            one = f"{name}-one-{new}"
            rows.append(
                replace(SCENARIOS[like], name=one if share == _ONE_SHARES[0] else f"{one}-at-{share}",
                        known=tuple(known for known in range(classes) if known != new), novel=(new,),
                        evaluated_on="batch", **(sizes | _ONE_SMALLER.get(one, {}) | mixed))
            )  # fmt: skip
    return rows


def _thousand(row: Scenario) -> Scenario:
    """The same with a batch of 1,000, half of it novel: five members, evaluated on the batch, as in the paper."""
    return replace(row, name=f"{row.name}-1k", calibration=125, batch_known=500, batch_novel=500,
                   members=min(5, len(row.known)) if row.known else 5, evaluated_on="batch")  # fmt: skip


def _encoded(row: Scenario) -> Scenario:
    """The same images, on the features of the bundled encoder; as large as they come where the row makes them small."""
    size = _LARGER.get(row.known_source, row.image_size)
    calibration = max(row.calibration or 0, held_out(row.train or 0))
    return replace(row, name=f"{row.name}-encoded", net="head", encoder=ENCODER, settings={}, image_size=size,
                   calibration=calibration or None)  # fmt: skip


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
        Family(f"{'|'.join(_ONE_SETS)}-one-CLASS[-at-1|2|3|5]", "novel: one class, 10% of the batch or 1, 2, 3, 5%; "
               "known: all others", "mnist-one-3-at-2", tuple(_one_new_class())),
    ]  # fmt: skip
    every = [*SCENARIOS.values(), *(row for family in made for row in family.scenarios)]
    small = tuple(_thousand(row) for row in every if (row.batch_known or 0) > 500 and (row.batch_novel or 0) > 500)
    encoded = tuple(_encoded(row) for row in [*every, *small] if row.encoder is None)
    return (
        *made,
        Family("SCENARIO-1k", "any with more, with a batch of 500 + 500", "svhn-near-1k", small),
        Family("SCENARIO-encoded", "any, on the features of the bundled encoder", "cifar10-near-encoded", encoded),
    )


FAMILIES = _families()


ALL: dict[str, Scenario] = SCENARIOS | {row.name: row for family in FAMILIES for row in family.scenarios}


def _groups() -> dict[str, list[str]]:
    """Names for several at once: cifar10-c5, cifar10-near-c2, cifar10-c5-1k, cifar10-6v4, nih-uc1, medical, mnist-one,
    mnist-one-at-2-encoded."""
    found: dict[str, list[str]] = {}
    medical = {row.name for row in _medical()}
    for name, row in ALL.items():
        if row.shift is not None:
            ending = "-1k" * ("-1k" in name) + "-encoded" * (row.encoder is not None)
            group = name.removesuffix(ending).removesuffix(f"-{row.shift.corruption}") + ending
            found.setdefault(group, []).append(name)
        elif name in SCENARIOS and "-6v4-" in name:
            found.setdefault(name.rpartition("-")[0], []).append(name)
        elif name in medical:
            found.setdefault("-".join(name.split("-")[:2]), []).append(name)
            found.setdefault("medical", []).append(name)
        elif "-one-" in name:
            of, _, rest = name.partition("-one-")  # the rest begins with the number of the class
            found.setdefault(f"{of}-one{rest.lstrip('0123456789')}", []).append(name)
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
