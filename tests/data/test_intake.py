"""A user's own files: what is used, what is set aside and why, and that nothing of a patient gets out."""

import gc
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from erd import params, scenarios
from erd.data import decode as decoding
from erd.data import ingest, intake
from erd.data.decode import decode
from erd.data.intake import Taken, near_duplicates, settled, take
from erd.errors import RunError, UserError

RNG = np.random.default_rng(0)


def grey(n: int, size: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (n, size, size), dtype=np.uint8)


def colour(n: int, size: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (n, size, size, 3), dtype=np.uint8)


def save(path: Path, image: np.ndarray | Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path, **options)
    return path


def same(first: Taken, second: Taken) -> bool:
    names = ("images", "ids", "labels", "groups", "acquired", "sha256")
    return first.rejected == second.rejected and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in names
    )


# ---------------------------------------------------------------------------------------------------- one file


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "tif", "tiff", "webp", "gif"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    photo = np.zeros((40, 60, 3), np.uint8) + np.array([200, 100, 0], np.uint8)
    pixels = decode(save(tmp_path / f"a.{suffix}", photo), 16).pixels
    assert pixels.shape == (16, 16, 3)
    assert np.abs(pixels.astype(int) - [200, 100, 0]).max() < 12  # lossy formats and palettes are near, not equal


def test_sixteen_bits_scale_by_the_full_range(tmp_path: Path) -> None:
    for suffix in ("png", "tif"):
        values = np.full((16, 16), 0, np.uint16)
        values[8:] = 25_700
        pixels = decode(save(tmp_path / f"a.{suffix}", values), 16).pixels
        assert (pixels[0] == 0).all()
        assert (pixels[-1] == 100).all()  # by its own range it would be 255
    assert (decode(save(tmp_path / "white.png", np.full((16, 16), 65_535, np.uint16)), 16).pixels == 255).all()


def test_modes_of_pillow(tmp_path: Path) -> None:
    red = Image.new("RGB", (16, 16), (250, 0, 0))
    for name, image in {
        "palette.png": red.convert("P", palette=Image.Palette.ADAPTIVE),
        "cmyk.tif": red.convert("CMYK"),
        "cmyk.jpg": red.convert("CMYK"),
        "alpha.png": red.convert("RGBA"),
    }.items():
        pixels = decode(save(tmp_path / name, image), 8).pixels
        assert pixels.shape == (8, 8, 3)
        assert np.abs(pixels.astype(int) - [250, 0, 0]).max() <= 2
    for mode in ("1", "L", "LA", "RGB"):  # a grey scan saved as colour is still grey
        pixels = decode(save(tmp_path / f"{mode}.png", Image.new("L", (16, 16), 255).convert(mode)), 8).pixels
        assert pixels.shape == (8, 8)
        assert (pixels == 255).all()


def test_a_photo_taken_sideways_is_turned(tmp_path: Path) -> None:
    values = np.zeros((32, 32), np.uint8)
    values[:16] = 255  # white above, in the stored order
    exif = Image.Exif()
    exif[0x0112] = 3  # held upside down
    pixels = decode(save(tmp_path / "a.jpg", values, exif=exif, quality=100), 32).pixels
    assert pixels[0].max() < 20
    assert pixels[-1].min() > 235


def test_a_phones_photo_with_a_preview_is_used(tmp_path: Path) -> None:
    photo, preview = Image.new("RGB", (32, 32), (200, 0, 0)), Image.new("RGB", (16, 16), (0, 0, 200))
    photo.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[preview])
    assert decode(tmp_path / "a.jpg", 8).pixels[4, 4].tolist() == pytest.approx([200, 0, 0], abs=5)


# ---------------------------------------------------------------------------------------------------- a folder


