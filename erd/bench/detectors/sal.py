"""SAL: separate the images of the batch that look novel by their gradients, then learn to tell them from S.

Du, Fang, Diakonikolas & Li, ICLR 2024. The gradient of the classifier's loss at label y, in the weights of its last
layer, is G(x, y) = (softmax f(x) − e_y) ⊗ h(x), where h are the features before that layer. With Ḡ its mean over S, at
the true labels, and v the first right singular vector of the rows G(x, ŷ) − Ḡ over the batch, ŷ predicted:

    τ(x) = ⟨G(x, ŷ) − Ḡ, v⟩²

Images of the batch with τ above that of 95% of known images are candidates. The classifier, with one output g more, is
then fine-tuned with CE on S + 10 × the logistic loss of g, S against candidates. Score: g(x), larger = more novel.

As in the paper all classes share one v (in the authors' code each has its own), and the last epoch is kept. Here the
95% are those of V at predicted labels, to which the batch's known images compare: gradients on S itself are smaller,
since the classifier has learned S.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import KNOWN, mean_of, subset, widened, with_batch
from erd.data.packed import Rows
from erd.training.features import penultimate

KNOWN_BELOW = 0.95
WEIGHT = 10.0
ROUNDS = 100  # of power iteration: the gap to the second singular value is wide where there is something to find


@dataclass(frozen=True)
class Gradients:
    """Rows residual ⊗ features − mean, never written out: N×classes and N×D instead of N×(classes·D)."""

    residual: Tensor
    features: Tensor
    mean: Tensor  # classes×D

    def along(self, direction: Tensor) -> Tensor:
        """Inner product of each row with a direction, classes×D."""
        return (self.residual * (self.features @ direction.T)).sum(1) - (self.mean * direction).sum()

    def first_singular_vector(self, start: Tensor) -> Tensor:
        direction = start / start.norm()
        for _ in range(ROUNDS):
            along = self.along(direction)
            direction = (self.residual * along[:, None]).T @ self.features - along.sum() * self.mean
            direction = direction / direction.norm().clamp_min(1e-30)
        return direction


def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
    """The last output is g; the others classify."""
    known, logits = part == KNOWN, outputs[:, -1]
    classify = mean_of(F.cross_entropy(outputs[:, :-1], labels, reduction="none"), known)
    # The mean of the two sides: candidates may be few.
    separate = (mean_of(F.softplus(logits), known) + mean_of(F.softplus(-logits), ~known)) / 2
    return classify + WEIGHT * separate


def candidates(given: Given) -> Tensor:
    """Positions in the batch of the images whose gradients stand out."""

    def gradients(images: Rows, labels: Tensor | None, mean: Tensor | None) -> Gradients:
        softmax = given.softmax(given.classifier, images).double()
        chosen = softmax.argmax(1) if labels is None else labels
        residual = softmax - F.one_hot(chosen, softmax.shape[1])
        features = penultimate(given.classifier, images, given.device).double()
        return Gradients(residual, features, residual.T @ features / len(features) if mean is None else mean)

    mean = gradients(given.train.images, given.train.labels, None).mean
    batch, val = (gradients(images, None, mean) for images in (given.batch, given.val.images))
    start = torch.randn(mean.shape, generator=given.generator("start"), dtype=torch.float64)
    direction = batch.first_singular_vector(start)
    limit = (val.along(direction) ** 2).quantile(KNOWN_BELOW)
    return (batch.along(direction) ** 2 > limit).nonzero()[:, 0]


@method(
    "sal",
    paper="Du, Fang, Diakonikolas & Li, ICLR 2024",
    formula="g(x); g tells S from the images of U whose gradients stand out along their first singular vector",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(given: Given) -> Detector:
    examples = with_batch(given, subset(given.batch, candidates(given)))
    model = widened(given, len(given.classes) + 1)
    recipe = replace(given.finetuning, keep="last")
    model = given.fit(model, examples, recipe, loss=loss, watch=lambda model: (0.0, 0.0))  # nothing to choose
    return Detector(lambda images: given.outputs(model, images)[:, -1])
