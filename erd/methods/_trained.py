"""What the methods that train a net on the batch have in common."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from erd import models, share
from erd.data.batches import Rows
from erd.methods import Data
from erd.models import Classifier
from erd.training import Examples, Loss

KNOWN, UNLABELED = 0, 1  # the parts of `with_batch`
RATES = (1.0, 0.3)  # times the schedule's learning rate: the grid of `least_loss`

Watch = Callable[[Classifier], tuple[float, float]]


def with_batch(data: Data, batch: Rows) -> Examples:
    """S with its labels, and images without: theirs are zeros, which a loss must not look at."""
    return data.examples((data.train.images, data.train.labels), (batch, torch.zeros(len(batch), dtype=torch.int64)))


def mean_of(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the chosen values; 0 where a small step holds none of them, and not NaN."""
    return (values * chosen).sum() / chosen.sum().clamp_min(1)


def subset(rows: Rows, positions: Tensor) -> Rows:
    return Rows(rows.images, positions if rows.rows is None else rows.rows[positions])


def widened(data: Data, outputs: int, copies: int = 1) -> Classifier:
    """The classifier with more outputs: its own ones `copies` times over, then freshly drawn ones."""
    model = data.net(outputs, "widened")
    own, head = model.state_dict(), models.head(data.classifier)
    for name, tensor in data.classifier.state_dict().items():
        if own[name].shape == tensor.shape:
            own[name].copy_(tensor)
    taken = copies * head.out_features
    with torch.no_grad():
        models.head(model).weight[:taken] = head.weight.repeat(copies, 1)
        models.head(model).bias[:taken] = head.bias.repeat(copies)
    return model


def batch_against_known(weight: float = 1.0) -> Loss:
    """Logistic loss of one output, 'of the batch' against 'known'; an image of the batch counts `weight` times."""

    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        unlabeled = (part == UNLABELED).to(outputs.dtype)
        return F.binary_cross_entropy_with_logits(outputs[:, 0], unlabeled, 1 + (weight - 1) * unlabeled)

    return loss


def searched(data: Data) -> bool:
    """Whether a grid of hyperparameters is worth its time: for convolutional nets it would be hours."""
    return not models.uses_convolutions(data.net())


def least_loss(data: Data, outputs: int, loss: Loss, watch: Watch) -> Classifier:
    """S and the batch, from scratch on the pretraining schedule: of a few learning rates the one `watch` finds best."""
    recipe, examples = data.pretraining, with_batch(data, data.batch)
    fits = [
        data.fit(data.net(outputs), examples, replace(recipe, lr=rate * recipe.lr), str(rate), loss=loss, watch=watch)
        for rate in (RATES if searched(data) else RATES[:1])
    ]
    return min(fits, key=lambda model: watch(model)[0])


def estimated_known_share(data: Data) -> float:
    """The share of known images in the batch by best bin estimation (Garg et al. 2021): no oracle.

    A net learns to tell S from half of the batch; `erd.share` compares its scores on the other half with those on V, of
    which it has learned neither. Then the halves change places, and the mean is taken. The epoch is the one that tells
    V from the other half best.
    """
    halves = torch.randperm(len(data.batch), generator=data.generator("halves")).chunk(2)
    total = 0.0
    for number, half in enumerate(halves):
        learned, other = subset(data.batch, half), subset(data.batch, halves[1 - number])

        def scores(model: Classifier, other: Rows = other) -> tuple[Tensor, Tensor]:
            return data.outputs(model, other)[:, 0], data.outputs(model, data.val.images)[:, 0]

        def watch(model: Classifier) -> tuple[float, float]:
            batch, known = scores(model)
            loss = (F.softplus(-batch).mean() + F.softplus(known).mean()).item() / 2
            return loss, -loss

        model = data.fit(
            data.net(1, "share", number),
            with_batch(data, learned),
            data.pretraining,
            "share",
            number,
            loss=batch_against_known(len(data.train) / len(learned)),
            watch=watch,
        )
        batch, known = scores(model)
        total += 1 - share.novel_share(batch.numpy(), known.numpy()).bbe
    return total / len(halves)
