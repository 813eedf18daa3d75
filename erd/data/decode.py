"""One image file → pixels at the working size, or the reason in words why not. Files are only ever read."""

import errno
import hashlib
import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from erd.base.errors import why
from erd.data.arrays import MIN_SIDE

MAX_PIXELS = 80_000_000  # of one file; below Pillow's own limit against decompression bombs
MAX_BYTES = 1_000_000_000  # of one file
FORMATS = ("PNG", "JPEG", "JPEG2000", "BMP", "TIFF", "WEBP", "GIF", "PPM")  # no EPS: Pillow would run Ghostscript on it
DICOM = (".dcm", ".dicom")


class Patient(NamedTuple):
    """As a DICOM file has them, "" in other files: only a salted pseudonym may go further."""

    id: str = ""
    name: str = ""


NOBODY = Patient()


class Unfit(ValueError):
    """A reason of our own, told from those a decoder raises; with the patient, where the file told that much."""

    def __init__(self, reason: str, patient: Patient = NOBODY) -> None:
        super().__init__(reason)
        self.patient = patient


@dataclass(frozen=True, eq=False)
class Decoded:
    pixels: np.ndarray  # uint8 S×S (grey) or S×S×3
    sha256: str  # of the file's bytes
    patient: Patient = NOBODY
    acquired: str = ""  # ISO date or time, where the file says


class Opened(NamedTuple):
    """The image at its own size, and the other fields of `Decoded`."""

    image: Image.Image  # the right way up, mode L or RGB
    sha256: str
    patient: Patient
    acquired: str


def decode(path: Path, image_size: int) -> Decoded:
    """ValueError with the reason in words where the file is no usable image."""
    return _decoded(opened(path, 2 * image_size), image_size)


def decode_bytes(content: bytes, image_size: int) -> Decoded:
    """The same of a file's content, sent by somebody."""
    with _reasons():
        if not content:
            raise Unfit("empty (0 bytes)")
        found = _opened(io.BytesIO(content), 2 * image_size)
    return _decoded(found, image_size)


def at_size(image: Image.Image, image_size: int) -> np.ndarray:
    """uint8 S×S where it is grey, else S×S×3."""
    pixels = np.asarray(image.resize((image_size, image_size), Image.Resampling.BILINEAR))
    grey = pixels.ndim == 3 and (pixels == pixels[..., :1]).all()  # grey scans are often saved as colour
    return pixels[..., 0] if grey else pixels


def _decoded(found: Opened, image_size: int) -> Decoded:
    return Decoded(at_size(found.image, image_size), found.sha256, found.patient, found.acquired)


def opened(path: Path, side: int) -> Opened:
    """ValueError like `decode`. A large JPEG is decoded at a fraction of its size, with at least `side` pixels a
    side."""
    with _reasons():
        check_file(path)
        with path.open("rb") as stream:
            return _opened(stream, side, path)


def greys(path: Path) -> Image.Image | None:
    """A grey image of more than 8 bits with all its greys, mode F: 0 and 1 are what `opened` shows black and white, and
    there may be more beyond. None for other images; ValueError like `decode`."""
    with _reasons():
        check_file(path)
        with path.open("rb") as stream:
            if _is_dicom(stream, path):
                return _dicom_reader().greys(stream)
            image = Image.open(stream, formats=FORMATS)
            check_size(*image.size)
            if not image.mode.startswith("I"):
                return None
            ImageOps.exif_transpose(image, in_place=True)
            return Image.fromarray(np.asarray(image, np.float32) / 65535)


def has_greys(path: Path) -> bool:
    """Whether `greys` finds any, from the head of the file; not where it cannot be read."""
    try:
        with path.open("rb") as stream:
            if _is_dicom(stream, path):
                return _dicom_reader().has_greys(stream)
            return Image.open(stream, formats=FORMATS).mode.startswith("I")
    except Exception:  # decoders raise all sorts on damaged files, and the picture itself will say so
        return False


