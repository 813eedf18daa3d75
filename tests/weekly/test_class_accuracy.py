"""What a classifier has learned since the one before: on the same images, none of which either was trained on."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from chains import do
from sklearn.datasets import load_digits

from erd.base import files
from erd.data import library, packed
from erd.data.library import Library
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy
from erd.settings.schema import Settings
from erd.weekly import class_accuracy

FAST = ["model.net=mlp", "pretrain.epochs=15", "pretrain.batch_size=32", "data.image_size=8", "run.runner=serial"]


def week(place: Path, name: str, classes: int, seed: int = 0) -> tuple[Settings, RunDir]:
    """Digits of some classes as the library, a few as the batch; ingested and pretrained."""
    digits, labels = load_digits(return_X_y=True)
    images = (digits.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    chosen = np.flatnonzero(labels < classes)[:400]
    ids = [f"i{row}" for row in chosen]
    columns = {"id": ids, "sha256": ids, "label": [f"digit {labels[row]}" for row in chosen], "group": ids}
    library.save(Library(images[chosen], library.table(columns, len(ids))), place / "library")
    np.savez(place / "batch.npz", x_train=images[-40:])
    overrides = [*FAST, f"seed={seed}", f"data.path={place / 'library'}", f"data.inbox={place / 'batch.npz'}"]
    settings = settings_for(scenario="own", batch=name, overrides=overrides)
    run = RunDir.of(settings, place)
    do(settings, run, "ingest", "pretrain")
    at = f"2026-11-16T00:00:{len(name):02}+00:00"
    files.save_json(run.record("score"), {"key": "", "outputs": {}, "started": at, "finished": at})
    return settings, run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learned")


@pytest.fixture(scope="module")
def weeks(place: Path) -> list[tuple[Settings, RunDir]]:
    return [week(place, "W1", 4), week(place, "W02", 5)]


def test_the_first_classifier_has_nothing_to_be_compared_with(weeks: list, place: Path) -> None:
    settings, run = weeks[0]
    found = class_accuracy.side_by_side(settings, run, None)
    assert found.before is None
    assert found.accuracy_before is None
    assert found.accuracy is not None
    assert found.accuracy > 0.85


def test_a_new_class_is_new_and_the_others_are_compared(weeks: list) -> None:
    settings, run = weeks[1]
    do(settings, run, "validate")
    found = ClassAccuracy.read(run)
    assert found is not None
    assert found.before == "W1"
    by_name = {row.name: row for row in found.classes}
    assert by_name["digit 4"].before is None
    assert (by_name["digit 4"].now or 0) > 0.8
    assert (by_name["digit 0"].before or 0) > 0.8
    assert found.accuracy is not None
    assert found.accuracy_before is not None
    assert found.accuracy > found.accuracy_before + 0.1, "a fifth of the images is of a class it had never seen"
    assert found.refused == []


def test_no_image_is_one_that_either_was_trained_on(weeks: list) -> None:
    (_, first), (settings, second) = weeks
    before, after = (pd.read_parquet(packed.manifest(run.labeled)).set_index("id")["part"] for run in (first, second))
    counted = set(after.index[after != "train"]) - set(before.index[before == "train"])
    assert class_accuracy.side_by_side(settings, second, first).images == len(counted)
    assert len(counted) < (after != "train").sum(), "otherwise the test shows nothing"


def test_the_run_before_is_the_last_of_the_same_stream(weeks: list, place: Path) -> None:
    settings, run = weeks[1]
    assert class_accuracy.previous(settings, run) == RunDir(place / "runs" / "W1")
    assert class_accuracy.previous(*weeks[0]) is None, "nor when it is run again after the later one"
    other = settings.override({"track.experiment": "another stream"})
    assert class_accuracy.previous(other, run) is None


def test_a_classifier_of_another_size_is_not_compared(weeks: list) -> None:
    (_, first), (settings, second) = weeks
    facts = files.load_facts(first.pretrained)
    tensors, _ = files.load_tensors(first.pretrained)
    changed = RunDir(first.root.with_name("changed"))
    facts["net"]["image_size"] = 16
    files.save_tensors(changed.pretrained, dict(tensors), facts)
    files.copy(packed.manifest(first.labeled), packed.manifest(changed.labeled))
    assert class_accuracy.side_by_side(settings, second, changed).before is None
