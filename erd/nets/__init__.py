"""The nets by name, and how one is built.

    model = build("resnet20", channels=3, image_size=32, classes=10, seed=0, mean=[.5, .5, .5], std=[.2, .2, .2])
    logits = model(images)                       # uint8, N×C×H×W
    build("head", channels=1432, image_size=FEATURES, …)         # features of an encoder: images of one pixel, N×D×1×1

A new net is one file in this folder: a function from channels, image size and classes to a module, entered into the
table with its recipes (erd/nets/registry.py). Nothing in it may be random when it runs (no dropout): members trained
side by side share torch's global generator and must not disturb each other.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from erd.base.errors import UserError
from erd.nets import registry

SMALLEST_IMAGE = 8
FEATURES = 1  # the image size of features: one pixel with many channels, of float numbers as they are
_drawing = threading.Lock()  # the layers draw from the global generator: one net at a time


class Classifier(nn.Module):
    """A net with its input normalisation inside: images as they are stored in, logits out."""

    mean: Tensor  # float32, 1×C×1×1, of pixel values 0..1; of features as they are
    std: Tensor
    scale: Tensor  # the same as one multiplication and one addition on pixel values 0..255
    shift: Tensor

    def __init__(self, net: nn.Module, channels: int, unit: float = 255.0) -> None:
        """`unit` is the number that a stored value of 1 has: 255 in images, 1 in features."""
        super().__init__()
        self.net, self.unit = net, unit
        self.made_of: dict[str, str | int] = {}  # the arguments of `build`, which a saved net records
        for name in ("mean", "std", "scale", "shift"):
            self.register_buffer(name, torch.empty(1, channels, 1, 1))
        self.normalise([0.0] * channels, [1.0] * channels)

    def normalise(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        """Set what the net sees as 0 and 1, per channel."""
        self.mean.copy_(torch.as_tensor(mean).view_as(self.mean))
        # A channel that never varies has std 0 and must not turn into NaN.
        self.std.copy_(torch.as_tensor(std).view_as(self.std)).clamp_(min=1 / 255 if self.unit > 1 else 1e-6)
        self.scale.copy_(1 / (self.unit * self.std))
        self.shift.copy_(-self.mean / self.std)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images with values 0..255, uint8 or float, or of features."""
        return self.net(self.normalised(images))

    def normalised(self, images: Tensor) -> Tensor:
        """What the net itself gets to see."""
        pixels = images.to(self.scale.dtype, copy=True)  # ours, so in place: 3 times as fast as torch.addcmul
        return pixels.mul_(self.scale).add_(self.shift)


def build(
    name: str,
    *,
    channels: int,
    image_size: int,
    classes: int,
    seed: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Classifier:
    """A fresh net, its weights drawn from `seed` alone; mean and std are per channel, of values 0..1."""
    builder = registry.get(name).build
    if image_size < SMALLEST_IMAGE and image_size != FEATURES:
        raise UserError(
            f"Images of {image_size}×{image_size} are too small; take {SMALLEST_IMAGE}×{SMALLEST_IMAGE} or more"
        )
    with _drawing, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed every GPU too
        net = builder(channels, image_size, classes)
        if not registry.get(name).pretrained:
            _initialise_he(net)
    model = Classifier(net, channels, unit=1.0 if image_size == FEATURES else 255.0)
    model.made_of = {"name": name, "channels": channels, "image_size": image_size, "classes": classes}
    model.normalise([0.0] * channels if mean is None else mean, [1.0] * channels if std is None else std)
    return model


def _initialise_he(net: nn.Module) -> None:
    """He et al.'s weights for convolutions; linear layers and batch norm keep torch's own (which are 1 and 0 there)."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def uses_convolutions(model: nn.Module) -> bool:
    """Whether `channels_last` pays."""
    return any(isinstance(layer, nn.Conv2d) for layer in model.modules())


def head(model: nn.Module) -> nn.Linear:
    """The last linear layer: features in, logits out."""
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]


def load_weights(model: Classifier, path: Path) -> list[str]:
    """Start from the weights in a local file, wherever name and shape fit; returns the names left as they were drawn.

    The layer for the classes is left so where their number differs. The file's normalisation, if any, is taken
    too: its weights were learned with it.
    """
    found = {_own_name(name): tensor for name, tensor in read_tensors(path).items()}
    own = model.state_dict()
    fitting = [name for name in own if name in found and found[name].shape == own[name].shape]
    # Old files have no counters of batches, and foreign ones no mean and std: nothing that was drawn.
    drawn = [name for name in own if name.startswith("net.") and not name.endswith("num_batches_tracked")]
    missing = [name for name in drawn if name not in fitting]
    if 2 * len(missing) > len(drawn):
        net = model.made_of.get("name", type(model.net).__name__)
        raise UserError(
            f"{path} is not for the net '{net}': only {len(drawn) - len(missing)} of its {len(drawn)} tensors fit"
        )
    for name in fitting:
        own[name].copy_(found[name])
    model.normalise(model.mean, model.std)
    return missing


def weights_file(path: str | None) -> Path | None:
    """The file that `model.weights` names, if it names one."""
    if path and not Path(path).is_file():
        raise UserError(f"there is no file of weights at {path}; correct model.weights")
    return Path(path) if path else None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The named tensors in a file, never running code that it may hold."""
    if not path.is_file():
        raise UserError(f"There is no file of weights at {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken file can raise nearly anything
        raise UserError(
            f"{path} is broken or holds more than tensors; save the net's state_dict and nothing else"
        ) from error
    for key in ("state_dict", "model", "net"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    tensors = content.items() if isinstance(content, Mapping) else []
    return {str(name): tensor for name, tensor in tensors if isinstance(tensor, Tensor)}


def _own_name(name: str) -> str:
    """Our name for a tensor: a run numbers its snapshots, others wrap their nets, torchvision keeps older names."""
    name = re.sub(r"^(0/|module\.|net\.)+", "", name)
    name = re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", name)
    name = name.replace(".downsample.", ".shortcut.")
    return name if name in ("mean", "std") else f"net.{name}"
