"""A weekly novelty watch for image classifiers, built on ensembles with regularized disagreement (ERD).

As a library: `erd.fit`, `erd.detector`, `erd.read_run`, and the statistics on anybody's scores: `erd.p_values`,
`erd.flags`, `erd.alarm`, `erd.novel_share`, `erd.wrong_at_most` (docs/api.md). Nothing heavy is imported until one of
them is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from erd.base.version import VERSION

__version__ = VERSION
__all__ = [
    "FinishedRun",
    "Fitted",
    "FittedDetector",
    "alarm",
    "detector",
    "fit",
    "flags",
    "novel_share",
    "p_values",
    "read_run",
    "wrong_at_most",
]

if TYPE_CHECKING:
    from erd.api import (
        FinishedRun,
        Fitted,
        FittedDetector,
        alarm,
        detector,
        fit,
        flags,
        novel_share,
        p_values,
        read_run,
        wrong_at_most,
    )


def __getattr__(name: str) -> Any:
    """The public names, at their first use: torch alone takes seconds."""
    if name in __all__:
        return getattr(importlib.import_module("erd.api"), name)
    raise AttributeError(f"module 'erd' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
