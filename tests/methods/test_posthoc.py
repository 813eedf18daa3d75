"""Detectors on top of a trained net: they find novel digits, and agree with others' code or a calculation."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from erd import models
from erd.data.batches import Rows
from erd.errors import UserError
from erd.methods import Data, Detector, Labeled, get, gram, knn, mahalanobis, odin, vit
from erd.methods import _features as inside
from erd.methods.autoencoder import Residuals
from erd.vision import torchvision

# AUROC on digits that none has seen: what seed 0 reached less .04 or more. The transformers' weights are random, so
# their figures say that something is found, not how much: with four draws .58–.66, .73–.75 and .79–.83.
FLOORS = {
    "max-softmax": 0.88,
    "entropy": 0.88,
    "energy": 0.92,
    "odin": 0.9,
    "knn": 0.91,
    "ssd": 0.92,
    "gram": 0.89,
    "mahalanobis": 0.91,
    "autoencoder": 0.92,
    "vanilla": 0.89,
    "vit-max-softmax": 0.53,
    "vit-mahalanobis": 0.7,
    "vit-rmd": 0.75,
}


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision transformer of torchvision's kind with random weights, small enough for a test."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = torchvision.models.VisionTransformer(
            image_size=16, patch_size=4, num_layers=2, num_heads=2, hidden_dim=128, mlp_dim=64, num_classes=7
        )
    path = tmp_path_factory.mktemp("weights") / "vit.pt"
    torch.save(net.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def fitted(data_for: Callable[..., Data], transformer: Path) -> Callable[[str], Detector]:
    found: dict[str, Detector] = {}

    def give(name: str) -> Detector:
        if name not in found:
            found[name] = get(name).fit(data_for(name, weights=transformer))
        return found[name]

    return give


@pytest.mark.parametrize("name", FLOORS)
def test_it_finds_novel_digits(name: str, fitted: Callable[..., Detector], auroc: Callable[..., float]) -> None:
    assert auroc(fitted(name)) > FLOORS[name]


@pytest.mark.parametrize("name", FLOORS)
def test_an_image_has_a_finite_score_of_its_own(name: str, fitted: Callable[..., Detector], world: Any) -> None:
    rows = world.holdout_novel
    together = fitted(name).score(rows)
    assert together.shape == (len(rows),)
    assert together.isfinite().all()
    some = torch.tensor([33, 4, 150])
    alone = torch.cat([fitted(name).score(Rows(rows.images, row[None])) for row in some])
    torch.testing.assert_close(alone, together[some], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["vanilla", "autoencoder", "mahalanobis"])
def test_the_seed_decides_what_is_random(name: str, data_for: Callable[..., Data], world: Any) -> None:
    few = ["pretrain.epochs=2"]

    def score(*overrides: str) -> Tensor:
        changes = {"novel": Rows(world.novel.images, world.novel.rows[:20])} if name == "mahalanobis" else {}
        torch.rand(3)  # the global generator is not what they draw from
        return get(name).fit(data_for(name, overrides=[*few, *overrides], **changes)).score(world.holdout_known)

    first = score()
    assert torch.equal(first, score())
    if name != "mahalanobis":  # it draws only from more images than it may use, which is more than there are here
        assert not torch.equal(first, score("seed=1"))


@pytest.mark.parametrize("name", ["gram", "mahalanobis", "knn", "ssd", "odin", "autoencoder", "energy"])
def test_it_works_on_maps_in_colour(name: str, data_for: Callable[..., Data], world: Any) -> None:
    def colour(rows: Rows) -> Rows:
        return Rows(rows.take(torch.arange(min(60, len(rows))))[..., None].expand(-1, -1, -1, 3).contiguous())

    parts = {part: getattr(world, part) for part in ("train", "val")}
    labeled = {name: Labeled(colour(part.images), part.labels[:60]) for name, part in parts.items()}
    net = models.build("resnet20", channels=3, image_size=8, classes=5, seed=0, mean=[0.3] * 3, std=[0.4] * 3).eval()
    changes = labeled | {"classifier": net, "novel": colour(world.novel)}
    data = data_for(name, overrides=["pretrain.epochs=1"], **changes)
    scores = get(name).fit(data).score(colour(world.holdout_novel))
    assert scores.isfinite().all()
    assert scores.std() > 0


# Against other code


def raw(rows: Rows) -> Tensor:
    """The pixels as a net is given them."""
    return rows.images[:, None].float()


def test_logit_scores_are_those_of_pytorch_ood(fitted: Callable[..., Detector], world: Any) -> None:
    from pytorch_ood.detector import EnergyBased, Entropy, MaxSoftmax  # type: ignore[import-untyped]

    images = world.holdout_novel
    with torch.no_grad():
        logits = world.classifier(raw(images))
    torch.testing.assert_close(fitted("energy").score(images), EnergyBased.score(logits))
    torch.testing.assert_close(fitted("entropy").score(images), Entropy.score(logits), atol=1e-5, rtol=1e-4)
    theirs = 1 + MaxSoftmax.score(logits)  # theirs is −max
    torch.testing.assert_close(fitted("max-softmax").score(images), theirs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("step", [0.0025, 0.08])
def test_odin_is_that_of_pytorch_ood(step: float, data_for: Callable[..., Data], world: Any) -> None:
    from pytorch_ood.detector import ODIN

    data, images = data_for("odin"), world.holdout_novel
    # Their step is in units of what the net is given, here 0..255.
    theirs = ODIN(data.classifier, eps=255 * step, temperature=1000.0).predict(raw(images))
    torch.testing.assert_close(odin.score(data, images, step).float(), 1 + theirs, atol=1e-6, rtol=0)
    assert not torch.allclose(odin.score(data, images, 0.0).float(), 1 + theirs, atol=1e-6, rtol=0)


def test_odin_takes_the_step_that_makes_val_surest(data_for: Callable[..., Data], world: Any) -> None:
    data = data_for("odin")
    best = min(odin.STEPS, key=lambda step: odin.score(data, world.val.images, step).mean().item())
    expected = odin.score(data, world.holdout_known, best)
    torch.testing.assert_close(get("odin").fit(data).score(world.holdout_known), expected)


def test_knn_is_that_of_pytorch_ood() -> None:
    from pytorch_ood.detector import KNN

    generator = torch.Generator().manual_seed(0)
    stored, asked = torch.randn(300, 12, generator=generator), torch.randn(50, 12, generator=generator)
    theirs = KNN(None, k=7).fit_features(stored, torch.zeros(300)).predict_features(asked)
    unit = nn.functional.normalize
    torch.testing.assert_close(knn.kth_distance(unit(asked), unit(stored), 7), theirs.float(), atol=1e-5, rtol=1e-5)


def test_knn_needs_little_memory_whatever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    stored, asked = torch.randn(40, 5, generator=generator), torch.randn(23, 5, generator=generator)
    whole = knn.kth_distance(asked, stored, 3)
    monkeypatch.setattr(knn, "CHUNK", 100)
    torch.testing.assert_close(knn.kth_distance(asked, stored, 3), whole)


def layered_features(world: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels stand for features: what they are makes no difference to the formulas. Dead ones are left out."""
    train, novel = world.train.images.images.flatten(1).float(), world.holdout_novel.images.flatten(1).float()
    alive = train.std(0) > 20
    return train[:, alive] / 255, world.train.labels, novel[:, alive] / 255


