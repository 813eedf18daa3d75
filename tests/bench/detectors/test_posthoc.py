"""Detectors on top of a trained net: they find novel digits, and agree with others' code or a calculation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from erd import nets
from erd.bench.detectors import Detector, Given, Labeled, get, gram, knn, mahalanobis, odin
from erd.bench.detectors.autoencoder import Residuals
from erd.bench.detectors.shared.layers import Gaussians
from erd.data.packed import Rows
from erd.training.features import penultimate

# AUROC on digits that none has seen: what seed 0 reached less .04 or more.
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
}


@pytest.fixture(scope="module")
def fitted(given_to: Callable[..., Given]) -> Callable[[str], Detector]:
    found: dict[str, Detector] = {}

    def give(name: str) -> Detector:
        if name not in found:
            found[name] = get(name).fit(given_to(name))
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
def test_the_seed_decides_what_is_random(name: str, given_to: Callable[..., Given], world: Any) -> None:
    few = ["pretrain.epochs=2"]

    def score(*overrides: str) -> Tensor:
        changes = {"novel": Rows(world.novel.images, world.novel.rows[:20])} if name == "mahalanobis" else {}
        torch.rand(3)  # the global generator is not what they draw from
        return get(name).fit(given_to(name, overrides=[*few, *overrides], **changes)).score(world.holdout_known)

    first = score()
    assert torch.equal(first, score())
    if name != "mahalanobis":  # it draws only from more images than it may use, which is more than there are here
        assert not torch.equal(first, score("seed=1"))


@pytest.mark.parametrize("name", ["gram", "mahalanobis", "knn", "ssd", "odin", "autoencoder", "energy"])
def test_it_works_on_maps_in_colour(name: str, given_to: Callable[..., Given], world: Any) -> None:
    def colour(rows: Rows) -> Rows:
        return Rows(rows.take(torch.arange(min(60, len(rows))))[..., None].expand(-1, -1, -1, 3).contiguous())

    parts = {part: getattr(world, part) for part in ("train", "val")}
    labeled = {name: Labeled(colour(part.images), part.labels[:60]) for name, part in parts.items()}
    net = nets.build("resnet20", channels=3, image_size=8, classes=5, seed=0, mean=[0.3] * 3, std=[0.4] * 3).eval()
    changes = labeled | {"classifier": net, "novel": colour(world.novel)}
    given = given_to(name, overrides=["pretrain.epochs=1"], **changes)
    scores = get(name).fit(given).score(colour(world.holdout_novel))
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
def test_odin_is_that_of_pytorch_ood(step: float, given_to: Callable[..., Given], world: Any) -> None:
    from pytorch_ood.detector import ODIN

    given, images = given_to("odin"), world.holdout_novel
    # Their step is in units of what the net is given, here 0..255.
    theirs = ODIN(given.classifier, eps=255 * step, temperature=1000.0).predict(raw(images))
    torch.testing.assert_close(odin.score(given, images, step).float(), 1 + theirs, atol=1e-6, rtol=0)
    assert not torch.allclose(odin.score(given, images, 0.0).float(), 1 + theirs, atol=1e-6, rtol=0)


def test_odin_takes_the_step_that_makes_val_surest(given_to: Callable[..., Given], world: Any) -> None:
    given = given_to("odin")
    best = min(odin.STEPS, key=lambda step: odin.score(given, world.val.images, step).mean().item())
    expected = odin.score(given, world.holdout_known, best)
    torch.testing.assert_close(get("odin").fit(given).score(world.holdout_known), expected)


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


def test_gram_is_that_of_pytorch_ood(given_to: Callable[..., Given], world: Any) -> None:
    from pytorch_ood.detector import Gram

    given = given_to("gram")
    bounds = gram.Bounds(given)
    layers = list(given.classifier.net.children())
    parts = [nn.Sequential(*layers[:3]), nn.Sequential(*layers[3:5]), nn.Sequential(*layers[5:7])]
    normalised = raw(world.holdout_novel) * given.classifier.scale + given.classifier.shift
    theirs = Gram(layers[7], parts, num_classes=5, num_poles_list=list(gram.POWERS))
    theirs.feature_min, theirs.feature_max = (
        [list(layer.split(100, dim=1)) for layer in side] for side in (bounds.low, bounds.high)
    )
    theirs.layer_norm = bounds.deviations(given.val.images).mean(0)
    with torch.no_grad():
        expected = theirs.predict(normalised)
    torch.testing.assert_close(get("gram").fit(given).score(world.holdout_novel), expected, rtol=0.02, atol=0.1)


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


def test_ssd_measures_each_class_by_its_own_spread(given_to: Callable[..., Given], world: Any) -> None:
    given = given_to("ssd")
    train, asked = (
        nn.functional.normalize(penultimate(given.classifier, rows)).double().numpy()
        for rows in (given.train.images, world.holdout_known)
    )
    best = np.full(len(asked), np.inf)
    for label in range(5):
        mine = torch.from_numpy(train[given.train.labels.numpy() == label])
        spread = Gaussians.of(mine)
        precision = (spread.whitening @ spread.whitening.T).numpy()
        off = asked - mine.numpy().mean(0)
        best = np.minimum(best, np.einsum("ni,ij,nj->n", off, precision, off))
    np.testing.assert_allclose(get("ssd").fit(given).score(world.holdout_known).numpy(), best, rtol=1e-5)


def test_vanilla_has_five_nets_and_the_given_one_among_them(
    given_to: Callable[..., Given], world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[nets.Classifier] = []
    plain = Given.fit

    def recorded(self: Given, model: nets.Classifier, *more: Any, **options: Any) -> nets.Classifier:
        trained.append(plain(self, model, *more, **options))
        return trained[-1]

    monkeypatch.setattr(Given, "fit", recorded)
    given = given_to("vanilla", overrides=["pretrain.epochs=2"])
    scores = get("vanilla").fit(given).score(world.holdout_novel)
    assert len(trained) == 4
    with torch.no_grad():
        mean = torch.stack([net(raw(world.holdout_novel)).softmax(1) for net in (given.classifier, *trained)]).mean(0)
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
