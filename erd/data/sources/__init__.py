"""Named image sources: public sets, a user's `.npz`, a user's folder or manifest of image files.

    load("fashion_mnist", Path("data"))                      # data/fashion_mnist.npz, or what else holds the set
    load("folder", path=Path("scans"), image_size=64)        # scans/<class>/*.png or scans/train/<class>/*.png

A new source is one file in this folder: it is found by itself, and enters its readers with `@source` (base.py has an
example). Images stay uint8 until batched.
"""

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from erd.base.errors import RunError, UserError, nearest, why
from erd.data.arrays import resized
from erd.data.images import Images
from erd.data.sources.base import SOURCES, Source, Wanted

__all__ = ["SOURCES", "Images", "Source", "Wanted", "load"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def load(
    name: str,
    root: Path | None = None,
    *,
    download: bool = False,
    path: Path | None = None,
    image_size: int | None = None,
    largest: int | None = None,
) -> Source:
    """The source `name`: public sets from the folder `root`, the user's own (`npz`, `folder`) from `path`."""
    if name not in SOURCES:
        raise UserError(f"there is no data source '{name}'; {nearest(name, SOURCES)}")
    try:
        source = SOURCES[name].read(Wanted(root, download, path, image_size, largest))
    except OSError as error:
        what = error.filename or path or root or name
        reason = error.strerror or why(error)
        raise RunError(f"{what} cannot be read ({reason}): check its permissions and the disk") from error
    if image_size is None and largest is not None and source.train.images.shape[1] > largest:
        image_size = largest
    if image_size is None:
        return source
    both = (source.train, source.test)
    train, test = (replace(part, images=resized(np.asarray(part.images), image_size)) for part in both)
    return replace(source, train=train, test=test)
