"""What else can make a batch look new: known classes in other proportions, or all images moved a little.

Neither is a new class, and each has its own finding. Where the mix of known classes has changed, C is matched to it
before anything is compared (`matched`): within what the classifier takes for one class, known images of the batch and
of C stay exchangeable, so p-values, flags and bounds are right again for the mix of this week.
"""

import math

import numpy as np
import torch
from scipy.stats import binom, chi2_contingency
from torch import Tensor

PLAIN = 0.1  # images with p-values up to this are left out when proportions are compared: some may be novel
SURE = 0.001  # p-value from which a change of the mix is told
LEAST_FACTOR = 1.5  # and its factor: large batches show every trifle
FEWEST = 100  # images that a matched C has at least, though it then matches less
LOW = 0.25  # the part of known images that lies lowest in a direction …
MOVED = 1e-4  # … and the p-value of 'at most half of the batch has moved along it' from which the bulk has


def mix(batch: np.ndarray, batch_p: np.ndarray, reference: np.ndarray, reference_p: np.ndarray) -> str | None:
    """A sentence where what the classifier sees in the plain images of the batch comes in other proportions than in C;
    the p-values say which images are plain."""
    names = np.unique(np.concatenate([batch, reference]))
    counts = [
        np.array([int((found[p > PLAIN] == name).sum()) for name in names])
        for found, p in ((batch, batch_p), (reference, reference_p))
    ]
    there = (counts[0] + counts[1]) > 0
    now, then = counts[0][there], counts[1][there]
    if len(now) < 2 or not now.sum() or not then.sum() or chi2_contingency([now, then]).pvalue >= SURE:
        return None
    share, usual = now / now.sum(), then / then.sum()
    factor = np.abs(np.log((now + 1) / (now.sum() + 2)) - np.log((then + 1) / (then.sum() + 2)))
    order = [place for place in np.argsort(-factor) if factor[place] >= math.log(LEAST_FACTOR)][:3]
    if not order:
        return None
    told = [f"{share[place]:.0%} are {names[there][place]} (usually {usual[place]:.0%})" for place in order]
    return (
        f"the mix of known classes has changed: of the images that look known, {', '.join(told)}; the batch is "
        "compared with images of the same mix, so this alone flags nothing"
    )


def matched(batch: np.ndarray, batch_p: np.ndarray, reference: np.ndarray, seed: int) -> np.ndarray:
    """Rows of C in which classes come as in the plain images of the batch, as many as there can be; both by what the
    classifier takes images for."""
    names, counts = np.unique(reference, return_counts=True)
    wanted = np.array([float((batch[batch_p > PLAIN] == name).mean()) for name in names])
    if not wanted.sum():
        return np.arange(len(reference))
    wanted /= wanted.sum()
    room = np.divide(counts, wanted, out=np.full(len(names), math.inf), where=wanted > 0)
    total = max(float(room.min()), min(FEWEST, len(reference)))
    take = np.minimum(counts, np.ceil(total * wanted)).astype(int)
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(reference == name))[:some] for name, some in zip(names, take, strict=True)]
    return np.sort(np.concatenate(rows))


def bulk(batch: Tensor, reference: Tensor, centres: Tensor, seed: int) -> str | None:
    """A sentence where most of the batch has moved, and not a group within it; images in the directions of a `Space`.

    The median of a batch, less what its classes' centres explain, stays where it is as long as less than half of it
    is new. The direction in which it has moved is found in one half, and the other half is looked at along it: where no
    more than half of the images have moved, at least half of the usual quarter is still as low as C's lowest quarter.
    """
    rest = [seen.float() - centres[(seen.float() @ centres.T).argmax(1)] for seen in (batch, reference)]
    if min(len(part) for part in rest) < 40:
        return None
    rng = np.random.default_rng(seed)
    halves = [torch.from_numpy(rng.permutation(len(part)) % 2 == 0) for part in rest]
    low = images = 0
    for turn in (True, False):
        here = [half if turn else ~half for half in halves]
        direction = rest[0][here[0]].median(0).values - rest[1][here[1]].median(0).values
        along, usual = rest[0][~here[0]] @ direction, rest[1][~here[1]] @ direction
        low += int((along < usual.quantile(LOW)).sum())
        images += len(along)
    # Each image of the batch is looked at once; its own half of C makes the quarter a little uncertain, so half of it.
    if binom.cdf(low, images, LOW / 2) >= MOVED:
        return None
    return (
        "nearly all images of this batch differ a little from the labelled ones, in the same way, and not a group of "
        "them: a new device, other settings or another place are likelier than a new class; flags and rates do not "
        "hold until images of this kind are labelled"
    )
