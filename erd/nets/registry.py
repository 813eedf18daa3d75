"""The table of nets: each file of this folder enters its own, with how it is trained.

    @net("resnet20", recipes.CONVOLUTIONAL_SMALL)
    def resnet20(channels: int, image_size: int, classes: int) -> nn.Module: …

A file in this folder is found by itself: nothing else has to be told of it.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from erd.base.errors import UserError, nearest
from erd.settings.recipes import Recipes

PREFIX = "timm:"  # of names of nets that timm has
Builder = Callable[[int, int, int], nn.Module]  # channels, image size, classes


@dataclass(frozen=True)
class Net:
    name: str
    build: Builder
    recipes: Recipes
    on_features: bool = False  # it sees the features of an encoder, and no images
    code: str = ""  # the module of its code, where that is not the builder's

    @property
    def module(self) -> str:
        """Where its code is."""
        return self.code or self.build.__module__

    @property
    def pretrained(self) -> bool:
        """It begins with weights that were learned from other images."""
        return self.name.startswith(PREFIX)


_entered: dict[str, Net] = {}


def net(name: str, recipes: Recipes, *, on_features: bool = False) -> Callable[[Builder], Builder]:
    """Enter a net into the table."""

    def enter(build: Builder) -> Builder:
        _entered[name] = Net(name, build, recipes, on_features)
        return build

    return enter


@functools.cache
def table() -> dict[str, Net]:
    """All nets by name."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{package}.{module.name}")
    return dict(sorted(_entered.items()))


def get(name: str) -> Net:
    if name.startswith(PREFIX):
        return importlib.import_module(f"{__name__.rpartition('.')[0]}.timm_nets").of(name)
    if name not in table():
        raise UserError(f"unknown net '{name}' in model.net: {nearest(name, table())}")
    return table()[name]
