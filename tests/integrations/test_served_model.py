"""The served ensemble by itself: what it takes, and what has to be installed where it runs."""

import ast
import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from erd.integrations.registry import REQUIRED
from erd.weekly.scorer import as_images

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


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (np.zeros((2, 5, 8), np.uint8), "the images are 2×5×8; this model takes N×8×8"),
        (np.zeros((8, 8), np.uint8), "the images are 8×8; this model takes N×8×8"),
        (np.zeros((2, 8, 8, 3), np.uint8), "this model takes N×8×8"),
        (np.full((1, 8, 8), 256), "whole numbers from 0 to 255"),
        (np.full((1, 8, 8), -1), "whole numbers from 0 to 255"),
        (np.full((1, 8, 8), 0.5), "whole numbers from 0 to 255"),
        (np.full((1, 8, 8), np.nan), "whole numbers from 0 to 255"),
        (np.full((1, 8, 8), "7"), "not numbers"),
        ([[[1, 2], [3]]], "differ in size"),
    ],
)
def test_what_is_no_image_is_refused_in_one_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        as_images(given, [8, 8])


def test_no_images_are_an_empty_table() -> None:
    assert as_images([], [8, 8]).shape == (0, 8, 8)