def test_a_folder_in_the_order_of_paths_without_hidden_files(tmp_path: Path) -> None:
    names = [f"{letter}.png" for letter in "hcfbgdea"]
    for i, name in enumerate([*names, "b/z.png", ".c.png", ".d/e.png"]):
        save(tmp_path / name, np.full((16, 16), i, np.uint8))
    taken = take(tmp_path, 16)
    assert taken.ids.tolist() == ["a.png", "b/z.png", *sorted(names)[1:]]
    assert taken.images[:, 0, 0].tolist() == [7, 8, 3, 1, 5, 6, 2, 4, 0]
    assert taken.groups.tolist() == taken.ids.tolist()
    assert set(taken.labels) == set(taken.acquired) == {""}
    assert taken.rejected == []


def test_an_empty_folder_gives_no_images(tmp_path: Path) -> None:
    taken = take(tmp_path, 16)
    assert taken.images.shape == (0, 16, 16)
    assert len(taken.ids) == len(taken.labels) == len(taken.sha256) == 0


def test_one_colour_image_makes_all_colour_and_changes_none(tmp_path: Path) -> None:
    first, last = grey(2)
    bright = colour(1)[0]
    for name, image in {"a.png": first, "b.png": bright, "c.png": last}.items():
        save(tmp_path / name, image)
    images = take(tmp_path, 32).images
    assert (images == np.stack([np.stack([first] * 3, 2), bright, np.stack([last] * 3, 2)])).all()


