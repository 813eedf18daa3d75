"""(j) The stage encode on one core, against the bare forward of the same net on images that lie ready for it."""

import statistics

import torch
from measuring import Asked, Case, Figure, Figures, Goal, in_turn, over, timed

from erd.data.feature_store import Store, hashes_of
from erd.data.packed import Rows
from erd.nets import encoders
from erd.training import devices

SIDE = 224  # pixels at which photographs are kept


def measure(asked: Asked, count: int = 128) -> Figures:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)
    encoder = encoders.load(size=SIDE)
    ready = [
        chunk.permute(0, 3, 1, 2).float().div(127.5).sub(1).contiguous(memory_format=torch.channels_last)
        for chunk in images.split(encoders.CHUNK)
    ]
    turns = iter(range(1_000_000))

    def whole() -> None:
        """As the stage does it: which are new, their features, kept."""
        store = Store(asked.place, str(next(turns)))
        hashes = hashes_of(Rows(images))
        missing = store.missing(hashes)
        store.add(hashes[missing], encoder.features(images[torch.from_numpy(missing)]))
        store.take(hashes)

    @torch.inference_mode()
    def bare() -> None:
        for chunk in ready:
            encoder.net(chunk)

    with devices.threads(1):
        bare()  # the first time sets the kernels up
        times = in_turn({"encode": lambda: timed(whole), "forward": lambda: timed(bare)}, asked.repeat)
    rates = {way: round(count / statistics.median(values), 1) for way, values in times.items()}
    return {"j.encode": Figure(over(times, "forward", "encode"), details={"images_per_second": rates})}


CASE = Case(
    "j",
    "features of photographs, kept by hash, and the bare forward of timm's net; one thread",
    {"j.encode": Goal("encode, share of the bare forward's images a second", 0.8, at_least=True)},
    measure,
)
