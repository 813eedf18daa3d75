"""DICOM files: the picture as a radiologist sees it, in 8 bits. Needs pydicom: `pip install erd[dicom]`."""

from datetime import datetime
from typing import BinaryIO

import numpy as np
import pydicom
from PIL import Image
from pydicom import Dataset
from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_voi_lut, pixel_array

from erd.base.errors import why
from erd.data.decode import NOBODY, Patient, Unfit, check_size

# Its warnings quote values that break the rules, and a patient's data belong in no log.
pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE

WHEN = (("AcquisitionDateTime", ""), ("AcquisitionDate", "AcquisitionTime"), ("StudyDate", "StudyTime"))


def read(stream: BinaryIO) -> tuple[Image.Image, Patient, str]:
    """Image (L or RGB), who it is of, and when it was taken; Unfit with the reason where that cannot be."""
    header = _parse(stream, pixels=False)  # first without the pixels: of an angiogram those are many frames
    patient = Patient(_text(header, "PatientID"), _text(header, "PatientName"))
    try:
        stream.seek(0)
        return _image(header, stream), patient, _acquired(header)
    except Unfit as reason:
        reason.patient = patient
        raise
    except OSError:
        raise
    except Exception as error:  # values that break the rules
        raise _damaged(error, patient) from None


def has_greys(stream: BinaryIO) -> bool:
    """Whether it is a grey picture of more than 8 bits whose greys are a straight line."""
    return _of_greys(_parse(stream, pixels=False))


def _of_greys(header: Dataset) -> bool:
    curved = any(header.get(table) for table in ("VOILUTSequence", "ModalityLUTSequence"))
    straight = str(header.get("VOILUTFunction") or "LINEAR") in ("LINEAR", "LINEAR_EXACT")
    return _is_grey(header) and int(header.BitsStored) > 8 and straight and not curved


def greys(stream: BinaryIO) -> Image.Image | None:
    """All of them, as `erd.data.decode.greys` has it."""
    header = _parse(stream, pixels=False)
    if not _of_greys(header):
        return None
    check_size(int(header.Columns), int(header.Rows))
    stream.seek(0)
    data = _parse(stream, pixels=True)
    values = np.asarray(apply_modality_lut(pixel_array(data), data), np.float32)
    low, high = _range(data)
    if data.get("WindowCenter") is not None and data.get("WindowWidth"):  # the first is the one the scanner prefers
        centre, width = (float(np.atleast_1d(data.get(name))[0]) for name in ("WindowCenter", "WindowWidth"))
        exact = str(data.get("VOILUTFunction")) == "LINEAR_EXACT"
        half = max(width if exact else width - 1, 1) / 2
        middle = centre if exact else centre - 0.5
        low, high = middle - half, middle + half
    shown = (values - low) / (high - low)
    return Image.fromarray(1 - shown if data.PhotometricInterpretation == "MONOCHROME1" else shown)


def _image(header: Dataset, stream: BinaryIO) -> Image.Image:
    if "Rows" not in header or "Columns" not in header:
        raise Unfit("a DICOM file without an image")
    if (frames := int(header.get("NumberOfFrames") or 1)) > 1:
        raise Unfit(f"a DICOM file of {frames} frames: save the one that counts")
    check_size(int(header.Columns), int(header.Rows))
    data = _parse(stream, pixels=True)
    if "PixelData" not in data:
        raise Unfit("a DICOM file without an image, or one with floating-point pixels")
    try:
        return Image.fromarray(_eight_bit(data))
    except Unfit:
        raise
    except Exception as error:  # cut off, or compressed in a way that nothing installed can undo
        raise Unfit(f"a DICOM file whose image cannot be decoded ({why(error)})") from error


def _parse(stream: BinaryIO, *, pixels: bool) -> Dataset:
    try:
        data = pydicom.dcmread(stream, force=True, stop_before_pixels=not pixels)
        if "TransferSyntaxUID" not in data.file_meta:  # no file header, as old archives write them
            implicit, little = data.original_encoding
            syntax = pydicom.uid.ImplicitVRLittleEndian if implicit else pydicom.uid.ExplicitVRLittleEndian
            data.file_meta.TransferSyntaxUID = syntax if little else pydicom.uid.ExplicitVRBigEndian
        return data
    except Exception as error:
        raise _damaged(error) from None


def _text(header: Dataset, name: str) -> str:
    try:
        return str(header.get(name) or "").strip()
    except Exception as error:  # letters in a code that nobody knows
        raise _damaged(error) from None


def _damaged(error: Exception, patient: Patient = NOBODY) -> Unfit:
    """No words of pydicom: they may quote what it read."""
    return Unfit(f"a DICOM file that is damaged or cut off ({type(error).__name__})", patient)


def _eight_bit(data: Dataset) -> np.ndarray:
    kind = data.PhotometricInterpretation
    values = pixel_array(data)  # YBR comes as RGB
    if kind == "PALETTE COLOR":
        values = apply_color_lut(values, data)
        return (values >> 8).astype(np.uint8) if values.dtype == np.uint16 else values
    if values.ndim == 3:
        return _scaled(values, 0, 2 ** int(data.BitsStored) - 1)
    if not _is_grey(data):
        raise Unfit(f"a DICOM file with pixels of kind {kind}, which is not read")
    low, high = _range(data)
    pixels = _scaled(apply_voi_lut(apply_modality_lut(values, data), data), low, high)
    return 255 - pixels if kind == "MONOCHROME1" else pixels


def _is_grey(data: Dataset) -> bool:
    return data.PhotometricInterpretation in ("MONOCHROME1", "MONOCHROME2")


def _range(data: Dataset) -> tuple[float, float]:
    """What is black and what is white after the tables: the file's nominal range, so that two files compare."""
    for table in ("VOILUTSequence", "ModalityLUTSequence"):
        if data.get(table):
            return 0, 2 ** int(data[table][0].LUTDescriptor[2]) - 1
    bits = int(data.BitsStored)
    stored = np.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] if data.PixelRepresentation else [0, 2**bits - 1])
    ends = apply_modality_lut(stored, data)  # a window maps to this range too
    return float(ends.min()), float(ends.max())


def _scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    if low == 0 and high == 255 and values.dtype == np.uint8:
        return values
    return np.rint((values.astype(np.float64) - low).clip(0, high - low) * (255 / (high - low))).astype(np.uint8)


def _acquired(data: Dataset) -> str:
    """ISO: a time where there is one, else a date; "" where there is none that can be read."""
    for day, clock in WHEN:
        date, time = (str(data.get(name) or "").strip() if name else "" for name in (day, clock))
        digits = (date + time).partition(".")[0]  # no fractions of a second, and no time zone after them
        for form, length, shown in (("%Y%m%d%H%M%S", 14, "seconds"), ("%Y%m%d%H%M", 12, "minutes"), ("%Y%m%d", 8, "")):
            try:
                when = datetime.strptime(digits[:length] if len(digits) >= length else "", form)
            except ValueError:
                continue
            return when.isoformat(timespec=shown) if shown else when.date().isoformat()
    return ""
