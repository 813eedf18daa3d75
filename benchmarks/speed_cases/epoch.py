"""(b) One member's epoch on one thread, against the least that it has to compute."""

import time
from collections.abc import Callable
from typing import Any

import torch
from measuring import Asked, Case, Figure, Figures, Goal, medians, over
from random_runs import random_images, settings_of
from torch import Tensor, nn
from torch.nn import functional as F

from erd import nets
from erd.data.packed import Rows
from erd.training import devices
from erd.training.batches import Mixture
from erd.training.loop import EVAL_BATCH, Examples, Recipe, fit
from erd.training.members import finetune_member


def measure(asked: Asked) -> Figures:
    with devices.threads(1):
        return of_mlp(asked) | of_resnet20(asked, steps=16 if asked.full else 10)


def of_mlp(asked: Asked, train: int = 25_000, batch: int = 10_000, val: int = 5_000) -> Figures:
    """As the stage trains a member: V evaluated, checkpoint written. The products of V count on both sides."""
    settings = settings_of("fmnist-near", ["model.net=mlp", f"finetune.epochs={asked.repeat + 1}"])
    images, generator = random_images(train + batch + val, 28), torch.Generator().manual_seed(0)
    labels = torch.randint(5, (train + batch + val,), generator=generator)
    rows = [Rows(part) for part in torch.from_numpy(images).split([train, batch, val])]
    model = nets.build("mlp", channels=1, image_size=28, classes=5, seed=0)
    size = settings.finetune.batch_size or 0
    trained_on, evaluated_on = (torch.randn(count, 28 * 28, generator=generator) for count in (train + batch, val))
    clock = Alternating(lambda: matrix_products(model, trained_on, evaluated_on, size))
    finetune_member(
        model, 0, (rows[0], labels[:train]), [(rows[1], torch.full((batch,), 3, dtype=torch.int8))],
        (rows[2], labels[-val:]), settings.finetune, 0, checkpoint=asked.place / "mlp", on_epoch=clock.epoch_ended,
    )  # fmt: skip
    times = clock.times()
    return {"b.mlp": Figure(over(times, "epoch", "floor"), details={"seconds": medians(times)})}


def matrix_products(model: nn.Module, trained_on: Tensor, evaluated_on: Tensor, batch_size: int) -> None:
    """All products of weights with activations and gradients in an epoch on such pixels, and nothing else."""
    weights = [layer.weight.detach() for layer in model.modules() if isinstance(layer, nn.Linear)]
    widths = [len(weight) for weight in weights]
    gradients = [torch.empty_like(weight) for weight in weights]
    for pixels, size, learn in ((trained_on, batch_size, True), (evaluated_on, EVAL_BATCH, False)):
        rooms = {count: [torch.ones(count, width) for width in widths] for count in {size, len(pixels) % size}}
        for part in pixels.split(size):
            values = [part, *rooms[len(part)]]
            for i, weight in enumerate(weights):
                torch.mm(values[i], weight.T, out=values[i + 1])
            for i in reversed(range(len(weights) if learn else 0)):
                torch.mm(values[i + 1].T, values[i], out=gradients[i])
                if i:  # no one asks for the slope of pixels
                    torch.mm(values[i + 1], weights[i], out=values[i])


def of_resnet20(asked: Asked, steps: int, batch_size: int = 128) -> Figures:
    """Shuffled, flipped and cropped images, curves, checkpoint; without V, since the bare step has none."""
    settings = settings_of("cifar10-near", ["model.net=resnet20", f"finetune.epochs={asked.repeat + 1}"])
    settings = settings.override({"finetune.batch_size": batch_size})
    images, generator = torch.from_numpy(random_images(steps * batch_size, 32, 3)), torch.Generator().manual_seed(0)
    labels = torch.randint(5, (len(images),), generator=generator)
    model, bare = (nets.build("resnet20", channels=3, image_size=32, classes=5, seed=0) for _ in range(2))
    bare.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(bare.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)
    pixels = torch.randn(batch_size, 3, 32, 32).to(memory_format=torch.channels_last)

    def bare_steps() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(bare.net(pixels), labels[:batch_size]).backward()
            optimizer.step()

    bare.train()
    clock = Alternating(bare_steps)
    fit(
        model, Examples(Mixture(Rows(images)), labels), Examples(Mixture(Rows(images[:2])), labels[:2]),
        Recipe.of(settings.finetune), generator, watch=lambda model: (0.0, 0.0),
        checkpoint=asked.place / "resnet20", on_epoch=clock.epoch_ended,
    )  # fmt: skip
    times = clock.times()
    return {"b.resnet20": Figure(over(times, "floor", "epoch"), details={"seconds": medians(times)})}


class Alternating:
    """Our epochs in turn with a floor, which is done after each of them; the first of both warms up."""

    def __init__(self, floor: Callable[[], None]) -> None:
        self.floor, self.seconds, self.last = floor, list[tuple[float, float]](), time.perf_counter()

    def epoch_ended(self, record: dict[str, Any]) -> None:
        done = time.perf_counter()
        self.floor()
        after = time.perf_counter()
        self.seconds.append((done - self.last, after - done))
        self.last = time.perf_counter()

    def times(self) -> dict[str, list[float]]:
        epochs, floors = zip(*self.seconds[1:], strict=True)
        return {"epoch": list(epochs), "floor": list(floors)}


CASE = Case(
    "b",
    "one member's epoch on one thread, and the least that it has to compute",
    {
        "b.mlp": Goal("epoch of an MLP member over its bare matrix products", 1.5),
        "b.resnet20": Goal("training of ResNet20, share of the bare step's speed", 0.9, at_least=True, tolerance=0.07),
    },
    measure,
)
