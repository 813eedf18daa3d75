"""torchvision imports with whatever build of torch is there. Each case needs a process that has not imported it yet."""

import subprocess
import sys

import pytest

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
CASES = {
    "datasets and models are there": """
from erd.base.torchvision import torchvision
torchvision.models.densenet121, torchvision.datasets.MNIST
""",
    "again, and afterwards by its own name": """
import importlib, erd.base.torchvision as ours
importlib.reload(ours)
import torchvision
assert torchvision is ours.torchvision
""",
    "after a bare import that may have died": """
try:
    import torchvision
except RuntimeError:
    pass
from erd.base.torchvision import torchvision
torchvision.models.densenet121
""",
    "where the operators exist, as in a build that matches": f"""
import torch
library = torch.library.Library("torchvision", "DEF")
library.define("nms{SCHEMA}")
library.define("qnms{SCHEMA}")
import torchvision
from erd.base.torchvision import torchvision
torchvision.models.densenet121
""",
}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_torchvision_imports(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
