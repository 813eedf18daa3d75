"""What an encoder makes of images, for detectors that ask for it: kept as the stage encode keeps it, once for all.

With `model.encoder` the images that a detector gets are features already. Without, a detector that declares `encoder`
gets images, and the features of the bundled encoder when it asks.
"""

import torch
from torch import Tensor

from erd.base import locks
from erd.bench.plan import Place
from erd.data.feature_store import as_stored, hashes_of
from erd.data.packed import Rows
from erd.nets import encoders
from erd.settings.schema import Settings
from erd.weekly.stages import encode


class Encoded:
    """Called with images it gives their features, N×D float32."""

    def __init__(self, place: Place) -> None:
        self.settings, self.run = with_encoder(place.settings), place.run
        self.are_features = place.settings.encoder is not None

    def __call__(self, rows: Rows) -> Tensor:
        if self.are_features:
            return rows.every().flatten(1).float()
        store, hashes = encode.store_of(self.settings, self.run), hashes_of(rows)
        with locks.held(store.folder.with_suffix(".lock")):  # two that want the same: one encodes, the other waits
            store = encode.store_of(self.settings, self.run)
            missing = store.missing(hashes)
            encode.fill(store, self.settings, Rows(rows.take(torch.from_numpy(missing))), hashes[missing])
        return store.take(hashes).float()


def with_encoder(settings: Settings) -> Settings:
    """The settings with an encoder: their own, else the bundled one."""
    bundled = {"model.encoder": encoders.DEFAULT, "model.weights": None}
    return settings if settings.encoder else settings.override(bundled)


def as_seen(place: Place, images: Tensor) -> Tensor:
    """Images as the nets of a place see them."""
    if place.settings.encoder is None:
        return images
    return as_stored(encode.encoder_of(place.settings).features(images))[:, None, None, :]
