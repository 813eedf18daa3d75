"""Candidate classes: groups of images in the batch that look alike, and unlike all that is labelled.

    space = Space.of(train, labels, [batch, calibration])       # features of S, its labels, and all others there are
    found = Candidates.of(space(batch), Known.of(space(train), labels))
    found.scores(space(asked))                                  # N; larger means more novel

A new class that is a few hundredths of a batch has some twenty images, and none of them alone is told from the odd ones
of known classes. But they resemble each other, so their mean tells. The model is a mixture: an image is of a known
class, each a centre μ_k of S, or of one more class with an unknown centre μ and the share π = 2%,

    llr(x) = β (⟨z, μ⟩ − 1/β log Σ_k exp(β ⟨z, μ_k⟩)) + log π / (1 − π),     P(new | x) = sigmoid(llr)

with z of length 1. μ is found by expectation-maximisation from many beginnings, one at each image that has nearer
neighbours in the batch than among known centres; an image does not count for the centre that it is compared with. Of
all ends the best is the one that has more images of the batch than the background lets expect, by the likelihood ratio
of two Poisson counts: a subgroup of a known class is there as well. That is its `strength`, and further ends are kept
while theirs is beyond what chance gives. The background is S and further known images: the directions are made with S,
so that others seem less known than it.

Validity: the background is fixed, and the images that the fit is given enter as a set. An image of the fit is scored as
if it had not been given, so C may be hidden among the batch; and an image that was not given, from the batch or from C,
is scored by the same function, as cross-fitting does it. Either keeps all promises, if nothing that the batch is
compared with is in the background. (`Space` looks at all images of batch and C alike: it is symmetric in them too.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from erd.statistics.neighbours import CHUNK, Whitening, itself, nearness

WIDTH = 128  # directions in which all images differ most, once the classes of S are made to spread alike
SHARPNESS = 40.0  # β
SHARE = 0.02  # π
FROM = 8  # images that a beginning has
BEGINNINGS = 200
ROUNDS = 10
MOST = 6  # candidates
# Strength from which a second candidate is kept: without anything new the strongest has 6 to 15 on the sets at hand,
# and a score that asks for the nearest of several is worse than that of the first alone.
STRONG = 30.0
LOG_ODDS = float(np.log(SHARE / (1 - SHARE)))


@dataclass(frozen=True)
class Space:
    """Directions in which images are compared: whitened, then the principal ones of all images there are."""

    whitening: Whitening
    mean: Tensor  # of the whitened images
    axes: Tensor  # D×WIDTH

    @classmethod
    def of(cls, train: Tensor, labels: Tensor, others: Sequence[Tensor]) -> "Space":
        """Features of S and its labels; features of all other images, which are looked at without telling them apart:
        the directions of a new class are among them and not in S."""
        whitening = Whitening.of(train, labels)
        total, products, count = torch.zeros(()), torch.zeros(()), 0
        for part in (rows for kind in (train, *others) for rows in kind.split(CHUNK)):  # memory, whatever their number
            seen = whitening(part).double()
            total, products, count = total + seen.sum(0), products + seen.T @ seen, count + len(seen)
        mean = total / count
        _, vectors = torch.linalg.eigh(products - count * mean[:, None] * mean)
        return cls(whitening, mean.float(), vectors[:, -WIDTH:].float().contiguous())

    def __call__(self, features: Tensor) -> Tensor:
        """Of length 1, as float16."""
        return F.normalize((self.whitening(features).float() - self.mean) @ self.axes).half()


@dataclass(frozen=True)
class Known:
    """The known side: images that speak against a new class, and how alike an image is to known classes."""

    background: Tensor  # S, and further images that the batch is held against; of length 1
    centres: Tensor  # one a class

    @classmethod
    def of(cls, train: Tensor, labels: Tensor, further: Sequence[Tensor] = ()) -> "Known":
        centres = [train[labels == label].float().mean(0) for label in labels.unique()]
        return cls(torch.cat([train, *further]), F.normalize(torch.stack(centres)))

    def likeness(self, seen: Tensor) -> Tensor:
        """1/β log Σ_k exp(β ⟨z, μ_k⟩): about the cosine to the nearest centre."""
        return torch.logsumexp(SHARPNESS * (seen.float() @ self.centres.T), 1) / SHARPNESS


@dataclass(frozen=True)
class Candidates:
    known: Known
    batch: Tensor  # the images of the fit
    centres: Tensor  # of the candidate classes, the strongest first; none where there are too few images
    strength: tuple[float, ...]
    within: Tensor  # score of each image of the fit, compared with centres that it did not count for
    belongs: Tensor  # candidates × images of the fit: P(it is of that class)

    @classmethod
    def of(cls, batch: Tensor, known: Known, *, beginnings: int = BEGINNINGS, rounds: int = ROUNDS) -> "Candidates":
        """`batch` in the directions of the space."""
        seen, like = batch.float(), known.likeness(batch)
        if len(seen) <= FROM:
            return cls(known, batch, seen[:0], (), torch.zeros(len(seen)), torch.zeros(0, len(seen)))
        ahead = nearness(batch, batch, 2 * FROM) - like
        fit = grown(seen, like, ahead.topk(min(beginnings, len(seen))).indices, rounds)
        others = known.background
        expected = torch.sigmoid(llr(fit.centres @ others.float().T, known.likeness(others)))
        chosen, strength = _strongest(fit.belongs, expected)
        own = fit.llr[chosen]
        return cls(known, batch, fit.centres[chosen], tuple(strength), own.amax(0), torch.sigmoid(own))

    def scores(self, seen: Tensor) -> np.ndarray:
        """Of images that were not in the fit."""
        if not len(self.centres):
            return np.zeros(len(seen), np.float32)
        return llr(self.centres @ seen.float().T, self.known.likeness(seen)).amax(0).numpy()

    def of_any(self, seen: Tensor) -> np.ndarray:
        """Of images in the fit or not; of one that was, as if it had not counted."""
        place = itself(seen, self.batch).numpy()
        return np.where(place >= 0, self.within.numpy()[place], self.scores(seen))


def llr(cosines: Tensor, likeness: Tensor) -> Tensor:
    """Log odds that an image is of a candidate class: candidates × images."""
    return SHARPNESS * (cosines - likeness) + LOG_ODDS


@dataclass(frozen=True)
class Grown:
    centres: Tensor
    llr: Tensor  # ends × images, each compared with the centre of the others
    belongs: Tensor


def grown(seen: Tensor, like: Tensor, beginnings: Tensor, rounds: int) -> Grown:
    """From a few images that are alike to all that are. One row an attempt, all of them at once."""
    alike = seen[beginnings] @ seen.T - like
    alike[torch.arange(len(beginnings)), beginnings] = torch.inf  # it is one of its own
    belongs = torch.zeros_like(alike).scatter_(1, alike.topk(min(FROM, len(seen)), 1).indices, 1.0)
    odds = torch.zeros_like(belongs)
    for _ in range(rounds):
        total = belongs @ seen
        along, square = total @ seen.T, (total**2).sum(1, keepdim=True)
        # The centre without the image itself: (⟨t, z⟩ − r) / |t − r z|, since |z| = 1.
        cosine = (along - belongs) / (square - 2 * belongs * along + belongs**2).clamp_min(1e-6).sqrt()
        odds = llr(cosine, like)
        belongs = torch.sigmoid(odds)
        belongs = torch.where(belongs.sum(1, keepdim=True) < 2, torch.zeros(()), belongs)  # one image is no class
    return Grown(F.normalize(belongs @ seen), odds, belongs)


def excess(there: Tensor, expected: Tensor) -> Tensor:
    """Log likelihood ratio of two Poisson counts; 0 where there are no more than expected."""
    ratio = there * torch.log(there.clamp_min(1e-9) / expected) - (there - expected)
    return torch.where(there > expected, ratio, torch.zeros(()))


def _strongest(belongs: Tensor, in_background: Tensor) -> tuple[list[int], list[float]]:
    """The ends with the greatest excess of the batch over the background; each of what those before it leave."""
    rows: list[int] = []
    strength: list[float] = []
    left, left_behind = torch.ones(belongs.shape[1]), torch.ones(in_background.shape[1])
    for _ in range(MOST):
        # One more: the background has few there, or none.
        expected = in_background @ left_behind * belongs.shape[1] / in_background.shape[1] + 1
        found = excess(belongs @ left, expected)
        best = int(found.argmax())
        if rows and found[best] < STRONG:
            break
        rows.append(best)
        strength.append(float(found[best]))
        left, left_behind = left * (1 - belongs[best]), left_behind * (1 - in_background[best])
    return rows, strength
