"""Devices and threads: who computes where.

Member i goes to GPU i mod n where there are GPUs. On the CPU every member has `run.threads` threads, whatever the
number of workers: the same thread count is the same bytes, and busy processes that share cores are many times slower.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from erd.base.errors import UserError
from erd.base.processes import cores
from erd.settings.schema import Run


def device(run: Run, member: int = 0) -> torch.device:
    gpus = torch.cuda.device_count()
    if run.device == "cuda" and not gpus:
        raise UserError("run.device is cuda but torch sees no GPU; set run.device=cpu or auto")
    if run.device == "cpu" or not gpus:
        return torch.device("cpu")
    _deterministic()
    return torch.device("cuda", member % gpus)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """So many CPU threads in this block; None means all cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _deterministic() -> None:
    """GPU kernels that give the same bytes every time; the CPU's do so anyway."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
