"""Heads on the features of a frozen encoder (`model.encoder`): what is learned of a user's own images.

"head" is one linear layer, "head-mlp" has two hidden layers of 256. Features that are already good leave little to
learn: of members with hidden layers each forgets S in its own way, and that is a disagreement on known images too.
docs/results.md has both on every set.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from erd.nets import Classifier
from erd.nets.mlp import MLP
from erd.nets.registry import net
from erd.settings import recipes

ALIGNED = 16  # float32 numbers in 64 bytes


@net("head", recipes.HEAD, on_features=True)
def head(channels: int, image_size: int, classes: int) -> nn.Module:
    return MLP(nn.Flatten(), nn.Linear(channels * image_size**2, classes))


@net("head-mlp", recipes.HEAD, on_features=True)
def head_mlp(channels: int, image_size: int, classes: int) -> nn.Module:
    widths = [channels * image_size**2, 256, 256]
    hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return MLP(nn.Flatten(), *hidden, nn.Linear(widths[-1], classes))


class Stack:
    """Several nets of one linear layer as one: their weights in one tensor, which is theirs from now on, their products
    batched. `parameters` are those of each, for an optimizer of its own.

    Features come as n×images×`width`, and the one after the last is 1: its weight is the bias. Images are the columns
    of what is computed: products of few classes and many features take two thirds of the time then.

    Each net gets the bits that it gets alone, as long as the number of images is the same and a multiple of `ALIGNED`,
    as the width is: where numbers begin in memory decides in which order the library for products adds.
    """

    @torch.no_grad()
    def __init__(self, models: Sequence[Classifier]) -> None:
        layers = [layer for model in models for layer in model.modules() if isinstance(layer, nn.Linear)]
        features, classes = layers[0].in_features, layers[0].out_features
        self.width = width_of(features)
        self.weights = layers[0].weight.new_zeros(len(models), classes, self.width)
        self.slopes = torch.zeros_like(self.weights)
        self.parameters: list[Parameter] = []
        for layer, weights, slopes in zip(layers, self.weights, self.slopes, strict=True):
            layer.weight.data = weights[:, :features].copy_(layer.weight)
            layer.bias.data = weights[:, features].copy_(layer.bias)
            self.parameters.append(Parameter(weights))
            self.parameters[-1].grad = slopes

    def log_softmax(self, features: Tensor) -> Tensor:
        """n×classes×images."""
        return torch.bmm(self.weights, features.transpose(1, 2)).log_softmax(1)

    def gradients(self, features: Tensor, target: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Of the cross-entropy, in which each image has its share; what `judged` says of each."""
        log_softmax = self.log_softmax(features)
        classes = torch.arange(log_softmax.shape[1], device=target.device)[:, None]
        slope = log_softmax.exp().sub_((target[:, None] == classes).float()).mul_(share[:, None])
        torch.bmm(slope, features, out=self.slopes)
        return judged(log_softmax, target)


def width_of(features: int) -> int:
    """Of their rows in a `Stack`: they, the 1, and zeros."""
    return filled(features + 1)


def filled(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED


def judged(log_softmax: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each image, and whether no class is likelier than its own: n×images."""
    own = log_softmax.gather(1, target[:, None])[:, 0]
    return -own, own >= log_softmax.amax(1)
