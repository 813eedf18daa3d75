"""Images and files made for the tests of reading; and how a refusal is checked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from erd.base.errors import UserError
from erd.data.reading import Taken
from erd.data.sources import load

RNG = np.random.default_rng(0)
SECRET = "MRN-4711-DOE"


def grey(n: int, size: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (n, size, size), dtype=np.uint8)


def colour(n: int, size: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (n, size, size, 3), dtype=np.uint8)


def photos(n: int, size: int, seed: int) -> np.ndarray:
    """Smooth, as photos are: noise of 8×8 cells, enlarged."""
    cells = np.random.default_rng(seed).integers(0, 256, (n, 8, 8), dtype=np.uint8)
    return np.stack(
        [np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC)) for image in cells]
    )


def save(path: Path, image: np.ndarray | Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path, **options)
    return path


def picture(path: Path, value: int | tuple[int, int, int], side: int = 40) -> None:
    """A plain image, in the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(value, int) else "RGB", (side, side), value).save(path)


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


def same(first: Taken, second: Taken) -> bool:
    names = ("images", "ids", "files", "labels", "groups", "acquired", "sha256")
    return first.rejected == second.rejected and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in names
    )


def refusal(kind: type[UserError], name: str, *words: str, **where: Any) -> str:
    """The one line that `load` refuses with; it must be exactly of `kind` (the exit code) and hold `words`."""
    with pytest.raises(UserError) as caught:
        load(name, where.pop("root", None), **where)
    sentence = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in sentence
    for word in words:
        assert word in sentence
    return sentence


def deny(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Root may read everything, so chmod would not show it."""
    truly = Path.open

    def denied(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name in names:
            raise PermissionError(13, "Permission denied", str(path))
        return truly(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
