"""Images as PNG: a file of the inbox as it came, or the pixels the nets saw."""

import io
import threading
from pathlib import Path

import numpy as np
from PIL import Image

from erd.data import ingest as packing
from erd.data.decode import decode, opened
from erd.review.queue import Queue

LARGE = 1024  # pixels a side, at most
CRISP = 512  # packed pixels are enlarged by whole numbers up to this
_decoding = threading.Semaphore(2)  # a file may have 80 million pixels: not twenty of them at once


class Pictures:
    def __init__(self, queue: Queue) -> None:
        self.ids = queue.table["id"].tolist()
        self.batch = packing.read(queue.run.batch).images
        labeled = packing.read(queue.run.labeled)
        assert labeled.part is not None
        self.labeled, self.trained = labeled.images, (labeled.part == packing.PARTS.index("train")).numpy()
        self.inbox = Path(queue.settings.data.inbox) if queue.settings.data.inbox else None

    def small(self, row: int) -> bytes:
        return _png(_image(self.batch[row].numpy()))

    def train(self, row: int) -> bytes:
        return _png(_image(self.labeled[row].numpy()))

    def large(self, row: int) -> bytes:
        with _decoding:
            return _png(self._original(row) or _enlarged(_image(self.batch[row].numpy())))

    def _original(self, row: int) -> Image.Image | None:
        """The file in the inbox, if it is there, and still the one that was scored: an inbox may be filled anew under
        the same names."""
        if self.inbox is None:
            return None
        try:
            inbox = self.inbox.resolve(strict=True)
            file = (inbox / self.ids[row]).resolve(strict=True)
            if not file.is_relative_to(inbox) or not file.is_file():  # `..`, or a link that leads out
                return None
            packed = self.batch[row].squeeze().numpy()
            now = packing.as_labeled(decode(file, len(packed)).pixels[None], packed.ndim == 3)[0]
            if not np.array_equal(now, packed):
                return None
            image, *_ = opened(file, LARGE)
        except (OSError, ValueError, RuntimeError):  # gone, damaged, a name no file can have, links in a circle
            return None
        image.thumbnail((LARGE, LARGE), Image.Resampling.LANCZOS)
        return _enlarged(image)


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.squeeze())


def _enlarged(image: Image.Image) -> Image.Image:
    factor = max(1, CRISP // max(image.size))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