def test_what_cannot_be_used_is_set_aside_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_PIXELS", 100 * 100)
    monkeypatch.setattr(decoding, "MAX_BYTES", 50_000)
    inbox, outside = tmp_path / "inbox", save(tmp_path / "outside.png", grey(1)[0])
    whole = save(inbox / "good.png", grey(1, 64)[0]).read_bytes()
    save(inbox / "jpeg called.png", colour(1, 64)[0], format="JPEG")
    (inbox / "link to good.png").symlink_to("good.png")
    (inbox / "cut.png").write_bytes(whole[: len(whole) // 2])
    jpeg = save(inbox / "cut.jpg", colour(1, 64)[0])
    jpeg.write_bytes(jpeg.read_bytes()[:-500])
    (inbox / "empty.png").touch()
    (inbox / "text.png").write_text("not a picture")
    (inbox / "script.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (inbox / "broken link.png").symlink_to("gone")
    (inbox / "folder").symlink_to(inbox)
    (inbox / "out").symlink_to(tmp_path)
    (inbox / "out.png").symlink_to(outside)
    (inbox / "loop.png").symlink_to("loop 2.png")
    (inbox / "loop 2.png").symlink_to("loop.png")
    save(inbox / "large.png", np.zeros((101, 100), np.uint8))
    save(inbox / "small.png", np.zeros((7, 64), np.uint8))
    save(inbox / "float.tif", np.zeros((16, 16), np.float32))
    save(inbox / "deep.tif", np.full((16, 16), 70_000, np.int32))
    frames = [Image.fromarray(image) for image in grey(3, 16)]
    for suffix in ("gif", "webp", "png", "tif"):
        frames[0].save(inbox / f"animated.{suffix}", save_all=True, append_images=frames[1:])
    os.mkfifo(inbox / "pipe.png")
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(os.path.relpath(inbox / "socket.png"))  # a socket's path may have 100 characters only
    save(inbox / "huge.bmp", np.zeros((99, 200, 3), np.uint8))
    (inbox / "half.png.part").write_bytes(whole[:100])
    (inbox / "z again.png").write_bytes(whole)

    taken = take(inbox, 16)
    reasons = dict(taken.rejected)
    assert taken.ids.tolist() == ["good.png", "jpeg called.png"]
    for file, words in {
        "cut.png": "damaged or cut off",
        "cut.jpg": "damaged or cut off",
        "empty.png": "empty file",
        "text.png": "not an image of a known format",
        "script.png": "not an image of a known format",
        "broken link.png": "not there",
        "folder": "a link to a folder: not followed",
        "out": "a link out of the folder: not followed",
        "out.png": "a link out of the folder: not followed",
        "loop.png": "a link that leads back to itself",
        "loop 2.png": "a link that leads back to itself",
        "large.png": "too large (100×101",
        "small.png": "too small (64×7",
        "float.tif": "floating-point",
        "deep.tif": "32-bit",
        "animated.gif": "animated or of several pages (3",
        "animated.webp": "animated or of several pages (3",
        "animated.png": "animated or of several pages (3",
        "animated.tif": "animated or of several pages (3",
        "pipe.png": "not a regular file",
        "socket.png": "not a regular file",
        "huge.bmp": "too large a file",
        "half.png.part": "an unfinished copy",
        "link to good.png": "the same file as good.png",
        "z again.png": "the same file as good.png",
    }.items():
        assert words in reasons.pop(file), file
    assert not reasons


def test_a_decompression_bomb_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow raises beyond twice its limit
    save(tmp_path / "bomb.png", np.zeros((20, 20), np.uint8))
    taken = take(tmp_path, 8)
    assert len(taken.images) == 0
    assert "too large" in taken.rejected[0][1]


def deny(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Root may read everything, so chmod would not show it."""
    truly = Path.open

    def denied(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name in names:
            raise PermissionError(13, "Permission denied", str(path))
        return truly(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    save(tmp_path / "b.png", grey(1)[0])
    deny(monkeypatch, "a.png")
    taken = take(tmp_path, 16)
    assert taken.ids.tolist() == ["b.png"]
    assert taken.rejected == [("a.png", "may not be read (permission denied)")]


def test_a_duplicate_with_another_label_says_so(tmp_path: Path) -> None:
    image = grey(1)[0]
    save(tmp_path / "cat/a.png", image)
    save(tmp_path / "dog/a.png", image)
    save(tmp_path / "dog/b.png", grey(1)[0])
    taken = take(tmp_path, 16, labeled=True)
    assert taken.labels.tolist() == ["cat", "dog"]
    assert taken.rejected == [("dog/a.png", "the same file as cat/a.png, there with the label cat")]


def test_strays_among_class_folders_are_set_aside(tmp_path: Path) -> None:
    save(tmp_path / "cat/a.png", grey(1)[0])
    (tmp_path / "notes.txt").write_text("read me")
    (tmp_path / "dog").symlink_to("/")
    taken = take(tmp_path, 16, labeled=True)
    assert taken.ids.tolist() == ["cat/a.png"]
    assert dict(taken.rejected) == {"notes.txt": "in no class folder", "dog": "a link out of the folder: not followed"}


def test_the_same_folder_gives_the_same_arrays_whatever_the_threads(tmp_path: Path) -> None:
    for i in range(40):
        save(tmp_path / f"{i}.png", grey(1, 20 + i)[0])
        (tmp_path / f"{i}.jpg").write_bytes(b"no image")
    first = take(tmp_path, 16, workers=1)
    assert len(first.ids) == len(first.rejected) == 40
    for workers in (1, 2, 7):
        assert same(first, take(tmp_path, 16, workers=workers))


def test_originals_are_untouched(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    save(tmp_path / "b.tif", grey(1)[0])
    (tmp_path / "c.png").write_text("no image")

    def seen() -> list[Any]:
        files = sorted(tmp_path.iterdir())
        return [(file, file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode) for file in files]

    before = seen()
    take(tmp_path, 16)
    assert seen() == before


def test_a_name_that_is_not_utf8_can_be_written_to_a_table(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.png"
    save(tmp_path / "x.png", grey(1)[0])
    os.rename(tmp_path / "x.png", path)
    (name,) = take(tmp_path, 16).ids
    assert name.encode()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=400),
    suffix=st.sampled_from([".png", ".tif", ".dcm", ""]),
    head=st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"II*\0", b"GIF89a", bytes(128) + b"DICM"]),
)
def test_no_bytes_stop_the_intake(tmp_path: Path, content: bytes, suffix: str, head: bytes) -> None:
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    file = folder / f"file{suffix}"
    file.write_bytes(head + content)
    taken = take(folder, 16, workers=1)
    assert len(taken.ids) + len(taken.rejected) == 1
    assert all(reason and "\n" not in reason for _, reason in taken.rejected)
    file.unlink()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 0.95), suffix=st.sampled_from(["png", "jpg", "tif", "bmp"]))
def test_wherever_a_file_is_cut_off_it_is_set_aside(tmp_path: Path, where: float, suffix: str) -> None:
    image = np.random.default_rng(1).integers(0, 256, (32, 32), dtype=np.uint8)
    file = save(tmp_path / f"a.{suffix}", image)
    file.write_bytes(file.read_bytes()[: int(where * file.stat().st_size)])
    taken = take(tmp_path, 16, workers=1)
    file.unlink()
    assert len(taken.ids) == 0
    assert len(taken.rejected) == 1


# ---------------------------------------------------------------------------------------------------- manifests, .npz


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_manifest(tmp_path: Path, suffix: str) -> None:
    for i, image in enumerate(grey(3, 16)):
        save(tmp_path / f"scans/{i}.png", image)
    outside = save(tmp_path / "elsewhere.png", grey(1, 16)[0])
    table = pd.DataFrame(
        {
            "path": ["scans/2.png", str(outside), "scans/gone.png", "scans/0.png"],
            "label": [3, None, 4, 5],
            "group": ["p 1", "", "p2", "p1"],
            "acquired_at": ["2026-11-16", "2026-11-16T08:15:00", "", "2026-11-17 09:00"],
            "remark": ["ä", "", "", ""],
        }
    )
    file = tmp_path / f"week.{suffix}"
    if suffix == "csv":
        table.convert_dtypes().to_csv(file, index=False, encoding="utf-8-sig")
    else:
        table.to_parquet(file)
    taken = take(file, 16)
    assert taken.ids.tolist() == ["scans/2.png", str(outside), "scans/0.png"]
    assert taken.labels.tolist() == ["3", "", "5"]  # a gap has made them floats in the Parquet file
    assert taken.groups.tolist() == ["p 1", str(outside), "p1"]
    assert taken.acquired.tolist() == ["2026-11-16", "2026-11-16T08:15:00", "2026-11-17 09:00"]
    assert taken.rejected == [("scans/gone.png", "not there (moved, or a broken link)")]


def test_times_of_a_parquet_manifest_are_iso(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    times = pd.to_datetime(["2026-11-16T08:15:00"])
    pd.DataFrame({"path": ["a.png"], "acquired_at": times}).to_parquet(tmp_path / "week.parquet")
    assert take(tmp_path / "week.parquet", 16).acquired.tolist() == ["2026-11-16T08:15:00"]


@pytest.mark.parametrize(
    ("name", "content", "kind", "words"),
    [
        ("a.csv", b"file,label\nx.png,1\n", RunError, ["'path'", "file, label", "add it"]),
        ("a.csv", b"", RunError, ["a.csv", "is empty"]),
        ("a.csv", b"path,label\n", RunError, ["lists no images"]),
        ("a.csv", b"path\nx.png\n\xff\xfe\x00", RunError, ["a.csv", "cannot be read as a manifest"]),
        ("a.csv", b"path,acquired_at\nx.png,yesterday\n", RunError, ["'yesterday'", "row 1", "2026-11-16"]),
        ("a.parquet", b"PAR1 no more", RunError, ["a.parquet", "cannot be read as a manifest"]),
        ("a.xlsx", b"PK", UserError, ["a.xlsx", ".csv, .parquet"]),
        ("nowhere", None, UserError, ["nowhere", "is not there"]),
    ],
)
def test_a_wrong_manifest_is_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, kind: type[UserError], words: list[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        take(tmp_path / name, 16)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_npz(tmp_path: Path) -> None:
    images = grey(4, 32)
    images[3] = images[1]
    file = tmp_path / "week.npz"
    np.savez(file, x_batch=images, group_batch=np.array([7, 7, 8, 8]))
    taken = take(file, 32)
    assert (taken.images == images[:3]).all()
    assert taken.ids.tolist() == ["week/batch/00000", "week/batch/00001", "week/batch/00002"]
    assert taken.groups.tolist() == ["7", "7", "8"]
    assert taken.rejected == [("week/batch/00003", "the same image as week/batch/00001")]
    assert take(file, 16).images.shape == (3, 16, 16)
    assert take(file, 16).sha256.tolist() == taken.sha256.tolist()
    np.savez(file, x_train=images, y_train=[1, 0, 1, 0], x_test=colour(1), y_test=[0], classes=np.array(["a", "b"]))
    taken = take(file, 32, labeled=True)
    assert taken.labels.tolist() == ["b", "a", "b", "a"]
    assert taken.images.shape == (4, 32, 32, 3)
    np.savez(file, x_train=images)
    with pytest.raises(RunError, match="no array 'y_train'"):
        take(file, 32, labeled=True)


# ---------------------------------------------------------------------------------------------------- DICOM

SECRET = "MRN-4711-DOE"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The salt of pseudonyms is kept in the current folder."""
    place = tmp_path / "workspace"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def dicom(path: Path, values: np.ndarray, **elements: Any) -> Path:
    """A file as a scanner writes it: 12 of 16 bits, MONOCHROME2, unless `elements` say otherwise."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    data = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    bits = 8 if values.dtype == np.uint8 else 16
    defaults: dict[str, Any] = {
        "SOPClassUID": meta.MediaStorageSOPClassUID,
        "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
        "PatientID": SECRET,
        "PatientName": "Doe^Jane",
        "Rows": values.shape[-2] if values.ndim == 2 else values.shape[1],
        "Columns": values.shape[-1] if values.ndim == 2 else values.shape[2],
        "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2",
        "BitsAllocated": bits,
        "BitsStored": 8 if bits == 8 else 12,
        "HighBit": 7 if bits == 8 else 11,
        "PixelRepresentation": int(values.dtype.kind == "i"),
        "PixelData": values.tobytes(),
    }
    for name, value in (defaults | elements).items():
        setattr(data, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    data.save_as(path, enforce_file_format=True)
    return path


def halves(low: int, high: int, kind: Any = np.uint16) -> np.ndarray:
    values = np.full((32, 32), low, kind)
    values[16:] = high
    return values


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


# ---------------------------------------------------------------------------------------------------- half-copied


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "QUIET", 0.4)
    monkeypatch.setattr(intake, "EVERY", 0.05)


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_quiet_folder_is_taken_at_once(tmp_path: Path) -> None:
    for name in ("a.png", "old.png.part"):
        age(save(tmp_path / name, grey(1)[0], format="PNG"), 11)
    started = time.monotonic()
    settled(tmp_path, 60)
    settled(tmp_path / "nowhere", 60)
    assert time.monotonic() - started < 1


def test_a_wrong_clock_does_not_stop_a_run(tmp_path: Path) -> None:
    age(save(tmp_path / "a.png", grey(1)[0]), -100_000)
    settled(tmp_path, 60)


def test_no_wait_where_none_is_wanted(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    settled(tmp_path, 0)


def growing(path: Path, seconds: float, then: Callable[[], Any] = lambda: None) -> threading.Thread:
    def write() -> None:
        with path.open("ab", buffering=0) as stream:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                stream.write(b"more")
                time.sleep(0.02)
        then()

    path.touch()
    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.mark.usefixtures("hasty")
def test_a_copy_under_way_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = save(tmp_path / "whole.png", grey(1)[0]).read_bytes()
    part = tmp_path / "inbox/b.png.part"
    part.parent.mkdir()

    def finish() -> None:
        part.write_bytes(whole)
        part.rename(part.with_suffix(""))

    caplog.set_level("INFO", "erd")
    thread = growing(part, 0.5, finish)
    settled(part.parent, 20)
    assert not thread.is_alive()
    assert take(part.parent, 16).ids.tolist() == ["b.png"]
    assert "waiting up to 20 s" in caplog.text


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", ["b.png", ".b.png.x7Yz", "deep/er/b.png"])
def test_a_copy_that_takes_too_long_is_named(tmp_path: Path, name: str) -> None:
    age(save(tmp_path / "a.png", grey(1)[0]), 100)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    thread = growing(tmp_path / name, 1.5)
    with pytest.raises(RunError) as caught:
        settled(tmp_path, 0.6)
    thread.join()
    assert f"still being copied into {tmp_path} (1: {name})" in str(caught.value)
    assert "run again" in str(caught.value)


@pytest.mark.usefixtures("hasty")
def test_an_unfinished_name_is_waited_for_while_the_folder_is_filled(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    (tmp_path / "b.crdownload").touch()
    with pytest.raises(RunError, match=r"\(1: b\.crdownload\)"):
        settled(tmp_path, 1)


@pytest.mark.usefixtures("hasty")
def test_a_run_does_not_start_on_half_an_inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "QUIET", 600.0)
    save(tmp_path / "a.png", grey(1, 8)[0])
    chosen = scenarios.resolve(params.load(None, [f"data.inbox={tmp_path}", "data.settle=1"]))
    with pytest.raises(RunError, match="still being copied"):
        ingest.collect(chosen)
    assert ingest.collect(chosen.override({"data.settle": 0})).batch.ids.tolist() == ["a.png"]


# ---------------------------------------------------------------------------------------------------- near copies


def photos(n: int, size: int, seed: int) -> np.ndarray:
    """Smooth, as photos are: noise of 8×8 cells, enlarged."""
    cells = np.random.default_rng(seed).integers(0, 256, (n, 8, 8), dtype=np.uint8)
    return np.stack(
        [np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC)) for image in cells]
    )


def test_near_copies_are_found_and_nothing_else(tmp_path: Path) -> None:
    train, batch = photos(500, 64, 1), photos(100, 64, 2)
    batch[3] = np.asarray(Image.open(save(tmp_path / "a.jpg", train[7], quality=50)))
    batch[5] = np.rint(train[8] * 0.6 + 20)
    batch[9] = np.asarray(Image.fromarray(train[9]).resize((40, 40)).resize((64, 64)))
    batch[11] = train[499][:, ::-1]  # mirrored: another image
    batch[13] = 0  # blank images are no copies of each other
    train[0] = 0
    assert near_duplicates(batch, train) == [(3, 7), (5, 8), (9, 9)]
    in_colour = np.stack([batch] * 3, axis=3), np.stack([train] * 3, axis=3)
    assert near_duplicates(*in_colour) == [(3, 7), (5, 8), (9, 9)]
    assert near_duplicates(batch[:0], train) == near_duplicates(batch, train[:0]) == []


def test_near_copies_of_images_of_any_size() -> None:
    for size in (8, 17, 28, 31):
        train = photos(50, size, 1)
        assert near_duplicates(train[[4, 2]], train) == [(0, 4), (1, 2)]


# ---------------------------------------------------------------------------------------------------- many files


@contextmanager
def growth() -> Iterator[Callable[[], int]]:
    """Bytes by which the process has grown at most while the block ran."""
    gc.collect()
    process, finished = psutil.Process(), threading.Event()
    seen = [process.memory_info().rss]

    def watch() -> None:
        while not finished.wait(0.01):
            seen.append(process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: max(seen) - seen[0]
    finally:
        finished.set()
        watcher.join()


def test_thousands_of_files_of_which_some_are_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 files, 200 of them bad in ten ways, and three odd kinds that must be used."""
    monkeypatch.setattr(decoding, "MAX_PIXELS", 512 * 512)
    monkeypatch.setattr(decoding, "MAX_BYTES", 1_000_000)
    inbox = tmp_path / "inbox"
    for number in range(10):
        (inbox / f"day {number}").mkdir(parents=True)
    photo = photos(1, 64, 3)[0]
    png, jpeg = (save(tmp_path / f"photo.{kind}", photo).read_bytes() for kind in ("png", "jpg"))
    deep = save(tmp_path / "deep.png", photo.astype(np.uint16) * 257).read_bytes()
    cmyk = save(tmp_path / "cmyk.jpg", Image.fromarray(photo).convert("CMYK")).read_bytes()
    palette = save(tmp_path / "palette.png", Image.fromarray(photo).convert("P")).read_bytes()
    frames = [Image.fromarray(image) for image in grey(2, 16)]
    frames[0].save(tmp_path / "animated.gif", save_all=True, append_images=frames[1:])
    animated = (tmp_path / "animated.gif").read_bytes()
    bomb = save(tmp_path / "bomb.png", np.zeros((513, 512), np.uint8)).read_bytes()

    def place(i: int, suffix: str) -> Path:
        return inbox / f"day {i % 10}" / f"{i:04}.{suffix}"

    good: set[str] = set()
    for i, (content, suffix) in enumerate(
        [(png, "png"), (jpeg, "jpg"), (deep, "png"), (cmyk, "jpg"), (palette, "png")] * 960
    ):
        place(i, suffix).write_bytes(content + i.to_bytes(4, "big"))  # decoders do not read on after the end
        good.add(place(i, suffix).relative_to(inbox).as_posix())
    first = min(good)
    bad: dict[str, str] = {}
    unreadable = []
    for i in range(4800, 5000):
        tail = i.to_bytes(4, "big")
        path, reason = place(i, "png"), ""
        match i % 10:
            case 0:
                path.write_bytes(png[: len(png) // 2] + tail)
                reason = "damaged or cut off"
            case 1:
                path.touch()
                reason = "empty file"
            case 2:
                path.write_bytes(b"a text called an image" + tail)
                reason = "not an image of a known format"
            case 3:
                path.write_bytes(bomb + tail)
                reason = "too large (512×513 pixels"
            case 4:
                path.write_bytes(animated + tail)
                reason = "animated"
            case 5:
                path.symlink_to(path.name)
                reason = "a link that leads back to itself"
            case 6:
                path.write_bytes(png + tail)
                unreadable.append(path.name)
                reason = "may not be read"
            case 7:
                path.touch()
                os.truncate(path, 1_000_001)
                reason = "too large a file"
            case 8:
                path.write_bytes((inbox / first).read_bytes())
                reason = f"the same file as {first}"
            case 9:
                path.symlink_to(tmp_path / "photo.png")
                reason = "a link out of the folder"
        bad[path.relative_to(inbox).as_posix()] = reason
    deny(monkeypatch, *unreadable)

    take(inbox / "day 0", 64)  # what is loaded once
    with growth() as most:
        taken = take(inbox, 64)

    assert set(taken.ids) == good
    assert taken.ids.tolist() == sorted(good)
    reasons = dict(taken.rejected)
    assert reasons.keys() == bad.keys()
    for file, words in bad.items():
        assert words in reasons[file], file
    assert most() < taken.images.nbytes + 40e6


def test_originals_are_let_go_one_by_one(tmp_path: Path) -> None:
    """60 files of 3 MB each when decoded: all of them at once would be 180 MB."""
    content = save(
        tmp_path / "large.png", np.zeros((1024, 1024, 3), np.uint8) + np.array([9, 0, 0], np.uint8)
    ).read_bytes()
    for i in range(60):
        (tmp_path / f"{i}.png").write_bytes(content + bytes([i]))
    take(tmp_path, 16, workers=2)  # what is loaded once
    with growth() as most:
        assert len(take(tmp_path, 16, workers=2).ids) == 61
    assert most() < 60e6
