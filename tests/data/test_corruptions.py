"""Corruptions do what their names say, more of it at higher severities, to each image on its own."""

import hashlib

import numpy as np
import pytest

from erd.base.errors import UserError
from erd.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt

EACH = pytest.mark.parametrize("name", CORRUPTIONS)


def scenes(count: int = 12, side: int = 32, colour: bool = True) -> np.ndarray:
    """Smooth shades with a bright rectangle on them: edges, plains and all colours."""
    random = np.random.default_rng(0)
    rows, columns = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side), indexing="ij")
    made = np.empty((count, side, side, 3))
    for image in made:
        image[:] = 60 + 100 * (rows[..., None] * random.random(3) + columns[..., None] * random.random(3)) / 2
        top, left = random.integers(side // 8, side // 2, 2)
        image[top : top + side // 3, left : left + side // 3] = random.integers(0, 256, 3)
    return np.rint(made if colour else made[..., 0]).astype(np.uint8)


def names(count: int) -> list[str]:
    return [f"scene/{i}" for i in range(count)]


def change(images: np.ndarray, name: str, severity: int) -> float:
    made = corrupt(images, names(len(images)), name, severity)
    return float(np.abs(made.astype(float) - images).mean())


def roughness(images: np.ndarray) -> float:
    """Mean square of the steps between neighbouring pixels: noise makes it larger, blur smaller."""
    return float(sum((np.diff(images.astype(float), axis=axis) ** 2).mean() for axis in (1, 2)))


def test_there_are_the_fifteen_of_the_paper() -> None:
    assert " ".join(CORRUPTIONS) == (
        "gaussian-noise shot-noise impulse-noise defocus-blur glass-blur motion-blur zoom-blur snow frost fog "
        "brightness contrast elastic-transform pixelate jpeg-compression"
    )
    assert all(len(strengths) == len(SEVERITIES) for _, strengths in CORRUPTIONS.values())


@EACH
@pytest.mark.parametrize(("side", "colour"), [(32, True), (28, False), (8, False), (64, True), (33, True)])
def test_images_of_any_size_stay_images_of_that_size(name: str, side: int, colour: bool) -> None:
    images = scenes(3, side, colour)
    before = images.copy()
    for severity in (1, 5):
        made = corrupt(images, names(3), name, severity)
        assert made.shape == images.shape
        assert made.dtype == np.uint8
    assert (made != images).reshape(3, -1).any(1).all(), "every image is changed"
    assert (images == before).all(), "what is given stays as it is"
    assert corrupt(images[:0], [], name, 5).shape == images[:0].shape


@EACH
def test_an_image_depends_on_its_id_and_the_seed_and_on_nothing_else(name: str) -> None:
    images = scenes(6)
    whole = corrupt(images, names(6), name, 3)
    np.random.seed(5)
    order = [4, 1]
    assert (corrupt(images[order], [f"scene/{i}" for i in order], name, 3) == whole[order]).all()
    random = {"gaussian-noise", "shot-noise", "impulse-noise", "glass-blur", "motion-blur", "snow", "frost", "fog"}
    if name in random | {"elastic-transform"}:
        assert (corrupt(images, names(6), name, 3, seed=1) != whole).any()
        twice = corrupt(images[[0, 0]], ["a", "b"], name, 3)
        assert (twice[0] != twice[1]).any()


@EACH
def test_severity_five_is_worse_than_one(name: str) -> None:
    """Except where it moves pixels: the paper's strengths of elastic transforms go from wide to wild."""
    images = scenes(12)
    if name == "elastic-transform":
        local = [np.abs(np.diff(corrupt(images, names(12), name, s).astype(float), axis=2)).mean() for s in (1, 5)]
        assert local[0] != local[1]
        return
    assert change(images, name, 5) > 1.05 * change(images, name, 1) > 0.1


@pytest.mark.parametrize("name", ["gaussian-noise", "shot-noise", "impulse-noise", "glass-blur"])
def test_noise_makes_neighbours_unlike(name: str) -> None:
    images = scenes()
    assert roughness(corrupt(images, names(12), name, 5)) > 1.15 * roughness(images)


@pytest.mark.parametrize("name", ["defocus-blur", "motion-blur", "zoom-blur", "contrast"])
def test_blur_and_haze_make_them_alike(name: str) -> None:
    images = scenes()
    assert roughness(corrupt(images, names(12), name, 5)) < 0.85 * roughness(images)


@pytest.mark.parametrize("name", ["defocus-blur", "motion-blur", "zoom-blur", "pixelate", "elastic-transform"])
def test_a_plain_image_has_nothing_to_blur(name: str) -> None:
    plain = np.full((3, 32, 32, 3), (10, 100, 250), np.uint8)
    assert np.abs(corrupt(plain, names(3), name, 5).astype(int) - plain).max() <= 1


def test_fog_hides_what_is_behind_it_and_is_no_brighter_than_that() -> None:
    images = scenes(12, colour=False)
    thin, thick = (corrupt(images, names(12), "fog", severity) for severity in (1, 5))

    def alike(made: np.ndarray) -> float:
        return float(np.mean([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(images, made, strict=True)]))

    assert alike(thin) > 0.8 > 0.6 > alike(thick)
    assert (thick.max((1, 2)) <= images.max((1, 2))).all()


@pytest.mark.parametrize("name", ["snow", "frost", "brightness"])
def test_snow_frost_and_light_are_bright(name: str) -> None:
    dark = scenes() // 3
    assert (corrupt(dark, names(12), name, 5).mean((1, 2, 3)) > dark.mean((1, 2, 3)) + 10).all()


def test_noise_has_the_strength_it_is_given() -> None:
    grey = np.full((20, 32, 32), 128, np.uint8)
    spread = corrupt(grey, names(20), "gaussian-noise", 5).astype(float)
    assert spread.std() == pytest.approx(0.1 * 255, rel=0.03)
    assert spread.mean() == pytest.approx(128, abs=0.5)
    shot = corrupt(grey, names(20), "shot-noise", 5).astype(float)
    assert shot.std() == pytest.approx(255 * np.sqrt(128 / 255 / 50), rel=0.03)
    impulses = corrupt(grey, names(20), "impulse-noise", 5)
    assert (impulses == 0).mean() == pytest.approx(0.035, rel=0.15)
    assert (impulses == 255).mean() == pytest.approx(0.035, rel=0.15)
    assert ((impulses == 128) | (impulses == 0) | (impulses == 255)).all()


def test_contrast_and_brightness_are_exact() -> None:
    image = np.array([[[0, 100], [200, 100]]], np.uint8).repeat(8, 1).repeat(8, 2)
    assert corrupt(image, ["a"], "contrast", 2)[0, 0, [0, 8]].tolist() == [50, 100]
    assert set(np.unique(corrupt(image, ["a"], "brightness", 2))) == {26, 126, 226}
    red = np.full((1, 8, 8, 3), (100, 50, 0), np.uint8)  # stays as red as it was
    assert corrupt(red, ["a"], "brightness", 2)[0, 0, 0].tolist() == [126, 63, 0]


def test_grey_is_what_colour_is_with_three_equal_channels() -> None:
    grey = scenes(4, 32, colour=False)
    colour = grey[..., None].repeat(3, 3)
    for name in ("defocus-blur", "motion-blur", "zoom-blur", "glass-blur", "snow", "fog", "brightness", "contrast",
                 "elastic-transform", "pixelate"):  # fmt: skip
        made = corrupt(colour, names(4), name, 4)
        assert np.abs(made[..., 0].astype(int) - corrupt(grey, names(4), name, 4)).max() <= 1, name


def test_pixelate_makes_larger_pixels() -> None:
    made = corrupt(scenes(6), names(6), "pixelate", 5)
    different = (np.diff(made.astype(int), axis=1) != 0).any((0, 2, 3)).sum()
    assert different <= 19, "20 squares a side are left of 32 pixels"


def test_what_is_drawn_stays_drawn() -> None:
    """Numbers once measured belong to these images: a change here is a new benchmark."""
    made = corrupt(scenes(2), names(2), "impulse-noise", 2)
    assert hashlib.sha256(made.tobytes()).hexdigest()[:12] == "29ef21ec1e8b"


@pytest.mark.parametrize(
    ("name", "severity", "said"),
    [("fogg", 2, "did you mean 'fog'"), ("fog", 6, "1 (weak) to 5"), ("fog", 0, "1 (weak) to 5")],
)
def test_what_does_not_exist_is_one_sentence(name: str, severity: int, said: str) -> None:
    with pytest.raises(UserError) as caught:
        corrupt(scenes(1), ["a"], name, severity)
    assert said in str(caught.value)
