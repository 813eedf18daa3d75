"""Gram matrices of every layer against the range they had on S, for the class an image is taken for.

Layer l of an image gives maps F_l (channels×pixels). For powers p = 1..10 the row sums of (F^p F^pᵀ)^(1/p) are compared
with their least and largest value on the images of S with the same predicted class; what lies outside, relative to the
bound, adds up to δ_l. Score: Σ_l δ_l divided by its mean on V.

Row sums in place of all pairs of channels is what the authors' code does. On the hidden layers of an MLP a map is a
single pixel: the paper on ERD found no setting in which that works well.
"""

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.layers import BATCH, activations, layers
from erd.data.packed import Rows
from erd.training.batches import Mixture, in_order

POWERS = range(1, 11)
TINY = 1e-6  # the authors', against bounds of 0


@method(
    "gram",
    paper="Sastry & Oore, ICML 2020",
    formula="Σ_l δ_l(x)/E_V[δ_l],  δ_l = how far the Gram matrices of layer l leave S's range",
    setting="unsupervised",
    sees=("train", "val", "classifier"),
)
def fit(given: Given) -> Detector:
    bounds = Bounds(given)
    expected = bounds.deviations(given.val.images).mean(0)
    expected = torch.where(expected > 0, expected, 1.0)
    return Detector(lambda images: (bounds.deviations(images) / expected).sum(1))


class Bounds:
    """Of each layer and predicted class, the least and largest row sums on S."""

    @torch.inference_mode()
    def __init__(self, given: Given) -> None:
        self.given, self.inside = given, layers(given.classifier)
        self.low: list[Tensor] = []
        self.high: list[Tensor] = []
        for images in in_order(Mixture(given.train.images, device=given.device), BATCH):
            predicted, sums = self._look(images)
            if not self.low:
                shapes = [(len(given.classes), layer.shape[1]) for layer in sums]
                self.low = [torch.full(shape, torch.inf, device=given.device) for shape in shapes]
                self.high = [torch.full(shape, -torch.inf, device=given.device) for shape in shapes]
            for layer, low, high in zip(sums, self.low, self.high, strict=True):
                index = predicted[:, None].expand_as(layer)
                low.scatter_reduce_(0, index, layer, "amin")
                high.scatter_reduce_(0, index, layer, "amax")
        for low, high in zip(self.low, self.high, strict=True):
            # A class that is never predicted on S has no range of its own: it gets that of all.
            missing = low.isinf().any(1)
            low[missing], high[missing] = low.amin(0), high.amax(0)

    @torch.inference_mode()
    def deviations(self, images: Rows) -> Tensor:
        """N×layers."""
        found = []
        for batch in in_order(Mixture(images, device=self.given.device), BATCH):
            predicted, sums = self._look(batch)
            ranges = zip(sums, self.low, self.high, strict=True)
            found.append(torch.stack([deviation(s, low[predicted], high[predicted]) for s, low, high in ranges], 1))
        return torch.cat(found).cpu()

    def _look(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        self.given.classifier.eval()
        logits, sums = activations(self.given.classifier, images, self.inside, row_sums)
        return logits.argmax(1), sums


def row_sums(maps: Tensor) -> Tensor:
    """N×channels(×height×width) → N×(powers·channels)."""
    maps = maps.flatten(2) if maps.ndim > 2 else maps[:, :, None]
    # Σ_j (F^p F^pᵀ)_ij = F_i^p · Σ_j F_j^p, without the matrix; and the scale apart, or a 20th power overflows.
    scale = maps.abs().amax((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
    maps, power, sums = maps / scale, torch.ones_like(maps), []
    for p in POWERS:
        power = power * maps
        row = (power * power.sum(1, keepdim=True)).sum(2)
        sums.append(row.sign() * row.abs() ** (1 / p) * scale[:, :, 0] ** 2)
    return torch.cat(sums, 1)


def deviation(sums: Tensor, low: Tensor, high: Tensor) -> Tensor:
    below, above = (low - sums).relu() / (low + TINY).abs(), (sums - high).relu() / (high + TINY).abs()
    return (below + above).sum(1)
