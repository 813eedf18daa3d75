"""Heads on features, several trained at once: members, and the folds of each, as one batched product a step.

    fits = fit_together([Task(model, train, generator), …], val, recipe)

What `loop.fit` gives one after another, up to rounding: the same minibatches, of a generator for each. But of a head's
step more than half is overhead, which all share here, and so they do the features, which are made ready once.

The bytes of a net do not depend on what is trained beside it. All products have one shape, since the last minibatch of
an epoch is filled up with images that weigh nothing; what follows is done image by image, or net by net; and the
optimizer gets the weights of each as a tensor of its own, of those alone that have a minibatch.

There is no checkpoint: all of it takes seconds, and one that was killed begins again and ends in the same bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from erd import nets
from erd.data.packed import Rows
from erd.nets import FEATURES, Classifier, registry
from erd.nets.heads import Stack, filled, judged, width_of
from erd.nets.mlp import MLP
from erd.training import devices, optimizers
from erd.training.batches import Mixture, to_nchw
from erd.training.loop import EVAL_BATCH, Examples, Fit, Recipe, goes_on, keep, record_of
from erd.training.optimizers import Optimizer

KEPT = 1 << 29  # bytes of features that are kept as float32; of more a minibatch is converted at each step
AT_ONCE = 1 << 22  # bytes of minibatches in a step: more leave the cache, and win nothing


@dataclass(frozen=True)
class Task:
    """A net, all that it learns from, and what decides the order."""

    model: Classifier
    train: Examples  # its images on the CPU, whatever the device: those that tasks share are held once
    generator: torch.Generator


def possible(net: str, recipe: Recipe) -> bool:
    """Whether nets of this name are trained so: one linear layer on features. A running average over steps is left to
    the loop, and what features do not have: augmentation, bfloat16, graphs."""
    if not registry.get(net).on_features or recipe.keep == "ema" or recipe.augment or recipe.graphs:
        return False
    layers = nets.build(net, channels=1, image_size=FEATURES, classes=1, seed=0).net
    return isinstance(layers, MLP) and len(layers) == 2 and recipe.precision != "bfloat16"


@torch.no_grad()
def fit_together(
    tasks: Sequence[Task], val: Examples, recipe: Recipe, on_epoch: Callable[[int], None] = lambda done: None
) -> list[Fit]:
    """The nets are trained in place. `on_epoch` is told how many epochs are done, those of each net counted."""
    found: list[Fit] = []
    with devices.threads(1):  # another number adds in another order, and these steps are too small to share
        pool = Pool(tasks[0].model, [*(task.train.images for task in tasks), val.images])
        rounds = math.ceil(len(tasks) / max(1, AT_ONCE // (4 * filled(recipe.batch_size) * pool.width)))
        for number in range(rounds):
            some = slice(len(tasks) * number // rounds, len(tasks) * (number + 1) // rounds)
            together = _Together(tasks[some], pool.places[some], pool, recipe)
            while going := together.going():
                together.epoch(going, pool.places[-1], val.labels)
                on_epoch(sum(len(fit.history) for fit in (*found, *together.fits)))
            found += together.fits
    return found


class Pool:
    """All images that some mixtures have, each once, as the nets see them; `places` are those of each mixture."""

    def __init__(self, model: Classifier, mixtures: Sequence[Mixture]) -> None:
        parts = [part for mixture in mixtures for part in mixture.sets]
        files = {id(part.images): part.images for part in parts}
        starts = dict(zip(files, accumulate(map(len, files.values()), initial=0), strict=False))
        rows = [starts[id(part.images)] + (torch.arange(len(part)) if part.rows is None else part.rows)
                for part in parts]  # fmt: skip
        self.used, places = torch.cat(rows).unique(return_inverse=True)
        self.model, self.whole = model, Mixture(*map(Rows, files.values()))
        self.device, self.features = model.mean.device, model.mean.numel()
        self.places = [mine.to(self.device) for mine in places.split([len(mixture) for mixture in mixtures])]
        self.width = width_of(self.features)
        self.kept: Tensor | None = None
        if len(self.used) * self.width * 4 <= KEPT:
            kept = self.room(len(self.used))
            for some in torch.arange(len(kept)).split(EVAL_BATCH):
                self.take(some, kept[some[0] :])
            self.kept = kept

    def room(self, count: int) -> Tensor:
        """For so many of them, as a `Stack` takes them."""
        room = torch.zeros(count, self.width, device=self.device)
        room[:, self.features] = 1
        return room

    def take(self, places: Tensor, room: Tensor) -> Tensor:
        """The room, with these at its beginning."""
        if self.kept is not None:
            torch.index_select(self.kept, 0, places, out=room[: len(places)])
        else:
            images = self.whole.take(self.used[places.cpu()]).to(self.device)
            room[: len(places), : self.features] = self.model.normalised(to_nchw(images)).flatten(1)
        return room


class _Together:
    """Nets that take their steps at the same time."""

    def __init__(self, tasks: Sequence[Task], places: Sequence[Tensor], pool: Pool, recipe: Recipe) -> None:
        self.tasks, self.places, self.pool, self.recipe = tasks, places, pool, recipe
        self.fits = [Fit() for _ in tasks]
        self.stack = Stack([task.model for task in tasks])
        self.optimizers = [
            Optimizer([weights], recipe.optimizer, lr=recipe.lr, momentum=recipe.momentum,
                      weight_decay=recipe.weight_decay)
            for weights in self.stack.parameters
        ]  # fmt: skip
        self.room = pool.room(len(tasks) * filled(recipe.batch_size))
        self.labels = [task.train.labels.to(pool.device) for task in tasks]
        self.parts = [task.train.parts().to(pool.device) for task in tasks]

    def going(self) -> list[int]:
        """Those that learn on."""
        return [number for number, fit in enumerate(self.fits) if goes_on(fit, self.recipe)]

    def epoch(self, going: Sequence[int], watched: Tensor, labels: Tensor) -> None:
        for number in going:
            self.optimizers[number].lr = self.recipe.lr_at(len(self.fits[number].history))
        images = self._minibatches(going)
        there = images >= 0
        share = there / there.sum(2, keepdim=True).clamp(min=1)
        # Where there is no image, the last one stands and weighs nothing.
        places, target = (torch.stack([of[images[:, i]] for i, of in enumerate(each)], 1)
                          for each in (self.places, self.labels))  # fmt: skip
        seen = []
        for step, learning in enumerate(there.any(2).tolist()):
            features = self.pool.take(places[step].flatten(), self.room).view(*target[step].shape, -1)
            seen.append(self.stack.gradients(features, target[step], share[step]))
            optimizers.step([self.optimizers[number] for number in going if learning[number]])
        losses, hits = (torch.stack(each) for each in zip(*seen, strict=True))
        evaluated = self._evaluate(watched, labels)
        for number in going:
            fit, task, own = self.fits[number], self.tasks[number], there[:, number]
            hit = torch.zeros_like(self.labels[number], dtype=torch.bool)
            hit[images[:, number][own]] = hits[:, number][own]
            loss = losses[:, number][own].sum().item()
            fit.history.append(record_of(fit, loss, hit, self.parts[number], task.train.part_names, *evaluated[number]))
            keep(fit, task.model, self.recipe)

    def _minibatches(self, going: Sequence[int]) -> Tensor:
        """Which of its images each net sees at each step, as in `batches.shuffled`: steps×nets×images, filled up with
        −1. One image that would be left over alone waits for the next epoch."""
        size = self.recipe.batch_size
        counts = [len(places) for places in self.places]
        found = torch.full((math.ceil(max(counts) / size), len(counts), filled(size)), -1)
        for number in going:
            order = torch.randperm(counts[number], generator=self.tasks[number].generator)
            several = order[:-1] if counts[number] % size == 1 and size > 1 else order
            filled_up = F.pad(several, (0, len(found) * size - len(several)), value=-1)
            found[:, number, :size] = filled_up.view(-1, size)
        return found[found.amax((1, 2)) >= 0].to(self.pool.device)

    def _evaluate(self, watched: Tensor, labels: Tensor) -> list[tuple[float, float]]:
        """Mean cross-entropy and accuracy of each."""
        parts = []
        for places in watched.split(EVAL_BATCH):
            features = self.pool.take(places, self.pool.room(filled(len(places))))
            parts.append(self.stack.log_softmax(features.expand(len(self.tasks), -1, -1))[..., : len(places)])
        target = labels.to(self.pool.device).expand(len(self.tasks), -1)
        losses, hits = judged(torch.cat(parts, 2), target)
        return [(loss.mean().item(), hit.sum().item() / len(labels)) for loss, hit in zip(losses, hits, strict=True)]
