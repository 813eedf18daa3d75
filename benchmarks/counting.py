"""How much work a piece of code does, in numbers that no clock and no neighbour on the machine changes.

    found = counted(lambda: chain.run(stage, settings, run))      # {"operations": 1234, "flops": 5678, …}

| what | counts | goes up with |
|---|---|---|
| operations | operations of torch | a step that is done twice, a loop over images |
| flops | those of matrix products and convolutions | one more pass through a net, a cache that is not hit |
| moved | bytes that operations of torch read and write | one more pass over the data, floats in place of bytes |
| lines | lines of erd that Python runs | a loop over images in Python |
| taken | bytes of new memory in Python and NumPy, in large blocks | a copy of the images |
| decoded | pixels that Pillow decodes or resizes | a file that is decoded twice, or larger than needed |
| hashed | files whose bytes are hashed | a file that is hashed again |

What this does not see: the same work done more slowly (another kernel or memory layout, threads that share a core,
memory that is cold), what NumPy does in place, such as sorting, and what other libraries do in C (pandas, safetensors),
waiting (locks, servers, the disk), other threads and processes, and what is done once a process. benchmarks/speed.py
sees that, on a clock.
"""

import functools
import hashlib
import inspect
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

from PIL import Image, ImageFile
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import erd

OURS = str(Path(erd.__file__).parent)
BLOCK = 1 << 20  # bytes, of which less than half does not count: buffers of libraries, and what Python has of its own
# They look at a few rows of their first argument: to count all of it would hide every other pass.
PICKING = ("index", "gather", "scatter", "take", "embedding")


def counted(work: Callable[[], object]) -> dict[str, int]:
    """What `work` does in this thread."""
    found: Counter[str] = Counter()
    with _libraries(found), Operations(found), lines(found):
        work()
    return dict(found)


class Operations(TorchDispatchMode):
    """Sees each of torch's operations, also those of autograd."""

    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if composite(func):  # in inference mode some come as a whole, elsewhere as their parts: count the parts
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if not func.is_view:
            self.found["operations"] += 1
            self.found["moved"] += moved(func, args, kwargs, out)
            if func.overloadpacket in flop_registry:
                self.found["flops"] += flop_registry[func.overloadpacket](*args, **kwargs, out_val=out)
        return out


@functools.cache
def composite(func: Any) -> bool:
    return func._can_decompose()


def moved(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Bytes that an operation reads and writes."""
    picks = func.overloadpacket.__name__.lstrip("_").startswith(PICKING)
    written = not (picks and func._schema.is_mutable)
    total, waiting = 0, [*args[picks:], *kwargs.values(), out if written else None]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tensor):
            total += one.nbytes
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
    return total


@contextmanager
def lines(found: Counter[str]) -> Iterator[None]:
    """Lines of erd, and the memory each of them takes, whatever it calls."""
    ours: dict[CodeType, bool] = {}

    def entered(frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code not in ours:  # what runs when a module is imported is no work: it is done once
            ours[code] = code.co_filename.startswith(OURS) and bool(code.co_flags & inspect.CO_OPTIMIZED)
        return line if ours[code] else None

    def line(frame: FrameType, event: str, argument: object) -> Any:
        if event != "exception":
            found["lines"] += event == "line"
            taken()
        return line

    last = 0

    def taken() -> None:
        """Since the line before."""
        nonlocal last
        now, most = tracemalloc.get_traced_memory()
        found["taken"] += round((most - last) / BLOCK) * BLOCK
        tracemalloc.reset_peak()
        last = now

    before = sys.gettrace()
    tracemalloc.start()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(before)
        tracemalloc.stop()


@contextmanager
def _libraries(found: Counter[str]) -> Iterator[None]:
    """Pillow and hashlib, where an image file's work is."""
    load, resize, digest = ImageFile.ImageFile.load, Image.Image.resize, hashlib.file_digest

    def loaded(image: ImageFile.ImageFile) -> Any:
        if image.tile:  # else it is in memory
            found["decoded"] += image.width * image.height
        return load(image)

    def resized(image: Image.Image, *args: Any, **kwargs: Any) -> Image.Image:
        found["decoded"] += image.width * image.height
        return resize(image, *args, **kwargs)

    def digested(*args: Any) -> Any:
        found["hashed"] += 1
        return digest(*args)

    with (
        mock.patch.object(ImageFile.ImageFile, "load", loaded),
        mock.patch.object(Image.Image, "resize", resized),
        mock.patch.object(hashlib, "file_digest", digested),
    ):
        yield