def test_mahalanobis_distances_are_those_of_pytorch_ood_times_twice_the_images(world: Any) -> None:
    from pytorch_ood.detector import Mahalanobis

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


def test_input_noise_moves_images_as_in_pytorch_ood(data_for: Callable[..., Data], world: Any) -> None:
    from pytorch_ood.detector import MahalanobisODIN

    data = data_for("mahalanobis")
    distances = inside.LayerDistances.of(data, data.classifier, data.train)
    for number, (layer, fit) in enumerate(zip(distances.inside, distances.gaussians, strict=True)):

        def encoder(images: Tensor, layer: nn.Module = layer) -> Tensor:
            return inside.activations(data.classifier, images, [layer])[1][0]

        theirs = MahalanobisODIN(encoder, eps=255 * 0.01)
        theirs._base.mu = fit.means.float()
        theirs._base.precision = (fit.whitening @ fit.whitening.T).float()
        images = world.holdout_novel
        expected = 2 * theirs.predict(raw(images)).double()
        found = distances(images, noise=0.01)[:, number]
        assert torch.isclose(found, expected, rtol=1e-2).double().mean() > 0.98  # a gradient near 0 may change its sign
        assert (found < distances(images)[:, number]).double().mean() > 0.95


def test_gram_is_that_of_pytorch_ood(data_for: Callable[..., Data], world: Any) -> None:
    from pytorch_ood.detector import Gram

    data = data_for("gram")
    bounds = gram.Bounds(data)
    layers = list(data.classifier.net.children())
    parts = [nn.Sequential(*layers[:3]), nn.Sequential(*layers[3:5]), nn.Sequential(*layers[5:7])]
    normalised = raw(world.holdout_novel) * data.classifier.scale + data.classifier.shift
    theirs = Gram(layers[7], parts, num_classes=5, num_poles_list=list(gram.POWERS))
    theirs.feature_min, theirs.feature_max = (
        [list(layer.split(100, dim=1)) for layer in side] for side in (bounds.low, bounds.high)
    )
    theirs.layer_norm = bounds.deviations(data.val.images).mean(0)
    with torch.no_grad():
        expected = theirs.predict(normalised)
    torch.testing.assert_close(get("gram").fit(data).score(world.holdout_novel), expected, rtol=0.02, atol=0.1)


