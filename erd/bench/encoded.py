"""What an encoder makes of images, once for all detectors of a scenario with a seed: kept by the hash of the images."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from erd.base import files, locks
from erd.data.packed import Rows
from erd.nets import encoders
from erd.nets.encoders import Encoder
from erd.settings.schema import Settings

LEAST, MOST = 96, 224  # pixels at which images are shown: small ones are enlarged, large ones reduced


class Encoded:
    """Called with images it gives their features, N×D float32; the encoder is loaded when it is first needed."""

    def __init__(self, settings: Settings, folder: Path, device: torch.device) -> None:
        self.settings, self.folder, self.device = settings, folder, device
        self._encoder: Encoder | None = None

    def __call__(self, rows: Rows) -> Tensor:
        images = rows.take(torch.arange(len(rows)))
        encoder = self._loaded(images.shape[1])
        pixels = hashlib.sha256(images.numpy().tobytes()).hexdigest()[:32]
        path = self.folder / f"{encoder.key}-{pixels}.safetensors"
        with locks.held(path.with_suffix(".lock")):  # two detectors that want the same: one encodes, the other waits
            if not path.exists():
                files.save_tensors(path, {"features": encoder.features(images)}, {"encoder": encoder.name})
        return files.load_tensors(path)[0]["features"]

    def _loaded(self, image_size: int) -> Encoder:
        if self._encoder is None:
            bench = self.settings.bench
            self._encoder = encoders.load(
                bench.encoder or encoders.DEFAULT,
                weights=Path(bench.weights) if bench.encoder and bench.weights else None,
                size=min(max(image_size, LEAST), MOST),
                download=self.settings.data.download,
                device=self.device,
            )
        return self._encoder
