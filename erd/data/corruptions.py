"""The fifteen corruptions of Hendrycks & Dietterich (2019), each at five severities, for grey and colour images.

    corrupt(images, ids, "fog", 5)          # uint8 N×S×S or N×S×S×3 in, the same out

Written from the paper's definitions, with the strengths of CIFAR-10-C; lengths are in its pixels, and grow with the
side of larger images. Two things are ours: frost is drawn and no photograph, and pixels behind glass move to all sides.
What becomes of an image depends on its pixels, its id and the seed, not on the images beside it.

A function gets pixels N×S×S×C from 0 to 1, its strength, and what to draw from. A new corruption is one of these and
one line in `CORRUPTIONS`.
"""

import io
from collections.abc import Callable, Sequence

import numpy as np

from erd.base.errors import UserError, nearest
from erd.base.seeds import derive
from erd.settings.scenarios import SEVERITIES

SIDE = 32  # pixels, for which lengths are given
CHUNK = 256  # images at a time: floats and their shifted copies take room


class Draws:
    """A generator for each image, so that none depends on its neighbours; what is drawn has the images first."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._each = [np.random.default_rng(seed) for seed in seeds]

    def __len__(self) -> int:
        return len(self._each)

    def normal(self, *shape: int) -> np.ndarray:
        return np.stack([each.standard_normal(shape, dtype=np.float32) for each in self._each])

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        return np.stack([low + (high - low) * each.random(shape, dtype=np.float32) for each in self._each])

    def integers(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Both ends included."""
        return np.stack([each.integers(low, high, shape, endpoint=True) for each in self._each])

    def poisson(self, mean: np.ndarray) -> np.ndarray:
        return np.stack([each.poisson(rate) for each, rate in zip(self._each, mean, strict=True)])


def corrupt(images: np.ndarray, ids: Sequence[str] | np.ndarray, name: str, severity: int, seed: int = 0) -> np.ndarray:
    """Each image corrupted, by what its id and the seed draw."""
    if name not in CORRUPTIONS:
        raise UserError(f"there is no corruption '{name}': {nearest(name, CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise UserError(f"severity {severity} of {name} does not exist: take 1 (weak) to 5 (strong)")
    function, strengths = CORRUPTIONS[name]
    made = np.empty_like(images)
    for start in range(0, len(images), CHUNK):
        rows = slice(start, start + CHUNK)
        pixels = images[rows].reshape(*images[rows].shape[:3], -1).astype(np.float32) / 255
        draws = Draws([derive(seed, name, severity, str(image)) for image in ids[rows]])
        changed = np.clip(function(pixels, strengths[severity - 1], draws), 0, 1)
        # To thousandths first: a mean of two pixels is often just a half, and must not fall by the last bit of a sum.
        made[rows] = np.rint(np.round(changed * 255, 3)).astype(np.uint8).reshape(images[rows].shape)
    return made


# ---------------------------------------------------------------------------------------------------- noise


def _gaussian_noise(x: np.ndarray, deviation: float, draws: Draws) -> np.ndarray:
    return x + deviation * draws.normal(*x.shape[1:])


def _shot_noise(x: np.ndarray, photons: float, draws: Draws) -> np.ndarray:
    """A white pixel counts so many photons on average."""
    return draws.poisson(x * photons) / photons


def _impulse_noise(x: np.ndarray, share: float, draws: Draws) -> np.ndarray:
    """Some values become black or white."""
    lot = draws.uniform(0, 1, *x.shape[1:])
    return np.where(lot < share / 2, 0, np.where(lot < share, 1, x))


# ---------------------------------------------------------------------------------------------------- blur


def _defocus_blur(x: np.ndarray, strength: tuple[float, float], draws: Draws) -> np.ndarray:
    """The image of a point out of focus is a disk, with a softened edge."""
    from scipy.ndimage import convolve, gaussian_filter

    radius, soft = (length * _scale(x) for length in strength)
    reach = int(np.ceil(radius + 2 * soft)) + 1
    fine = 9  # parts of a pixel, to tell how much of it the disk covers
    along = (np.arange(fine * (2 * reach + 1)) + 0.5) / fine - reach - 0.5
    inside = (along[:, None] ** 2 + along[None, :] ** 2 <= max(radius, 0.5) ** 2).astype(np.float32)
    disk = inside.reshape(2 * reach + 1, fine, 2 * reach + 1, fine).mean((1, 3))
    disk = gaussian_filter(disk, soft)
    return convolve(x, (disk / disk.sum())[None, :, :, None], mode="mirror")


def _glass_blur(x: np.ndarray, strength: tuple[float, int], draws: Draws) -> np.ndarray:
    """Each pixel shows itself or a neighbour, `rounds` times, between two slight blurs."""
    deviation, rounds = strength
    side, reach = x.shape[1], round(_scale(x))
    x = _smooth(x, deviation * _scale(x))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1)
    for moves in np.moveaxis(draws.integers(-reach, reach, rounds, side, side, 2), 1, 0):
        there = np.clip(grid + moves, 0, side - 1)
        x = x[np.arange(len(x))[:, None, None], there[..., 0], there[..., 1]]
    return _smooth(x, deviation * _scale(x))


