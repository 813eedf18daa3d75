"""Images as PNG: a file of the inbox as it came, or the pixels the nets saw."""

import io
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from erd.base.errors import UserError
from erd.data import decode, packed
from erd.data.arrays import as_labeled
from erd.data.inbox import original
from erd.review.queue import Queue

LARGE = 1024  # pixels a side, at most; browsers enlarge smoothly what has fewer
WHOLE = 1 << 20  # more than any file has
_decoding = threading.Semaphore(2)  # a file may have 80 million pixels: not twenty of them at once


class Pictures:
    def __init__(self, queue: Queue) -> None:
        self.ids = queue.table["id"].tolist()
        self.batch = packed.read(queue.run.batch).images
        part = packed.table(queue.run.labeled, "part")["part"].to_numpy()
        self.trained = part == "train"
        self.labeled: packed.Packed | None = None
        with suppress(UserError):  # they were taken out of the library since
            self.labeled = packed.read(queue.run.labeled)
        self.inbox = Path(queue.settings.data.inbox) if queue.settings.data.inbox else None
        known = packed.table(queue.run.batch)
        self.files = known["file"].tolist() if "file" in known else self.ids  # runs made before kept only the ids
        self.sha256 = known["sha256"].tolist() if "sha256" in known else [""] * len(known)

    def small(self, row: int) -> bytes:
        return _png(_image(self.batch[row].numpy()))

    def train(self, row: int) -> bytes:
        if self.labeled is None:
            return _png(Image.new("L", (8, 8), 128))
        return _png(_image(self.labeled.some(torch.tensor([row])).take(torch.tensor([0]))[0].numpy()))

    def large(self, row: int, side: int = LARGE) -> bytes:
        with _decoding:
            return _png(self._original(row, side) or _image(self.batch[row].numpy()))

    def has_greys(self, row: int) -> bool:
        """Whether the file has more than the 256 greys of a screen."""
        return (file := self._file(row)) is not None and decode.has_greys(file)

    def window(self, row: int, centre: float, width: float) -> bytes:
        """Of all the greys the file has, those from centre ± width / 2 spread from black to white."""
        with _decoding:
            found: Image.Image | None = None
            with suppress(OSError, ValueError, RuntimeError):  # gone since, damaged
                found = None if (file := self._file(row)) is None else decode.greys(file)
            if found is None:
                return _png(_image(self.batch[row].numpy()))
            found.thumbnail((LARGE, LARGE), Image.Resampling.BILINEAR)  # no sharper: greys beyond white would ring
            shown = (np.asarray(found) - (centre - width / 2)) / width
            return _png(Image.fromarray(np.rint(255 * shown.clip(0, 1)).astype(np.uint8)))

    def original(self, row: int) -> bytes:
        """With all the pixels the file has."""
        return self.large(row, WHOLE)

    def _original(self, row: int, side: int) -> Image.Image | None:
        if (file := self._file(row)) is None:
            return None
        try:
            image = decode.opened(file, side).image
        except (OSError, ValueError, RuntimeError):  # gone since, damaged
            return None
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        return image

    def _file(self, row: int) -> Path | None:
        """In the inbox, if it is there, and still the one that was scored: an inbox may be filled anew under the same
        names."""
        if self.inbox is None:
            return None
        file = original(self.inbox, self.files[row], self.sha256[row])
        if file is None or self.sha256[row]:
            return file
        scored = self.batch[row].squeeze().numpy()  # then its pixels tell
        with suppress(OSError, ValueError, RuntimeError):
            now = as_labeled(decode.decode(file, len(scored)).pixels[None], scored.ndim == 3)[0]
            return file if np.array_equal(now, scored) else None
        return None


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.squeeze())


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
