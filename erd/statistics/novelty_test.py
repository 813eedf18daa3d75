"""Is anything novel in this batch at all? One exact p-value.

The test asks whether the batch has more than its share of the high ranks among batch and reference together. If nothing
is novel all orders of the two are equally likely, so any statistic of them can be compared with random orders. Where
known classes come in other proportions than in the reference, only orders within what images are taken for are: a class
that was learned last week, and is rare in C, has higher scores than others, and is not novel.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy

DRAWS = 19_999  # random orders: p-values of 1/20,000 and above, twenty times finer than 5% a year spent weekly


MOST_KINDS = 10  # the most frequent ones; all others are one more: classes of a few images would compare nothing
Kinds = tuple[np.ndarray, np.ndarray]  # what each image of the batch is taken for, and of the reference


def alarm(batch: np.ndarray, reference: np.ndarray, seed: int, draws: int = DRAWS, kinds: Kinds | None = None) -> float:
    """p-value of 'nothing is novel': P(p ≤ a) ≤ a at any numbers of images and with ties, if known images' scores are
    exchangeable with the reference scores, or are within each of `kinds`.

    The orders are not shuffled but only counted at some cuts: the counts are drawn one after the other from the
    hypergeometric distributions they have, so a million images cost the same as a thousand.
    """
    if not len(batch) or not len(reference):
        return 1.0
    cuts = _cuts(np.sort(np.concatenate([batch, reference]))[::-1])
    if not len(cuts.top):
        return 1.0
    strata = []
    for mine, theirs in _by_kind(batch, reference, kinds):
        top = _at_or_above(np.concatenate([mine, theirs]), cuts.score)
        strata.append(_Stratum(tuple(top.tolist()), len(mine), len(mine) + len(theirs)))
    seen = _strength(_at_or_above(batch, cuts.score)[None], strata)[0]
    random = _random_strengths(tuple(strata), draws, seed)
    return (1 + int((random >= seen - 1e-9).sum())) / (draws + 1)  # the same counts must tie whatever their last bits


def _by_kind(batch: np.ndarray, reference: np.ndarray, kinds: Kinds | None) -> list[tuple[np.ndarray, np.ndarray]]:
    if kinds is None:
        return [(batch, reference)]
    names, counts = np.unique(np.concatenate(kinds), return_counts=True)
    own = names[np.argsort(-counts, kind="stable")[:MOST_KINDS]]
    rest = tuple(~np.isin(kind, own) for kind in kinds)
    chosen = [*(tuple(kind == name for kind in kinds) for name in own), rest]
    return [(batch[mine], reference[theirs]) for mine, theirs in chosen]


def _at_or_above(scores: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    return len(scores) - np.searchsorted(np.sort(scores), cuts, side="left")


class _Stratum(NamedTuple):
    """Images whose orders are all equally likely."""

    tops: tuple[int, ...]  # how many are at or above each cut
    images: int  # of the batch
    total: int


class _Cuts(NamedTuple):
    score: np.ndarray  # what is at or above it is at the top
    top: np.ndarray  # how many images that are


def _cuts(ranked: np.ndarray) -> _Cuts:
    """The highest 1, 2, …, 10, then 10% more each time; images of the same score all or none. `ranked` falls."""
    tops = [1]
    while (following := max(tops[-1] + 1, int(tops[-1] * 1.1))) < len(ranked):
        tops.append(following)
    scores = np.unique(ranked[np.array(tops) - 1])[::-1]
    top = len(ranked) - np.searchsorted(ranked[::-1], scores, side="left")
    inside = top < len(ranked)
    return _Cuts(scores[inside], top[inside])


@functools.lru_cache(maxsize=8)  # batches of the same sizes share it: folds, retrospects, simulations
def _random_strengths(strata: tuple[_Stratum, ...], draws: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = sum(_random_counts(np.array(one.tops), one.images, one.total, draws, rng) for one in strata)
    return _strength(np.asarray(counts), strata)


def _random_counts(top: np.ndarray, images: int, total: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Images of the batch above each cut in random orders, one order a row."""
    counts = np.zeros((draws, len(top) + 1), dtype=np.int64)
    for cut, (start, end) in enumerate(zip([0, *top[:-1]], top, strict=True)):
        left = images - counts[:, cut]
        counts[:, cut + 1] = counts[:, cut] + rng.hypergeometric(left, total - start - left, end - start)
    return counts[:, 1:]


def _strength(counts: np.ndarray, strata: Sequence[_Stratum]) -> np.ndarray:
    """Log of a mean of likelihood ratios against 'nothing novel'; counts of one order a row. What strata let expect
    above a cut is taken for what is expected of all images alike: only what is beyond it counts.

    Half of the weight is on too many images above a cut, all cuts alike: it finds few novel images with high scores.
    The other half is on the batch's mean of −log rank (Savage's scores): it finds many with scores a little higher.
    Each misses what the other finds; the mean of both loses little to the better one.
    """
    top = np.sum([one.tops for one in strata], axis=0)
    images, total = sum(one.images for one in strata), sum(one.total for one in strata)
    references, bottom = total - images, total - top
    if len(strata) > 1:
        expected = sum(np.array(one.tops) * (one.images / max(one.total, 1)) for one in strata)
        counts = np.clip(
            counts - expected + top * (images / total), np.maximum(0, images - bottom), np.minimum(top, images)
        )
    cells = ((counts, top * images), (top - counts, top * references),
             (images - counts, bottom * images), (bottom - images + counts, bottom * references))  # fmt: skip
    ratio = sum(xlogy(cell, cell * (total / margins)) for cell, margins in cells)
    excess = np.where(counts * total > top * images, ratio, 0.0)

    edges = np.concatenate([[0], top, [total]])
    size = np.diff(edges)
    savage = -np.log((edges[:-1] + edges[1:] + 1) / (2 * total))
    savage -= size @ savage / total
    spread = math.sqrt(size @ savage**2 * images * references / (total * (total - 1)))
    ends = np.zeros((len(counts), 1)), np.full((len(counts), 1), images)
    z = np.diff(np.hstack([ends[0], counts, ends[1]])) @ savage / spread
    return np.logaddexp(logsumexp(excess, axis=1) - math.log(len(top)), np.maximum(z, 0) ** 2 / 2)
