"""Images as somebody gives them to a finished model, brought to its size as `ingest` brings files.

    as_images(images, [32, 32])              # an array N×H×W or N×H×W×3, of the model's size or any other
    as_images([first, second], [32, 32])     # arrays of different sizes
    as_images([png, jpeg], [32, 32])         # contents of files (PNG, JPEG, DICOM …): bytes, or base64 as JSON has them

What is wrong is one sentence, `Unfit`. Arrays that have the model's size already are taken as they are.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from erd.data.arrays import as_labeled
from erd.data.decode import Unfit, at_size, check_size, decode_bytes

FORMS = "send a list of images, each an array H×W or H×W×3 of whole numbers 0 to 255, or a file's content in base64"


def as_images(given: Any, shape: Sequence[int]) -> np.ndarray:
    """uint8 images of one image's `shape`, N×S×S or N×S×S×3."""
    listed = _listed(given)
    if isinstance(listed, np.ndarray) and list(listed.shape[1:]) == list(shape):
        return np.ascontiguousarray(_whole(listed))
    size, colour = shape[0], len(shape) == 3
    images = np.zeros((len(listed), *shape), np.uint8)
    for row, one in enumerate(listed):
        try:
            images[row] = as_labeled(_pixels(one, size)[None], colour)[0]
        except Unfit as reason:
            raise Unfit(f"image {row + 1} of {len(listed)}: {reason}") from None
    return images


def _listed(given: Any) -> Any:
    """One image an entry: an array where all have one size, else a list."""
    if isinstance(given, pd.DataFrame):
        given = {str(name): list(column) for name, column in given.items()}
    if isinstance(given, Sequence) and given and all(isinstance(one, Mapping) for one in given):
        given = {name: [one.get(name) for one in given] for name in given[0]}
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise Unfit(f"there is one column, `image`, not {', '.join(map(str, given)) or 'none'}; {FORMS}")
        [given] = given.values()
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        raise Unfit(f"this is no list of images but {type(given).__name__}; {FORMS}")
    if isinstance(given, np.ndarray) and given.dtype.kind not in "OSU" and given.size:
        if given.ndim < 3 or (given.ndim == 3 and given.shape[2] == 3):
            raise Unfit(f"this is one array of {_times(given.shape)}, not several images; {FORMS}")
        return given
    return list(given)


def _pixels(one: Any, size: int) -> np.ndarray:
    """uint8 S×S or S×S×3 of one image, however it was given."""
    if isinstance(one, np.ndarray) and not one.ndim:
        one = one.item()  # so MLflow wraps a text of a record
    if isinstance(one, str):
        try:
            one = base64.b64decode(one.rpartition("base64,")[2], validate=True)  # also of a data: address
        except (binascii.Error, ValueError):
            raise Unfit(f"'{one[:20]}…' is text, and no file's content in base64") from None
    if isinstance(one, bytes):
        return decode_bytes(one, size).pixels
    try:
        pixels = np.asarray(one)
    except ValueError:
        raise Unfit("its rows differ in length") from None
    if pixels.dtype.kind not in "biuf":
        raise Unfit(f"neither an array of numbers nor a file's content; {FORMS}")
    pixels = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[2] == 3):
        first = pixels.ndim == 3 and pixels.shape[0] in (1, 3)
        hint = ": move the channels last" if first else ""
        raise Unfit(f"has the shape {_times(pixels.shape) or 'of a number'}, and must be H×W or H×W×3{hint}")
    check_size(pixels.shape[1], pixels.shape[0])
    return at_size(Image.fromarray(_whole(pixels)), size)


def _whole(pixels: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        whole = pixels.astype(np.uint8)
    if pixels.dtype != np.uint8 and not np.array_equal(whole, pixels):
        raise Unfit("pixel values must be whole numbers from 0 to 255, as files hold them; do not normalise")
    return whole


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
