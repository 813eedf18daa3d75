"""Images that are neither known nor of the novel classes, for methods that learn from known outliers.

    outliers = collect(settings, like=labeled.images)      # outliers.source says what they are

The first public set at hand that shows another kind of thing than both of the scenario's sources: an outlier set that
holds the novel classes would be the answer and not a help. Where there is none, patterns made with the seed.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erd.base.errors import RunError, UserError
from erd.base.seeds import derive
from erd.data import sources
from erd.data.arrays import as_labeled, resized
from erd.data.sources.base import SOURCES
from erd.settings.families import get
from erd.settings.scenarios import Scenario
from erd.settings.schema import Settings

MOST = 10_000  # and no more than there are labelled images, or an epoch over them would take most of the time
SYNTHETIC = "synthetic"
# Photographs first, as in the paper (TinyImages): they vary most.
CANDIDATES = ("cifar10", "cifar100", "svhn", "fashion_mnist", "mnist", "chestxray64")


@dataclass(frozen=True)
class Outliers:
    source: str  # a name of `sources`, or SYNTHETIC
    images: np.ndarray


def candidates(scenario: Scenario) -> list[str]:
    """Sets that show other things than what is known and what is novel; none where nobody can tell what those show."""
    taken = {_shown(source) for source in (scenario.known_source, scenario.novel_source)}
    return [] if None in taken else [name for name in CANDIDATES if _shown(name) not in taken]


def _shown(source: str) -> str | None:
    return SOURCES[source].shows if source in SOURCES else None


def collect(settings: Settings, like: np.ndarray) -> Outliers:
    """At most MOST images, drawn with the seed, in the size and the colours of the labelled ones, and not more."""
    count, size, colour = min(MOST, len(like)), like.shape[1], like.ndim == 4
    root = Path(settings.data.root) if settings.data.root else None
    for name in _asked(settings) or candidates(get(settings.data.scenario)):
        try:
            found = sources.load(name, root).train.images
        except RunError:  # there, but damaged
            raise
        except UserError:  # not there
            if settings.bench.outliers:
                raise
            continue
        order = np.random.default_rng(derive(settings.seed, "outliers")).permutation(len(found))
        drawn = found[np.sort(order[:count])]
        return Outliers(name, as_labeled(resized(drawn, size), colour))
    return Outliers(SYNTHETIC, synthetic(count, size, colour, derive(settings.seed, "outliers")))


def _asked(settings: Settings) -> list[str]:
    """The set that `bench.outliers` names, if it may be used."""
    name, scenario = settings.bench.outliers, get(settings.data.scenario)
    for source in (scenario.known_source, scenario.novel_source):
        if name is not None and (_shown(name) or name) == (_shown(source) or source):
            raise UserError(
                f"bench.outliers is {name}, but {scenario.name} has {source}, which shows the same kind of thing: "
                f"take another set, or null"
            )
    return [name] if name else []


def synthetic(count: int, size: int, colour: bool, seed: int) -> np.ndarray:
    """A third each of noise, blobs and gratings, between two random shades or colours each."""
    random = np.random.default_rng(seed)
    sizes = [len(part) for part in np.array_split(np.arange(count), 3)]
    patterns = [draw(sizes[i], size, random) for i, draw in enumerate((_noise, _blobs, _gratings))]
    made = []
    for pattern in patterns:
        shades = random.integers(0, 256, (2, len(pattern), 1, 1, 3 if colour else 1)).astype(np.float32)
        made.append(np.rint(shades[0] + (shades[1] - shades[0]) * pattern[..., None]).astype(np.uint8))
    images = random.permutation(np.concatenate(made))
    return images if colour else images[..., 0]


def _noise(count: int, size: int, random: np.random.Generator) -> np.ndarray:
    return random.random((count, size, size), dtype=np.float32)


def _blobs(count: int, size: int, random: np.random.Generator) -> np.ndarray:
    """A few random values, smoothly enlarged."""
    coarse = random.integers(0, 256, (count, 4, 4), dtype=np.uint8)
    return resized(coarse, size).astype(np.float32) / 255


def _gratings(count: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Parallel waves: at least one across the image, at most so many that each has three pixels."""
    angle, phase, waves = (
        random.uniform(low, high, (count, 1, 1)) for low, high in ((0, np.pi), (0, 2 * np.pi), (1, size / 3))
    )
    row, column = np.meshgrid(np.arange(size) / size, np.arange(size) / size, indexing="ij")
    along = np.cos(angle) * row + np.sin(angle) * column
    return (0.5 + 0.5 * np.sin(2 * np.pi * waves * along + phase)).astype(np.float32)
