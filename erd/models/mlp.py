"""The paper's net for small grey images: three hidden layers of 100."""

from itertools import pairwise

from torch import nn


def mlp(channels: int, image_size: int, classes: int) -> nn.Module:
    """Flat pixels through three hidden layers of 100 with ReLU."""
    widths = [channels * image_size**2, 100, 100, 100]
    hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(widths[-1], classes))
