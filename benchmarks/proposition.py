"""Proposition 1 of the paper, to be run: early stopping fits what is novel and resists what is labelled wrongly.

S ∪ (U, c) lies in K clusters: points within ε of a unit centre c_i (rows of C), each cluster of one class or novel. U
is labelled c, so the share ρ of a known cluster is labelled wrongly where c is not its class. A net with two layers,
f(x) = vᵀφ(Wx), with v fixed at ±1/√p, learns W from N(0, 1) weights by gradient descent on ½ Σ (y − f)², with step
η = c₂ K / (n‖C‖²). The claim: after T = c₄ ‖C‖² / λmin(Σ) steps it has the labels of S, of the rightly labelled and of
the novel images, and not those of the wrongly labelled. Σ = CCᵀ ⊙ E_g[φ'(Cg) φ'(Cg)ᵀ].

    found = run(Setting(), seed=0)      # found.at(found.stop)["batch_known_wrong"] is 0.0

Two classes, labels ±1; a member for c = −1 and one for c = +1, so that their disagreement is seen too.

Why it holds: along the centres the residual shrinks by 1 − η (n/K) λ a step, with λ ≥ λmin(Σ); inside a cluster, where
right and wrong labels differ, by about 1 − η ε² λ: (n/K) / ε² times as slowly. `late` is three of these slow time
constants.

The conditions, as `Setting()` meets them; the paper does not tell its constants, and we take 1 (c₂ = 1, c₄ = 5):

    label noise       ρ ≤ δ/8, δ = 2/(|Y| − 1) = 2     0.25  ≤ 0.25      met, at the limit
    spread            ε ≤ α δ λmin(Σ)² / K²            0.028 ≤ 0.0286    met with α = 1
    separation        ‖c_i − c_j‖ ≥ 2ε                 1.41  ≥ 0.056     met
    width             p ≥ c₃ K²‖C‖⁴ / λmin(Σ)⁴         160   ≥ 136       met with c₃ = 1
    activation        |φ'|, |φ''| ≤ Γ                  1.00, 0.38        met with Γ = 1, φ(x) = 2 tanh(x/2)
    balance           α₁ n/K ≤ |C_i| ≤ α₂ n/K          8 = 8             met with α₁ = α₂ = 1

They are met at this size because the centres are orthogonal, so that ‖C‖ = 1 and λmin(Σ) = E[φ'(g)²] = 0.717: with
cosines of 0.3 between them ε would have to be below 0.0145 and the net wider than 3,284.

One thing is not as printed: the paper has v = ±1/p. The net's tangent kernel is then Σ/p, and T steps of size η do p
times too little: nothing is fitted. With ±1/√p the kernel is Σ, which the stated η and T are made for.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from erd.base.seeds import derive

STEP, STOP, LATE = 1.0, 5.0, 3.0  # c₂; c₄, time constants of the slowest centre; those inside a cluster, till `late`
CURVATURE = 0.385  # the largest |φ''|, 2/√27, where φ' is 2/3


@dataclass(frozen=True)
class Setting:
    clusters: int = 2  # of each of the two known classes, and of novel images
    per_cluster: int = 8
    noise: float = 0.25  # ρ: the batch's share of a known cluster
    epsilon: float = 0.028
    overlap: float = 0.0  # cosine between any two centres
    dimension: int = 24
    width: int = 160  # p


@dataclass(frozen=True)
class Points:
    """n points in clusters. `truth` is −1 or +1, and 0 where novel; `batch` says which are in U, the others are S."""

    x: Tensor
    cluster: Tensor
    truth: Tensor
    batch: Tensor

    def labels(self, c: int) -> Tensor:
        """What the member for c is trained on."""
        return torch.where(self.batch, c, self.truth)


@dataclass(frozen=True)
class Condition:
    name: str
    value: float
    sign: str  # ≤ or ≥
    bound: float

    @property
    def met(self) -> bool:
        slack = 1e-9 * abs(self.bound)
        return self.value <= self.bound + slack if self.sign == "≤" else self.value >= self.bound - slack


@dataclass(frozen=True)
class Found:
    """Curves over `steps`, by group, both members taken together.

    A point's margin is wanted label × output, and it is fitted where that is above 0. Wanted is the label trained on;
    in the holdout the true class, and c where novel.
    """

    step_size: float
    stop: int  # T
    late: int
    steps: list[int]
    fit: dict[str, list[float]]  # share of the points that are fitted
    margin: dict[str, list[tuple[float, float, float]]]  # lowest, mean, highest
    disagreement: dict[str, list[float]]  # share of the points to which the members give different labels

    def at(self, step: int) -> dict[str, float]:
        return {group: curve[self.steps.index(step)] for group, curve in self.fit.items()}

    def disagreement_at(self, step: int) -> dict[str, float]:
        return {group: curve[self.steps.index(step)] for group, curve in self.disagreement.items()}


def run(setting: Setting, seed: int) -> Found:
    """Both members, from the same random weights, to T and far beyond."""
    generator = torch.Generator().manual_seed(derive(seed, "theory"))
    c = centres(setting, generator)
    trained, holdout = points(setting, c, generator), points(setting, c, generator)
    start = torch.randn(setting.width, setting.dimension, generator=generator, dtype=torch.float64)
    size, stop = step_size(c, len(trained.x)), math.ceil(stopping_time(c))
    late = max(memorising_time(setting, c), stop)
    grid = (round(10 ** (k / 12)) for k in range(12 * len(str(late))))
    marks = sorted({0, stop, late, *(step for step in grid if step < late)})

    found = Found(size, stop, late, marks, {}, {}, {})
    minus, plus = (descend(trained.x, trained.labels(label).double(), start, size, marks) for label in (-1, +1))
    for nets in zip(minus, plus, strict=True):
        outputs = [(output(net, trained.x), output(net, holdout.x)) for net in nets]
        for group, margin in _margins(trained, holdout, outputs).items():
            found.fit.setdefault(group, []).append(_share(margin > 0))
            found.margin.setdefault(group, []).append((float(margin.min()), float(margin.mean()), float(margin.max())))
        for group, differ in _differing(trained, holdout, outputs).items():
            found.disagreement.setdefault(group, []).append(_share(differ))
    return found


# The data


def centres(setting: Setting, generator: torch.Generator) -> Tensor:
    """C: unit vectors in random directions, every two with the same cosine."""
    count = 3 * setting.clusters
    random = torch.randn(setting.dimension, count, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(random).Q.T
    cosines = torch.full((count, count), setting.overlap, dtype=torch.float64).fill_diagonal_(1)
    return torch.linalg.cholesky(cosines) @ basis


def points(setting: Setting, c: Tensor, generator: torch.Generator) -> Points:
    """Evenly in the balls of radius ε around the centres: those of class −1, of class +1, novel."""
    size, dimension = setting.per_cluster, setting.dimension
    cluster = torch.arange(len(c)).repeat_interleave(size)
    away = torch.randn(len(cluster), dimension, generator=generator, dtype=torch.float64)
    radius = setting.epsilon * torch.rand(len(cluster), 1, generator=generator, dtype=torch.float64) ** (1 / dimension)
    truth = torch.tensor([-1, +1, 0]).repeat_interleave(setting.clusters)[cluster]
    in_batch = torch.arange(size).repeat(len(c)) < round(setting.noise * size)
    return Points(c[cluster] + radius * away / away.norm(dim=1, keepdim=True), cluster, truth, in_batch | (truth == 0))


# The net


def phi(x: Tensor) -> Tensor:
    """2 tanh(x/2), by way of the logistic function: much the faster of the two."""
    return 4 * x.sigmoid() - 2


def slope(x: Tensor) -> Tensor:
    """φ'."""
    return 4 * x.sigmoid() * (-x).sigmoid()


