"""A vision transformer that has learned from other images, looked at in three ways (Fort et al. 2021).

The file of weights is a state dict (.pt, .pth or .safetensors) of a plain ViT with a class token under torchvision's
names (`vit_b_16` and its like) or timm's (e.g. `vit_base_patch16_224.augreg_in21k`); its shapes decide depth, width,
patch and image size.

The class token after the last norm is the feature h(x); images are enlarged to the size the net was trained with, grey
ones become three equal channels. The paper on ERD fine-tunes the whole ViT-S/16 (ImageNet-21k) on S; here only what is
on top is learned: a linear softmax layer, or Gaussians.
"""

import math
import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erd import nets
from erd.base.errors import UserError
from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.layers import Gaussians, relative, softmax_layer, some
from erd.data.packed import Rows
from erd.training.batches import Mixture, in_order

BATCH = 64
KNOWN = 10_000  # images of S to learn from at most: one core gets through less than one a second with a ViT-B/16
HEAD_WIDTH = 64  # of all ViTs but the huge one; shapes do not tell
TIMM = {  # its names → torchvision's
    r"^cls_token$": "class_token",
    r"^pos_embed$": "encoder.pos_embedding",
    r"^patch_embed\.proj\.": "conv_proj.",
    r"^blocks\.(\d+)\.": r"encoder.layers.encoder_layer_\1.",
    r"\.norm([12])\.": r".ln_\1.",
    r"\.attn\.qkv\.": ".self_attention.in_proj_",
    r"\.attn\.proj\.": ".self_attention.out_proj.",
    r"\.mlp\.fc1\.": ".mlp.0.",
    r"\.mlp\.fc2\.": ".mlp.3.",
    r"^norm\.": "encoder.ln.",
}
PAPER = "Fort et al., NeurIPS 2021"


@method(
    "vit-max-softmax",
    paper=PAPER,
    formula="1 − max_y softmax(W h(x) + b)_y,  h of a pretrained ViT",
    setting="pretrained",
    sees=("train", "weights"),
)
def max_softmax(given: Given) -> Detector:
    vit = ViT(given)
    seen, labels = known(given, vit)
    mean, std = seen.mean(0), seen.std(0).clamp_min(1e-6)
    unsure = softmax_layer((seen - mean) / std, labels)
    return Detector(lambda images: unsure((vit.features(images) - mean) / std))


@method(
    "vit-mahalanobis",
    paper=PAPER + "; Lee et al., NeurIPS 2018",
    formula="min_y (h(x) − μ_y)ᵀ Σ⁻¹ (h(x) − μ_y),  h of a pretrained ViT",
    setting="pretrained",
    sees=("train", "weights"),
)
def mahalanobis(given: Given) -> Detector:
    vit = ViT(given)
    classes = Gaussians.of(*known(given, vit))
    return Detector(lambda images: classes.nearest(vit.features(images)))


@method(
    "vit-rmd",
    paper=PAPER + "; Ren et al., 2021",
    formula="min_y (h(x) − μ_y)ᵀ Σ⁻¹ (h(x) − μ_y) − (h(x) − μ)ᵀ Σ₀⁻¹ (h(x) − μ)",
    setting="pretrained",
    sees=("train", "weights"),
)
def relative_mahalanobis(given: Given) -> Detector:
    vit = ViT(given)
    seen, labels = known(given, vit)
    classes, background = Gaussians.of(seen, labels), Gaussians.of(seen)
    return Detector(lambda images: relative(classes, background, vit.features(images)))


class ViT:
    """The net in the file of weights, without its last layer."""

    def __init__(self, given: Given) -> None:
        self.device = given.device
        self.net, self.size, mean, std = load(given)
        self.mean, self.std = (torch.tensor(values, device=given.device).view(1, 3, 1, 1) for values in (mean, std))

    @torch.no_grad()
    def features(self, images: Rows) -> Tensor:
        batches = in_order(Mixture(images, device=self.device), BATCH)
        return torch.cat([self.net(self._fit(batch)).cpu() for batch in batches])

    def _fit(self, images: Tensor) -> Tensor:
        pixels = images.float().div(255).expand(-1, 3, -1, -1)
        pixels = F.interpolate(pixels, size=(self.size, self.size), mode="bicubic", antialias=True)
        return (pixels.clamp(0, 1) - self.mean) / self.std


def load(given: Given) -> tuple[nn.Module, int, list[float], list[float]]:
    """The net, the size of its images, and what it expects them to be normalised with."""
    from erd.base.torchvision import torchvision  # seconds to import

    found = nets.read_tensors(given.weights)
    theirs = "cls_token" in found
    if theirs:
        for old, new in TIMM.items():
            found = {re.sub(old, new, name): tensor for name, tensor in found.items()}
    found = {name: tensor for name, tensor in found.items() if not name.startswith(("head", "pre_logits."))}
    try:
        width, _, patch, _ = found["conv_proj.weight"].shape
        side = math.isqrt(found["encoder.pos_embedding"].shape[1] - 1)
        with torch.device("meta"):  # nothing is drawn at random: every weight comes from the file
            net = torchvision.models.VisionTransformer(
                image_size=side * patch,
                patch_size=patch,
                num_layers=sum(name.endswith("in_proj_weight") for name in found),
                num_heads=16 if width == 1280 else max(1, width // HEAD_WIDTH),
                hidden_dim=width,
                mlp_dim=len(found["encoder.layers.encoder_layer_0.mlp.0.bias"]),
            )
        net.heads = nn.Identity()
        net.load_state_dict(found, assign=True)
    except (KeyError, RuntimeError, ValueError, AssertionError) as error:
        accepted = "torchvision's vit_b_16 and its like, or timm's vit_base_patch16_224 and its like"
        raise UserError(f"{given.weights} is no vision transformer that can be read: take {accepted}") from error
    # torchvision's were trained with ImageNet's statistics, timm's on ImageNet-21k with values −1..1.
    mean, std = ([0.5] * 3, [0.5] * 3) if theirs else ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return net.float().eval().to(given.device), side * patch, mean, std


def known(given: Given, vit: ViT) -> tuple[Tensor, Tensor]:
    """Features and labels of S, or of some of it."""
    images, chosen = some(given.train.images, KNOWN, given.generator("known"))
    return vit.features(images), given.train.labels[chosen]
