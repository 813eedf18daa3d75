"""What the methods that train a net on the batch have in common."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from erd import nets
from erd.bench.detectors import Given
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.statistics import novel_share
from erd.training.loop import Examples, Loss

KNOWN, UNLABELED = 0, 1  # the parts of `with_batch`
RATES = (1.0, 0.3)  # times the schedule's learning rate: the grid of `least_loss`

Watch = Callable[[Classifier], tuple[float, float]]


def with_batch(given: Given, batch: Rows) -> Examples:
    """S with its labels, and images without: theirs are zeros, which a loss must not look at."""
    return given.examples((given.train.images, given.train.labels), (batch, torch.zeros(len(batch), dtype=torch.int64)))


def mean_of(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the chosen values; 0 where a small step holds none of them, and not NaN."""
    return (values * chosen).sum() / chosen.sum().clamp_min(1)


def subset(rows: Rows, positions: Tensor) -> Rows:
    return Rows(rows.images, positions if rows.rows is None else rows.rows[positions])


def widened(given: Given, outputs: int, copies: int = 1) -> Classifier:
    """The classifier with more outputs: its own ones `copies` times over, then freshly drawn ones."""
    model = given.net(outputs, "widened")
    own, head = model.state_dict(), nets.head(given.classifier)
    for name, tensor in given.classifier.state_dict().items():
        if own[name].shape == tensor.shape:
            own[name].copy_(tensor)
    taken = copies * head.out_features
    with torch.no_grad():
        nets.head(model).weight[:taken] = head.weight.repeat(copies, 1)
        nets.head(model).bias[:taken] = head.bias.repeat(copies)
    return model


def batch_against_known(weight: float = 1.0) -> Loss:
    """Logistic loss of one output, 'of the batch' against 'known'; an image of the batch counts `weight` times."""

    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        unlabeled = (part == UNLABELED).to(outputs.dtype)
        return F.binary_cross_entropy_with_logits(outputs[:, 0], unlabeled, 1 + (weight - 1) * unlabeled)

    return loss


def searched(given: Given) -> bool:
    """Whether a grid of hyperparameters is worth its time: for convolutional nets it would be hours."""
    return not nets.uses_convolutions(given.net())


def least_loss(given: Given, outputs: int, loss: Loss, watch: Watch) -> Classifier:
    """S and the batch, from scratch on the pretraining schedule: of a few learning rates the one `watch` finds best."""
    recipe, examples = given.pretraining, with_batch(given, given.batch)
    fits = [
        given.fit(given.net(outputs), examples, replace(recipe, lr=rate * recipe.lr), str(rate), loss=loss, watch=watch)
        for rate in (RATES if searched(given) else RATES[:1])
    ]
    return min(fits, key=lambda model: watch(model)[0])


def estimated_known_share(given: Given) -> float:
    """The share of known images in the batch by best bin estimation (Garg et al. 2021): no oracle.

    A net learns to tell S from half of the batch; `erd.statistics.novel_share` compares its scores on the other half
    with those on V, of which it has learned neither. Then the halves change places, and the mean is taken. The epoch is
    the one that tells V from the other half best.
    """
    halves = torch.randperm(len(given.batch), generator=given.generator("halves")).chunk(2)
    total = 0.0
    for number, half in enumerate(halves):
        learned, other = subset(given.batch, half), subset(given.batch, halves[1 - number])

        def scores(model: Classifier, other: Rows = other) -> tuple[Tensor, Tensor]:
            return given.outputs(model, other)[:, 0], given.outputs(model, given.val.images)[:, 0]

        def watch(model: Classifier) -> tuple[float, float]:
            batch, known = scores(model)
            loss = (F.softplus(-batch).mean() + F.softplus(known).mean()).item() / 2
            return loss, -loss

        model = given.fit(
            given.net(1, "share", number),
            with_batch(given, learned),
            given.pretraining,
            "share",
            number,
            loss=batch_against_known(len(given.train) / len(learned)),
            watch=watch,
        )
        batch, known = scores(model)
        total += 1 - novel_share.novel_share(batch.numpy(), known.numpy()).bbe
    return total / len(halves)
