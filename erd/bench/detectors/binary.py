"""A binary classifier: S against the batch, stopped before it can tell the batch's known images from S.

The baseline of Tifrea, Stavarache & Yang, UAI 2022 (after Scott & Blanchard 2008). One output g, logistic loss with the
batch as positives, trained from scratch on the pretraining schedule. Score: g(x), larger = more novel.

As in the paper the share of V that is called known chooses the epoch, and the configuration out of a small grid over
the learning rate and the weight of the batch's images (for nets without convolutions). V alone would choose a net that
has learned nothing and calls every image known. So a net counts only if it calls more of the batch novel than of V.
"""

from dataclasses import replace

from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import batch_against_known, searched, with_batch
from erd.nets import Classifier

GRID = ((1.0, 1.0), (1.0, 0.5), (0.3, 1.0), (0.3, 0.5))  # learning rate times the schedule's; weight, 1 for S


def called_known(val: Tensor, batch: Tensor) -> float:
    """The share of V below 0; 0 for a net that has learned nothing."""
    known = (val < 0).float().mean().item()
    return known if (batch > 0).float().mean().item() > 1 - known else 0.0


@method(
    "binary",
    paper="Tifrea, Stavarache & Yang, UAI 2022",
    formula="g(x); g tells S from U, early-stopped on V",
    setting="semi-supervised",
    sees=("train", "val", "batch"),
)
def fit(given: Given) -> Detector:
    def watch(model: Classifier) -> tuple[float, float]:
        val, batch = (given.outputs(model, rows)[:, 0] for rows in (given.val.images, given.batch))
        return F.softplus(val).mean().item(), called_known(val, batch)

    examples = with_batch(given, given.batch)
    fits = []
    for rate, weight in GRID if searched(given) else GRID[:1]:
        recipe = replace(given.pretraining, lr=rate * given.pretraining.lr, monitor="accuracy")
        loss = batch_against_known(weight)
        fits.append(given.fit(given.net(1), examples, recipe, str(rate), str(weight), loss=loss, watch=watch))
    best = max(fits, key=lambda model: watch(model)[1])
    return Detector(lambda images: given.outputs(best, images)[:, 0])
