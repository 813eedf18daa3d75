"""Heads on the features of a frozen encoder (`model.encoder`): what is learned of a user's own images.

"head" is one linear layer, "head-mlp" has two hidden layers of 256. Features that are already good leave little to
learn: of members with hidden layers each forgets S in its own way, and that is a disagreement on known images too.
docs/results.md has both on every set.
"""

from itertools import pairwise

from torch import nn

from erd.nets.mlp import MLP
from erd.nets.registry import net
from erd.settings import recipes


@net("head", recipes.HEAD, on_features=True)
def head(channels: int, image_size: int, classes: int) -> nn.Module:
    return MLP(nn.Flatten(), nn.Linear(channels * image_size**2, classes))


@net("head-mlp", recipes.HEAD, on_features=True)
def head_mlp(channels: int, image_size: int, classes: int) -> nn.Module:
    widths = [channels * image_size**2, 256, 256]
    hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return MLP(nn.Flatten(), *hidden, nn.Linear(widths[-1], classes))
