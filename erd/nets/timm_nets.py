"""Any net of timm with all its weights trained: `model.net: timm:NAME`, from pretrained weights where there are some.

For GPUs: an epoch over 2,000 images of 224 pixels takes minutes on two cores, where a head on the features of the same
net, frozen, takes a second. The weights are those of an encoder of that name (erd/nets/encoders.py): bundled, from the
file `model.weights`, or from the hub with `data.download: true`.
"""

import functools
from pathlib import Path

import torch
from torch import Tensor, nn

from erd.base.errors import UserError
from erd.nets import Classifier, encoders
from erd.nets.registry import PREFIX, Net
from erd.settings import recipes


@functools.cache
def of(name: str) -> Net:
    """The net `timm:NAME`."""
    encoders.check_name(name.removeprefix(PREFIX))
    return Net(name, functools.partial(build, name.removeprefix(PREFIX)), recipes.PRETRAINED, code=__name__)


def build(name: str, channels: int, image_size: int, classes: int) -> nn.Module:
    """Nothing random when it runs: no dropout, no dropped paths."""
    if image_size < encoders.SMALLEST:
        raise UserError(f"timm:{name} takes images of {encoders.SMALLEST} pixels and more: set data.image_size")
    if encoders.takes_one_size(name) and image_size != encoders.own_size(name):
        own = encoders.own_size(name)
        raise UserError(f"timm:{name} takes images of {own} pixels only: set data.image_size={own}")
    create = functools.partial(
        encoders.timm().create_model, name, in_chans=channels, num_classes=classes, drop_rate=0.0
    )
    try:
        return create(drop_path_rate=0.0)
    except TypeError:
        return create()


def begin_with_pretrained(model: Classifier, name: str, weights: Path | None, *, download: bool) -> None:
    """Pretrained weights in place of drawn ones, but for the last layer; and the normalisation they were learned with.

    A grey image has one channel: the first layer gets the sum over its three, as timm does it.
    """
    encoder = encoders.load(name.removeprefix(PREFIX), weights=weights, download=download)
    own, found = model.net.state_dict(), encoder.net.state_dict()
    for key, tensor in found.items():
        if key in own and (fitting := _fitting(tensor, own[key])) is not None:
            own[key].copy_(fitting)
    channels = model.mean.shape[1]
    model.normalise(encoder.mean.flatten()[:channels], encoder.std.flatten()[:channels])


def _fitting(tensor: Tensor, wanted: Tensor) -> Tensor | None:
    if tensor.shape == wanted.shape:
        return tensor
    grey = tensor.ndim == 4 and wanted.ndim == 4 and tensor.shape[1] == 3 and wanted.shape[1] == 1
    if grey and tensor.shape[0] == wanted.shape[0] and tensor.shape[2:] == wanted.shape[2:]:
        return torch.sum(tensor, 1, keepdim=True)
    return None
