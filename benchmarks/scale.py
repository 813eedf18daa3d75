"""What a week costs per image, and from that on paper: 100 sites with a million images a week each.

    python benchmarks/scale.py --json                            # 1,000 and 2,000 images; some minutes on one core
    python benchmarks/scale.py --images 500 --json               # a quick look
    python benchmarks/scale.py --output docs/scale.md            # and the tables of that page

The stages of a weekly run, one after another on one thread, on a batch and on one of twice its size: pictures of digits
as JPEG files of 224 pixels, a library of labelled ones, the defaults for own images. Told are the seconds that 10,000
images more take (the difference of the two sizes, so that what a run costs anyway is not in it), by how much the stage
grows when the batch doubles, and the bytes that an image takes in each file. `paper` extrapolates it; what it takes for
granted is in ASSUMED.
"""

import argparse
import contextlib
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
SIDE = 224
TINTS = ((1.0, 0.8, 0.5), (0.5, 0.9, 1.0), (0.9, 1.0, 0.6))  # grey images would be kept in one channel
MANY = 10_000
SITES, A_WEEK = 100, 1_000_000
ASSUMED = {
    "work of the encoder, FLOP an image": 0.8e9,  # EfficientNet-Lite0 at 224 pixels: 0.4 billion multiplications
    "a GPU's pace in earnest, FLOP a second": 20e12,  # a tenth of what a present one has on paper, in half precision
    "rows a run in MLflow's database": 730,  # measured by benchmarks/soak.py, three members; not one of them per image
    "rows a run in Prefect's database": 410,
    "files a run sends to MLflow": 240,  # most of them the code that a model is served with
    "pieces of an object that is sent, bytes": 64e6,
}
BOTH = ("data.settle=0", "run.runner=serial")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000, help="of the smaller batch (default: %(default)s)")
    parser.add_argument("--labelled", type=int, default=1_000)
    parser.add_argument("--output", type=Path, metavar="FILE", help="put the tables between the marks of a page")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    from erd.bench import page_parts

    if arguments.output:
        arguments.output = arguments.output.resolve()
        page_parts.check(arguments.output, "scale")
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        found = measured(arguments.images, arguments.labelled, quiet=arguments.json)
    found["paper"] = paper(found)
    if arguments.output:
        page_parts.into(arguments.output, "scale", tables(found))
    print(json.dumps(found))


def measured(images: int, labelled: int, *, quiet: bool = False) -> dict[str, Any]:
    from soak import erd

    pictures(Path("scans"), labelled, seed=0, folders=True)
    erd("ingest", "--labeled", "scans")
    weeks = [week(name, count, quiet) for name, count in (("warm", 32), ("half", images), ("whole", 2 * images))]
    _, half, whole = weeks
    stages = {
        name: {
            "seconds": [half["seconds"][name], whole["seconds"][name]],
            "seconds_per_10000": round(max(0.0, whole["seconds"][name] - half["seconds"][name]) / images * MANY, 1),
            "twice_as_many": round(whole["seconds"][name] / max(half["seconds"][name], 1e-3), 2),
        }
        for name in whole["seconds"]
    }
    grown = {name: (whole["bytes"][name] - half["bytes"].get(name, 0)) / images for name in whole["bytes"]}
    return {
        "machine": platform.processor() or platform.machine(),
        "threads": 1,
        "images": [images, 2 * images],
        "labelled": labelled,
        "stages": stages,
        "bytes_per_image": {name: round(size) for name, size in grown.items() if size >= 1},
    }


def pictures(folder: Path, count: int, seed: int, *, folders: bool = False) -> Path:
    """JPEG files in colour; in a folder for each class where that is asked for."""
    from PIL import Image
    from soak import drawn

    for number, (image, digit) in enumerate(itertools.islice(drawn(seed), count)):
        place = folder / f"digit {digit}" if folders else folder
        place.mkdir(parents=True, exist_ok=True)
        large = image.resize((SIDE, SIDE))
        tinted = [large.point(lambda value, share=share: int(value * share)) for share in TINTS[number % len(TINTS)]]
        Image.merge("RGB", tinted).save(place / f"{number:06}.jpg", quality=90)
    return folder


