"""DenseNet-121 (Huang et al., CVPR 2017) as torchvision has it, for images of any size, grey or colour."""

import torch.nn.functional as F
from torch import Tensor, nn

from erd.nets.registry import net
from erd.settings import recipes

SMALLEST = 32  # the net halves the image five times


def _fit(net: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    """Grey becomes three equal channels, since ImageNet weights expect three; small images are enlarged."""
    (x,) = inputs
    if x.shape[1] == 1:
        x = x.expand(-1, 3, -1, -1)
    if x.shape[-1] < SMALLEST:
        x = F.interpolate(x, size=(SMALLEST, SMALLEST), mode="bilinear", align_corners=False)
    return x


@net("densenet121", recipes.DENSENET)
def densenet121(channels: int, image_size: int, classes: int) -> nn.Module:
    """torchvision's net, its weights under the same names; 7.0M weights."""
    from erd.base.torchvision import torchvision  # seconds to import, and needed by this net only

    net = torchvision.models.densenet121(num_classes=classes)
    net.register_forward_pre_hook(_fit)
    return net
