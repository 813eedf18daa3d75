"""Outlier Exposure: a classifier that has learned to be unsure about images which are surely not known.

Hendrycks, Mazeika & Dietterich, ICLR 2019. The classifier is fine-tuned with

    CE on S + 0.5 × mean over outliers of the cross-entropy from uniform to softmax(f(x))

and the score is 1 − max_y softmax(f(x))_y, larger = more novel. The last epoch is kept, as by the authors: V knows
nothing of outliers. Here: our net and fine-tuning schedule without the authors' cosine; S and outliers are shuffled
together, so a step holds them in the proportion of their numbers (theirs: 1 to 2).
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import mean_of

WEIGHT = 0.5


def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
    to_uniform = outputs.logsumexp(1) - outputs.mean(1)
    known = part == 0
    return mean_of(F.cross_entropy(outputs, labels, reduction="none"), known) + WEIGHT * mean_of(to_uniform, ~known)


@method(
    "oe",
    paper="Hendrycks, Mazeika & Dietterich, ICLR 2019",
    formula="1 − max_y softmax(f(x))_y; f fine-tuned to be uniform on outliers",
    setting="known outliers",
    sees=("train", "val", "classifier", "outliers"),
)
def fit(given: Given) -> Detector:
    nothing = torch.zeros(len(given.outliers), dtype=torch.int64)
    examples = given.examples((given.train.images, given.train.labels), (given.outliers, nothing))
    model = given.fit(given.classifier, examples, replace(given.finetuning, keep="last"), loss=loss)
    return Detector(lambda images: 1 - given.softmax(model, images).amax(1))
