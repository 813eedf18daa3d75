"""DICOM: the picture as a radiologist sees it, and that nothing of a patient gets out."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files_to_read import SECRET, dicom, grey, halves, same, save

from erd.base.errors import RunError
from erd.data.decode import decode, greys, has_greys, opened
from erd.data.reading import take


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The salt of pseudonyms is kept in the current folder."""
    place = tmp_path / "workspace"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def ends(path: Path) -> tuple[int, int]:
    """The grey of the upper and of the lower half."""
    pixels = decode(path, 32).pixels
    assert pixels.shape == (32, 32)
    return int(pixels[0, 0]), int(pixels[-1, 0])


def test_dicom_without_a_window_scales_by_the_bits_stored(tmp_path: Path) -> None:
    assert ends(dicom(tmp_path / "a.dcm", halves(0, 4095))) == (0, 255)
    assert ends(dicom(tmp_path / "b.dcm", halves(0, 2048))) == (0, 128)  # not by its own range
    assert ends(dicom(tmp_path / "c.dcm", halves(0, 65535), BitsStored=16, HighBit=15)) == (0, 255)
    assert ends(dicom(tmp_path / "d.dcm", halves(-2048, 2047, np.int16))) == (0, 255)
    assert ends(dicom(tmp_path / "e.dcm", halves(10, 200, np.uint8))) == (10, 200)


def test_dicom_monochrome1_is_inverted(tmp_path: Path) -> None:
    assert ends(dicom(tmp_path / "a.dcm", halves(0, 4095), PhotometricInterpretation="MONOCHROME1")) == (255, 0)


def test_dicom_window_after_slope_and_intercept(tmp_path: Path) -> None:
    """CT: stored 0…4095 is −1024…3071 HU; of a window from −900 to −300 HU all below is black, all above white."""
    hounsfield = {"RescaleSlope": 1, "RescaleIntercept": -1024}
    lung = {"WindowCenter": -600, "WindowWidth": 600}
    assert ends(dicom(tmp_path / "a.dcm", halves(0, 1400), **hounsfield, **lung)) == (0, 255)
    black, middle = ends(dicom(tmp_path / "b.dcm", halves(0, 1024 - 600), **hounsfield, **lung))
    assert black == 0
    assert middle == pytest.approx(128, abs=1)
    two = {"WindowCenter": [-600, 40], "WindowWidth": [600, 400]}  # the first is the one the scanner prefers
    assert ends(dicom(tmp_path / "c.dcm", halves(0, 1024 - 600), **hounsfield, **two)) == (black, middle)


def test_dicom_voi_table(tmp_path: Path) -> None:
    from pydicom.dataset import Dataset

    table = Dataset()
    table.LUTDescriptor = [4096, 0, 12]
    table.LUTData = (4095 - np.arange(4096)).astype("<u2").tobytes()
    file = dicom(tmp_path / "a.dcm", halves(0, 4095), VOILUTSequence=[table])
    assert ends(file) == (255, 0)


LUNG = {"RescaleSlope": 1, "RescaleIntercept": -1024, "WindowCenter": -600, "WindowWidth": 600}


@pytest.mark.parametrize(
    "elements",
    [{}, {"PhotometricInterpretation": "MONOCHROME1"}, LUNG, LUNG | {"VOILUTFunction": "LINEAR_EXACT"},
     LUNG | {"WindowCenter": [-600, 40], "WindowWidth": [600, 400], "PhotometricInterpretation": "MONOCHROME1"}],
    ids=["plain", "inverted", "window", "exact", "two windows, inverted"],
)  # fmt: skip
def test_all_greys_of_a_scan_are_those_that_are_shown_and_more(tmp_path: Path, elements: dict[str, Any]) -> None:
    values = np.random.default_rng(0).integers(0, 4096, (32, 32)).astype(np.uint16)
    file = dicom(tmp_path / "a.dcm", values, **elements)
    found, shown = greys(file), np.asarray(opened(file, 32).image, int)
    assert found is not None
    assert has_greys(file)
    assert np.abs(np.rint(255 * np.asarray(found).clip(0, 1)) - shown).max() <= 1
    if "WindowWidth" in elements:
        assert np.ptp(np.asarray(found)) > 2, "bone, which the window of lungs shows white like all above it"


def test_of_other_scans_there_are_no_more_greys_than_shown(tmp_path: Path) -> None:
    eight, broken = dicom(tmp_path / "a.dcm", halves(10, 200, np.uint8)), tmp_path / "b.dcm"
    broken.write_bytes(eight.read_bytes()[:200])
    curved = dicom(tmp_path / "c.dcm", halves(0, 4095), **LUNG, VOILUTFunction="SIGMOID")
    assert [has_greys(file) for file in (eight, broken, curved)] == [False, False, False]
    assert greys(curved) is None


def test_dicom_in_colour(tmp_path: Path) -> None:
    values = np.zeros((1, 32, 32, 3), np.uint8) + np.array([200, 100, 0], np.uint8)
    extra = {"SamplesPerPixel": 3, "PlanarConfiguration": 0, "PhotometricInterpretation": "RGB"}
    assert decode(dicom(tmp_path / "a.dcm", values, **extra), 8).pixels[4, 4].tolist() == [200, 100, 0]


