"""Outliers show something else than what is known and what is novel, whatever sets are at hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from erd.base.errors import RunError, UserError
from erd.data import outliers
from erd.data.outliers import CANDIDATES, SYNTHETIC, collect
from erd.data.sources import SOURCES, public
from erd.runs.configure import settings_for
from erd.settings.scenarios import SCENARIOS
from erd.settings.schema import Settings

SIDES = {"mnist": 28, "fashion_mnist": 28, "chestxray64": 64}
COLOUR = ("cifar10", "cifar100", "svhn")
SHOWN = {name: entered.shows for name, entered in SOURCES.items() if entered.shows}
GREY = {name: 20 * (number + 1) for number, name in enumerate(CANDIDATES)}  # all images of a set have one grey


@pytest.fixture(autouse=True)
def _no_system_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(public, "DEBIAN_FASHION", tmp_path / "no-such-package")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every public set, small, each in its own grey."""
    root = tmp_path_factory.mktemp("sets")
    for name in CANDIDATES:
        side = SIDES.get(name, 32)
        images = np.full((50, side, side, 3) if name in COLOUR else (50, side, side), GREY[name], np.uint8)
        labels = np.arange(50) % 3
        columns = {"x": images, "y": labels, "sub": labels, "patient": labels.astype(str),
                   "file": np.array([f"{i}.png" for i in range(50)])}  # fmt: skip
        both: dict[str, Any] = {f"{key}_{part}": value for key, value in columns.items() for part in ("train", "test")}
        np.savez(root / f"{name}.npz", **both)
    return root


def settings(scenario: str, root: Path | None, *overrides: str) -> Settings:
    return settings_for(scenario=scenario, data=str(root) if root else None, overrides=overrides)


def labeled(count: int, side: int, colour: bool) -> np.ndarray:
    return np.zeros((count, side, side, 3) if colour else (count, side, side), np.uint8)


def greys(images: np.ndarray) -> set[int]:
    return set(np.unique(images).tolist())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_scenario_gets_its_known_or_novel_kind_of_images(scenario: str, sets: Path) -> None:
    row = SCENARIOS[scenario]
    found = collect(settings(scenario, sets), labeled(30, row.image_size or 32, colour=True))
    if "own" in (row.known_source, row.novel_source):
        assert found.source == SYNTHETIC, "nobody told what these show"
        return
    taken = {SHOWN[row.known_source], SHOWN[row.novel_source]}
    assert SHOWN[found.source] not in taken
    forbidden = {GREY[name] for name in CANDIDATES if SHOWN[name] in taken}
    assert greys(found.images) == {GREY[found.source]}
    assert not greys(found.images) & forbidden
    assert found.images.shape == (30, row.image_size, row.image_size, 3)


@pytest.mark.parametrize(
    ("scenario", "source"),
    [
        ("mnist-fmnist", "cifar10"),
        ("cifar10-near", "svhn"),
        ("cifar10-svhn", "fashion_mnist"),
        ("xray-viral", "cifar10"),
    ],
)
def test_photographs_come_first_then_what_is_left(scenario: str, source: str, sets: Path) -> None:
    assert collect(settings(scenario, sets), labeled(9, 16, colour=False)).source == source


def test_sets_of_the_same_kind_are_no_way_out(sets: Path, tmp_path: Path) -> None:
    for name in ("mnist", "svhn"):  # all that is at hand shows digits
        (tmp_path / f"{name}.npz").symlink_to(sets / f"{name}.npz")
    assert collect(settings("mnist-near", tmp_path), labeled(9, 28, colour=False)).source == SYNTHETIC


def test_they_look_like_the_labelled_images_and_are_not_more(sets: Path) -> None:
    grey = collect(settings("mnist-near", sets), labeled(40, 28, colour=False))
    assert (grey.source, grey.images.shape, grey.images.dtype) == ("cifar10", (40, 28, 28), np.uint8)
    colour = collect(settings("cifar10-near", sets, "bench.outliers=fashion_mnist"), labeled(100, 32, colour=True))
    assert (colour.source, colour.images.shape) == ("fashion_mnist", (50, 32, 32, 3)), "all there are"


def test_the_seed_draws_them(tmp_path: Path) -> None:
    images = np.arange(200, dtype=np.uint8)[:, None, None].repeat(32, 1).repeat(32, 2)
    np.savez(
        tmp_path / "mnist.npz", x_train=images, y_train=np.arange(200) % 10, x_test=images, y_test=images[:, 0, 0] % 10
    )
    first, again, other = (
        collect(settings("fmnist-near", tmp_path, f"seed={seed}"), labeled(60, 28, colour=False)) for seed in (0, 0, 1)
    )
    assert (first.images == again.images).all()
    assert len(np.unique(first.images)) == 60, "none twice"
    assert greys(first.images) != greys(other.images)


def test_a_set_that_is_named_is_taken_or_refused(sets: Path) -> None:
    like = labeled(9, 28, colour=False)
    assert collect(settings("fmnist-near", sets, "bench.outliers=mnist"), like).source == "mnist"
    assert collect(settings("own", sets, "bench.outliers=cifar100"), like).source == "cifar100"
    with pytest.raises(UserError, match="shows the same kind of thing"):
        collect(settings("mnist-fmnist", sets, "bench.outliers=svhn"), like)
    with pytest.raises(UserError, match="cifar10 was not found"):
        collect(settings("fmnist-near", None, "bench.outliers=cifar10"), like)


def test_a_damaged_set_is_said_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cifar10.npz").write_bytes(b"no archive")
    with pytest.raises(RunError, match=r"cifar10\.npz"):
        collect(settings("mnist-near", tmp_path), labeled(9, 28, colour=False))


@pytest.mark.parametrize("colour", [False, True])
def test_synthetic_ones_are_three_kinds_of_pattern_made_with_the_seed(colour: bool) -> None:
    made = outliers.synthetic(300, 16, colour, seed=1)
    assert made.shape == ((300, 16, 16, 3) if colour else (300, 16, 16))
    assert made.dtype == np.uint8
    assert (made == outliers.synthetic(300, 16, colour, seed=1)).all()
    assert (made != outliers.synthetic(300, 16, colour, seed=2)).any()
    assert len(np.unique(made.reshape(300, -1), axis=0)) == 300
    pixels = made.reshape(300, 16, 16, -1)[..., 0].astype(float)
    # Neighbouring pixels are alike in blobs and coarse gratings, and have nothing to do with each other in noise.
    steps = np.abs(np.diff(pixels, axis=2)).mean((1, 2)) / (pixels.std((1, 2)) + 1)
    assert (steps < 0.5).mean() > 0.2
    assert (steps > 0.9).mean() > 0.25
    assert pixels.mean((1, 2)).std() > 30, "of all shades"