def _motion_blur(x: np.ndarray, strength: tuple[float, float], draws: Draws) -> np.ndarray:
    return _moved(x, *strength, draws.uniform(-np.pi / 4, np.pi / 4))


def _zoom_blur(x: np.ndarray, most: float, draws: Draws) -> np.ndarray:
    """The mean of the image and of enlarged ones, up to so much."""
    factors = np.arange(1, most, 0.01)
    return (x + sum(_enlarged(x, factor) for factor in factors)) / (len(factors) + 1)


# ---------------------------------------------------------------------------------------------------- weather


def _snow(x: np.ndarray, strength: tuple[float, ...], draws: Draws) -> np.ndarray:
    """Flakes are the brightest parts of some noise, drawn out by their fall; the scene under them is paler."""
    mean, deviation, zoom, least, length, spread, scene = strength
    side = x.shape[1]
    flakes = _enlarged(mean + deviation * draws.normal(side, side, 1), zoom)
    flakes = np.where(flakes < least, 0, np.clip(flakes, 0, 1))
    flakes = _moved(flakes, length, spread, draws.uniform(-3 * np.pi / 4, -np.pi / 4))
    pale = np.maximum(x, 1.5 * _grey(x) + 0.5)
    return scene * x + (1 - scene) * pale + flakes + flakes[:, ::-1, ::-1]


def _frost(x: np.ndarray, strength: tuple[float, float], draws: Draws) -> np.ndarray:
    """Ice that grows over the image: ridges of clouds, sharpened, slightly blue."""
    scene, ice = strength
    ridges = 1 - np.abs(2 * _clouds(draws, x.shape[1], 1.6) - 1)
    crystals = ridges**2 * (0.4 + 0.6 * _clouds(draws, x.shape[1], 2.5))
    crystals = crystals / np.maximum(crystals.max((1, 2), keepdims=True), 1e-6)
    tint = np.array([0.85, 0.95, 1.0], np.float32) if x.shape[3] == 3 else np.ones(1, np.float32)
    return scene * x + 1.5 * ice * crystals[..., None] * tint


def _fog(x: np.ndarray, strength: tuple[float, float], draws: Draws) -> np.ndarray:
    """Clouds before the image, which has as much light in all as before."""
    thick, decay = strength
    light = x.max((1, 2, 3), keepdims=True)
    return (x + thick * _clouds(draws, x.shape[1], decay)[..., None]) * light / (light + thick)


def _brightness(x: np.ndarray, more: float, draws: Draws) -> np.ndarray:
    """The value of hue, saturation and value."""
    value = x.max(3, keepdims=True)
    brighter = np.clip(value + more, 0, 1)
    return np.where(value > 0, x * brighter / np.maximum(value, 1e-6), brighter)


# ---------------------------------------------------------------------------------------------------- digital


def _contrast(x: np.ndarray, factor: float, draws: Draws) -> np.ndarray:
    mean = x.mean((1, 2), keepdims=True)
    return mean + factor * (x - mean)


def _elastic_transform(x: np.ndarray, strength: tuple[float, float, float], draws: Draws) -> np.ndarray:
    """Three points are moved, and with them the whole image; then each pixel a little, as its neighbours are."""
    side = x.shape[1]
    amount, deviation, affine = (side * share for share in strength)
    centre, arm = (side - 1) / 2, side // 3
    points = np.array([[arm, arm], [arm, -arm], [-arm, -arm]], np.float32) + centre
    moved = points + draws.uniform(-affine, affine, 3, 2)
    ones = np.ones((len(x), 3, 1), np.float32)
    back = np.linalg.solve(np.concatenate([moved, ones], 2), np.broadcast_to(points, moved.shape))  # N×3×2
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).astype(np.float32)
    ways = np.stack([_smooth(draws.uniform(-1, 1, side, side, 1), deviation)[..., 0] for _ in range(2)], -1)
    places = (grid + amount * ways) @ back[:, None, :2] + back[:, None, 2:]
    return _sampled(x, places[..., 0], places[..., 1])


def _pixelate(x: np.ndarray, factor: float, draws: Draws) -> np.ndarray:
    """Means over fewer, larger squares."""
    side, few = x.shape[1], max(1, int(x.shape[1] * factor))
    edges = np.linspace(0, side, few + 1)
    inside = np.minimum(edges[1:, None], np.arange(1, side + 1)) - np.maximum(edges[:-1, None], np.arange(side))
    inside = np.maximum(inside, 0)
    nearest_square = ((np.arange(side) + 0.5) * few / side).astype(int)
    means = (inside / inside.sum(1, keepdims=True))[nearest_square]
    return _resampled(x, means)


