"""The paper itself: members fine-tuned to call the whole batch c, each with its own c, early-stopped on V.

Tifrea, Stavarache & Yang, UAI 2022. On known images S and V keep the members from following their labels, so they
agree; on novel ones nothing does. Score: the mean over pairs of members of the TV distance between their softmax
outputs, in [0, 1].

The members are those of the product (`erd.training.members`), with the same seeds: "erd" gives the same bits as a run
with `finetune.keep=best` and `detect.calibration=paper`. The variants differ in what is kept of a member, in what its
training starts from, or in what is made of the members' outputs:

- "erd++" trains each member from random weights on the pretraining schedule, so it does not see the classifier.
- "erd-last" has no early stopping.
- "erd-entropy" looks at the members' mean instead of their disagreement, as one would with an ensemble of any other
  kind: the paper's comparison of scores.
- "erd-joined" is what the product does where there is an encoder: "erd-avg" joined with the neighbours that an image
  has in the batch and with candidate classes (erd/statistics/joint.py), by ranks in the batch.
- "erd-avg" and its like are ours. The best epoch on V is one noisy choice out of few, and each epoch has forgotten
  other images of the batch; an average needs no choice and no extra training. It is of the softmax over the later half
  of the epochs ("erd-avg", which is what the product does for small nets, and "erd++-avg"), of the weights over all
  epochs ("erd-avg-weights": SWA, Izmailov et al. 2018), or of the weights as they pass, over about
  `finetune.ema_steps` steps ("erd-avg-ema").
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.settings.schema import Finetune, Training
from erd.statistics.disagreement import disagreement, entropy_of_mean
from erd.statistics.joint import Joint
from erd.training.batches import Mixture
from erd.training.checkpoint import Recording, State
from erd.training.loop import Recipe, predict
from erd.training.members import CURVES, draw_labels, finetune_member

PAPER = "Tifrea, Stavarache & Yang, UAI 2022"
OURS = f"after {PAPER}; averaged here"
PAIRS = "mean over i < j of TV(f_i(x), f_j(x))"
FORMULA = f"{PAIRS}; f_c fine-tuned on S ∪ {{(x, c): x ∈ U}}"


@dataclass(frozen=True)
class Variant:
    name: str
    keep: Literal["best", "last", "softmax-average", "weight-average", "ema"]  # of a member, as `finetune.keep`
    formula: str
    paper: str = PAPER
    random: bool = False  # members begin with random weights, not with the classifier's
    value: Callable[[Tensor], Tensor] | None = None  # of K×N×classes; None: as `score.distance` says, which is TV

    @property
    def sees(self) -> tuple[str, ...]:
        return ("train", "val", "batch") if self.random else ("train", "val", "classifier", "batch")

    @property
    def ensemble(self) -> str:
        """Members that are trained alike; a running average is not, since it changes with every step."""
        return "" if self.keep == "ema" else "erd++" if self.random else "erd"


VARIANTS = (
    Variant("erd", "best", FORMULA),
    Variant("erd++", "best", f"{FORMULA}, from random weights", random=True),
    Variant(
        "erd-last", "last", f"{FORMULA}, as they are after the last epoch", f"after {PAPER}; without early stopping"
    ),
    Variant("erd-entropy", "best", "−Σ_y p̄_y log p̄_y,  p̄ = mean softmax of ERD's members", value=entropy_of_mean),
    Variant(
        "erd-avg",
        "softmax-average",
        "mean over i < j of TV(f̄_i(x), f̄_j(x)); f̄ = mean softmax of the later half of the epochs",
        OURS,
    ),
    Variant("erd-avg-weights", "weight-average", f"{PAIRS}; f with the mean of the weights of all epochs", OURS),
    Variant("erd-avg-ema", "ema", f"{PAIRS}; f with a running average of the weights", OURS),
    Variant("erd++-avg", "softmax-average", "as erd-avg, from random weights", OURS, random=True),
)


def enter(variant: Variant) -> None:
    @method(
        variant.name,
        paper=variant.paper,
        formula=variant.formula,
        setting="semi-supervised",
        sees=variant.sees,
        ensemble=variant.ensemble,
    )
    def fit(given: Given) -> Detector:
        return detector(given, variant)


for variant in VARIANTS:
    enter(variant)


@method(
    "erd-joined",
    paper=f"after {PAPER}; joined here",
    formula="Σ −w log(1 − rank in U) of candidates (w = 2), of neighbours and of erd-avg",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch", "encoder"),
    ensemble="erd",
)
def with_neighbours(given: Given) -> Detector:
    members = detector(given, next(variant for variant in VARIANTS if variant.name == "erd-avg")).score
    seen, labels = given.encoder(given.train.images), given.train.labels
    joint = Joint.of(seen, labels, given.encoder(given.batch), members(given.batch).numpy())

    def score(images: Rows) -> Tensor:
        table = pd.DataFrame({"disagreement": members(images).numpy()})
        return torch.from_numpy(joint.of_table(table, given.encoder(images))["score"].to_numpy())

    return Detector(score)


def detector(given: Given, variant: Variant) -> Detector:
    settings = given.settings
    value = variant.value or partial(disagreement, distance=settings.score.distance)
    schedule = settings.pretrain if variant.random else settings.finetune
    finetune = Finetune(
        **{name: getattr(schedule, name) for name in Training.model_fields},
        ema_steps=settings.finetune.ema_steps,
        keep=variant.keep,
        init="random" if variant.random else "pretrained",
    )
    recipe = Recipe.of(finetune)
    curves = torch.full((len(given.batch),), CURVES.index("batch"), dtype=torch.int8)
    train, val = ((part.images, part.labels) for part in (given.train, given.val))

    def member(label: int, recording: Recording | None) -> tuple[Classifier, list[State]]:
        model, result = finetune_member(
            given.net() if variant.random else copy.deepcopy(given.classifier),
            label,
            train,
            [(given.batch, curves)],
            val,
            finetune,
            settings.seed,
            recording=recording,
            on_epoch=given.on_epoch(recipe),
        )
        return model, result.snapshots

    members = given.each(draw_labels(settings.finetune, given.classes, settings.seed), recipe, member)

    def score(images: Rows) -> Tensor:
        rows = Mixture(images, device=given.device)
        return value(torch.stack([predict(model, snapshots, rows) for model, snapshots in members]))

    return Detector(score)
