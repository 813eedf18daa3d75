"""A plain ensemble: five nets on S that differ in their random weights and order; the entropy of their mean softmax.

The bench's classifier is the first of them. As in ERD's comparison without adversarial training. With
"vanilla-disagreement" the same nets are looked at as ERD's members are: by `score.distance`, which is TV.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.statistics.disagreement import disagreement, entropy_of_mean
from erd.training.checkpoint import Recording

MEMBERS = 5
PAPER = "Lakshminarayanan et al., NeurIPS 2017"
SEES = ("train", "val", "classifier")


@method(
    "vanilla",
    paper=PAPER,
    formula="−Σ_y p̄_y log p̄_y,  p̄ = mean of 5 nets' softmax",
    setting="unsupervised",
    sees=SEES,
    ensemble="vanilla",
)
def entropy(given: Given) -> Detector:
    return detector(given, entropy_of_mean)


@method(
    "vanilla-disagreement",
    paper=f"{PAPER}; the score of Tifrea, Stavarache & Yang, UAI 2022",
    formula="mean over i < j of TV(f_i(x), f_j(x)) of 5 nets trained on S",
    setting="unsupervised",
    sees=SEES,
    ensemble="vanilla",
)
def distance(given: Given) -> Detector:
    return detector(given, partial(disagreement, distance=given.settings.score.distance))


def detector(given: Given, value: Callable[[Tensor], Tensor]) -> Detector:
    known = given.examples((given.train.images, given.train.labels))

    def net(member: int, recording: Recording | None) -> Classifier:
        return given.fit(given.net(None, member), known, given.pretraining, member, recording=recording)

    others = given.each(range(1, MEMBERS), given.pretraining, net)

    def score(images: Rows) -> Tensor:
        return value(torch.stack([given.softmax(net, images) for net in (given.classifier, *others)]))

    return Detector(score)
