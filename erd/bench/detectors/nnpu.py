"""Non-negative learning from positive and unlabelled images: known ones are positive, the batch is unlabelled.

Kiryo, Niu, du Plessis & Sugiyama, NeurIPS 2017. With the share π of known images in the batch, ℓ(z) = sigmoid(−z) and
one output g, large for known images, the risk of telling known from novel is

    π·R_S⁺ + max(0, R_U⁻ − π·R_S⁻),   R_S^± = mean over S of ℓ(±g),   R_U⁻ = mean over U of ℓ(−g)

Where the second part (the risk on novel images, which cannot be negative) is below 0 in a step, the net has begun to
learn S by heart: the step goes up its gradient instead of down. Score: −g(x), larger = more novel.

"nnpu" is told the true share, as in the paper's table; "nnpu-bbe" estimates it from S, V and the batch. Both train from
scratch on the pretraining schedule. The epoch and the learning rate (one of two, for nets without convolutions) are
those with the least risk, V in the place of S; the bound that the paper's grid also had, on the second part, is 0.
"""

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import KNOWN, UNLABELED, estimated_known_share, least_loss, mean_of
from erd.nets import Classifier
from erd.training.loop import Loss

PAPER = "Kiryo, Niu, du Plessis & Sugiyama, NeurIPS 2017"


def parts_of_risk(outputs: Tensor, known: Tensor, unlabeled: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """What known images cost, and what novel images cost: an estimate, negative where it shows overfitting."""
    positive = torch.sigmoid(-outputs)  # ℓ(g); ℓ(−g) is 1 − it
    negative = 1 - positive
    return share * mean_of(positive, known), mean_of(negative, unlabeled) - share * mean_of(negative, known)


def risk(share: float) -> Loss:
    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        known, novel = parts_of_risk(outputs[:, 0], part == KNOWN, part == UNLABELED, share)
        return torch.where(novel >= 0, known + novel, -novel)

    return loss


def detector(given: Given, share: float) -> Detector:
    def watch(model: Classifier) -> tuple[float, float]:
        outputs = torch.cat([given.outputs(model, rows)[:, 0] for rows in (given.val.images, given.batch)])
        known = torch.arange(len(outputs)) < len(given.val)
        on_known, on_novel = parts_of_risk(outputs, known, ~known, share)
        loss = (on_known + on_novel.clamp_min(0)).item()
        return loss, 1 - loss

    model = least_loss(given, 1, risk(share), watch)
    return Detector(lambda images: -given.outputs(model, images)[:, 0])


@method(
    "nnpu",
    paper=PAPER,
    formula="−g(x); g minimises the non-negative risk of known against novel at the true share",
    setting="oracle",
    sees=("train", "val", "batch", "novel_share"),
)
def told(given: Given) -> Detector:
    return detector(given, 1 - given.novel_share)


@method(
    "nnpu-bbe",
    paper=f"{PAPER}; share: Garg et al., NeurIPS 2021",
    formula="−g(x); g minimises the non-negative risk of known against novel at an estimated share",
    setting="semi-supervised",
    sees=("train", "val", "batch"),
)
def estimated(given: Given) -> Detector:
    return detector(given, estimated_known_share(given))
