"""LoD: the batch gets a label of its own, which is noise for its known images; what learns it readily is novel.

Geng et al., IJCAI 2025. A net with a class more than there are is trained on S with its labels and on the whole batch
with the extra one. The known images of the batch contradict S, so their loss stays high; novel ones do not. K-means
parts the losses in two; a second net is trained on S and the part with the low losses, and its probability of the extra
class is the score. The paper leaves open which epoch the losses are of: here the one that V keeps.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import subset
from erd.data.packed import Rows
from erd.nets import Classifier


@method(
    "lod",
    paper="Geng et al., IJCAI 2025",
    formula="softmax(f(x))_{K+1},  f trained on S ∪ {(u, K+1)}, u of U with a low loss as K+1",
    setting="semi-supervised",
    sees=("train", "val", "batch"),
)
def fit(given: Given) -> Detector:
    extra = len(given.classes)

    def trained(batch: Rows, what: str) -> Classifier:
        examples = given.examples(
            (given.train.images, given.train.labels), (batch, torch.full((len(batch),), extra, dtype=torch.int64))
        )
        return given.fit(given.net(extra + 1, what), examples, given.pretraining, what)

    def chance(model: Classifier, images: Rows) -> Tensor:
        return F.log_softmax(given.outputs(model, images), 1)[:, extra]

    readily = low_losses(-chance(trained(given.batch, "noisy"), given.batch))
    model = trained(subset(given.batch, readily), "cleaned")
    return Detector(lambda images: chance(model, images))


def low_losses(losses: Tensor) -> Tensor:
    """Positions in the lower of two clusters (K-means in one dimension, from the extremes)."""
    low, high = losses.min(), losses.max()
    for _ in range(100):
        lower = (losses - low).abs() <= (losses - high).abs()
        before = low, high
        low, high = losses[lower].mean(), losses[~lower].mean() if (~lower).any() else high
        if (low, high) == before:
            break
    return lower.nonzero()[:, 0]
