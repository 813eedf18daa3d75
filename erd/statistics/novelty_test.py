"""Is anything novel in this batch at all? One exact p-value.

The test asks whether the batch has more than its share of the high ranks among batch and reference together. If nothing
is novel all orders of the two are equally likely, so any statistic of them can be compared with random orders.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy

DRAWS = 19_999  # random orders: p-values of 1/20,000 and above, twenty times finer than 5% a year spent weekly


def alarm(batch: np.ndarray, reference: np.ndarray, seed: int, draws: int = DRAWS) -> float:
    """p-value of 'nothing is novel': P(p ≤ a) ≤ a at any numbers of images and with ties, if known images' scores are
    exchangeable with the reference scores.

    The orders are not shuffled but only counted at some cuts: the counts are drawn one after the other from the
    hypergeometric distributions they have, so a million images cost the same as a thousand.
    """
    if not len(batch) or not len(reference):
        return 1.0
    cuts = _cuts(np.sort(np.concatenate([batch, reference]))[::-1])
    if not len(cuts.top):
        return 1.0
    images, total = len(batch), len(batch) + len(reference)
    counts = images - np.searchsorted(np.sort(batch), cuts.score, side="left")
    seen = _strength(counts[None], cuts.top, images, total)[0]
    random = _random_strengths(tuple(cuts.top.tolist()), images, total, draws, seed)
    return (1 + int((random >= seen - 1e-9).sum())) / (draws + 1)  # the same counts must tie whatever their last bits


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
def _random_strengths(tops: tuple[int, ...], images: int, total: int, draws: int, seed: int) -> np.ndarray:
    top = np.array(tops)
    return _strength(_random_counts(top, images, total, draws, seed), top, images, total)


def _random_counts(top: np.ndarray, images: int, total: int, draws: int, seed: int) -> np.ndarray:
    """Images of the batch above each cut in random orders, one order a row."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((draws, len(top) + 1), dtype=np.int64)
    for cut, (start, end) in enumerate(zip([0, *top[:-1]], top, strict=True)):
        left = images - counts[:, cut]
        counts[:, cut + 1] = counts[:, cut] + rng.hypergeometric(left, total - start - left, end - start)
    return counts[:, 1:]


def _strength(counts: np.ndarray, top: np.ndarray, images: int, total: int) -> np.ndarray:
    """Log of a mean of likelihood ratios against 'nothing novel'; counts of one order a row.

    Half of the weight is on too many images above a cut, all cuts alike: it finds few novel images with high scores.
    The other half is on the batch's mean of −log rank (Savage's scores): it finds many with scores a little higher.
    Each misses what the other finds; the mean of both loses little to the better one.
    """
    references, bottom = total - images, total - top
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
