"""How fast image files are taken in: `take` on all cores, on one, and a plain Pillow loop, side by side.

    python benchmarks/ingest.py --json

Files of 512 to 1024 pixels a side, half JPEG and half PNG, half grey and half in colour, brought to 64 pixels. Each
repetition runs all ways in turn on the same files, which are in the file system's cache. Medians of images a second;
a ratio is the median of the repetitions' ratios.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from erd.data.reading import take

SIDE = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make(folder, arguments.images)
        ways: dict[str, Callable[[], object]] = {
            "all_cores": lambda: take(folder, SIDE),
            "one_core": lambda: take(folder, SIDE, workers=1),
            "plain_pillow": lambda: plain(folder),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        busy: list[float] = []  # cores that the machine let us have, of those we asked for
        for repetition in range(arguments.repetitions + 1):  # the first fills the cache
            for way, work in ways.items():
                started, used = time.perf_counter(), time.process_time()
                work()
                taken = time.perf_counter() - started
                if repetition:
                    seconds[way].append(taken)
                    if way == "all_cores":
                        busy.append((time.process_time() - used) / taken)
                if repetition and not arguments.json:
                    print(f"{way}: {arguments.images / taken:.0f} images/s", flush=True)
    rates = {way: round(arguments.images / statistics.median(values), 1) for way, values in seconds.items()}
    print(
        json.dumps(
            {
                "images": arguments.images,
                "repetitions": arguments.repetitions,
                "cores": os.cpu_count(),
                "cores_used": round(statistics.median(busy), 2),
                "images_per_second": rates,
                "all_cores_over_one": ratio(seconds["one_core"], seconds["all_cores"]),
                "one_core_over_plain_pillow": ratio(seconds["plain_pillow"], seconds["one_core"]),
                "all_cores_over_plain_pillow": ratio(seconds["plain_pillow"], seconds["all_cores"]),
            }
        )
    )


def ratio(slow: list[float], fast: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(slow, fast, strict=True)), 2)


def make(folder: Path, count: int) -> None:
    """Smooth shapes with a little noise, which compress about as photos and X-rays do."""
    rng = np.random.default_rng(0)
    for i in range(count):
        side = int(rng.integers(512, 1025))
        shapes = Image.fromarray(rng.integers(0, 256, (side // 32, side // 32, 3), dtype=np.uint8))
        smooth = np.asarray(shapes.resize((side, side), Image.Resampling.BICUBIC)).astype(int)
        image = Image.fromarray((smooth + rng.integers(-3, 4, (side, side, 1))).clip(0, 255).astype(np.uint8))
        image = image.convert("L") if i % 4 >= 2 else image
        image.save(folder / f"{i:04}.{'png' if i % 2 else 'jpg'}")


def plain(folder: Path) -> np.ndarray:
    """What one writes without a second thought."""
    images = []
    for path in sorted(folder.iterdir()):
        with Image.open(path) as image:
            images.append(np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)))
    return np.stack(images)


if __name__ == "__main__":
    main()