def test_dicom_is_known_by_its_mark_too(tmp_path: Path) -> None:
    os.rename(dicom(tmp_path / "a.dcm", halves(0, 4095)), tmp_path / "IM000001")
    assert ends(tmp_path / "IM000001") == (0, 255)


def test_dicom_without_its_file_header(tmp_path: Path) -> None:
    content = dicom(tmp_path / "a.dcm", halves(0, 4095)).read_bytes()
    length = int.from_bytes(content[140:144], "little")  # of the header's elements
    (tmp_path / "b.DCM").write_bytes(content[144 + length :])
    assert ends(tmp_path / "b.DCM") == (0, 255)


def test_dicom_that_cannot_be_used(tmp_path: Path, workspace: Path) -> None:
    inbox = tmp_path / "inbox"
    whole = dicom(inbox / "frames.dcm", np.zeros((3, 32, 32), np.uint16), NumberOfFrames=3).read_bytes()
    dicom(inbox / "cut.dcm", halves(0, 1))
    (inbox / "cut.dcm").write_bytes((inbox / "cut.dcm").read_bytes()[:-100])
    (inbox / "head.dcm").write_bytes(whole[:150])
    (inbox / "text.dcm").write_text("no DICOM")
    dicom(inbox / "bomb.dcm", halves(0, 1), Rows=65535, Columns=65535)
    dicom(inbox / "small.dcm", np.zeros((4, 4), np.uint16))
    taken = take(inbox, 16)
    assert len(taken.ids) == 0
    reasons = dict(taken.rejected)
    assert "3 frames" in reasons["frames.dcm"]
    assert "cannot be decoded" in reasons["cut.dcm"]
    assert "without an image" in reasons["head.dcm"]
    assert "too large (65535×65535" in reasons["bomb.dcm"]
    assert "too small (4×4" in reasons["small.dcm"]
    assert "DICOM" in reasons["text.dcm"]


def test_dicom_without_pydicom_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    dicom(tmp_path / "a.dcm", halves(0, 1))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    monkeypatch.delitem(sys.modules, "erd.data.dicom", raising=False)
    monkeypatch.delattr("erd.data.dicom", raising=False)
    assert take(tmp_path, 16).rejected == [("a.dcm", "a DICOM file: install erd[dicom] to read it")]


def test_patients_stay_together_and_their_ids_stay_inside(
    tmp_path: Path, workspace: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    inbox = tmp_path / "inbox"
    for i in range(3):
        who = {"PatientID": SECRET if i < 2 else "MRN-2"}
        dicom(inbox / f"{i}.dcm", halves(i, 4095), **who)
    dicom(inbox / "3.dcm", halves(3, 4095), PatientID="")
    dicom(inbox / "4.dcm", halves(4, 4095), NumberOfFrames=2)
    dicom(inbox / "5.dcm", halves(5, 4095), PatientBirthDate=f"{SECRET}", StudyDate=SECRET)  # breaks the rules
    taken = take(inbox, 16)
    first, second, third, fourth, last = taken.groups
    assert first == second == last != third
    assert fourth == "3.dcm"
    everything = repr([taken, *vars(taken).values(), caplog.text, [str(w.message) for w in recwarn]])
    for words in (SECRET, "MRN-2", "Doe"):
        assert words not in everything
        assert words.encode() not in b"".join(p.read_bytes() for p in workspace.rglob("*") if p.is_file())

    salt = workspace / ".erd/salt"
    assert stat.S_IMODE(salt.stat().st_mode) == 0o600
    assert len(salt.read_bytes()) == 16
    assert list(salt.parent.iterdir()) == [salt]
    assert same(taken, take(inbox, 16))  # the same pseudonyms next week …
    salt.unlink()
    assert take(inbox, 16).groups[0] != first  # … which nobody can compute without the salt
    salt.write_bytes(b"")
    with pytest.raises(RunError, match="damaged"):
        take(inbox, 16)


def test_no_salt_is_made_where_there_is_no_patient(tmp_path: Path, workspace: Path) -> None:
    save(tmp_path / "inbox/a.png", grey(1)[0])
    take(tmp_path / "inbox", 16)
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("elements", "when"),
    [
        ({"AcquisitionDate": "20261109", "AcquisitionTime": "081530.123"}, "2026-11-09T08:15:30"),
        ({"AcquisitionDate": "20261109", "AcquisitionTime": "0815"}, "2026-11-09T08:15"),
        ({"AcquisitionDate": "20261109"}, "2026-11-09"),
        ({"StudyDate": "20261108", "AcquisitionDate": ""}, "2026-11-08"),
        ({"AcquisitionDateTime": "20261109081530.5+0100"}, "2026-11-09T08:15:30"),
        ({"StudyDate": "last week"}, ""),
        ({}, ""),
    ],
)
def test_dicom_tells_when(tmp_path: Path, elements: dict[str, str], when: str) -> None:
    assert decode(dicom(tmp_path / "a.dcm", halves(0, 1), **elements), 16).acquired == when
