"""Maximum classifier discrepancy: two heads on one net, driven apart in entropy on the batch.

Yu & Aizawa, ICCV 2019. The classifier's last layer is doubled and the whole net fine-tuned with

    CE on S of both heads + max(0, m − mean over U of [H(p₁(x)) − H(p₂(x))]),   m = 1.2

so on the batch one head becomes unsure and the other sure, while S makes them agree on known images. Score:
Σ_y |p₁(x)_y − p₂(x)_y|, larger = more novel.

The authors and the ERD paper choose hyperparameters and the epoch with novel images, hence "oracle" in its table.
Nothing is tuned here, and the epoch is the best on V, so it is semi-supervised. Below four classes the entropies cannot
be m apart (ln 3 = 1.1), and the second part never stops pushing.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import KNOWN, Watch, mean_of, widened, with_batch
from erd.nets import Classifier

MARGIN = 1.2


def entropy(logits: Tensor) -> Tensor:
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
    first, second = outputs.chunk(2, dim=1)
    known = part == KNOWN
    classify = F.cross_entropy(first, labels, reduction="none") + F.cross_entropy(second, labels, reduction="none")
    return mean_of(classify, known) + F.relu(MARGIN - mean_of(entropy(first) - entropy(second), ~known))


def discrepancy(outputs: Tensor) -> Tensor:
    first, second = outputs.chunk(2, dim=1)
    return (first.softmax(1) - second.softmax(1)).abs().sum(1)


def heads_on_val(given: Given) -> Watch:
    """Loss and accuracy on V, each the mean over both heads."""

    def watch(model: Classifier) -> tuple[float, float]:
        heads = given.outputs(model, given.val.images).chunk(2, dim=1)
        losses = [F.cross_entropy(head, given.val.labels) for head in heads]
        hits = [(head.argmax(1) == given.val.labels).float().mean() for head in heads]
        return torch.stack(losses).mean().item(), torch.stack(hits).mean().item()

    return watch


@method(
    "mcd",
    paper="Yu & Aizawa, ICCV 2019",
    formula="Σ_y |p₁(x)_y − p₂(x)_y|; two heads that differ in entropy on the batch",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(given: Given) -> Detector:
    model = widened(given, 2 * len(given.classes), copies=2)
    model = given.fit(model, with_batch(given, given.batch), given.finetuning, loss=loss, watch=heads_on_val(given))
    return Detector(lambda images: discrepancy(given.outputs(model, images)))
