"""Detectron: nets that keep to the labels of S and contradict the classifier on the batch wherever that costs nothing.

Ginsberg, Liang & Krishnan, ICLR 2023. A constrained disagreement classifier g starts from the classifier and minimises,
as a mean over a step,

    CE(g(x), y) for images of S,   λ · DCE(g(x), ŷ(x)) for images of the batch,   λ = 1 / (1 + their number in the step)
    DCE(g, ŷ) = log Σ_y exp g_y − mean over y ≠ ŷ of g_y,   ŷ: what the classifier predicts

so that all of them together weigh less than one image of S. Score: the mean over a few such nets of
1 − softmax(g(x))_ŷ, larger = more novel. In the paper each net learns only images that no earlier one contradicts, and
an image counts as rejected once one does; that ranks no images, so here all nets learn the whole batch and differ in
its order. λ is of a step and not of the whole batch, which may have thousands of images where the paper's have fifty.

`batch_p`: the paper compares the batch with many repetitions on known images, a training each. Here half of V is hidden
among the batch, predicted labels and all. If nothing is novel its scores and the batch's are exchangeable, so the
permutation test of `erd.statistics.novelty_test` is exact with a single training. The other half of V chooses the
epochs. (The classifier itself comes with an epoch chosen on all of V: the one dependence that is left.)
"""

import copy

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import KNOWN, subset
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.statistics.novelty_test import alarm

NETS = 3


def contradiction(outputs: Tensor, labels: Tensor) -> Tensor:
    """DCE of each row."""
    own = outputs.gather(1, labels[:, None])[:, 0]
    return outputs.logsumexp(1) - (outputs.sum(1) - own) / (outputs.shape[1] - 1)


def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
    agree, disagree = F.cross_entropy(outputs, labels, reduction="none"), contradiction(outputs, labels)
    known = part == KNOWN
    return torch.where(known, agree, disagree / (1 + (~known).sum())).mean()


@method(
    "detectron",
    paper="Ginsberg, Liang & Krishnan, ICLR 2023",
    formula="mean over nets of 1 − softmax(g(x))_ŷ(x); g fits S and contradicts ŷ on U",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(given: Given) -> Detector:
    chosen, hidden = torch.randperm(len(given.val), generator=given.generator("halves")).chunk(2)
    choosing, labels = subset(given.val.images, chosen), given.val.labels[chosen]
    among_batch = subset(given.val.images, hidden)

    def predicted(images: Rows) -> Tensor:
        return given.outputs(given.classifier, images).argmax(1)

    def watch(model: Classifier) -> tuple[float, float]:
        outputs = given.outputs(model, choosing)
        return F.cross_entropy(outputs, labels).item(), (outputs.argmax(1) == labels).float().mean().item()

    unlabeled = [(images, predicted(images)) for images in (given.batch, among_batch)]
    examples = given.examples((given.train.images, given.train.labels), *unlabeled)
    nets = [
        given.fit(copy.deepcopy(given.classifier), examples, given.finetuning, number, loss=loss, watch=watch)
        for number in range(NETS)
    ]

    def score(images: Rows) -> Tensor:
        labels = predicted(images)[:, None]
        return torch.stack([1 - given.softmax(net, images).gather(1, labels)[:, 0] for net in nets]).mean(0)

    return Detector(score, alarm(score(given.batch).numpy(), score(among_batch).numpy(), given.seed("alarm")))
