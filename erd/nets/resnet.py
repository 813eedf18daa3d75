"""Residual nets for small images (He et al., CVPR 2016): `resnet20` is theirs, `resnet18` what ERD's authors ran.

Layers are named as in the widely copied CIFAR implementations, so that published weights fit.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from erd.nets.registry import net
from erd.settings import recipes


class Pad(nn.Module):
    """He et al.'s shortcut A: every second pixel, and zeros for the channels that are new; it has no weights."""

    def __init__(self, stride: int, new_channels: int) -> None:
        super().__init__()
        self.stride, self.before, self.after = stride, new_channels // 2, new_channels - new_channels // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """He et al.'s shortcut B: a learned 1×1 convolution."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, project: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = projection(inputs, outputs, stride) if project else Pad(stride, outputs - inputs)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """A 3×3 stem, a group of blocks per width (all but the first halve the image), the mean over pixels, one layer."""

    def __init__(self, channels: int, classes: int, widths: list[int], blocks: int, project: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.groups = []
        inputs = widths[0]
        for number, width in enumerate(widths, start=1):
            strides = [1 if number == 1 else 2] + [1] * (blocks - 1)
            group = [Block(width if i else inputs, width, stride, project) for i, stride in enumerate(strides)]
            self.add_module(f"layer{number}", nn.Sequential(*group))
            self.groups.append(f"layer{number}")
            inputs = width
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        for group in self.groups:
            x = self.get_submodule(group)(x)
        return self.linear(x.mean((2, 3)))


@net("resnet20", recipes.CONVOLUTIONAL_SMALL)
def resnet20(channels: int, image_size: int, classes: int) -> nn.Module:
    """He et al.'s net for CIFAR: 0.27M weights."""
    return ResNet(channels, classes, [16, 32, 64], blocks=3, project=False)


@net("resnet18", recipes.CONVOLUTIONAL)
def resnet18(channels: int, image_size: int, classes: int) -> nn.Module:
    """What ERD's authors call ResNet20: 11.2M weights."""
    return ResNet(channels, classes, [64, 128, 256, 512], blocks=2, project=True)
