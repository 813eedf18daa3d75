"""A plain ensemble: five nets on S that differ in their random weights and order; the entropy of their mean softmax.

The bench's classifier is the first of them. As in ERD's comparison without adversarial training. With
"vanilla-disagreement" such nets are looked at as ERD's members are: by `score.distance`, which is TV.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from erd.data.batches import Rows
from erd.disagreement import disagreement, entropy_of_mean
from erd.methods import Data, Detector, method
from erd.models import Classifier
from erd.tape import Tape

MEMBERS = 5
PAPER = "Lakshminarayanan et al., NeurIPS 2017"
SEES = ("train", "val", "classifier")


def ensemble(data: Data, value: Callable[[Tensor], Tensor]) -> Detector:
    known = data.examples((data.train.images, data.train.labels))
    data.method = "vanilla"  # its draws: both scores are of the same nets

    def net(member: int, tape: Tape | None) -> Classifier:
        return data.fit(data.net(None, member), known, data.pretraining, member, tape=tape)

    others = data.each(range(1, MEMBERS), "vanilla", data.pretraining, net)

    def score(images: Rows) -> Tensor:
        return value(torch.stack([data.softmax(net, images) for net in (data.classifier, *others)]))

    return Detector(score)


@method(
    "vanilla",
    paper=PAPER,
    formula="−Σ_y p̄_y log p̄_y,  p̄ = mean of 5 nets' softmax",
    setting="unsupervised",
    sees=SEES,
)
def vanilla(data: Data) -> Detector:
    return ensemble(data, entropy_of_mean)


@method(
    "vanilla-disagreement",
    paper=f"{PAPER}; the score of Tifrea, Stavarache & Yang, UAI 2022",
    formula="mean over i < j of TV(f_i(x), f_j(x)) of 5 nets trained on S",
    setting="unsupervised",
    sees=SEES,
)
def vanilla_disagreement(data: Data) -> Detector:
    return ensemble(data, partial(disagreement, distance=data.settings.score.distance))
