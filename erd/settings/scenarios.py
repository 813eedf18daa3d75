"""The scenarios as a table: which classes are known, which novel, how many images go where, which net, which training.

A scenario fills every setting that params.yaml leaves `null`. Sizes are the paper's (appendix: MNIST and FashionMNIST
50K/10K/10K + 10K, SVHN and CIFAR 40K/10K/5K + 5K, all divided by two where half of the classes are known). The paper
has no calibration set, and no holdout for the MNIST sets: those images are taken out of the training set, and `ingest`
says so.

What varies in more than one way has names by a pattern (erd.settings.families), and is not listed one by one.
"""

import random
from dataclasses import dataclass, field
from typing import Any

SEVERITIES = (1, 2, 3, 4, 5)
# Of Hendrycks & Dietterich (2019), in their order; erd.data.corruptions has the functions.
CORRUPTIONS = ("gaussian-noise", "shot-noise", "impulse-noise", "defocus-blur", "glass-blur", "motion-blur",
               "zoom-blur", "snow", "frost", "fog", "brightness", "contrast", "elastic-transform", "pixelate",
               "jpeg-compression")  # fmt: skip


@dataclass(frozen=True)
class Shift:
    """Which images of a scenario are corrupted, and how."""

    corruption: str  # of CORRUPTIONS
    severity: int
    on: str  # novel: the novel images are corrupted known ones; holdout: novel images are corrupted only there


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
    image_size: int | None  # None: the size that the encoder takes
    train: int | None  # S, before calibration and what is not left for the holdout are taken out of it
    val: int | None  # None, here and below: a share of what there is (`erd.data.dealing.own_sizes`)
    calibration: int | None
    batch_known: int | None
    batch_novel: int | None
    holdout_known: int | None
    holdout_novel: int | None
    evaluated_on: str = "holdout"  # where the paper's figures of this row are computed
    settings: dict[str, Any] = field(default_factory=dict)  # dotted, where the row departs from its net's recipe
    shift: Shift | None = None  # novel images that are corrupted
    encoder: str | None = None  # of timm, frozen: the net is then a head on its features


ENCODER = "tf_efficientnet_lite0"  # the one that is bundled
SIZES = ("train", "val", "calibration", "batch_known", "batch_novel", "holdout_known", "holdout_novel")
# C is hidden among the batch with a wrong label, as are its known images (`detect.calibration: mixed`). So it is
# small against them: as many again cost .14 AUROC on the X-rays.
FLAG_A_FEW = 667  # 1 / (.05 · .03)
HALF = tuple(range(5)), tuple(range(5, 10))


def held_out(labeled: int) -> int:
    """How large C is on an encoder's features, where a classifier takes few images: two fifths of those there are."""
    return min(2_000, 2 * labeled // 5)


def hidden(calibration: int, *, encoded: bool) -> int:
    """How many of C are hidden in the batch (`detect.calibration: mixed`); the others are compared with new images.

    Half of them. Where there is an encoder as many as it takes to flag 3% of a batch at a false discovery rate of 5%,
    but at most four fifths: a larger part would hide a rare new class among them, a smaller one could flag nothing.
    """
    return max(calibration // 2, min(4 * calibration // 5, FLAG_A_FEW)) if encoded else calibration - calibration // 2


_MNIST = {"net": "mlp", "members": 5, "image_size": 28, "evaluated_on": "batch",
          "train": 50_000, "val": 10_000, "calibration": 2_500, "batch_known": 10_000, "batch_novel": 10_000,
          "holdout_known": 2_500, "holdout_novel": 2_500}  # fmt: skip
MNIST_NEAR = _MNIST | {"train": 25_000, "val": 5_000, "batch_known": 5_000, "batch_novel": 5_000}
CIFAR = {"net": "resnet20", "members": 3, "image_size": 32,
          "train": 40_000, "val": 10_000, "calibration": 1_250, "batch_known": 5_000, "batch_novel": 5_000,
          "holdout_known": 5_000, "holdout_novel": 5_000}  # fmt: skip
_CIFAR_NEAR = CIFAR | {"train": 20_000, "val": 5_000, "calibration": 625, "batch_known": 2_500, "batch_novel": 2_500,
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
        row("mnist-near", ("mnist", HALF[0]), ("mnist", HALF[1]), MNIST_NEAR),
        row("fmnist-near", ("fashion_mnist", (0, 2, 3, 7, 8)), ("fashion_mnist", (1, 4, 5, 6, 9)), MNIST_NEAR),
        row("mnist-fmnist", everything("mnist"), everything("fashion_mnist"), _MNIST),
        row("fmnist-mnist", everything("fashion_mnist"), everything("mnist"), _MNIST),
        row("cifar10-near", ("cifar10", HALF[0]), ("cifar10", HALF[1]), _CIFAR_NEAR),
        row("cifar100-near", ("cifar100", tuple(range(50))), ("cifar100", tuple(range(50, 100))), _CIFAR_NEAR),
        row("svhn-near", ("svhn", HALF[0]), ("svhn", HALF[1]), _CIFAR_NEAR),
        row("cifar10-svhn", everything("cifar10"), everything("svhn"), CIFAR),
        row("svhn-cifar10", everything("svhn"), everything("cifar10"), CIFAR),
        row("cifar100-svhn", everything("cifar100"), everything("svhn"), CIFAR),
        row("cifar10-cifar100", everything("cifar10"), everything("cifar100"), CIFAR),
        row("cifar100-cifar10", everything("cifar100"), everything("cifar10"), CIFAR),
        *_six_four("cifar10"),
        *_six_four("svhn"),
        row("xray-viral", ("chestxray64", (0, 1)), ("chestxray64", (2,)),
            {"net": "resnet20", "members": 2, "image_size": 32, "train": 2_660, "val": 400, "calibration": 100,
             "batch_known": 400, "batch_novel": 260, "holdout_known": 350, "holdout_novel": 250,
             "evaluated_on": "batch"},
            # An epoch has only some 25 steps here: fewer epochs to pretrain, and larger steps to fine-tune
            settings={"pretrain.epochs": 30, "pretrain.milestones": [15, 21, 27], "finetune.lr": 1e-2}),
        # The user's own images: data.source, data.path, data.known and data.novel say which.
        row("own", everything("own"), everything("own"),
            {"net": "head", "encoder": ENCODER, "members": None, "image_size": None, "evaluated_on": "batch"}
            | dict.fromkeys(SIZES)),
    ]  # fmt: skip


# The user's own images without an encoder: the net that sees them, and a weekly run stops early.
OWN_NET = "resnet20"
OWN_SETTINGS: dict[str, Any] = {"pretrain.epochs": 60, "pretrain.milestones": [30, 42, 54], "pretrain.patience": 15,
                                "finetune.lr": 1e-2, "finetune.patience": 3}  # fmt: skip
SCENARIOS: dict[str, Scenario] = {row.name: row for row in _rows()}
