"""Does `torch.compile` pay? Forward and backward of a net as it is and compiled, on one thread.

    python benchmarks/compiled.py --json

For each net the seconds that compiling takes in a new process, how many times as fast a step is afterwards, and how
many images a process must train on before it has won anything. It needs a C++ compiler.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # before torch: what was compiled the last time is no measure

import torch
from torch import Tensor
from torch.nn import functional as F

from erd import nets
from erd.training import devices

NETS = {"mlp": (1, 28, 200), "resnet20": (3, 32, 4)}  # channels, size, steps of a measurement
BATCH = 128


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args()
    with devices.threads(1):
        found = {name: measured(name, asked.repeat) for name in NETS}
    if not asked.json:
        for name, figures in found.items():
            print(f"{name}: {figures}", file=sys.stderr)
    print(json.dumps({"torch": torch.__version__, "nets": found}))
    return 0


def measured(name: str, repeat: int) -> dict[str, Any]:
    channels, size, steps = NETS[name]
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(BATCH, channels, size, size, generator=generator).to(memory_format=torch.channels_last)
    labels = torch.randint(5, (BATCH,), generator=generator)

    def seconds(net: Callable[[Tensor], Tensor], count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            F.cross_entropy(net(pixels), labels).backward()
        return time.perf_counter() - started

    plain = nets.build(name, channels=channels, image_size=size, classes=5, seed=0).net.train()
    plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = torch.compile(plain)
    seconds(plain, 1)
    compiling = seconds(compiled, 1)
    times = [(seconds(plain, steps), seconds(compiled, steps)) for _ in range(repeat)]
    speedup = statistics.median(a / b for a, b in times)
    saved = statistics.median((a - b) / (steps * BATCH) for a, b in times)  # seconds an image
    return {
        "compiling": round(compiling, 1),
        "speedup": round(speedup, 2),
        "images until it pays": round(compiling / saved) if saved > 0 else None,
    }


if __name__ == "__main__":
    sys.exit(main())
