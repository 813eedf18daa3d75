"""`erd ingest`: what it tells, what it asks before images are lost, and what it does not take for classes."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from erd.cli import main
from erd.data import library
from erd.data.decode import decode
from erd.data.library import Library


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pictures(folder: Path, classes: dict[str, int], side: int = 12) -> Path:
    rng = np.random.default_rng([*folder.as_posix().encode()])  # no picture is in two folders
    for name, count in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (side, side), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03}.png")
    return folder


class Terminal(io.StringIO):
    """A person who types."""

    def isatty(self) -> bool:
        return True


def test_it_tells_images_a_class_and_the_size_it_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    pictures(Path("scans"), {"cat": 12, "dog": 3})
    assert main(["ingest", "--labelled", "scans"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "15 labelled images, of 2 classes", "class  images", "cat    12", "dog    3", "kept at 12×12 pixels",
    ]  # fmt: skip
    assert main(["ingest", "--labeled", "scans", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"cat": 12, "dog": 3}


def test_labelled_images_are_not_lost_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", "--labeled", str(pictures(Path("scans"), {"cat": 12, "dog": 3}))]) == 0
    before = library.packed(library.PLACE).read_bytes()
    fewer = str(pictures(Path("other"), {"cat": 5, "cow": 9}))
    assert main(["ingest", "--labeled", fewer]) == 2
    assert "would lose some (cat 12 → 5, dog 3 → 0); say --replace if that is meant" in capsys.readouterr().err
    assert library.packed(library.PLACE).read_bytes() == before
    assert main(["ingest", "--labeled", fewer, "--replace"]) == 0
    assert set(library.read().table["label"]) == {"cat", "cow"}
    more = str(pictures(Path("more"), {"cat": 6, "cow": 9, "dog": 2}))
    assert main(["ingest", "--labeled", more]) == 0, "where no class has fewer, nothing is asked"


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 2), ("no\n", 2)])
def test_a_person_is_asked(
    typed: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", "--labeled", str(pictures(Path("scans"), {"cat": 12, "dog": 3}))]) == 0
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert main(["ingest", "--labeled", str(pictures(Path("other"), {"cat": 12}))]) == code
    assert "Labelled images would be lost: dog 3 → 0. Replace them? [y/N]" in capsys.readouterr().err
    assert ("dog" in set(library.read().table["label"])) == (code != 0)


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (["labelled/cat", "labelled/dog", "inbox/2026-W46"], "has the folder inbox, which is no class"),
        (["scans/cat", "scans/dog"], "scans holds only folders (cat, dog), which look like the classes"),
        (["2025/cat", "2025/dog", "2026/cat", "2026/dog"], "2025, 2026 in there each hold only folders (cat, dog)"),
    ],
    ids=["a workspace", "one folder too high", "by year"],
)
def test_folders_of_class_folders_are_not_taken_for_classes(
    folders: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in folders:
        pictures(Path("there") / name, {".": 3})
    assert main(["ingest", "--labeled", "there"]) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert said in sentence
    assert "name the folder that holds the class folders" in sentence
    assert not Path("library").exists()


def test_folders_below_a_class_are_fine(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cat/patient 1", "cat/patient 2", "dog/patient 2", "dog/patient 3", "library/patient 4"):
        pictures(Path("scans") / name, {".": 2})
    assert main(["ingest", "--labeled", "scans", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"cat": 4, "dog": 4, "library": 2}


def test_another_size_takes_what_reviews_brought_from_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    """And from the pixels that were kept, where a file is gone or another one now: no batch has to be taken back."""
    scans, inbox = pictures(Path("scans"), {"cat": 4}, 40), pictures(Path("inbox/W45"), {"a": 3}, 40) / "a"
    library.take_in(scans, 16)
    originals = [path.as_posix() for path in sorted(inbox.iterdir())]
    small = [decode(Path(path), 16) for path in originals]
    columns = {"id": originals, "sha256": [one.sha256 for one in small], "label": "dog", "group": originals,
               "batch": "W45", "original": originals}  # fmt: skip
    library.save(library.read().joined(Library(np.stack([one.pixels for one in small]), library.table(columns, 3))))
    Path(originals[1]).unlink()
    Image.new("L", (40, 40)).save(originals[2])
    assert main(["ingest", "--labeled", "scans", "--set", "data.image_size=40"]) == 0
    assert "2 images from reviews were brought to that size as they were kept" in capsys.readouterr().out
    after = library.read()
    images = np.asarray(after.images)[after.of_batch("W45")]
    np.testing.assert_array_equal(images[0], np.asarray(Image.open(originals[0])))
    assert images[2].std() > 0, "not the picture that has the name now"
    assert after.table["label"].value_counts().to_dict() == {"cat": 4, "dog": 3}


def test_a_library_of_an_earlier_version_is_read() -> None:
    library.take_in(pictures(Path("scans"), {"cat": 4}), 8)
    now = library.read()
    library.save(Library(np.asarray(now.images), now.table.drop(columns="original")))
    assert library.read().table["original"].tolist() == [""] * 4
