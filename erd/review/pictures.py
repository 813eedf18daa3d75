"""Images as PNG: a file of the inbox as it came, or the pixels the nets saw."""

import io
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from erd.base.errors import UserError
from erd.data import packed
from erd.data.arrays import as_labeled
from erd.data.decode import decode, opened
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

    def original(self, row: int) -> bytes:
        """With all the pixels the file has."""
        return self.large(row, WHOLE)

    def _original(self, row: int, side: int) -> Image.Image | None:
        """The file in the inbox, if it is there, and still the one that was scored: an inbox may be filled anew under
        the same names."""
        if self.inbox is None:
            return None
        file = original(self.inbox, self.files[row], self.sha256[row])
        if file is None:
            return None
        try:
            scored = self.batch[row].squeeze().numpy()
            if not self.sha256[row]:  # then its pixels tell
                now = as_labeled(decode(file, len(scored)).pixels[None], scored.ndim == 3)[0]
                if not np.array_equal(now, scored):
                    return None
            image = opened(file, side).image
        except (OSError, ValueError, RuntimeError):  # gone since, damaged
            return None
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        return image


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.squeeze())


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
