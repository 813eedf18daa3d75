"""torchvision, importable with every build of torch: `from erd.vision import torchvision`.

`pip install torch torchvision` may give a CPU torch and a CUDA torchvision. Then its compiled operators do not
load and its import dies on `operator torchvision::nms does not exist`, though its datasets and models, all that is used
here, are plain Python. They need no more than a schema for the operators that torchvision registers itself with.
"""

import contextlib
import importlib.util
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def _load_extension() -> None:
    """Load torchvision's own operators where they fit this torch; its import then finds them loaded."""
    spec = importlib.util.find_spec("torchvision")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for extension in [*Path(folder).glob("_C*.so"), *Path(folder).glob("_C*.pyd")]:
            with contextlib.suppress(ImportError, OSError):  # built for another torch: the schemas below stand in
                torch.ops.load_library(extension)


def _define_missing() -> torch.library.Library:
    """Define the operators that do not exist; a second definition of one that does would raise."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + _SCHEMA)
    return library


_load_extension()
_library = _define_missing()  # the definitions live as long as this object

import torchvision  # noqa: E402
import torchvision.datasets  # noqa: E402
import torchvision.models  # noqa: E402

__all__ = ["torchvision"]
