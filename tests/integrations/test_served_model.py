"""The served ensemble by itself: what it takes, and what has to be installed where it runs."""

import ast
import base64
import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from erd.data.arrays import as_labeled
from erd.data.decode import Unfit, decode
from erd.data.given import as_images
from erd.integrations.registry import REQUIRED

LOADED = """
import json, sys
import erd.integrations.served_model
print(json.dumps([module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "erd"]))
"""


def test_whatever_it_imports_is_named_as_a_requirement() -> None:
    """Where MLflow makes an environment for the model there is nothing else."""
    said = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout
    distributions = packages_distributions()
    needed = set()
    for file in json.loads(said.splitlines()[-1]):
        for statement in ast.parse(Path(file).read_text()).body:  # what a function imports is its own affair
            named = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
            named += [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            tops = {name.partition(".")[0] for name in named} - {"erd", *sys.stdlib_module_names}
            needed |= {distribution.lower() for top in tops for distribution in distributions[top]}
    needed -= {"mlflow-skinny", "mlflow-tracing"}  # parts of mlflow
    assert needed <= set(REQUIRED)


@pytest.mark.parametrize(
    "given",
    [
        np.full((2, 8, 8), 7, np.uint8),
        np.full((2, 8, 8), 7, np.int64),
        np.full((2, 8, 8), 7.0),
        [[[7] * 8] * 8] * 2,
        np.full((8, 8, 2), 7, np.uint8).transpose(2, 0, 1),
    ],
    ids=["bytes", "whole numbers", "floats that are whole", "lists", "another order in memory"],
)
def test_images_are_taken_as_arrays_or_as_json_makes_them(given: Any) -> None:
    images = as_images(given, [8, 8])
    assert images.dtype == np.uint8
    assert images.shape == (2, 8, 8)
    assert (images == 7).all()


def picture(tmp_path: Path, name: str, size: tuple[int, int], mode: str = "L") -> Path:
    """A file with random pixels, of that width and height."""
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    pixels = np.random.default_rng(sum(size)).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize("how", ["bytes", "base64", "a data address", "a column", "records", "pixels"])
def test_files_and_arrays_of_any_size_come_out_as_ingest_makes_them(tmp_path: Path, how: str) -> None:
    paths = [
        picture(tmp_path, "wide.png", (40, 30)),
        picture(tmp_path, "small.png", (9, 12), "RGB"),
        picture(tmp_path, "photo.jpg", (640, 480), "RGB"),
    ]
    contents = [path.read_bytes() for path in paths]
    coded = [base64.b64encode(content).decode() for content in contents]
    given = {
        "bytes": contents,
        "base64": np.array(coded),
        "a data address": [f"data:image/png;base64,{text}" for text in coded],
        "a column": pd.DataFrame({"image": contents}),
        "records": [{"image": text} for text in coded],
        "pixels": [np.asarray(Image.open(path)) for path in paths[:2]],
    }[how]
    for shape in ([16, 16], [16, 16, 3]):
        images = as_images(given, shape)
        for image, path in zip(images, paths, strict=False):
            assert (image == as_labeled(decode(path, 16).pixels[None], len(shape) == 3)[0]).all()


def test_an_array_of_another_size_is_resized_and_one_of_the_right_size_is_left_alone(tmp_path: Path) -> None:
    large = np.asarray(Image.open(picture(tmp_path, "a.png", (64, 64))))
    assert (as_images(large[None], [16, 16])[0] == decode(tmp_path / "a.png", 16).pixels).all()
    assert (as_images(large[None], [64, 64])[0] == large).all()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (np.zeros((2, 5, 8), np.uint8), r"image 1 of 2: too small \(8×5 pixels; at least 8×8\)"),
        (np.zeros((8, 8), np.uint8), "one array of 8×8, not several images; send a list"),
        (np.zeros((32, 32, 3), np.uint8), "one array of 32×32×3, not several images"),
        (np.zeros((2, 3, 32, 32), np.uint8), "image 1 of 2: has the shape 3×32×32, .* move the channels last"),
        (np.full((1, 8, 8), 256), "whole numbers from 0 to 255"),
        (np.full((1, 8, 8), -1), "whole numbers from 0 to 255"),
        (np.full((1, 9, 9), 0.5), "image 1 of 1: pixel values must be whole numbers from 0 to 255"),
        (np.full((1, 8, 8), np.nan), "whole numbers from 0 to 255"),
        ([b"GIF89a, or not"], "image 1 of 1: not an image of a known format"),
        ([b""], "image 1 of 1: empty"),
        (["cat.png"], "image 1 of 1: 'cat.png…' is text, and no file's content in base64"),
        ("iVBORw0KGgo=", "no list of images but str; send a list"),
        ([[[1, 2], [3]]], "image 1 of 1: its rows differ in length"),
        ([None], "image 1 of 1: neither an array"),
        (pd.DataFrame({"image": [], "name": []}), "there is one column, `image`, not image, name"),
    ],
)
def test_what_is_no_image_is_refused_in_one_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(Unfit, match=sentence) as refused:
        as_images(given, [8, 8])
    assert "\n" not in str(refused.value)


def test_no_images_are_an_empty_table() -> None:
    assert as_images([], [8, 8]).shape == (0, 8, 8)
    assert as_images(np.zeros((0, 8, 8), np.uint8), [8, 8]).shape == (0, 8, 8)
