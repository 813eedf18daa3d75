"""`erd bench --scenario own`: detectors side by side on a user's own images, some classes of which play the novel."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pictures_of_shapes
import pytest
from small_bench import erd

from erd.data import library, packed
from erd.runs.folder import RunDir
from erd.runs.results import Encoded, Ingested

COUNTS = dict.fromkeys(pictures_of_shapes.KINDS, 22)
METHODS = ("neighbours", "max-softmax")


def bench(*said: str, novel: str = "rings") -> tuple[list[dict[str, Any]], str]:
    """The rows, and what was told meanwhile."""
    words = [part for name in METHODS for part in ("--method", name)]
    for setting in (f"data.novel=[{novel}]", "model.input_size=64", *said):
        words += ["--set", setting]
    code, out, err = erd("bench", "--scenario", "own", "--seeds", "1", "--json", *words)
    assert code == 0, err
    return json.loads(out.splitlines()[-1])["rows"], err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return pictures_of_shapes.files(tmp_path / "labelled", COUNTS)


def test_a_folder_of_class_folders_is_benched_and_the_class_that_is_played_as_novel_is_found(folder: Path) -> None:
    rows, told = bench("data.source=folder", f"data.path={folder}")
    assert [(row["scenario"], row["method"], row["seed"], row["error"]) for row in rows] == [
        ("own", name, 0, None) for name in METHODS
    ]
    assert all(row["evaluated_on"] == "batch" for row in rows)
    found = {row["method"]: row["auroc"] for row in rows}
    assert found["neighbours"] > 0.9
    assert "2 cells to do, 0 are done already" in told
    run = RunDir(Path("bench/own/rings/seed0"))
    facts = Ingested.read(run)
    assert facts.classes == ["blots", "stripes"]
    assert facts.sizes["batch_novel"] == 11
    assert (Encoded.read(run).encoder, Encoded.read(run).input_size) == ("tf_efficientnet_lite0", 64)
    assert rows[0]["otherwise"]["data.novel"] == ["rings"], "the table says what was played as novel"


def test_the_same_again_does_nothing_and_another_class_is_another_folder(folder: Path) -> None:
    said = ("data.source=folder", f"data.path={folder}")
    first, _ = bench(*said)
    results = Path("bench/own/rings/seed0/results")
    before = {path: path.stat().st_mtime_ns for path in sorted(results.iterdir())}
    again, told = bench(*said)
    assert again == first
    assert "0 cells to do, 2 are done already" in told
    assert "images to encode" not in told
    assert {path: path.stat().st_mtime_ns for path in sorted(results.iterdir())} == before

    other, told = bench(*said, novel="blots")
    assert "2 cells to do, 0 are done already" in told
    assert Ingested.read(RunDir(Path("bench/own/blots/seed0"))).classes == ["rings", "stripes"]
    assert {path: path.stat().st_mtime_ns for path in sorted(results.iterdir())} == before, "both are kept"
    assert [row["otherwise"]["data.novel"] for row in (first[0], other[0])] == [["rings"], ["blots"]]


def test_a_library_and_an_npz_are_benched_as_a_folder_is(folder: Path, tmp_path: Path) -> None:
    library.take_in(folder, None, tmp_path / "library")
    rows, _ = bench("data.least=10")
    assert [row["error"] for row in rows] == [None, None]
    assert rows[0]["auroc"] > 0.9
    stored = sorted((tmp_path / "library" / "features").rglob("*.safetensors"))
    assert stored, "features are kept with the library: the weekly run need not encode again"
    images, kinds = pictures_of_shapes.arrays(COUNTS)
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=kinds)
    rows, _ = bench("data.source=npz", f"data.path={tmp_path / 'mine.npz'}", novel="stripes")
    assert [row["error"] for row in rows] == [None, None]
    assert rows[0]["auroc"] > 0.9
    assert sorted((tmp_path / "library" / "features").rglob("*.safetensors")) == stored


def test_outliers_are_no_more_than_the_labelled_images_wherever_these_are_kept(folder: Path, tmp_path: Path) -> None:
    """The library also holds the images that are played as novel, and those of the batch."""
    library.take_in(folder, None, tmp_path / "library")
    words = ("--set", "data.novel=[rings]", "--set", "data.least=10", "--set", "model.input_size=64")
    code, _, err = erd("bench", "--scenario", "own", "--method", "oe", "--seeds", "1", "--json", *words)
    assert code == 0, err
    run = RunDir(Path("bench/own/rings/seed0"))
    outliers = packed.read(run.root / "data" / "outliers.safetensors").images
    assert outliers.shape[1:] == (1, 1, 1432), "features, as all that the nets see"
    assert len(outliers) <= len(packed.read(run.labeled))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (("data.source=folder", "data.novel=[ring]"), "data.novel names the class 'ring': did you mean 'rings'?"),
        (("data.source=folder", "data.novel=[rings,blots]"), "has 1 known class; a classifier needs two or more"),
        (("data.source=folder", "data.novel=[rings]", "model.input_size=16"), "'model.input_size'"),
        (("data.novel=[rings]",), "take some in with `erd ingest --labeled DIR`"),
    ],
    ids=["no such class", "too few", "too small", "no library"],
)
def test_what_cannot_be_benched_is_one_sentence(folder: Path, said: tuple[str, ...], sentence: str) -> None:
    path = [f"data.path={folder}"] if "data.source=folder" in said else []
    words = [part for setting in (*said, *path) for part in ("--set", setting)]
    code, out, err = erd("bench", "--scenario", "own", "--method", "max-softmax", "--seeds", "1", "--json", *words)
    assert code in (1, 2)
    assert out == ""
    assert sentence in err.splitlines()[-1]
    assert "Traceback" not in err
