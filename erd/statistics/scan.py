"""Is there a group in the batch that is not among known images? One exact p-value, by random exchanges.

    p = group_test(batch, calibration, known, seed)

The strength of the best candidate class (erd/statistics/candidates.py) is compared with its strength in random batches:
as many images, drawn from batch and C together. If nothing is novel the real batch is one of these, so the p-value is
exact at any numbers of images. How many images of a candidate are expected, S and those that were not drawn tell: a
random batch leaves a part of what is new behind, where it speaks against the rest. It looks at groups, where ranks of
single images (`novelty_test`) say little: twenty images of one kind in a thousand are seen though each of them could be
an odd known one.

Images are exchanged within the class whose centre they are nearest to. So a week in which known classes come in other
proportions than in C is compared with random weeks of the same proportions, and does not ring for that, as far as
classes are told apart. Images of one group, such as a patient, are exchanged together: they are alike, and are no new
class. Groups are exchanged for groups of about as many images, so that random batches have as many as the real one.

Few exchanges tell that there is nothing: after ENOUGH random batches as strong as the real one no more are drawn, and
ENOUGH / drawn is a valid p-value too (Besag & Clifford 1991).
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from erd.statistics import candidates
from erd.statistics.candidates import Known

ENOUGH = 10
DRAWS = 2_099  # the smallest p-value is 1/2,100: less than half of 5% a year spent weekly, which is 1/2,080
MOST_IMAGES = 4_000  # of the batch, and half as many of C, drawn at random where there are more: a draw is some 20 ms
# Less than for scores: thousands of them are asked for. One in 100 images is a beginning, at least 15: the more images,
# the more kinds of odd ones. Of those that are furthest ahead most are neighbours and grow into the same candidate, so
# one of them is enough, of some six.
A_BEGINNING, FEWEST, AHEAD, ROUNDS = 100, 15, 6, 4
NEIGHBOURS = 60  # of an image among batch and C, of which those in a random batch are its neighbours there
NEAREST = 10


@dataclass(frozen=True)
class _Pool:
    """Batch and C together, with all that does not depend on who is in which."""

    known: Known
    seen: Tensor
    like: Tensor  # to known classes
    neighbours: Tensor  # N×NEIGHBOURS
    cosines: Tensor
    train_like: Tensor

    @classmethod
    def of(cls, seen: Tensor, known: Known) -> "_Pool":
        found = []
        count = min(NEIGHBOURS + 1, len(seen))
        for start in range(0, len(seen), 512):
            cosine = seen[start : start + 512] @ seen.T
            cosine[torch.arange(len(cosine)), torch.arange(start, start + len(cosine))] = -1
            found.append(cosine.topk(count - 1, 1))
        cosines, neighbours = (torch.cat([part[which] for part in found]) for which in (0, 1))
        return cls(known, seen, known.likeness(seen), neighbours, cosines, known.likeness(known.background))

    def strength(self, rows: Tensor) -> float:
        """Of the best candidate in these images."""
        inside = torch.zeros(len(self.seen), dtype=torch.bool)
        inside[rows] = True
        here = inside[self.neighbours[rows]]
        here &= here.cumsum(1) <= NEAREST
        near = (self.cosines[rows] * here).sum(1) / here.sum(1).clamp_min(1)
        seen, like = self.seen[rows], self.like[rows]
        beginnings = max(FEWEST, len(rows) // A_BEGINNING)
        ahead = (near - like).topk(min(AHEAD * beginnings, len(rows))).indices
        grown = candidates.grown(seen, like, ahead[self._apart(rows[ahead])[:beginnings]], ROUNDS)
        left = ~inside
        others = torch.cat([self.known.background, self.seen[left]])
        elsewhere = torch.sigmoid(
            candidates.llr(grown.centres @ others.T, torch.cat([self.train_like, self.like[left]]))
        )
        expected = elsewhere.sum(1) * (len(rows) / len(others)) + 1
        return float(candidates.excess(grown.belongs.sum(1), expected).max())

    def _apart(self, rows: Tensor) -> Tensor:
        """Places of those that none before them has as a neighbour."""
        near = self.neighbours[rows, :NEAREST]
        has = (near[:, :, None] == rows).any(1).triu(1)
        return torch.nonzero(~has.any(0))[:, 0]


Groups = tuple[np.ndarray, np.ndarray]  # whose image each of the batch is, and of C


def group_test(
    batch: Tensor,
    calibration: Tensor,
    known: Known,
    seed: int,
    draws: int = DRAWS,
    groups: Groups | None = None,
    enough: int = ENOUGH,
) -> float:
    """p-value of 'no group is novel', for images in the directions of a `Space`: P(p ≤ a) ≤ a if known images of the
    batch are exchangeable with C, or are within each predicted class; whole `groups` where images belong together."""
    strengths = _strengths(batch, calibration, known, seed, groups)
    if (real := next(strengths)) <= 0:
        return 1.0
    as_strong = 0
    for drawn, strength in enumerate(itertools.islice(strengths, draws), 1):
        as_strong += strength >= real * (1 - 1e-6)
        if as_strong == enough:
            return enough / drawn
    return (1 + as_strong) / (draws + 1)


def estimated_p(batch: Tensor, calibration: Tensor, known: Known, seed: int, draws: int = 60) -> float:
    """About what `group_test` would give, from few draws: the strongest of many candidates has Gumbel's law."""
    real, *random = itertools.islice(_strengths(batch, calibration, known, seed), draws + 1)
    scale = max(float(np.std(random)), 1e-6) * math.sqrt(6) / math.pi
    place = float(np.mean(random)) - np.euler_gamma * scale
    return -math.expm1(-math.exp(-(real - place) / scale))


