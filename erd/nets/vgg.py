"""VGG16 (Simonyan & Zisserman, ICLR 2015) for small images: batch norm, no dropout, one linear layer on top."""

from torch import Tensor, nn

from erd.nets.registry import net
from erd.settings import recipes

STAGES = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]  # width, convolutions


class VGG16(nn.Module):
    """`features` counts its layers as torchvision's vgg16_bn does, so that its weights fit."""

    def __init__(self, channels: int, image_size: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        size, inputs = image_size, channels
        for number, (width, convolutions) in enumerate(STAGES, start=1):
            for _ in range(convolutions):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                inputs = width
            # Images keep two pixels a side until the last pooling: on one pixel a 3×3 convolution sees only padding.
            if size >= 4 or number == len(STAGES):
                layers.append(nn.MaxPool2d(2))
                size //= 2
            else:
                layers.append(nn.Identity())
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


@net("vgg16", recipes.CONVOLUTIONAL)
def vgg16(channels: int, image_size: int, classes: int) -> nn.Module:
    """Thirteen convolutions and one linear layer: 14.7M weights."""
    return VGG16(channels, image_size, classes)
