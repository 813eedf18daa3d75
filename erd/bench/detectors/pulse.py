"""PULSE: positive-unlabelled learning of a new class beside classes whose proportions may have moved.

Garg, Balakrishnan & Lipton, NeurIPS 2022. The share of known images in the batch is estimated (best bin estimation);
then a net tells S from the batch, and of the batch that share with the highest losses is left out of each step, since
these are the known ones (conditional value ignoring risk). Images of S count as often as their class is found in the
batch. The paper estimates those proportions by a positive-unlabelled problem a class; here they are the classifier's
mean prediction on the batch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import KNOWN, UNLABELED, estimated_known_share, least_loss
from erd.nets import Classifier

LEAST = 0.01  # of a class, in the batch


@method(
    "pulse",
    paper="Garg, Balakrishnan & Lipton, NeurIPS 2022",
    formula="g(x), trained on S against the 1 − α̂ of U with the lowest losses; S weighted as the classes of U",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(given: Given) -> Detector:
    share = estimated_known_share(given)
    weight = class_weights(given).to(given.device)

    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        known, batch = outputs[part == KNOWN, 0], outputs[part == UNLABELED, 0]
        total = outputs.sum() * 0
        if len(known):
            total = total + (F.softplus(known) * weight[labels[part == KNOWN]]).mean()
        if kept := round((1 - share) * len(batch)):
            total = total + F.softplus(-batch).topk(kept, largest=False).values.mean()
        return total

    def watch(model: Classifier) -> tuple[float, float]:
        """As in training, on V and the batch."""
        batch, known = given.outputs(model, given.batch)[:, 0], given.outputs(model, given.val.images)[:, 0]
        kept = max(1, round((1 - share) * len(batch)))
        value = (F.softplus(known).mean() + F.softplus(-batch).topk(kept, largest=False).values.mean()).item()
        return value, -value

    model = least_loss(given, 1, loss, watch)
    return Detector(lambda images: given.outputs(model, images)[:, 0])


def class_weights(given: Given) -> Tensor:
    """How much more of each class there is in the batch than in S, as the classifier sees it."""
    there = given.softmax(given.classifier, given.batch).mean(0).clamp_min(LEAST)
    here = torch.bincount(given.train.labels, minlength=len(given.classes)).float().clamp_min(1)
    weight = there / (here / here.sum())
    return weight / (weight * here / here.sum()).sum()
