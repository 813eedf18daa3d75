"""How much the members disagree on an image: the mean distance over all pairs of their softmax outputs.

Input is always K×N×classes, output N; larger means more novel. A new distance is one line in `DISTANCES`.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from erd.base.errors import UserError, nearest

CHUNK = 1 << 20  # numbers worked on at once: bounds memory whatever K, N and the number of classes
PAIRED_UP_TO = 15  # members up to which all pairs are faster than sorting

DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tv": lambda p, q: (p - q).abs().sum(-1) / 2,
    "kl": lambda p, q: ((p - q) * (_log(p) - _log(q))).sum(-1) / 2,  # symmetric: mean of KL(p‖q) and KL(q‖p)
    "js": lambda p, q: _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2,
    "hellinger": lambda p, q: ((p.sqrt() - q.sqrt()) ** 2).sum(-1).div(2).sqrt(),
    "l2": lambda p, q: ((p - q) ** 2).sum(-1).sqrt(),
    "argmax": lambda p, q: (p.argmax(-1) != q.argmax(-1)).to(p.dtype),
}


def check_distance(name: str) -> None:
    if name not in DISTANCES:
        raise UserError(f"setting 'score.distance' is '{name}', which is no distance: {nearest(name, DISTANCES)}")


def disagreement(softmax: Tensor, distance: str = "tv") -> Tensor:
    """The score of Algorithm 2: the mean of `distance` over unordered pairs of members. TV is in [0, 1]."""
    if len(softmax) == 1:
        return torch.zeros_like(softmax[0, :, 0])  # alone it disagrees with nobody
    form = total_variation if distance == "tv" else lambda part: pairwise(part, distance)
    parts = softmax.split(max(1, CHUNK // (softmax.shape[0] * softmax.shape[2])), dim=1)
    return torch.cat([form(part) for part in parts]) if len(parts) > 1 else form(softmax)


def total_variation(softmax: Tensor) -> Tensor:
    """Mean pairwise TV. A few members pair by pair, in place; many by sorting: K log K work and no K×K memory.

    Σ_{i<j} |a_i − a_j| = Σ_r (2r − K + 1) a_(r) = Σ_r r (K − r) (a_(r+1) − a_(r)): r (K − r) pairs span the r-th gap.
    By gaps nothing cancels: the score is never below 0, and 0 where all agree.
    """
    members = len(softmax)
    pairs = members * (members - 1)
    if members <= PAIRED_UP_TO:
        total = torch.sub(softmax[1], softmax[0]).abs_()
        gap = torch.empty_like(total) if members > 2 else total
        for i in range(2, members):
            for j in range(i):
                total += torch.sub(softmax[i], softmax[j], out=gap).abs_()
        return total.sum(-1).div_(pairs)
    # The classes are summed up before the gaps are taken: there are fewer gaps then, and sums of what is in order are
    # in order, since all are added one after another.
    by_class = _ordered(softmax)
    ordered = by_class[:, 0].clone()
    for c in range(1, by_class.shape[1]):
        ordered += by_class[:, c]
    rank = torch.arange(1, members, dtype=softmax.dtype, device=softmax.device)
    return ordered.diff(dim=1).mul_(rank * (members - rank)).sum(1).div_(pairs)


def _ordered(softmax: Tensor) -> Tensor:
    """N×classes×K, the members' values in order. NumPy sorts short rows ten times as fast as torch does on a CPU."""
    if softmax.device.type != "cpu":
        return softmax.permute(1, 2, 0).sort(dim=-1).values
    rows = np.array(softmax.numpy().transpose(1, 2, 0), order="C")
    rows.sort(axis=-1)
    return torch.from_numpy(rows)


def pairwise(softmax: Tensor, distance: str = "tv") -> Tensor:
    """The definition, pair by pair."""
    members = len(softmax)
    between = DISTANCES[distance]
    total = torch.zeros_like(softmax[0, :, 0])
    for i in range(members):
        for j in range(i + 1, members):
            total += between(softmax[i], softmax[j])
    return total / (members * (members - 1) / 2)


def entropy_of_mean(softmax: Tensor) -> Tensor:
    """What vanilla ensembles use: the entropy of the averaged softmax."""
    return _entropy(softmax.mean(0))


def max_softmax(softmax: Tensor) -> Tensor:
    """One minus the largest mean probability (Hendrycks & Gimpel)."""
    return 1 - softmax.mean(0).amax(-1)


def variance(softmax: Tensor) -> Tensor:
    """The members' variance around their mean output, summed over classes."""
    return ((softmax - softmax.mean(0)) ** 2).mean(0).sum(-1)


def _log(p: Tensor) -> Tensor:
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


def _entropy(p: Tensor) -> Tensor:
    return -(p * _log(p)).sum(-1)
