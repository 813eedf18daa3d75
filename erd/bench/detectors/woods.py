"""WOODS: fine-tune the classifier so that the batch is called novel as far as known images allow.

Katz-Samuels, Nakhleh, Nowak & Li, ICML 2022. With the energy E(x) = log Σ_y exp f_y(x) and g(x) = w·E(x) + b:

    minimise mean over U of sigmoid(−g)   subject to   mean over S of sigmoid(g) ≤ α = 0.05   (false alarms)
                                                       CE on S ≤ 2 × what it was before

by the augmented Lagrangian: each constraint c ≤ 0 adds λ·c + ρ/2·c² (or −λ²/2ρ where ρ·c + λ < 0), and after each
epoch, measured on all of S, λ grows by c and a violated constraint's ρ by half. Score: g(x), larger = more novel.

w and b are trained with the net, from where 5% of S have g > 0. Of the epochs the one is kept that calls most of the
batch novel when 5% of V are, which is the authors' criterion on a validation mixture. Theirs are 100 epochs, ours those
of the fine-tuning schedule.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import KNOWN, mean_of, with_batch
from erd.data.packed import Rows
from erd.nets import Classifier

FALSE_ALARMS = 0.05
TOLERANCE = 2.0
GROWTH = 1.5


@dataclass
class Constraint:
    """Something that is to be at most 0, as it enters an augmented Lagrangian."""

    multiplier: float = 0.0
    weight: float = 1.0

    def term(self, value: Tensor) -> Tensor:
        active = self.multiplier * value + self.weight / 2 * value**2
        return torch.where(
            self.weight * value + self.multiplier >= 0, active, -(self.multiplier**2) / (2 * self.weight)
        )

    def update(self, value: float) -> None:
        if self.weight * value + self.multiplier >= 0:
            self.multiplier += value
        else:
            self.multiplier -= self.multiplier / self.weight
        if value > 0:
            self.weight *= GROWTH


@method(
    "woods",
    paper="Katz-Samuels, Nakhleh, Nowak & Li, ICML 2022",
    formula="w · log Σ_y exp f_y(x) + b; calls U novel while few of S are and CE on S stays small",
    setting="semi-supervised",
    sees=("train", "val", "classifier", "batch"),
)
def fit(given: Given) -> Detector:
    model = copy.deepcopy(given.classifier)
    before = given.outputs(model, given.train.images)
    allowed = TOLERANCE * F.cross_entropy(before, given.train.labels).item()
    # A weight of the net, so that the training loop trains it.
    model.register_parameter("line", nn.Parameter(starting_line(before).to(given.device)))
    alarms, classify = Constraint(), Constraint()

    def novelty(outputs: Tensor) -> Tensor:
        scale, shift = model.get_parameter("line").to(outputs.device)
        return scale * outputs.logsumexp(1) + shift

    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        score, known = novelty(outputs), part == KNOWN
        false = mean_of(torch.sigmoid(score), known)
        error = mean_of(F.cross_entropy(outputs, labels, reduction="none"), known)
        missed = mean_of(torch.sigmoid(-score), ~known)
        return missed + alarms.term(false - FALSE_ALARMS) + classify.term(error - allowed)

    @torch.no_grad()
    def watch(model: Classifier) -> tuple[float, float]:
        """Once an epoch, so the multipliers are moved here too."""
        outputs = given.outputs(model, given.train.images)
        alarms.update(torch.sigmoid(novelty(outputs)).mean().item() - FALSE_ALARMS)
        classify.update(F.cross_entropy(outputs, given.train.labels).item() - allowed)
        val, batch = score(given.val.images), score(given.batch)
        found = (batch > val.quantile(1 - FALSE_ALARMS)).float().mean().item()
        return 1 - found, found

    @torch.no_grad()
    def score(images: Rows) -> Tensor:
        return novelty(given.outputs(model, images))

    given.fit(model, with_batch(given, given.batch), given.finetuning, loss=loss, watch=watch)
    return Detector(score)


def starting_line(outputs: Tensor) -> Tensor:
    """w and b with which g has the deviation 1 over known images and is above 0 for 5% of them."""
    energy = outputs.logsumexp(1)
    scale = 1 / energy.std().clamp_min(1e-6)
    return torch.stack([-scale, scale * energy.quantile(FALSE_ALARMS)])
