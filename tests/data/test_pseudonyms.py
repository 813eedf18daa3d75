"""Nobody is named: not by the path of a file either, in whatever way it has a patient's name or number."""

from pathlib import Path

import numpy as np
import pytest
from files_to_read import dicom, grey, halves, save

from erd.data.decode import Patient
from erd.data.pseudonyms import telling
from erd.data.reading import take
from erd.data.sources import load

JANE = Patient("MRN-4711", "Doe^Jane^Mary^^Dr")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The salt of pseudonyms is kept in the current folder."""
    place = tmp_path / "workspace"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("ward 1/scan 2.dcm", set()),
        ("MRN-4711/1.dcm", {0}),
        ("week/mrn4711_01.dcm", {1}),
        ("MRN/4711/1.dcm", {0, 1}),
        ("Doe_Jane/1.dcm", {0}),
        ("doejane.dcm", {0}),
        ("a/JaneDoe7/1.dcm", {1}),
        ("a/JANE DOE/b/DOE.dcm", {1, 3}),
        ("Doe/Jane/1.dcm", {0, 1}),
        ("mary/1.dcm", {0}),
        ("Dr/1.dcm", set()),
        ("does/janet/1.dcm", set()),
    ],
)
def test_where_a_path_tells_who_it_is(path: str, told: set[int]) -> None:
    assert telling(path, JANE) == told


@pytest.mark.parametrize(
    ("patient", "path", "told"),
    [
        (Patient("4711"), "00004711/1.dcm", True),
        (Patient("4711"), "p4711-2.dcm", True),
        (Patient("4711"), "IM14711.dcm", False),  # another number
        (Patient("4711"), "IM47110.dcm", False),
        (Patient("47"), "47/1.dcm", False),  # too short to mean anybody
        (Patient("", "Müller^Änne"), "muller/1.dcm", True),
        (Patient("", "Ng^Li"), "Ng/1.dcm", False),
        (Patient("", "Ng^Li"), "ng-li/1.dcm", True),
        (Patient("", "Yamada^Tarou=山田^太郎=やまだ^たろう"), "山田太郎/1.dcm", True),
        (Patient("", "(Doe^[Jane"), "Jane/1.dcm", True),
        (Patient(), "a/1.dcm", False),
    ],
)
def test_numbers_and_names_of_all_sorts(patient: Patient, path: str, told: bool) -> None:
    assert bool(telling(path, patient)) == told


def test_a_path_with_a_patients_name_goes_no_further(tmp_path: Path, workspace: Path) -> None:
    inbox = tmp_path / "inbox"
    for number in range(2):
        dicom(inbox / f"ward 1/Doe, Jane/{number}.dcm", halves(number, 4095))
        dicom(inbox / f"jane doe {number}.dcm", halves(10 + number, 4095))
    dicom(inbox / "Jane-Doe/frames.dcm", np.zeros((3, 32, 32), np.uint16), NumberOfFrames=3)
    (inbox / "z/doe").mkdir(parents=True)
    (inbox / "z/doe/again.dcm").write_bytes((inbox / "jane doe 0.dcm").read_bytes())
    dicom(inbox / "unnumbered/Doe.dcm", halves(20, 4095), PatientID="")
    dicom(inbox / "other.dcm", halves(30, 4095))
    save(inbox / "Jane.png", grey(1)[0])  # a photograph does not say whom it shows
    taken = take(inbox, 16)
    who = taken.groups[taken.ids.tolist().index("other.dcm")]
    assert set(zip(taken.ids.tolist(), taken.files.tolist(), strict=True)) == {
        (f"ward 1/{who}/0.dcm", ""),
        (f"ward 1/{who}/1.dcm", ""),
        (f"{who}", ""),
        (f"{who}-2", ""),
        ("other.dcm", "other.dcm"),
        ("Jane.png", "Jane.png"),
        (next(name for name in taken.ids if name.startswith("unnumbered/")), ""),
    }
    assert [name for name, _ in taken.rejected] == [f"{who}/frames.dcm", f"z/{who}/again.dcm"]
    assert taken.rejected[1][1] == f"the same file as {who}"
    assert len(set(taken.ids)) == len(taken.ids)
    everything = repr([value.tolist() if isinstance(value, np.ndarray) else value for value in vars(taken).values()])
    assert "doe" not in everything.lower()


def test_class_folders_keep_their_names_whatever_a_patient_is_called(tmp_path: Path) -> None:
    for i, path in enumerate(("train/test/a.dcm", "train/doe/b.dcm", "test/test/Test/c.dcm", "test/doe/d.dcm")):
        dicom(tmp_path / "files" / path, halves(i, 4095), PatientName="Test^Doe")
    source = load("folder", path=tmp_path / "files", image_size=16)
    assert source.classes == ("doe", "test")
    assert source.train.ids.tolist() == ["train/doe/b.dcm", "train/test/a.dcm"]
    (_, hidden) = source.test.ids
    assert hidden.startswith("test/test/")
    assert hidden.endswith("/c.dcm")
    assert "Test" not in hidden


def test_a_manifest_names_nobody_either(tmp_path: Path) -> None:
    place = dicom(tmp_path / "archive/MRN-4711-DOE/1.dcm", halves(0, 4095))
    (tmp_path / "week").mkdir()
    (tmp_path / "week/list.csv").write_text(f"path\n{place}\n")
    taken = take(tmp_path / "week/list.csv", 16)
    assert taken.ids.tolist() == [f"../archive/{taken.groups[0]}/1.dcm"]
    assert taken.files.tolist() == [""]
