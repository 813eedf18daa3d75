"""Mahal-U: Mahalanobis distances in every stage of the classifier, weighed by telling S from the batch.

The extension that Tifrea, Stavarache & Yang (UAI 2022) make of Lee et al. (NeurIPS 2018): where Lee et al. fit the
logistic regression to labelled novel images, this one fits it to S against U, none of them labelled novel.

    score(x) = w · d(x) + b,   d_l(x) = log min_y Mahalanobis²(h_l(x); μ_y, Σ) of stage l, standardised

Larger = more novel. The regression is a descent from w = 0 by whole gradients, S and U weighing the same; it is stopped
at the step with the fewest errors on V, all of which is to be called known, as in the paper. The first step calls about
half of V known, so V cannot choose to learn nothing. Half of S fits the Gaussians and the other half the regression:
images look nearer to Gaussians that were fitted to them, which would tell S from U. Distances enter as logarithms: a
few known images are so far out (70 deviations on Fashion-MNIST) that they alone would decide w. No input noise: to
choose it takes labelled novel images.
"""

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, Labeled, method
from erd.bench.detectors.shared.layers import LayerDistances
from erd.bench.detectors.shared.trained import subset
from erd.data.packed import Rows

STEPS = 500
RATE = 0.5


def logistic_regression(known: Tensor, batch: Tensor, val: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and bias (output > 0: of the batch) at the step with the fewest errors on V; of equals the last."""
    sides = ((known, -1.0), (batch, 1.0))
    weights, bias = known.new_zeros(known.shape[1]), known.new_zeros(())
    best, fewest = (weights, bias), float("inf")
    for _ in range(STEPS):
        for_weights, for_bias = torch.zeros_like(weights), torch.zeros_like(bias)
        for rows, side in sides:
            pull = side * torch.sigmoid(-side * (rows @ weights + bias)) / (2 * len(rows))
            for_weights, for_bias = for_weights + pull @ rows, for_bias + pull.sum()
        weights, bias = weights + RATE * for_weights, bias + RATE * for_bias
        errors = (val @ weights + bias > 0).sum().item()
        if errors <= fewest:
            best, fewest = (weights, bias), errors
    return best


@method(
    "mahal-u",
    paper="Tifrea, Stavarache & Yang, UAI 2022, after Lee et al., NeurIPS 2018",
    formula="w · d(x); d = Mahalanobis distances in every stage, w tells S from U, early-stopped on V",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(given: Given) -> Detector:
    half, other = torch.randperm(len(given.train), generator=given.generator("halves")).chunk(2)
    fitted = Labeled(subset(given.train.images, half), given.train.labels[half])
    distances = LayerDistances.of(given, given.classifier, fitted)

    def logarithms(images: Rows) -> Tensor:
        return distances(images).clamp_min(1e-12).log()

    known = logarithms(subset(given.train.images, other))
    mean, std = known.mean(0), known.std(0).clamp_min(1e-12)

    def standardised(images: Rows) -> Tensor:
        return (logarithms(images) - mean) / std

    weights, bias = logistic_regression((known - mean) / std, standardised(given.batch), standardised(given.val.images))
    return Detector(lambda images: standardised(images) @ weights + bias)
