"""Wide residual net (Zagoruyko & Komodakis, BMVC 2016), 28 layers deep and 10 times as wide, without dropout."""

import torch.nn.functional as F
from torch import Tensor, nn

from erd.nets.registry import net
from erd.settings import recipes


class Block(nn.Module):
    """Batch norm and ReLU before each 3×3 convolution; where the shape changes, the shortcut shares the first."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x), inplace=True)
        out = self.conv2(F.relu(self.bn2(self.conv1(active)), inplace=True))
        return out + (x if self.shortcut is None else self.shortcut(active))


@net("wrn28_10", recipes.CONVOLUTIONAL)
def wrn28_10(channels: int, image_size: int, classes: int) -> nn.Module:
    """A 3×3 stem, three groups of four blocks, the mean over pixels, one layer: 36.5M weights."""
    widths = [16, 160, 320, 640]
    groups = [
        nn.Sequential(Block(i, o, stride), *(Block(o, o, 1) for _ in range(3)))
        for i, o, stride in zip(widths, widths[1:], [1, 2, 2], strict=False)
    ]
    return nn.Sequential(
        nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
        *groups,
        nn.BatchNorm2d(widths[-1]),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], classes),
    )
