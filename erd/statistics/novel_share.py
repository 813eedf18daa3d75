"""How much of the batch is novel.

What can be known: a batch with novel images that score like known ones looks like a batch without them. So a lower
bound on the share needs no more than the flags do, but an upper bound always needs a word about the novel images. Ours:
few of them hide among the lowest scores (`hidden`).
"""

import bisect
import math
from typing import NamedTuple

import numpy as np
from scipy.stats import hypergeom

from erd.statistics import flags


class Share(NamedTuple):
    """The share of novel images in this batch, not in the stream it came from."""

    storey: float  # two estimates, moved into the interval if outside; too low where novel images score like known ones
    bbe: float
    low: float  # holds whatever the novel images score
    high: float  # holds if at most `hidden` of the novel images score within the lowest quarter of the known ones
    novel: int  # at least so many images: low × m


def novel_share(scores: np.ndarray, reference: np.ndarray, confidence: float = 0.9, hidden: float = 0.05) -> Share:
    """Estimates, and an interval that contains the share with this confidence; half of the doubt is on either end.

    Low is the most that the bounds at all cuts show to be novel. High comes from the images whose scores are within the
    lowest quarter of the reference: at most `hidden` of the novel ones are there, so the rest are known, and so many
    known ones there take so many in all. The default, one novel image in twenty, is the same as TNR@95 ≥ 25%: normal
    scores with an AUROC of .76 have it. Weaker detectors need more; where novel images score like known ones, so that
    one in four is there, no high below 1 is right.
    """
    if not len(scores) or not len(reference):
        return Share(0.0, 0.0, 0.0, 1.0, 0)
    batch, doubt = len(scores), (1 - confidence) / 2
    novel = flags.false_discovery_bounds(scores, reference, 1 - doubt).novel
    low = novel / batch
    high = max(1 - _least_known(scores, reference, doubt, hidden) / batch, low)
    storey = 1 - flags.known_share(flags.p_values(scores, reference), len(reference))
    bbe = 1 - _best_bin(scores, reference)
    return Share(min(max(storey, low), high), min(max(bbe, low), high), low, high, novel)


def _least_known(scores: np.ndarray, reference: np.ndarray, doubt: float, hidden: float) -> int:
    """The smallest number of known images that explains how many scores are within the reference's lowest quarter."""
    batch, references = len(scores), len(reference)
    quarter = math.ceil((references + 1) / 4)
    below = int((scores < np.partition(reference, quarter - 1)[quarter - 1]).sum())

    def plausible(known: int) -> bool:
        needed = math.ceil(below - hidden * (batch - known))
        # `needed` known images come before the quarter's last reference image: among the first needed + quarter − 1 of
        # both together are fewer than `quarter` reference images.
        return needed <= 0 or (
            needed <= known and hypergeom.cdf(quarter - 1, references + known, references, needed + quarter - 1) > doubt
        )

    return min(bisect.bisect_left(range(batch + 1), True, key=plausible), batch)


def _best_bin(scores: np.ndarray, reference: np.ndarray, doubt: float = 0.1, slack: float = 0.01) -> float:
    """Known share by best bin estimation (Garg et al. 2021): F_batch / F_reference at the cut that bounds it best.

    Below every cut are at least the known share's known images, so the ratio is never lower but by chance; the cut
    trades its chance (small bins) against the novel images in it (large ones).
    """
    ranked = np.sort(reference)
    in_reference = np.searchsorted(ranked, ranked, side="right") / len(reference)
    in_batch = np.searchsorted(np.sort(scores), ranked, side="right") / len(scores)
    chance = sum(math.sqrt(math.log(4 / doubt) / (2 * images)) for images in (len(scores), len(reference)))
    best = np.argmin((in_batch + (1 + slack) * chance) / in_reference)
    return float(in_batch[best] / in_reference[best])
