"""How much of a batch is of a class nobody knows, by the random audit: what experts said of a uniform sample of it.

The only figure that does not rest on scores: what no score shows is found here, or nowhere.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom

CONFIDENCE = 0.95  # of the interval


@dataclass(frozen=True)
class Audit:
    images: int  # so many were drawn and judged
    novel: int  # of them of a class nobody knows
    share: float  # of the batch: an estimate, and an interval
    low: float
    high: float

    @property
    def rings(self) -> bool:
        """Any novel image that experts agree on. This is no test and spends nothing of the promised rate of false
        alarms: that rate is of scores that look odd by chance, and an expert who sees a new class is no chance. The
        lower end of the interval is above 0 as soon as there is one such image, as it then counts at least that one."""
        return self.low > 0


NOTHING = Audit(0, 0, 0.0, 0.0, 1.0)


def estimate(novel: int, known: int, images: int, unsure: int = 0) -> Audit:
    """From what was said of images drawn at random, without putting back, from a batch of so many.

    The interval is Clopper and Pearson's for such draws: all shares at which what was found is not too much or too
    little. `unsure` images, of which experts say different things, count as known for its lower end, as novel for its
    upper one.
    """
    judged, drawn = novel + known, novel + known + unsure
    if not judged:
        return NOTHING
    doubt = (1 - CONFIDENCE) / 2
    possible = np.arange(images + 1)  # novel images in the whole batch
    not_too_few = hypergeom.sf(novel - 1, images, possible, drawn) > doubt
    not_too_many = hypergeom.cdf(novel + unsure, images, possible, drawn) > doubt
    low, high = possible[not_too_few].min(), possible[not_too_many].max()
    return Audit(judged, novel, novel / judged, float(low / images), float(high / images))