def _strengths(
    batch: Tensor, calibration: Tensor, known: Known, seed: int, groups: Groups | None = None
) -> Iterator[float]:
    """That of the real batch, then those of random ones, for ever; zeros where there is nothing to compare."""
    rng = np.random.default_rng(seed)
    parts: list[Tensor] = []
    units: list[np.ndarray] = []  # rows of the pool that are exchanged together
    in_batch = 0
    for number, (part, most) in enumerate(((batch, MOST_IMAGES), (calibration, MOST_IMAGES // 2))):
        whose = np.arange(len(part)) if groups is None else np.unique(groups[number], return_inverse=True)[1]
        order = rng.permutation(whose.max(initial=-1) + 1)
        chosen = (
            order[np.cumsum(np.bincount(whose, minlength=len(order))[order]) <= most] if len(part) > most else order
        )
        rows = np.flatnonzero(np.isin(whose, chosen))
        start = sum(len(before) for before in parts)
        units += [start + np.flatnonzero(whose[rows] == unit) for unit in np.sort(chosen)]
        parts.append(part.float()[torch.from_numpy(rows)])
        in_batch = in_batch or len(units)
    if len(parts[0]) <= candidates.FROM or not len(parts[1]):
        yield from itertools.repeat(0.0)
    pool = _Pool.of(torch.cat(parts), Known(known.background.float(), known.centres))
    # A unit is of the class of most of its images, and of one, two or three, four to seven, … images.
    nearest = (pool.seen @ known.centres.T).argmax(1).numpy()
    kinds = [(np.bincount(nearest[unit]).argmax(), len(unit).bit_length()) for unit in units]
    taken_for = np.unique(np.array(kinds), axis=0, return_inverse=True)[1].reshape(-1)
    strata = [np.flatnonzero(taken_for == name) for name in np.unique(taken_for)]
    counts = [int((stratum < in_batch).sum()) for stratum in strata]
    yield pool.strength(torch.arange(len(parts[0])))
    while True:
        drawn = [rng.permutation(stratum)[:count] for stratum, count in zip(strata, counts, strict=True)]
        rows = np.concatenate([units[unit] for unit in np.concatenate(drawn)])
        yield pool.strength(torch.from_numpy(np.sort(rows)))
