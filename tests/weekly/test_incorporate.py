"""What experts agreed on becomes labelled images: once, in the right place, and back out again."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from batches_to_review import BATCH, make

from erd.base.errors import UserError
from erd.data import library
from erd.data.library import Library
from erd.runs.answers import Answer, Answers
from erd.runs.folder import RunDir
from erd.weekly import incorporate


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    ids = [f"first/{number}" for number in range(300)]
    labels = [f"digit {number % 5}" for number in range(300)]
    columns = {"id": ids, "sha256": ids, "label": labels, "group": ids}
    library.save(Library(np.zeros((300, 8, 8), np.uint8), library.table(columns, 300)), tmp_path / "library")
    return make(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "library"


ticks = itertools.count()


def say(run: RunDir, row: int, label: str | None, *, kind: str = "class", who: str = "ada", on: str = "flagged") -> str:
    image, at = pd.read_parquet(run.scores)["id"].iloc[row], f"2026-11-16T08:00:00.{next(ticks):06}+00:00"
    Answers(run.answers).add(Answer(image=image, kind=kind, label=label, reviewer=who, list=on, at=at))
    return image


def brought(place: Path) -> pd.DataFrame:
    table = library.read(place).table
    return table[table["batch"] != ""].set_index("id")


def test_agreed_classes_enter_and_nothing_else(run: RunDir, place: Path) -> None:
    say(run, 0, "digit 7")
    say(run, 1, "digit 2")
    say(run, 2, None, kind="not-novel")
    say(run, 3, None, kind="bad")
    say(run, 4, "digit 7", who="ada")
    say(run, 4, "digit 9", who="bob")
    done = incorporate.incorporate(run, place)
    assert (done.added, done.new_classes, done.waiting, done.disagreed) == (2, ["digit 7"], {"digit 7": 1}, 1)
    assert sorted(brought(place)["label"]) == ["digit 2", "digit 7"]
    assert all(name.startswith(f"{BATCH}/") for name in brought(place).index), "next week has the same file names"


def test_the_pixels_are_those_of_the_batch(run: RunDir, place: Path) -> None:
    from erd.data import packed

    say(run, 5, "digit 7")
    incorporate.incorporate(run, place)
    whole = library.read(place)
    assert np.array_equal(whole.images[-1], packed.read(run.batch).images[5].numpy())


def test_images_of_the_audit_are_marked_as_such(run: RunDir, place: Path) -> None:
    drawn, flagged = say(run, 0, "digit 1", on="audit"), say(run, 2, "digit 1")
    incorporate.incorporate(run, place)
    audited = brought(place)["audited"]
    assert audited[f"{BATCH}/{drawn}"]
    assert not audited[f"{BATCH}/{flagged}"]


def test_twice_is_once_and_later_answers_count(run: RunDir, place: Path) -> None:
    say(run, 0, "digit 7")
    incorporate.incorporate(run, place)
    again = incorporate.incorporate(run, place)
    assert (again.added, len(library.read(place))) == (1, 301)
    say(run, 0, "digit 8")
    say(run, 1, "digit 8")
    assert incorporate.incorporate(run, place).added == 2
    assert brought(place)["label"].tolist() == ["digit 8", "digit 8"]


def test_it_can_be_taken_back_to_the_same_bytes(run: RunDir, place: Path) -> None:
    before = [path(place).read_bytes() for path in (library.packed, library.manifest)]
    say(run, 0, "digit 7")
    incorporate.incorporate(run, place)
    assert incorporate.take_back(run, place).removed == 1
    assert [path(place).read_bytes() for path in (library.packed, library.manifest)] == before
    with pytest.raises(UserError, match="nothing of 2026-W46 is in the labelled images"):
        incorporate.take_back(run, place)


def test_an_image_that_is_labelled_already_does_not_enter(run: RunDir, place: Path) -> None:
    say(run, 0, "digit 7")
    incorporate.incorporate(run, place)
    copy = make(run.root.parent.parent, name="2026-W47")
    say(copy, 0, "digit 7")
    assert incorporate.incorporate(copy, place).added == 0


def test_without_an_answer_it_is_one_sentence(run: RunDir, place: Path) -> None:
    with pytest.raises(UserError, match="nobody has answered anything about 2026-W46: `erd review --batch 2026-W46`"):
        incorporate.incorporate(run, place)
