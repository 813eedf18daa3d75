"""Is there a group in the batch that is not among known images? One exact p-value, by random exchanges.

    p = group_test(batch, calibration, known, seed)

Batch and C are put together, and groups of look-alikes are grown among all of them, whoever they are
(erd/statistics/candidates.py). Then it is asked how the images of each group are spread over batch and C: a new class
is all in the batch, a group of known images is in both as the two are large. The evidence is the largest binomial log
likelihood ratio over all groups, and it is compared with that of random batches: as many images, drawn from batch and C
together. If nothing is novel the real batch is one of these, so the p-value is exact at any numbers of images. It looks
at groups, where ranks of single images (`novelty_test`) say little: twenty images of one kind in a thousand are seen
though each of them could be an odd known one.

The groups are those of all images, and the same for every random batch. So none of these can choose a group that suits
it (a group that is grown in a batch has more of that batch than of others by the choice alone), and a draw is a sum.

Images are exchanged within the class whose centre they are nearest to. So a week in which known classes come in other
proportions than in C is compared with random weeks of the same proportions, and does not ring for that, as far as
classes are told apart. Images of one group, such as a patient, are exchanged together: they are alike, and are no new
class. Groups are exchanged for groups of about as many images, so that random batches have as many as the real one.

Few exchanges tell that there is nothing: after ENOUGH random batches as strong as the real one no more are drawn, and
ENOUGH / drawn is a valid p-value too (Besag & Clifford 1991).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from erd.statistics import candidates
from erd.statistics.candidates import Grown, Known
from erd.statistics.neighbours import nearness

ENOUGH = 10
DRAWS = 2_099  # the smallest p-value is 1/2,100: less than half of 5% a year spent weekly, which is 1/2,080
MOST_IMAGES = 4_000  # of the batch, and half as many of C, drawn at random where there are more: memory
AT_ONCE = 64  # random batches


Groups = tuple[np.ndarray, np.ndarray]  # whose image each of the batch is, and of C


def group_test(
    batch: Tensor,
    calibration: Tensor,
    known: Known,
    seed: int,
    draws: int = DRAWS,
    groups: Groups | None = None,
) -> float:
    """p-value of 'no group is novel', for images in the directions of a `Space`: P(p ≤ a) ≤ a if known images of the
    batch are exchangeable with C, or are within each predicted class; whole `groups` where images belong together."""
    rng = np.random.default_rng(seed)
    pool = _Pool.of(batch, calibration, known, groups, rng)
    if pool is None or (real := float(pool.strength(pool.real)[0])) <= 0:
        return 1.0
    as_strong = drawn = 0
    for strengths in _random(pool, draws, rng):
        found = np.flatnonzero(strengths >= real * (1 - 1e-6))
        if as_strong + len(found) >= ENOUGH:
            return ENOUGH / (drawn + 1 + int(found[ENOUGH - as_strong - 1]))
        as_strong, drawn = as_strong + len(found), drawn + len(strengths)
    return (1 + as_strong) / (drawn + 1)


@dataclass(frozen=True)
class _Pool:
    """Batch and C together in units that are exchanged: single images, or all of one patient."""

    members: Tensor  # groups × units: how many images of a unit are of a group, in parts
    expected: Tensor  # of each group: images in a random batch
    strata: list[np.ndarray]  # units that are exchanged for each other
    counts: list[int]  # of them in the batch

    @classmethod
    def of(
        cls, batch: Tensor, calibration: Tensor, known: Known, groups: Groups | None, rng: np.random.Generator
    ) -> "_Pool | None":
        """None where there is nothing to compare."""
        parts, units = [], []
        for number, (part, most) in enumerate(((batch, MOST_IMAGES), (calibration, MOST_IMAGES // 2))):
            rows, unit = _some(np.arange(len(part)) if groups is None else groups[number], most, rng)
            parts.append(part.float()[torch.from_numpy(rows)])
            units.append(unit)
        if len(parts[0]) <= candidates.FROM or not len(parts[1]):
            return None
        seen, in_batch = torch.cat(parts), int(units[0].max()) + 1
        unit = np.concatenate([units[0], in_batch + units[1]])
        found = _grown(seen, known)
        members = torch.zeros(len(found.belongs), int(unit.max()) + 1)
        members.index_add_(1, torch.from_numpy(unit), found.belongs)
        # A unit is of the class of most of its images, and of one, two or three, four to seven, … images.
        nearest = (seen @ known.centres.T).argmax(1).numpy()
        each = np.zeros((members.shape[1], len(known.centres)), int)
        np.add.at(each, (unit, nearest), 1)
        kinds = np.stack([each.argmax(1), np.frexp(each.sum(1))[1]], 1)
        kind = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)
        strata = [np.flatnonzero(kind == name) for name in range(kind.max() + 1)]
        counts = [int((stratum < in_batch).sum()) for stratum in strata]
        shares = torch.zeros(members.shape[1])
        for stratum, count in zip(strata, counts, strict=True):
            shares[torch.from_numpy(stratum)] = count / len(stratum)
        expected = members @ shares
        if known.labels is not None:
            expected = torch.maximum(expected, _by_mix(found, expected, nearest, len(parts[0]), known, known.labels))
        return cls(members, expected, strata, counts)

    @property
    def real(self) -> Tensor:
        """Units × 1: which are in the batch."""
        inside = torch.zeros(self.members.shape[1], 1)
        for stratum, count in zip(self.strata, self.counts, strict=True):
            inside[torch.from_numpy(stratum[:count])] = 1  # those of the batch come first
        return inside

    def strength(self, inside: Tensor) -> np.ndarray:
        """Of the strongest group in each of some batches, units × batches."""
        every, expected = self.members.sum(1, keepdim=True), self.expected[:, None]
        there = self.members @ inside
        elsewhere = (every - there).clamp_min(0)
        ratio = _surplus(there, expected) + _surplus(elsewhere, every - expected)
        return torch.where(there > expected, ratio, torch.zeros(())).amax(0).numpy()


def _surplus(there: Tensor, expected: Tensor) -> Tensor:
    return torch.xlogy(there, there / expected.clamp_min(1e-9))


def _some(whose: np.ndarray, most: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of at most so many images, whole units drawn at random; and the unit of each, from 0 on."""
    unit = np.unique(whose, return_inverse=True)[1].reshape(-1)
    if len(unit) <= most:
        return np.arange(len(unit)), unit
    order = rng.permutation(unit.max() + 1)
    rows = np.flatnonzero(np.isin(unit, order[np.cumsum(np.bincount(unit)[order]) <= most]))
    return rows, np.unique(unit[rows], return_inverse=True)[1].reshape(-1)


