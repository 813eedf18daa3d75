"""A transformer's weights from a file: torchvision's and timm's are read, others refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from erd import nets
from erd.base.errors import UserError
from erd.base.torchvision import torchvision
from erd.bench.detectors import Given, vit


def test_a_transformer_sees_what_torchvisions_own_sees(
    transformer: Path, given_to: Callable[..., Given], world: Any
) -> None:
    found = vit.ViT(given_to("vit-rmd", weights=transformer)).features(world.val.images)
    net = torchvision.models.VisionTransformer(
        image_size=16, patch_size=4, num_layers=2, num_heads=2, hidden_dim=128, mlp_dim=64, num_classes=7
    ).eval()
    net.load_state_dict(torch.load(transformer, weights_only=True))
    net.heads = nn.Identity()
    pixels = (world.val.images.images[:, None] / 255).expand(-1, 3, -1, -1)
    pixels = nn.functional.interpolate(pixels, size=(16, 16), mode="bicubic", antialias=True).clamp(0, 1)
    means, stds = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        expected = net((pixels - torch.tensor(means).view(3, 1, 1)) / torch.tensor(stds).view(3, 1, 1))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_weights_under_timms_names_are_the_same_net(
    transformer: Path, given_to: Callable[..., Given], tmp_path: Path
) -> None:
    content = torch.load(transformer, weights_only=True)
    names = [
        ("encoder.layers.encoder_layer_", "blocks."),
        ("self_attention.in_proj_", "attn.qkv."),
        ("self_attention.out_proj", "attn.proj"),
        ("ln_1", "norm1"),
        ("ln_2", "norm2"),
        ("mlp.0", "mlp.fc1"),
        ("mlp.3", "mlp.fc2"),
        ("encoder.ln", "norm"),
        ("encoder.pos_embedding", "pos_embed"),
        ("class_token", "cls_token"),
        ("conv_proj", "patch_embed.proj"),
        ("heads.head", "head"),
    ]
    renamed = {}
    for name, tensor in content.items():
        for ours, theirs in names:
            name = name.replace(ours, theirs)
        renamed[name] = tensor
    torch.save(renamed, tmp_path / "timm.pt")
    original, _, _, _ = vit.load(given_to("vit-rmd", weights=transformer))
    same, size, mean, _ = vit.load(given_to("vit-rmd", weights=tmp_path / "timm.pt"))
    assert (size, mean) == (16, [0.5] * 3)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(same(images), original(images))


@pytest.mark.parametrize("change", ["resnet", "shorter", "more", "none"])
def test_other_weights_are_refused_in_one_sentence(
    change: str, transformer: Path, given_to: Callable[..., Given], tmp_path: Path
) -> None:
    path = tmp_path / "weights.pt"
    content = torch.load(transformer, weights_only=True)
    if change == "resnet":
        content = nets.build("resnet20", channels=3, image_size=32, classes=2, seed=0).state_dict()
    elif change == "shorter":
        del content["encoder.layers.encoder_layer_1.ln_2.weight"]
    elif change == "more":
        content["encoder.layers.encoder_layer_1.scale"] = torch.ones(128)
    if change != "none":
        torch.save(content, path)
    with pytest.raises(UserError, match=r"weights\.pt"):
        vit.load(given_to("vit-rmd", weights=path))


def test_reading_weights_leaves_the_global_generator_alone(transformer: Path, given_to: Callable[..., Given]) -> None:
    before = torch.get_rng_state()
    vit.load(given_to("vit-rmd", weights=transformer))
    assert torch.equal(before, torch.get_rng_state())