def _jpeg_compression(x: np.ndarray, quality: int, draws: Draws) -> np.ndarray:
    from PIL import Image

    made = []
    for image in np.rint(x * 255).astype(np.uint8):
        with io.BytesIO() as stream:
            Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(stream, "JPEG", quality=quality)
            made.append(np.asarray(Image.open(stream)).reshape(image.shape))
    return np.stack(made) / 255


# ---------------------------------------------------------------------------------------------------- helpers


def _scale(x: np.ndarray) -> float:
    return max(1.0, x.shape[1] / SIDE)


def _grey(x: np.ndarray) -> np.ndarray:
    return x @ np.array([[0.299], [0.587], [0.114]], np.float32) if x.shape[3] == 3 else x


def _smooth(x: np.ndarray, deviation: float) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(x, (0, deviation, deviation, 0), mode="reflect", truncate=3)


def _sampled(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Pixels at places between pixels (N×S×S each), linear in the four around; mirrored beyond the edge."""
    side = x.shape[1]
    everyone = np.arange(len(x))[:, None, None]

    def mirrored(places: np.ndarray) -> np.ndarray:
        return np.abs((places + side - 1) % (2 * side - 2) - (side - 1))

    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    down, right = (rows - top)[..., None], (columns - left)[..., None]
    r0, r1, c0, c1 = (mirrored(places) for places in (top, top + 1, left, left + 1))
    above = (1 - right) * x[everyone, r0, c0] + right * x[everyone, r0, c1]
    below = (1 - right) * x[everyone, r1, c0] + right * x[everyone, r1, c1]
    return ((1 - down) * above + down * below).astype(np.float32)


def _resampled(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows and columns combined with the same weights, new × old."""
    weights = weights.astype(np.float32)
    return np.moveaxis(weights @ np.moveaxis(x, 3, 1) @ weights.T, 1, 3)


def _enlarged(x: np.ndarray, factor: float) -> np.ndarray:
    """The middle of the image in the image's size."""
    side = x.shape[1]
    places = (np.arange(side) - (side - 1) / 2) / factor + (side - 1) / 2
    low = np.clip(np.floor(places).astype(int), 0, side - 2)
    weights = np.zeros((side, side))
    weights[np.arange(side), low] = 1 - (places - low)
    weights[np.arange(side), low + 1] += places - low
    return _resampled(x, weights)


def _moved(x: np.ndarray, length: float, deviation: float, angle: np.ndarray) -> np.ndarray:
    """Drawn out in a direction (N), with weights that fall like a bell over `length` pixels."""
    from scipy.fft import irfft2, rfft2

    reach = round(length * _scale(x))
    weights = np.exp(-0.5 * (np.arange(reach + 1) / (deviation * _scale(x))) ** 2)
    pad = reach + 1
    wide = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="symmetric")
    trace, everyone = np.zeros(wide.shape[:3], np.float32), np.arange(len(x))
    for step, weight in enumerate(weights / weights.sum()):
        row, column = pad + step * np.sin(angle), pad + step * np.cos(angle)
        top, left = np.floor(row).astype(int), np.floor(column).astype(int)
        down, right = row - top, column - left
        for r, c, share in ((0, 0, (1 - down) * (1 - right)), (0, 1, (1 - down) * right),
                            (1, 0, down * (1 - right)), (1, 1, down * right)):  # fmt: skip
            trace[everyone, top + r, left + c] += weight * share
    both = rfft2(wide, axes=(1, 2)) * rfft2(trace, axes=(1, 2))[..., None]
    blurred = irfft2(both, s=wide.shape[1:3], axes=(1, 2))
    side = x.shape[1]
    return blurred[:, 2 * pad : 2 * pad + side, 2 * pad : 2 * pad + side]


def _clouds(draws: Draws, side: int, decay: float) -> np.ndarray:
    """N×S×S from 0 to 1: random values at ever more points, smoothly joined, each time weaker by `decay`."""
    total, points, weight = np.zeros((len(draws), side, side), np.float32), 2, 1.0
    while points <= side:
        places = np.arange(side) / side * (points - 1)
        low = np.floor(places).astype(int)
        join = np.zeros((side, points), np.float32)
        join[np.arange(side), low] = 1 - (places - low)
        join[np.arange(side), low + 1] = places - low
        total += weight * (join @ draws.uniform(-1, 1, points, points) @ join.T)
        points, weight = 2 * points - 1, weight / decay
    low_, high = total.min((1, 2), keepdims=True), total.max((1, 2), keepdims=True)
    return (total - low_) / np.maximum(high - low_, 1e-6)


# name → function, its strength at the severities 1 to 5; the order is that of Hendrycks & Dietterich
CORRUPTIONS: dict[str, tuple[Callable[..., np.ndarray], tuple]] = {
    "gaussian-noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot-noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse-noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus-blur": (_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass-blur": (_glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion-blur": (_motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom-blur": (_zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),
    "snow": (
        _snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": (_frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": (_fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic-transform": (
        _elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg-compression": (_jpeg_compression, (80, 65, 58, 50, 40)),
}
