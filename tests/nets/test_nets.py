"""Every net takes every kind of image, is drawn from its seed alone, and starts from other people's files."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from erd.base.errors import RunError, UserError
from erd.nets import FEATURES, Classifier, build, head, load_weights, registry, uses_convolutions
from erd.training.loop import Fit
from erd.training.members import load_net, save_net

CHEAP = ["mlp", "resnet20"]
CASES = [
    *((name, size, channels) for name in CHEAP for size in (8, 9, 28, 32, 64) for channels in (1, 3)),
    *((name, size, channels) for name in ("resnet18", "vgg16") for size in (8, 28, 32) for channels in (1, 3)),
    *(("densenet121", size, channels) for size, channels in ((8, 1), (28, 3), (64, 1))),
    *(("wrn28_10", size, channels) for size, channels in ((8, 1), (28, 3))),
    *((name, FEATURES, 50) for name in ("head", "head-mlp")),
]
WEIGHTS = {"resnet20": 269_722, "resnet18": 11_173_962, "wrn28_10": 36_479_194, "vgg16": 14_728_266}


def pictures(channels: int = 3, size: int = 8, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=generator)


def fresh(name: str = "mlp", *, channels: int = 3, size: int = 8, classes: int = 4, seed: int = 0) -> Classifier:
    return build(name, channels=channels, image_size=size, classes=classes, seed=seed)


def same_weights(one: Classifier, other: Classifier) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(("name", "size", "channels"), CASES)
def test_logits_and_gradient_whatever_the_image(name: str, size: int, channels: int) -> None:
    model = fresh(name, channels=channels, size=size)
    before = torch.get_rng_state()
    logits = model(pictures(channels, size))
    logits.logsumexp(1).sum().backward()
    assert logits.shape == (2, 4)
    assert torch.isfinite(logits).all()
    first = next(model.parameters())
    assert first.grad is not None
    assert first.grad.abs().sum() > 0
    assert torch.equal(before, torch.get_rng_state()), "members side by side would disturb each other"


@pytest.mark.parametrize("name", ["mlp", "resnet20", "vgg16"])
def test_a_batch_of_one_can_be_trained_on(name: str) -> None:
    assert torch.isfinite(fresh(name)(pictures(count=1))).all()


def test_every_net_is_tested() -> None:
    assert {name for name, _, _ in CASES} == set(registry.table())


@pytest.mark.parametrize(("name", "expected"), WEIGHTS.items())
def test_number_of_weights(name: str, expected: int) -> None:
    with torch.device("meta"):  # counts without drawing
        net = registry.get(name).build(3, 32, 10)
    assert sum(weight.numel() for weight in net.parameters()) == expected


def test_number_of_weights_of_the_mlp() -> None:
    model = fresh("mlp", channels=1, size=28, classes=10)
    assert (
        sum(weight.numel() for weight in model.parameters()) == (784 + 1) * 100 + 2 * (100 + 1) * 100 + (100 + 1) * 10
    )


@pytest.mark.parametrize("name", [*CHEAP, "densenet121"])
def test_weights_come_from_the_seed_alone(name: str) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = fresh(name, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(1)
    assert same_weights(one, fresh(name, seed=3))
    assert not torch.equal(next(one.parameters()), next(fresh(name, seed=4).parameters()))


def test_convolutions_start_as_he_et_al_say() -> None:
    weight = fresh("resnet20").get_parameter("net.layer3.0.conv1.weight")  # 32 → 64 channels
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_small_vgg_never_convolves_a_single_pixel() -> None:
    sizes = []
    model = fresh("vgg16")
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(lambda _, inputs, __: sizes.append(inputs[0].shape[-1]))
    model(pictures())
    assert sizes == [8, 8, 4, 4, *[2] * 9]


def test_shortcut_without_weights_keeps_every_second_pixel() -> None:
    shortcut = fresh("resnet20").get_submodule("net.layer2.0.shortcut")
    x = torch.rand(1, 16, 9, 9)
    out = shortcut(x)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert out.shape == (1, 32, 5, 5)
    assert out[:, :8].count_nonzero() == out[:, 24:].count_nonzero() == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_normalisation_is_inside(dtype: torch.dtype) -> None:
    mean, std = [0.2, 0.5, 0.7], [0.1, 0.2, 0.3]
    model = build("mlp", channels=3, image_size=8, classes=4, seed=0, mean=mean, std=std)
    images = pictures().to(dtype)
    kept = images.clone()
    by_hand = (images / 255 - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    torch.testing.assert_close(model(images), model.net(by_hand))
    assert torch.equal(images, kept), "the caller's images were changed"


def test_gradient_reaches_float_images() -> None:
    images = pictures().float().requires_grad_()
    fresh()(images).logsumexp(1).sum().backward()
    assert images.grad is not None
    assert images.grad.abs().sum() > 0


def test_a_constant_channel_stays_finite() -> None:
    model = build("mlp", channels=1, image_size=8, classes=2, seed=0, mean=[0.0], std=[0.0])
    assert torch.isfinite(model(pictures(channels=1))).all()


def test_channels_last_is_kept_through_every_convolution() -> None:
    model = fresh("resnet20").to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    layouts = []
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(
                lambda _, inputs, __: layouts.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
            )
    model(pictures().contiguous(memory_format=torch.channels_last))
    assert len(layouts) == 19
    assert all(layouts)


def test_which_nets_convolve() -> None:
    plain = [name for name in registry.table() if name != "wrn28_10" and not uses_convolutions(fresh(name))]
    assert plain == ["head", "head-mlp", "mlp"]


@pytest.mark.parametrize("name", ["mlp", "resnet20", "vgg16", "densenet121"])
def test_head_gives_the_logits(name: str) -> None:
    model, outputs = fresh(name), []
    head(model).register_forward_hook(lambda _, __, output: outputs.append(output))
    logits = model(pictures())
    assert torch.equal(outputs[0], logits)


def test_unknown_net_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown net 'resnet21'.*'resnet20'"):
        fresh("resnet21")


def test_too_small_images_are_refused() -> None:
    with pytest.raises(UserError, match="7×7"):
        fresh(size=7)


def save(model: Classifier, path: Path) -> None:
    save_net(path, model, Fit([model.state_dict()]), {})


def test_saved_net_needs_nothing_else(tmp_path: Path) -> None:
    model = build("resnet20", channels=1, image_size=8, classes=3, seed=1, mean=[0.3], std=[0.2])
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the trainer has it
    model(pictures(1, count=4))  # moves the batch statistics
    save(model, tmp_path / "a.safetensors")
    save(model, tmp_path / "b.safetensors")
    again, _ = load_net(tmp_path / "a.safetensors")
    assert same_weights(model, again)
    assert torch.equal(model.eval()(pictures(1)), again.eval()(pictures(1)))
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_loading_something_else_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"not tensors")
    for path in (tmp_path / "none.safetensors", tmp_path / "x.safetensors"):
        with pytest.raises(RunError, match=path.name):
            load_net(path)


def test_weights_from_our_own_file(tmp_path: Path) -> None:
    trained = build("resnet20", channels=3, image_size=8, classes=4, seed=1, mean=[0.3] * 3, std=[0.2] * 3)
    save(trained, tmp_path / "w.safetensors")
    model = fresh("resnet20")
    assert load_weights(model, tmp_path / "w.safetensors") == []
    assert same_weights(model, trained)


@pytest.mark.parametrize("key", ["state_dict", "model", None])
@pytest.mark.parametrize("prefix", ["", "module.", "net.", "module.net."])
def test_weights_from_a_torch_file(tmp_path: Path, key: str | None, prefix: str) -> None:
    trained, model = fresh("resnet20", seed=1), fresh("resnet20")
    tensors = {prefix + name: tensor for name, tensor in trained.net.state_dict().items()}
    torch.save({key: tensors, "epoch": 3} if key else tensors, tmp_path / "w.pth")
    assert load_weights(model, tmp_path / "w.pth") == []
    assert same_weights(model, trained)


def test_head_for_other_classes_is_left_as_drawn(tmp_path: Path) -> None:
    trained, model, drawn = fresh("resnet20", classes=7, seed=1), fresh("resnet20"), fresh("resnet20")
    save(trained, tmp_path / "w.safetensors")
    assert load_weights(model, tmp_path / "w.safetensors") == ["net.linear.weight", "net.linear.bias"]
    assert torch.equal(head(model).weight, head(drawn).weight)
    assert torch.equal(model.get_parameter("net.conv1.weight"), trained.get_parameter("net.conv1.weight"))


def test_foreign_weights_leave_the_normalisation(tmp_path: Path) -> None:
    save_file(fresh("mlp", seed=1).net.state_dict(), tmp_path / "w.safetensors")
    model = build("mlp", channels=3, image_size=8, classes=4, seed=0, mean=[0.3] * 3, std=[0.2] * 3)
    before = model.scale.clone(), model.shift.clone()
    assert load_weights(model, tmp_path / "w.safetensors") == []
    assert torch.equal(model.scale, before[0])
    assert torch.equal(model.shift, before[1])


def test_densenet_starts_from_the_file_torchvision_publishes(tmp_path: Path) -> None:
    trained, model = fresh("densenet121", classes=5, seed=1), fresh("densenet121", channels=1)
    old = {
        re.sub(r"(denselayer\d+\.norm|denselayer\d+\.conv)(\d)", r"\1.\2", name): tensor
        for name, tensor in trained.net.state_dict().items()
        if not name.endswith("num_batches_tracked")  # files from before torch 0.4.1 have none
    }
    torch.save(old, tmp_path / "densenet121.pth")
    assert load_weights(model, tmp_path / "densenet121.pth") == ["net.classifier.weight", "net.classifier.bias"]


def test_weights_of_another_net_are_refused(tmp_path: Path) -> None:
    save(fresh("resnet20"), tmp_path / "w.safetensors")
    model, drawn = fresh("mlp"), fresh("mlp")
    with pytest.raises(UserError, match=r"w\.safetensors is not for the net 'mlp': only 0 of its 8 tensors fit"):
        load_weights(model, tmp_path / "w.safetensors")
    assert same_weights(model, drawn)


class Trap:
    """Stands for code in a pickle."""


@pytest.mark.parametrize("content", [Trap(), {"state_dict": Trap()}])
def test_a_file_with_python_objects_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"w\.pt is broken or holds more than tensors"):
        load_weights(fresh(), tmp_path / "w.pt")


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_broken_and_missing_files_are_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"no file of weights at .*w\."):
        load_weights(fresh(), tmp_path / name)
    (tmp_path / name).write_bytes(b"not weights")
    with pytest.raises(UserError, match=r"is broken") as raised:
        load_weights(fresh(), tmp_path / name)
    assert "\n" not in str(raised.value)