def output_weights(width: int) -> Tensor:
    """v: half of it 1/√p, half −1/√p."""
    return torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(width // 2) / math.sqrt(width)


def output(weights: Tensor, x: Tensor) -> Tensor:
    return phi(x @ weights.T) @ output_weights(len(weights))


def descend(x: Tensor, y: Tensor, start: Tensor, size: float, marks: Sequence[int]) -> Iterator[Tensor]:
    """W after each of the `marks`, in rising order: W ← W − η ∇L(W), all points in every step."""
    weights, v, wanted = start.clone(), output_weights(len(start)), set(marks)
    scale = -4 * size * v[:, None]
    for step in range(marks[-1] + 1):
        if step in wanted:
            yield weights.clone()
        logistic = (x @ weights.T).sigmoid_()
        residual = 4 * (logistic @ v) - y  # the −2 of φ cancels: v sums to 0
        slopes = logistic.addcmul_(logistic, logistic, value=-1)  # φ'/4
        weights.addcmul_(slopes.T @ (residual[:, None] * x), scale)


# What the proposition is about


def sigma(c: Tensor) -> Tensor:
    """Σ = CCᵀ ⊙ E[φ'(Cg) φ'(Cg)ᵀ]. Of Cg only pairs matter: two normals with the centres' cosine, integrated."""
    nodes, weights = _normal_quadrature(64)
    cosine = (c @ c.T).clamp(-1, 1)
    first, second = nodes[:, None], nodes[None, :]
    other = cosine[..., None, None] * first + (1 - cosine**2).sqrt()[..., None, None] * second
    return cosine * torch.einsum("a,b,ijab->ij", weights, weights, slope(first) * slope(other))


def separability(c: Tensor) -> float:
    """λmin(Σ): 0 where two centres are the same."""
    return float(torch.linalg.eigvalsh(sigma(c))[0])


def step_size(c: Tensor, n: int) -> float:
    return STEP * len(c) / (n * _norm(c) ** 2)


def stopping_time(c: Tensor) -> float:
    """T, in steps."""
    return STOP * _norm(c) ** 2 / separability(c)


def memorising_time(setting: Setting, c: Tensor) -> int:
    """When labels inside a cluster are told apart, roughly: its time constant is (n/K) / ε² that of the centres."""
    inside = _norm(c) ** 2 / separability(c) * setting.per_cluster / setting.epsilon**2
    return math.ceil(LATE * inside)


def conditions(setting: Setting, seed: int = 0) -> list[Condition]:
    """What the proposition asks for, with all constants that the paper leaves open at 1."""
    generator = torch.Generator().manual_seed(derive(seed, "theory"))
    c = centres(setting, generator)
    data = points(setting, c, generator)
    k, separable, delta = len(c), separability(c), 2.0
    wrong = max(float((data.batch & (data.truth != 0))[data.cluster == i].double().mean()) for i in range(k))
    spread = float((data.x - c[data.cluster]).norm(dim=1).max())
    apart = float(torch.pdist(c).min())
    return [
        Condition("label noise: ρ ≤ δ/8", wrong, "≤", delta / 8),
        Condition("points near their centre: ‖x − c_i‖ ≤ ε", spread, "≤", setting.epsilon),
        Condition("spread: ε ≤ δ λmin(Σ)² / K²", setting.epsilon, "≤", delta * separable**2 / k**2),
        Condition("separation: ‖c_i − c_j‖ ≥ 2ε", apart, "≥", 2 * setting.epsilon),
        Condition("width: p ≥ K² ‖C‖⁴ / λmin(Σ)⁴", setting.width, "≥", k**2 * _norm(c) ** 4 / separable**4),
        Condition("activation: |φ'| ≤ Γ = 1", float(slope(torch.zeros(()))), "≤", 1),
        Condition("activation: |φ''| ≤ Γ = 1", CURVATURE, "≤", 1),
    ]


def _margins(trained: Points, holdout: Points, outputs: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Wanted label × output, by group; first the member for −1, then the one for +1."""
    known = trained.batch & (trained.truth != 0)
    groups: dict[str, list[Tensor]] = {}
    for label, (here, there) in zip((-1, +1), outputs, strict=True):
        margin, novel = here * trained.labels(label), holdout.truth == 0
        for group, found in {
            "train": margin[~trained.batch],
            "batch_known_right": margin[known & (trained.truth == label)],
            "batch_known_wrong": margin[known & (trained.truth == -label)],
            "batch_novel": margin[trained.truth == 0],
            "holdout_known": (there * holdout.truth)[~novel],
            "holdout_novel": (there * label)[novel],
        }.items():
            groups.setdefault(group, []).append(found)
    return {group: torch.cat(found) for group, found in groups.items()}


def _differing(trained: Points, holdout: Points, outputs: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    here, there = (minus.sign() != plus.sign() for minus, plus in zip(*outputs, strict=True))
    return {
        "batch_known": here[trained.batch & (trained.truth != 0)],
        "batch_novel": here[trained.truth == 0],
        "holdout_known": there[holdout.truth != 0],
        "holdout_novel": there[holdout.truth == 0],
    }


def _share(found: Tensor) -> float:
    return round(float(found.double().mean()), 4)


def _norm(c: Tensor) -> float:
    """‖C‖, the spectral norm."""
    return float(torch.linalg.matrix_norm(c, 2))


def _normal_quadrature(points: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights for E[h(g)], g ~ N(0, 1) (Golub–Welsch: the eigenvalues of the Hermite recurrence)."""
    side = torch.arange(1, points, dtype=torch.float64).sqrt()
    nodes, vectors = torch.linalg.eigh(side.diag(1) + side.diag(-1))
    return nodes, vectors[0] ** 2
