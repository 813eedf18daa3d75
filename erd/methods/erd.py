"""The paper itself: members fine-tuned to call the whole batch c, each with its own c, early-stopped on V.

Tifrea, Stavarache & Yang, UAI 2022. On known images S and V keep the members from following their labels, so they
agree; on novel ones nothing does. Score: the mean over pairs of members of the TV distance between their softmax
outputs, in [0, 1].

The members are those of the product (`erd.ensemble`), with the same seeds: "erd" gives the same bits as a run with
`finetune.keep=best` and `detect.calibration=paper`. "erd++" trains each member from random weights on the pretraining
schedule, so it does not see the classifier. "erd-entropy" looks at the members' mean instead of their disagreement, as
one would with an ensemble of any other kind: the paper's comparison of scores.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from erd.data.batches import Mixture, Rows
from erd.disagreement import disagreement, entropy_of_mean
from erd.ensemble import CURVES, draw_labels, finetune_member
from erd.methods import Data, Detector, method
from erd.models import Classifier
from erd.params import Finetune, Training
from erd.tape import Tape
from erd.training import Recipe, State, predict

PAPER = "Tifrea, Stavarache & Yang, UAI 2022"
Keep = Literal["best", "last", "softmax-average", "weight-average", "ema"]
FORMULA = "mean over i < j of TV(f_i(x), f_j(x)); f_c fine-tuned on S ∪ {(x, c): x ∈ U}"


def members(
    data: Data, *, keep: Keep, random: bool = False, value: Callable[[Tensor], Tensor] | None = None
) -> Detector:
    """An ensemble of which each member is kept as `finetune.keep` would; `random`: from random weights. `value` makes
    scores of their softmax, K×N×classes; without it the disagreement as `score.distance` says, which is TV."""
    settings = data.settings
    value = value or partial(disagreement, distance=settings.score.distance)
    schedule = settings.pretrain if random else settings.finetune
    recipe = {name: getattr(schedule, name) for name in Training.model_fields}
    finetune = Finetune(
        **recipe, ema_steps=settings.finetune.ema_steps, keep=keep, init="random" if random else "pretrained"
    )
    curves = torch.full((len(data.batch),), CURVES.index("batch"), dtype=torch.int8)
    train, val = ((part.images, part.labels) for part in (data.train, data.val))

    def member(label: int, tape: Tape | None) -> tuple[Classifier, list[State]]:
        start = data.net() if random else copy.deepcopy(data.classifier)
        unlabeled = [(data.batch, curves)]
        model, result = finetune_member(start, label, train, unlabeled, val, finetune, settings.seed, tape=tape)
        return model, result.snapshots

    labels = draw_labels(settings.finetune, data.classes, settings.seed)
    nets = data.each(labels, f"member, {finetune.init}", Recipe.of(finetune), member)

    def score(images: Rows) -> Tensor:
        rows = Mixture(images, device=data.device)
        return value(torch.stack([predict(model, snapshots, rows) for model, snapshots in nets]))

    return Detector(score)


@method("erd", paper=PAPER, formula=FORMULA, setting="semi-supervised", sees=("train", "val", "classifier", "batch"))
def erd(data: Data) -> Detector:
    return members(data, keep="best")


@method(
    "erd++",
    paper=PAPER,
    formula=f"{FORMULA}, from random weights",
    setting="semi-supervised",
    sees=("train", "val", "batch"),
)
def erd_from_scratch(data: Data) -> Detector:
    return members(data, keep="best", random=True)


@method(
    "erd-last",
    paper=f"after {PAPER}; without early stopping",
    formula=f"{FORMULA}, as they are after the last epoch",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def erd_last(data: Data) -> Detector:
    return members(data, keep="last")


@method(
    "erd-entropy",
    paper=PAPER,
    formula="−Σ_y p̄_y log p̄_y,  p̄ = mean softmax of ERD's members",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def erd_entropy(data: Data) -> Detector:
    return members(data, keep="best", value=entropy_of_mean)