def week(name: str, count: int, quiet: bool) -> dict[str, Any]:
    """The stages of a run, each with its seconds; and the bytes of the files it left."""
    from erd.runs.configure import settings_for
    from erd.runs.folder import RunDir
    from erd.weekly import chain

    pictures(Path("inbox") / name, count, seed=count)
    settings = settings_for(scenario="own", batch=name, overrides=[*BOTH, "data.window=1"])
    run, seconds = RunDir.of(settings), {}
    for stage in chain.CHAIN:
        before = busy()
        chain.run(stage, settings, run)
        seconds[stage.name] = round(busy() - before, 2)
    if not quiet:
        print(json.dumps({"images": count, "seconds": seconds}), file=sys.stderr, flush=True)
    sizes = {path.relative_to(run.root).as_posix(): path.stat().st_size for path in run.root.rglob("*")
             if path.is_file() and not path.name.endswith(".json")}  # fmt: skip
    sizes["in the inbox"] = sum(path.stat().st_size for path in (Path("inbox") / name).iterdir())
    shutil.rmtree(Path("inbox") / name)
    return {"seconds": seconds, "bytes": sizes}


def busy() -> float:
    """Seconds of the processor, of this process and those it started: what else runs on the machine is not in it."""
    return sum(os.times()[:4])


def paper(found: dict[str, Any]) -> dict[str, Any]:
    """A week of all sites, as if every stage went on growing in proportion to the images."""
    per_image = {name: one["seconds_per_10000"] / MANY for name, one in found["stages"].items()}
    sizes, images = found["bytes_per_image"], SITES * A_WEEK
    packed, features = sizes.get("data/batch.safetensors", 0), sizes.get("features/batch.safetensors", 0)
    tracked = packed + features  # DVC's copy
    flops = ASSUMED["work of the encoder, FLOP an image"] * images
    pieces = images * tracked / ASSUMED["pieces of an object that is sent, bytes"]
    return {
        "sites": SITES,
        "images_a_site": A_WEEK,
        "core_hours": {name: round(images * seconds / 3600) for name, seconds in per_image.items()},
        "core_hours_a_site": round(A_WEEK * sum(per_image.values()) / 3600, 1),
        "gpu_hours_to_encode": round(flops / ASSUMED["a GPU's pace in earnest, FLOP a second"] / 3600, 1),
        "terabytes": {
            "images as they come": round(images * sizes.get("in the inbox", 0) / 1e12, 2),
            "packed": round(images * packed / 1e12, 2),
            "features, in a run and kept once": round(images * 2 * features / 1e12, 2),
            "DVC's copy": round(images * tracked / 1e12, 2),
            "all else in the run": round(images * (sum(sizes.values()) - tracked - sizes["in the inbox"]) / 1e12, 2),
        },
        "gigabytes_in_memory_a_site": round(A_WEEK * features * 2 / 1e9, 1),  # features as 32-bit numbers
        "database_rows": {
            tool: round(SITES * ASSUMED[f"rows a run in {tool}'s database"]) for tool in ("MLflow", "Prefect")
        },
        "object_store_requests": round(
            2 * pieces + SITES * ASSUMED["files a run sends to MLflow"]
        ),  # each is looked for
    }


def tables(found: dict[str, Any]) -> str:
    """The figures of docs/scale.md."""
    small, large = found["images"]
    lines = [
        f"Measured with {small:,} and {large:,} images beside {found['labelled']:,} labelled ones, one thread.",
        "",
        f"| stage | {small:,} images, s | {large:,} images, s | 10,000 more, s | when the batch doubles |",
        "|---|---|---|---|---|",
    ]
    for name, one in found["stages"].items():
        first, second = one["seconds"]
        lines.append(f"| {name} | {first:,} | {second:,} | {one['seconds_per_10000']:,} | × {one['twice_as_many']} |")
    lines += ["", "| bytes an image | |", "|---|---|"]
    lines += [
        f"| `{name}` | {size:,} |" for name, size in sorted(found["bytes_per_image"].items(), key=lambda one: -one[1])
    ]
    on_paper = found["paper"]
    lines += ["", f"| {SITES} sites × {A_WEEK:,} images, a week | |", "|---|---|"]
    for name, hours in on_paper["core_hours"].items():
        lines.append(f"| core hours, {name} | {hours:,} |")
    lines.append(f"| core hours of one site | {on_paper['core_hours_a_site']:,} |")
    lines.append(f"| GPU hours to encode instead | {on_paper['gpu_hours_to_encode']:,} |")
    lines += [f"| TB, {name} | {size:,} |" for name, size in on_paper["terabytes"].items()]
    lines.append(f"| GB of features in memory, one site | {on_paper['gigabytes_in_memory_a_site']:,} |")
    lines += [f"| rows in {tool}'s database | {rows:,} |" for tool, rows in on_paper["database_rows"].items()]
    lines.append(f"| requests to the object store | {on_paper['object_store_requests']:,} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
