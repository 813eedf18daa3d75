"""A plain ensemble: five nets on S that differ in their random weights and order; the entropy of their mean softmax.

The bench's classifier is the first of them. As in ERD's comparison without adversarial training.
"""

import torch
from torch import Tensor

from erd.data.batches import Rows
from erd.disagreement import entropy_of_mean
from erd.methods import Data, Detector, method

MEMBERS = 5


@method(
    "vanilla",
    paper="Lakshminarayanan et al., NeurIPS 2017",
    formula="−Σ_y p̄_y log p̄_y,  p̄ = mean of 5 nets' softmax",
    setting="unsupervised",
    sees=("train", "val", "classifier"),
)
def fit(data: Data) -> Detector:
    known = data.examples((data.train.images, data.train.labels))
    others = [data.fit(data.net(None, member), known, data.pretraining, member) for member in range(1, MEMBERS)]

    def score(images: Rows) -> Tensor:
        return entropy_of_mean(torch.stack([data.softmax(net, images) for net in (data.classifier, *others)]))

    return Detector(score)