def _by_mix(found: Grown, expected: Tensor, nearest: np.ndarray, batch: int, known: Known, labels: Tensor) -> Tensor:
    """Images of each group that are expected in a batch with its mix of classes, where S knows such images.

    Some images are nearest to the centre of another class. Where their class is five times as frequent as in C, they
    are a group of their own within the other class, and exchanges within that would not explain it. S tells of which
    classes the images of a group are, and how often these are taken for others. It looks at what is nearest alone,
    which is the same in all random batches: the p-value stays exact where it was.
    """
    train, classes = known.background[: len(labels)].float(), len(known.centres)
    taken_for = (train @ known.centres.T).argmax(1)
    confusion = torch.zeros(classes, classes, dtype=torch.float64)
    confusion.index_put_((labels, taken_for), torch.ones(len(train), dtype=torch.float64), accumulate=True)
    confusion /= confusion.sum(1, keepdim=True)
    mixes = []
    for part in (nearest[:batch], nearest[batch:]):
        counts = torch.from_numpy(np.bincount(part, minlength=classes)).double()
        mix = torch.linalg.lstsq(confusion.T, counts).solution.clamp_min(0)
        mixes.append((mix * len(part) / mix.sum()).float())
    within = torch.sigmoid(candidates.llr(found.centres @ train.T, known.likeness(train)))
    kinds = torch.zeros(len(within), classes).index_add_(1, labels, within)
    kinds /= torch.bincount(labels, minlength=classes)
    every = found.belongs.sum(1)
    here, there = (kinds @ mix for mix in mixes)
    return (every * here + expected) / (here + there + 1)  # one image says what is expected without S


def _grown(seen: Tensor, known: Known) -> Grown:
    like = known.likeness(seen)
    ahead = nearness(seen, seen, 2 * candidates.FROM) - like
    return candidates.grown(seen, like, ahead.topk(min(candidates.BEGINNINGS, len(seen))).indices, candidates.ROUNDS)


def _random(pool: _Pool, draws: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Strengths of random batches, some at a time."""
    for start in range(0, draws, AT_ONCE):
        inside = np.zeros((min(AT_ONCE, draws - start), pool.members.shape[1]), np.float32)
        for stratum, count in zip(pool.strata, pool.counts, strict=True):
            if count:
                order = rng.random((len(inside), len(stratum))).argpartition(count - 1, 1)
                np.put_along_axis(inside, stratum[order[:, :count]], 1, 1)
        yield pool.strength(torch.from_numpy(inside).T)
