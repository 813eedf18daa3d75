"""Looking into nets: the layers of each, and Gaussians on what they give, against other code and by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from erd import nets
from erd.bench.detectors import Given
from erd.bench.detectors.shared import layers as inside
from erd.data.packed import Rows
from erd.nets import registry
from erd.training.features import penultimate


def layered_features(world: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels stand for features: what they are makes no difference to the formulas. Dead ones are left out."""
    train, novel = world.train.images.images.flatten(1).float(), world.holdout_novel.images.flatten(1).float()
    alive = train.std(0) > 20
    return train[:, alive] / 255, world.train.labels, novel[:, alive] / 255


def test_mahalanobis_distances_are_those_of_pytorch_ood_times_twice_the_images(world: Any) -> None:
    from pytorch_ood.detector import Mahalanobis  # type: ignore[import-untyped]

    seen, labels, asked = layered_features(world)
    theirs = Mahalanobis(None).fit_features(seen, labels).predict_features(asked)
    # Theirs is half the distance, and their covariance is not divided by N.
    ours = inside.Gaussians.of(seen, labels, shrinkage=0.0).nearest(asked)
    torch.testing.assert_close(ours, 2 * len(seen) * theirs.double(), rtol=1e-3, atol=0.0)


def test_relative_distances_are_those_of_pytorch_ood(world: Any) -> None:
    from pytorch_ood.detector import RMD

    seen, labels, asked = layered_features(world)
    theirs = RMD(None).fit_features(seen, labels).predict_features(asked)
    classes, background = (inside.Gaussians.of(seen, y, shrinkage=0.0) for y in (labels, None))
    ours = inside.relative(classes, background, asked)
    torch.testing.assert_close(ours, len(seen) * theirs.double(), rtol=1e-2, atol=0.05)


def test_input_noise_moves_images_as_in_pytorch_ood(given_to: Callable[..., Given], world: Any) -> None:
    from pytorch_ood.detector import MahalanobisODIN

    given = given_to("mahalanobis")
    distances = inside.LayerDistances.of(given, given.classifier, given.train)
    for number, (layer, fit) in enumerate(zip(distances.inside, distances.gaussians, strict=True)):

        def encoder(images: Tensor, layer: nn.Module = layer) -> Tensor:
            return inside.activations(given.classifier, images, [layer])[1][0]

        theirs = MahalanobisODIN(encoder, eps=255 * 0.01)
        theirs._base.mu = fit.means.float()
        theirs._base.precision = (fit.whitening @ fit.whitening.T).float()
        images = world.holdout_novel
        expected = 2 * theirs.predict(images.images[:, None].float()).double()
        found = distances(images, noise=0.01)[:, number]
        assert torch.isclose(found, expected, rtol=1e-2).double().mean() > 0.98  # a gradient near 0 may change its sign
        assert (found < distances(images)[:, number]).double().mean() > 0.95


def test_gaussians_by_hand() -> None:
    seen = torch.tensor([[0.0, 0.0], [2.0, 0.0], [10.0, 3.0], [10.0, 5.0]])
    gaussians = inside.Gaussians.of(seen, torch.tensor([0, 0, 1, 1]), shrinkage=0.0)
    # Means (1, 0) and (10, 4); deviations ±1 along x, twice, and ±1 along y, twice: Σ = diag(½, ½)
    torch.testing.assert_close(gaussians.means, torch.tensor([[1.0, 0.0], [10.0, 4.0]], dtype=torch.float64))
    expected = torch.tensor([[2 * (9.0 + 16.0), 2 * 36.0]], dtype=torch.float64)
    torch.testing.assert_close(gaussians.distances(torch.tensor([[4.0, 4.0]])), expected)


def test_a_unit_that_is_dead_on_train_neither_breaks_distances_nor_goes_unseen() -> None:
    seen = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    seen[:, 2] = 0
    gaussians = inside.Gaussians.of(seen)
    quiet, awake = gaussians.nearest(torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    assert math.isfinite(awake)
    assert awake > quiet + 1
    assert inside.Gaussians.of(torch.ones(5, 3)).nearest(torch.ones(2, 3)).tolist() == [0, 0]  # nothing varies at all


def test_fewer_images_than_features_give_distances_that_tell(world: Any) -> None:
    seen, _, asked = layered_features(world)
    far = inside.Gaussians.of(seen[:20]).nearest(torch.cat([seen[20:60], 10 * asked[:40]]))
    assert far[40:].min() > far[:40].max()


@pytest.mark.parametrize("name", registry.table())
def test_every_net_can_be_looked_into(name: str, given_to: Callable[..., Given]) -> None:
    net = nets.build(name, channels=1, image_size=8, classes=5, seed=0).eval()
    images = torch.randint(0, 256, (6, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    given = given_to("knn", classifier=net)
    stages, layers = inside.stages(net), inside.layers(net)
    least = 1 if registry.get(name).on_features else 3  # a head may be one linear layer
    assert least <= len(stages) <= len(layers)
    assert all(any(stage is layer for layer in layers) for stage in stages)
    for seen in inside.features(given, net, Rows(images), stages):
        assert seen.shape[0] == 6
        assert seen.ndim == 2
        assert seen.isfinite().all()
    last = penultimate(net, Rows(images))
    torch.testing.assert_close(nets.head(net)(last), net(images[:, None]), atol=1e-4, rtol=1e-4)
    assert not net.net._forward_hooks
    assert not any(layer._forward_hooks for layer in layers)


def test_an_mlp_shows_its_hidden_layers_after_the_relu(given_to: Callable[..., Given], world: Any) -> None:
    given = given_to("knn")
    seen = inside.features(given, given.classifier, world.val.images, inside.stages(given.classifier))
    assert [tuple(layer.shape) for layer in seen] == [(100, 100)] * 3
    assert all(layer.min() == 0 for layer in seen)
    torch.testing.assert_close(seen[-1], penultimate(given.classifier, world.val.images))
