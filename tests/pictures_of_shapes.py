"""Small pictures of three kinds that any encoder tells apart, made in a moment: rings, stripes and blots. Where a
fourth is wanted there are checks.

files(Path("labelled"), {"rings": 20, "stripes": 20})        # a PNG each, in class folders
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 32
KINDS = ("blots", "rings", "stripes")
COLOURS = {"blots": (200, 90, 60), "rings": (60, 160, 90), "stripes": (70, 90, 200), "checks": (180, 170, 60)}


def picture(kind: str, rng: np.random.Generator) -> np.ndarray:
    """32×32×3, uint8; no two are the same."""
    y, x = np.mgrid[:SIZE, :SIZE] - SIZE / 2 + rng.uniform(-4, 4, (2, 1, 1))
    if kind == "rings":
        shape = np.sin(np.hypot(x, y) * rng.uniform(0.7, 1.1))
    elif kind == "stripes":
        angle = rng.uniform(0, np.pi)
        shape = np.sin((x * np.cos(angle) + y * np.sin(angle)) * rng.uniform(0.7, 1.1))
    elif kind == "checks":
        shape = np.sin(x * rng.uniform(0.7, 1.1)) * np.sin(y * rng.uniform(0.7, 1.1))
    else:
        shape = np.exp(-(x**2 + y**2) / rng.uniform(20, 60)) * 2 - 1
    noisy = 128 + shape[..., None] * (np.array(COLOURS[kind]) - 128) + rng.normal(0, 8, (SIZE, SIZE, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def arrays(counts: Mapping[str, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pictures, and the names of their kinds."""
    rng = np.random.default_rng(seed)
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    return np.stack([picture(kind, rng) for kind in kinds]), np.array(kinds)


def files(folder: Path, counts: Mapping[str, int], seed: int = 0) -> Path:
    """A PNG each in a folder a kind; the folder of all."""
    for number, (image, kind) in enumerate(zip(*arrays(counts, seed), strict=True)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / kind / f"{number:03}.png")
    return folder


def inbox(folder: Path, counts: Mapping[str, int], seed: int = 1) -> Path:
    """A PNG each, whose name does not tell its kind."""
    folder.mkdir(parents=True, exist_ok=True)
    images, _ = arrays(counts, seed)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"scan-{number:03}.png")
    return folder
