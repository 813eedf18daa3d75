"""Nets that begin with what others learned: heads on an encoder's features, and nets of timm trained whole."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from chains import do
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from erd.base import files
from erd.base.errors import UserError
from erd.nets import FEATURES, Classifier, build, encoders, uses_convolutions
from erd.nets import head as last_layer
from erd.nets.encoders import Encoder
from erd.nets.timm_nets import begin_with_pretrained
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.settings import schema
from erd.settings.schema import Settings

LITE = "timm:tf_efficientnet_lite0"


@pytest.fixture(scope="module")
def lite() -> Encoder:
    return encoders.load(size=64)


def resolved(*chosen: str) -> Settings:
    return configure.resolve(schema.load(None, chosen))


def pictures(channels: int, size: int = 64, count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=generator)


# ---------------------------------------------------------------------------------------------------- heads


@pytest.mark.parametrize(("name", "layers"), [("head", 1), ("head-mlp", 3)])
def test_a_head_sees_features_with_mean_0_and_spread_1(name: str, layers: int) -> None:
    drawn = torch.randn(200, 6, 1, 1, generator=torch.Generator().manual_seed(0))
    features = (drawn + 2) * torch.tensor([1.0, 50, 1e-3, 3, 3, 3]).view(1, 6, 1, 1)
    mean, std = features.mean((0, 2, 3)).tolist(), features.std((0, 2, 3)).tolist()
    model = build(name, channels=6, image_size=FEATURES, classes=3, seed=0, mean=mean, std=std)
    seen = model.normalised(features).flatten(1)
    torch.testing.assert_close(seen.mean(0), torch.zeros(6), rtol=0, atol=1e-3)
    torch.testing.assert_close(seen.std(0), torch.ones(6), rtol=1e-3, atol=0)
    assert model(features.half()).shape == (200, 3), "as they are stored"
    assert sum(isinstance(layer, nn.Linear) for layer in model.modules()) == layers
    assert not uses_convolutions(model)


def test_a_feature_that_never_varies_is_no_nan() -> None:
    model = build("head", channels=2, image_size=FEATURES, classes=2, seed=0, mean=[4.0, 0.0], std=[0.0, 1.0])
    seen = model.normalised(torch.tensor([[4.0, 1.0], [4.0, -1.0]]).view(2, 2, 1, 1))
    assert seen.flatten(1).tolist() == [[0, 1], [0, -1]]


def test_pixels_are_still_divided_by_255() -> None:
    images = pictures(1, 8)
    model = build("mlp", channels=1, image_size=8, classes=2, seed=0, mean=[0.5], std=[0.25])
    torch.testing.assert_close(model.normalised(images), (images / 255 - 0.5) / 0.25)


# ---------------------------------------------------------------------------------------------------- whole nets


@pytest.mark.parametrize("channels", [1, 3])
def test_a_net_of_timm_is_built_for_grey_and_for_colour(channels: int) -> None:
    model = build(LITE, channels=channels, image_size=64, classes=4, seed=0)
    before = torch.get_rng_state()
    logits = model(pictures(channels))
    logits.logsumexp(1).sum().backward()
    assert logits.shape == (3, 4)
    assert torch.isfinite(logits).all()
    assert torch.equal(before, torch.get_rng_state()), "nothing random when it runs"
    again, other = (build(LITE, channels=channels, image_size=64, classes=4, seed=seed) for seed in (0, 1))
    assert torch.equal(last_layer(again).weight, last_layer(model).weight)
    assert not torch.equal(last_layer(other).weight, last_layer(model).weight)


@torch.inference_mode()
def pooled(net: nn.Module, prepared: Tensor) -> Tensor:
    return net.forward_head(net.forward_features(prepared), pre_logits=True)  # type: ignore[operator]


def begun(channels: int, weights: Path | None = None) -> Classifier:
    model = build(LITE, channels=channels, image_size=64, classes=4, seed=0)
    begin_with_pretrained(model, LITE, weights, download=False)
    return model.eval()


@pytest.mark.parametrize("channels", [1, 3])
def test_it_begins_with_the_bundled_weights_and_sees_images_as_they_were_learned(lite: Encoder, channels: int) -> None:
    images = pictures(channels)
    model, drawn = begun(channels), build(LITE, channels=channels, image_size=64, classes=4, seed=0)
    prepared = (images.expand(-1, 3, -1, -1) / 255 - lite.mean) / lite.std
    expected = pooled(lite.net, prepared)
    torch.testing.assert_close(pooled(model.net, model.normalised(images)), expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(pooled(drawn.eval().net, drawn.normalised(images)), expected, rtol=1e-1, atol=1e-1)
    assert torch.equal(last_layer(model).weight, last_layer(drawn).weight), "the last layer is for other classes"


def test_it_begins_with_the_weights_of_a_file(tmp_path: Path, lite: Encoder) -> None:
    torch.save({name: tensor * 0 for name, tensor in lite.net.state_dict().items()}, tmp_path / "zeros.pth")
    model = begun(3, tmp_path / "zeros.pth")
    assert pooled(model.net, model.normalised(pictures(3))).abs().max() == 0
    torch.save({"some.weight": torch.zeros(3)}, tmp_path / "foreign.pth")
    with pytest.raises(UserError, match=r"foreign\.pth is not for the encoder 'tf_efficientnet_lite0'"):
        begun(3, tmp_path / "foreign.pth")


def test_what_timm_does_not_have_and_what_does_not_fit_are_each_a_sentence() -> None:
    with pytest.raises(UserError, match="there is no encoder 'tf_efficientnet_lite9': did you mean 'tf_efficientnet_"):
        resolved("model.net=timm:tf_efficientnet_lite9")
    with pytest.raises(UserError, match=r"takes images of 32 pixels and more: set data\.image_size"):
        build(LITE, channels=3, image_size=16, classes=2, seed=0)


def test_a_net_that_takes_one_size_only_is_a_sentence_for_another() -> None:
    with pytest.raises(UserError, match=r"timm:vit_tiny_patch16_224 takes images of 224 pixels"):
        build("timm:vit_tiny_patch16_224", channels=3, image_size=64, classes=2, seed=0)


def test_a_net_without_dropped_paths_is_built_too() -> None:
    model = build("timm:dla46x_c", channels=1, image_size=32, classes=2, seed=0)
    assert model(pictures(1, 32)).shape == (3, 2)


def test_a_whole_run_of_a_net_of_timm(tmp_path: Path) -> None:
    """48 pictures: two classes, and a third that is novel."""
    rng = np.random.default_rng(0)
    for name, step in (("narrow", 2), ("wide", 8), ("novel", 4)):
        (tmp_path / "files" / name).mkdir(parents=True)
        for number in range(16):
            wave = (np.arange(32) // step % 2 * 150 + 50)[None, :, None] + rng.normal(0, 15, (32, 32, 3))
            path = tmp_path / "files" / name / f"{number}.png"
            Image.fromarray(wave.clip(0, 255).astype(np.uint8)).save(path)
    settings = resolved(
        "data.scenario=own", "data.source=folder", f"data.path={tmp_path / 'files'}", "data.novel=[novel]",
        "data.image_size=32", f"model.net={LITE}", "pretrain.epochs=1", "finetune.epochs=1", "run.runner=serial",
        "data.batch_known=8", "data.batch_novel=8", "data.holdout_known=0", "data.holdout_novel=0",
        "data.train=20", "data.val=4", "data.calibration=4", "pretrain.threads=1",
    )  # fmt: skip
    assert (settings.encoder, settings.score.join) == (None, "none")
    run = RunDir(tmp_path / "runs" / "run")
    do(settings, run)
    metrics = json.loads(run.metrics.read_text())
    assert metrics["images"] == 16
    assert 0 <= metrics["auroc"] <= 1
    again = [done.reused for done in do(settings, run, "encode", "pretrain", "finetune", "score")]
    assert all(again)
    learned, own = (_stem(path) for path in (run.pretrained, run.member(0)))
    bundled = encoders.load().net.get_parameter("conv_stem.weight")
    assert F.cosine_similarity(learned.flatten(), bundled.flatten(), dim=0) > 0.9, "it began there"
    assert not torch.equal(learned, bundled), "and all weights are trained"
    assert not torch.equal(learned, own)


def _stem(path: Path) -> Tensor:
    tensors, _ = files.load_tensors(path)
    return next(tensor.float() for name, tensor in tensors.items() if name.endswith("conv_stem.weight"))


# ---------------------------------------------------------------------------------------------------- who sees what


def test_a_head_without_an_encoder_and_a_net_for_images_with_one_are_each_a_sentence() -> None:
    with pytest.raises(UserError, match=r"^the net 'head' sees features, and there is no encoder: set model\.encoder="):
        resolved("model.encoder=none", "model.net=head")
    with pytest.raises(UserError, match=r"^the net 'resnet20' sees images, and model\.encoder=tf_efficientnet_lite0 m"):
        resolved("model.encoder=tf_efficientnet_lite0", "model.net=resnet20")
    with pytest.raises(UserError, match=r"sees images, .*: set model\.encoder=none, or model\.net=head$"):
        resolved("model.encoder=tf_efficientnet_lite0", f"model.net={LITE}")


@pytest.mark.parametrize("chosen", [[], ["data.scenario=own", "model.encoder=none"], ["model.net=resnet20"]])
def test_neighbours_without_features_are_a_sentence(chosen: list[str]) -> None:
    with pytest.raises(UserError, match=r"^score\.join=neighbours needs the features of an encoder"):
        resolved("score.join=neighbours", *chosen)


@pytest.mark.parametrize(
    ("chosen", "encoder", "net", "join"),
    [
        (["data.scenario=own"], "tf_efficientnet_lite0", "head", "neighbours"),
        (["data.scenario=own", "model.encoder=none"], None, "resnet20", "none"),
        (["data.scenario=own", "model.net=resnet18"], None, "resnet18", "none"),
        (["data.scenario=own", "model.net=head-mlp"], "tf_efficientnet_lite0", "head-mlp", "neighbours"),
        ([], None, "mlp", "none"),
        (["model.net=head"], "tf_efficientnet_lite0", "head", "neighbours"),
        (["model.encoder=tf_efficientnet_lite1"], "tf_efficientnet_lite1", "head", "neighbours"),
    ],
)
def test_who_names_one_of_the_two_has_chosen_both(chosen: list[str], encoder: str | None, net: str, join: str) -> None:
    settings = resolved(*chosen)
    assert (settings.encoder, settings.model.net, settings.score.join) == (encoder, net, join)