def _is_dicom(stream: BinaryIO, path: Path | None = None) -> bool:
    head = stream.read(132)
    stream.seek(0)
    return head[128:] == b"DICM" or (path is not None and path.suffix.lower() in DICOM)


def _opened(stream: io.BufferedReader | io.BytesIO, side: int, path: Path | None = None) -> Opened:
    patient, acquired = NOBODY, ""
    if _is_dicom(stream, path):
        image, patient, acquired = _dicom_reader().read(stream)
    else:
        image = _picture(stream, side)
    image.load()
    stream.seek(0)
    return Opened(image, hashlib.file_digest(stream, "sha256").hexdigest(), patient, acquired)


@contextmanager
def _reasons() -> Iterator[None]:
    """Whatever a decoder or the file system raises, as a reason in words."""
    try:
        yield
    except Unfit:
        raise
    except UnidentifiedImageError:
        raise Unfit(f"not an image of a known format ({', '.join(FORMATS)}, DICOM)") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unfit(f"too large (at most {MAX_PIXELS // 1_000_000} million pixels)") from None
    except PermissionError:
        raise Unfit("may not be read (permission denied)") from None
    except FileNotFoundError:
        raise Unfit("not there (moved, or a broken link)") from None
    except Exception as error:  # decoders raise all sorts on damaged files: OSError, SyntaxError, struct.error, …
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise Unfit("a link that leads back to itself") from None
        if isinstance(error, OSError) and error.strerror:  # the file system's word, not a decoder's
            raise Unfit(f"cannot be read ({error.strerror})") from None
        raise Unfit(f"damaged or cut off ({why(error)})") from error


def check_size(width: int, height: int) -> None:
    """Before anything is decoded: a few bytes can claim any size."""
    if width * height > MAX_PIXELS:
        raise Unfit(f"too large ({width}×{height} pixels; at most {MAX_PIXELS // 1_000_000} million)")
    if min(width, height) < MIN_SIDE:
        raise Unfit(f"too small ({width}×{height} pixels; at least {MIN_SIDE}×{MIN_SIDE})")


def check_file(path: Path) -> None:
    """Before it is opened: to open a pipe would wait for a writer, and a device may act. Unfit, or an OSError."""
    facts = path.stat()
    if stat.S_ISDIR(facts.st_mode):
        raise Unfit("a folder, not a file")
    if not stat.S_ISREG(facts.st_mode):
        raise Unfit("not a regular file")
    if facts.st_size == 0:
        raise Unfit("empty file (0 bytes)")
    if facts.st_size > MAX_BYTES:
        raise Unfit(f"too large a file ({facts.st_size / 1e9:.1f} GB; at most {MAX_BYTES / 1e9:g} GB)")


def _picture(stream: BinaryIO, side: int) -> Image.Image:
    image = Image.open(stream, formats=FORMATS)
    check_size(*image.size)
    # A phone's JPEG often holds a preview or a depth map as second image (MPO): the first is the photo.
    if image.format != "MPO" and (frames := getattr(image, "n_frames", 1)) > 1:
        raise Unfit(f"animated or of several pages ({frames} images in one file): save the one that counts")
    image.draft(None, (side, side))
    ImageOps.exif_transpose(image, in_place=True)
    return _eight_bit(image)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Mode L or RGB. 16 bits scale by their full range: by an image's own range, two images would not compare."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise Unfit("has 32-bit pixels: save it with 8 or 16 bits")
        return Image.fromarray(np.rint(values / 257).astype(np.uint8))
    if image.mode == "F":
        raise Unfit("has floating-point pixels: save it with 8 or 16 bits")
    if image.mode in ("1", "LA"):
        return image.convert("L")
    return image.convert("RGBA").convert("RGB") if image.mode in ("P", "PA") else image.convert("RGB")


def _dicom_reader() -> ModuleType:
    try:
        from erd.data import dicom  # slow, and pydicom need not be installed
    except ModuleNotFoundError:
        raise Unfit("a DICOM file: install erd[dicom] to read it") from None
    return dicom
