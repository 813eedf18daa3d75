"""Images on their way into a net: rows of memory-mapped uint8 sets, mixed, shuffled and augmented by the batch.

Nothing is converted to float or copied beyond a few batches: a fine-tuning task sees S ∪ U as two files it maps, and
the workers share the pages.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from erd.data.packed import Rows

CHUNK = 16  # batches gathered at once: spreads the cost of indexing without leaving the cache
PAD = 4


class Mixture:
    """Several `Rows` seen as one set, in their order: S ∪ U without a copy."""

    def __init__(self, *sets: Rows, device: torch.device | str = "cpu") -> None:
        self.sets: Sequence[Rows] = sets
        if torch.device(device).type != "cpu":
            # A GPU holds the whole set as one uint8 tensor: every later step happens there.
            everything = torch.cat([s.every() for s in sets]).to(device)
            self.sets = (Rows(everything),)
        self.device = device

    def __len__(self) -> int:
        return sum(len(part) for part in self.sets)

    def take(self, positions: Tensor) -> Tensor:
        """The images at `positions`, uint8, N×H×W×C."""
        if len(self.sets) == 1:
            images = self.sets[0].take(positions)
        else:
            parts, places, start = [], [], 0
            for part in self.sets:
                here = ((positions >= start) & (positions < start + len(part))).nonzero()[:, 0]
                parts.append(part.take(positions[here] - start))
                places.append(here)
                start += len(part)
            images = torch.cat(parts).index_select(0, torch.cat(places).argsort())  # back into the order asked for
        return images if images.ndim == 4 else images.unsqueeze(-1)


def shuffled(
    mixture: Mixture, batch_size: int, generator: torch.Generator, *, augment: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch in random order: (positions, images N×C×H×W uint8), the last batch as large as what is left; one
    image that would be left over alone waits for the next epoch.

    The generator lives on the CPU whatever the device, so that its state fits any checkpoint.
    """
    order = torch.randperm(len(mixture), generator=generator)
    for chunk in order.split(batch_size * CHUNK):
        chunk = chunk.to(mixture.device)
        images = mixture.take(chunk)
        if augment:
            images = flip_and_crop(images, generator)
        for positions, batch in zip(chunk.split(batch_size), to_nchw(images).split(batch_size), strict=True):
            if len(positions) > 1 or batch_size == 1:  # batch norm has no variance of a single image
                yield positions, batch


def in_order(mixture: Mixture, batch_size: int) -> Iterator[Tensor]:
    """All images as they stand, N×C×H×W uint8."""
    for positions in torch.arange(len(mixture), device=mixture.device).split(batch_size):
        yield to_nchw(mixture.take(positions))


def to_nchw(images: Tensor) -> Tensor:
    """A view: the bytes stay N×H×W×C, which is torch's channels_last."""
    return images.permute(0, 3, 1, 2)


def flip_and_crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image of N×H×W×C mirrored with probability ½ and cropped out of a border of `PAD` black pixels."""
    count, height, width, channels = images.shape

    def draw(high: int) -> Tensor:
        return torch.randint(high, (count, 1), generator=generator).to(images.device)

    padded = images.new_zeros(count, height + 2 * PAD, width + 2 * PAD, channels)
    padded[:, PAD:-PAD, PAD:-PAD] = images
    rows = torch.arange(height, device=images.device) + draw(2 * PAD + 1)
    columns = torch.arange(width, device=images.device) + draw(2 * PAD + 1)
    columns = torch.where(draw(2).bool(), columns.flip(1), columns)
    which = torch.arange(count, device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]
