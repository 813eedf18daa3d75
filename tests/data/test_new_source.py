"""A new source is one file, and nothing else has to be told of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import erd
from erd.data.sources.base import Source, Wanted, source

MINE = """
import numpy as np

from erd.data.sources.base import Source, Wanted, images_of, source


@source("stripes", shows="patterns")
def stripes(wanted: Wanted) -> Source:
    images = np.zeros((4, 8, 8), np.uint8)
    images[::2, ::2] = 255
    made = images_of("stripes", images, np.array([0, 1, 0, 1]))
    return Source("stripes", ("yes", "no"), made, made.take([]))
"""


def test_a_new_source_is_one_file(tmp_path: Path) -> None:
    package = Path(erd.__file__).parent
    shutil.copytree(package, tmp_path / "erd", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "erd/data/sources/stripes.py").write_text(MINE)
    code = (
        "from erd.data import sources; from erd.data.outliers import SOURCES; found = sources.load('stripes', "
        "image_size=16); print(found.train.images.shape, found.train.ids[3], SOURCES['stripes'].shows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.stdout == "(4, 16, 16) stripes/00003 patterns\n", done.stderr


def test_two_sources_of_one_name_are_refused() -> None:
    def read(wanted: Wanted) -> Source:
        raise NotImplementedError

    with pytest.raises(ValueError, match="two sources are called digits"):
        source("digits")(read)
