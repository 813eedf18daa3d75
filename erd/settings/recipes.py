"""How kinds of nets are trained, from the paper's appendix; a net names its recipes where it is entered (erd.nets)."""

from dataclasses import dataclass
from typing import Any

Schedule = dict[str, Any]  # settings of the blocks pretrain and finetune

_MLP: Schedule = {"epochs": 10, "batch_size": 128, "optimizer": "adam", "lr": 1e-3, "momentum": 0.0,
                  "weight_decay": 0.0, "milestones": [], "gamma": 1.0, "augment": False, "patience": 0}  # fmt: skip
_CONV: Schedule = {"epochs": 100, "batch_size": 128, "optimizer": "sgd", "lr": 0.1, "momentum": 0.9,
                   "weight_decay": 5e-4, "milestones": [50, 70, 90], "gamma": 0.2, "augment": True,
                   "patience": 0}  # fmt: skip
_CONV_FINETUNE: Schedule = _CONV | {"epochs": 10, "lr": 1e-3, "milestones": []}
# On the features of an encoder. Small steps: with ten times the rate members give in on known images too.
_HEAD: Schedule = _MLP | {"epochs": 10}
_HEAD_FINETUNE: Schedule = _MLP | {"epochs": 20, "lr": 1e-4}


@dataclass(frozen=True)
class Recipes:
    """`small`: a member's file may hold the weights of several epochs, so their softmax is averaged, which finds more
    than the paper's best epoch (docs/decisions.md); larger nets average the weights. `threads`: of pretraining."""

    pretrain: Schedule
    finetune: Schedule
    small: bool = False
    threads: int | None = None  # None: all cores


MLP = Recipes(_MLP, _MLP, small=True, threads=1)  # its steps are too small to share
HEAD = Recipes(_HEAD, _HEAD_FINETUNE, small=True, threads=1)
CONVOLUTIONAL = Recipes(_CONV, _CONV_FINETUNE)
CONVOLUTIONAL_SMALL = Recipes(_CONV, _CONV_FINETUNE, small=True)
# From weights that were learned on other images: smaller steps, and fewer of them.
PRETRAINED = Recipes(
    _CONV | {"epochs": 30, "lr": 1e-2, "milestones": [15, 21, 27], "batch_size": 32},
    _CONV_FINETUNE | {"batch_size": 32},
)
DENSENET = Recipes(_CONV | {"batch_size": 32}, _CONV_FINETUNE | {"batch_size": 32, "lr": 1e-5})