# By hand


def test_gram_of_maps_by_hand() -> None:
    maps = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.0]]]])  # one image, two channels, 1×2 pixels
    sums = gram.row_sums(maps).view(len(gram.POWERS), 2)
    # p = 1: F Fᵀ = [[5, 3], [3, 9]]; p = 2: F² = [[1, 4], [9, 0]], F² F²ᵀ = [[17, 9], [9, 81]]
    torch.testing.assert_close(sums[0], torch.tensor([8.0, 12.0]))
    torch.testing.assert_close(sums[1], torch.tensor([26.0, 90.0]).sqrt())
    assert gram.row_sums(torch.full((1, 3, 4, 4), 1e4)).isfinite().all()  # (10⁴)²⁰ is beyond float32


def test_gram_counts_what_is_out_of_range() -> None:
    sums, low, high = torch.tensor([[1.0, 5.0, 9.0]]), torch.full((1, 3), 2.0), torch.full((1, 3), 6.0)
    assert gram.deviation(sums, low, high).item() == pytest.approx(1 / 2 + 3 / 6, rel=1e-4)


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


def test_ssd_measures_each_class_by_its_own_spread(data_for: Callable[..., Data], world: Any) -> None:
    data = data_for("ssd")
    train, asked = (
        nn.functional.normalize(inside.penultimate(data, data.classifier, rows)).double().numpy()
        for rows in (data.train.images, world.holdout_known)
    )
    best = np.full(len(asked), np.inf)
    for label in range(5):
        mine = torch.from_numpy(train[data.train.labels.numpy() == label])
        spread = inside.Gaussians.of(mine)
        precision = (spread.whitening @ spread.whitening.T).numpy()
        off = asked - mine.numpy().mean(0)
        best = np.minimum(best, np.einsum("ni,ij,nj->n", off, precision, off))
    np.testing.assert_allclose(get("ssd").fit(data).score(world.holdout_known).numpy(), best, rtol=1e-5)


