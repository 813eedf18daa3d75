"""DivDis: two heads that both fit S and tell as little as possible of each other on the batch.

Lee, Yao & Finn, ICLR 2023 ("Diversify and Disambiguate"). Two new heads on the classifier's net, all fine-tuned with

    CE on S of both heads + 10 · KL(mean of p₁ ⊗ p₂ ‖ mean of p₁ ⊗ mean of p₂) + 10 · Σ_i KL(mean of p_i ‖ shares of the classes in S)

with means over the batch's images in a step. The second part is the mutual information of the heads; the third keeps a
head from calling the whole batch one class. Score: TV(p₁(x), p₂(x)), by which the paper ranks images worth a label;
larger = more novel. The epoch is the best on V, as a mean over the heads.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.methods import Data, Detector, method
from erd.methods._trained import KNOWN, mean_of, widened, with_batch
from erd.methods.mcd import discrepancy, heads_on_val
from erd.training import Loss

WEIGHT = 10.0  # of both parts


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return torch.special.xlogy(p, p / q.clamp_min(1e-12)).sum()


def dependence(first: Tensor, second: Tensor, chosen: Tensor) -> Tensor:
    """Mutual information of two heads over the chosen rows of their softmax outputs."""
    weight = chosen / chosen.sum().clamp_min(1)
    joint = (first * weight[:, None]).T @ second
    return divergence(joint, joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True))


def objective(shares: Tensor) -> Loss:
    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        known = part == KNOWN
        heads = outputs.chunk(2, dim=1)
        classify = torch.stack(
            [mean_of(F.cross_entropy(head, labels, reduction="none"), known) for head in heads]
        ).sum()
        if known.all():
            return classify
        first, second = (head.softmax(1) for head in heads)
        balance = sum(divergence(p[~known].mean(0), shares) for p in (first, second))
        return classify + WEIGHT * (dependence(first, second, ~known) + balance)

    return loss


@method(
    "divdis",
    paper="Lee, Yao & Finn, ICLR 2023",
    formula="TV(p₁(x), p₂(x)); two heads that fit S, with little mutual information on U",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(data: Data) -> Detector:
    shares = torch.bincount(data.train.labels, minlength=len(data.classes)) / len(data.train)
    # Fresh heads: copies of one would have the same gradients and stay the same.
    model = widened(data, 2 * len(data.classes), copies=0)
    loss, watch = objective(shares.to(data.device)), heads_on_val(data)
    model = data.fit(model, with_batch(data, data.batch), data.finetuning, loss=loss, watch=watch)
    return Detector(lambda images: discrepancy(data.outputs(model, images)) / 2)