def test_vanilla_has_five_nets_and_the_given_one_among_them(
    data_for: Callable[..., Data], world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[models.Classifier] = []
    plain = Data.fit

    def recorded(self: Data, model: models.Classifier, *more: Any, **options: Any) -> models.Classifier:
        trained.append(plain(self, model, *more, **options))
        return trained[-1]

    monkeypatch.setattr(Data, "fit", recorded)
    data = data_for("vanilla", overrides=["pretrain.epochs=2"])
    scores = get("vanilla").fit(data).score(world.holdout_novel)
    assert len(trained) == 4
    with torch.no_grad():
        mean = torch.stack([net(raw(world.holdout_novel)).softmax(1) for net in (data.classifier, *trained)]).mean(0)
    torch.testing.assert_close(scores, -(mean * mean.log()).sum(1), atol=1e-5, rtol=1e-4)


def test_the_combiner_learns_which_stage_tells() -> None:
    generator = torch.Generator().manual_seed(0)
    known, novel = (torch.randn(200, 2, generator=generator) * torch.tensor([1.0, 1000.0]) for _ in range(2))
    novel[:, 0] += 4  # the second stage only shouts
    assert mahalanobis.held_back_auroc(known, novel) > 0.98
    log_odds = mahalanobis.Combiner(known, novel)
    assert log_odds(torch.tensor([[2.0, 0.0]])).item() == pytest.approx(0, abs=0.5)  # halfway
    assert log_odds(torch.tensor([[4.0, 0.0]])) > 2


def test_an_autoencoder_gives_what_is_left_of_an_image() -> None:
    net = Residuals(6, torch.Generator().manual_seed(0))
    x = torch.randn(3, 1, 2, 3, generator=torch.Generator().manual_seed(1))
    for layer in net.copy.modules():
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight)
    nn.init.constant_(net.copy[-1].bias, 0.5)  # type: ignore[arg-type]  # a copy that is grey everywhere
    torch.testing.assert_close(net(x), x.flatten(1) - 0.5)


# Looking into nets


@pytest.mark.parametrize("name", models.NETS)
def test_every_net_can_be_looked_into(name: str, data_for: Callable[..., Data]) -> None:
    net = models.build(name, channels=1, image_size=8, classes=5, seed=0).eval()
    images = torch.randint(0, 256, (6, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    data = data_for("knn", classifier=net)
    stages, layers = inside.stages(net), inside.layers(net)
    assert 3 <= len(stages) <= len(layers)
    assert all(any(stage is layer for layer in layers) for stage in stages)
    for seen in inside.features(data, net, Rows(images), stages):
        assert seen.shape[0] == 6
        assert seen.ndim == 2
        assert seen.isfinite().all()
    last = inside.penultimate(data, net, Rows(images))
    torch.testing.assert_close(models.head(net)(last), net(images[:, None]), atol=1e-4, rtol=1e-4)
    assert not net.net._forward_hooks
    assert not any(layer._forward_hooks for layer in layers)


def test_an_mlp_shows_its_hidden_layers_after_the_relu(data_for: Callable[..., Data], world: Any) -> None:
    data = data_for("knn")
    seen = inside.features(data, data.classifier, world.val.images, inside.stages(data.classifier))
    assert [tuple(layer.shape) for layer in seen] == [(100, 100)] * 3
    assert all(layer.min() == 0 for layer in seen)
    torch.testing.assert_close(seen[-1], inside.penultimate(data, data.classifier, world.val.images))


# Weights from a file


def test_a_transformer_sees_what_torchvisions_own_sees(
    transformer: Path, data_for: Callable[..., Data], world: Any
) -> None:
    found = vit.ViT(data_for("vit-rmd", weights=transformer)).features(world.val.images)
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
    transformer: Path, data_for: Callable[..., Data], tmp_path: Path
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
    original, _, _, _ = vit.load(data_for("vit-rmd", weights=transformer))
    same, size, mean, _ = vit.load(data_for("vit-rmd", weights=tmp_path / "timm.pt"))
    assert (size, mean) == (16, [0.5] * 3)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(same(images), original(images))


@pytest.mark.parametrize("change", ["resnet", "shorter", "more", "none"])
def test_other_weights_are_refused_in_one_sentence(
    change: str, transformer: Path, data_for: Callable[..., Data], tmp_path: Path
) -> None:
    path = tmp_path / "weights.pt"
    content = torch.load(transformer, weights_only=True)
    if change == "resnet":
        content = models.build("resnet20", channels=3, image_size=32, classes=2, seed=0).state_dict()
    elif change == "shorter":
        del content["encoder.layers.encoder_layer_1.ln_2.weight"]
    elif change == "more":
        content["encoder.layers.encoder_layer_1.scale"] = torch.ones(128)
    if change != "none":
        torch.save(content, path)
    with pytest.raises(UserError, match=r"weights\.pt"):
        vit.load(data_for("vit-rmd", weights=path))


def test_reading_weights_leaves_the_global_generator_alone(transformer: Path, data_for: Callable[..., Data]) -> None:
    before = torch.get_rng_state()
    vit.load(data_for("vit-rmd", weights=transformer))
    assert torch.equal(before, torch.get_rng_state())
