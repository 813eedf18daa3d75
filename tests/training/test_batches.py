"""Every image of S ∪ U is seen once an epoch, as it is or shifted and mirrored; the generator alone decides how."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from erd.data.packed import Rows
from erd.training.batches import CHUNK, PAD, Mixture, flip_and_crop, in_order, shuffled


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int, *shape: int, seed: int = 9) -> Tensor:
    return torch.randint(1, 256, (count, *shape), dtype=torch.uint8, generator=generator(seed))


def numbered(count: int) -> Tensor:
    """Image i shows nothing but i, in its three channels."""
    numbers = torch.stack([torch.arange(count) % 256, torch.arange(count) // 256, torch.zeros(count)], 1)
    return numbers.to(torch.uint8)[:, None, None].expand(count, 8, 8, 3)


def number_of(images: Tensor) -> Tensor:
    return images[:, 0, 0, 0].long() + 256 * images[:, 1, 0, 0].long()


@given(count=st.integers(0, 700), batch_size=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_an_epoch_shows_every_image_once_but_for_one_left_over_alone(count: int, batch_size: int, seed: int) -> None:
    batches = list(shuffled(Mixture(Rows(numbered(count))), batch_size, generator(seed)))
    seen = [p for positions, _ in batches for p in positions.tolist()]
    alone = count % batch_size == 1 and batch_size > 1
    assert len(set(seen)) == len(seen) == count - alone
    assert set(seen) <= set(range(count))
    assert all(len(positions) == batch_size for positions, _ in batches[:-1])
    for positions, images in batches:
        assert torch.equal(number_of(images), positions), "an image goes with another one's label"


def order(mixture: Mixture, seed: int, *, augment: bool = False) -> list[int]:
    return [p for positions, _ in shuffled(mixture, 4, generator(seed), augment=augment) for p in positions.tolist()]


def test_the_order_is_the_generators_and_nothing_elses() -> None:
    colour, grey = Mixture(Rows(pictures(40, 8, 8, 3))), Mixture(Rows(pictures(25, 9, 9)), Rows(pictures(15, 9, 9)))
    torch.manual_seed(1)
    first = order(colour, 5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert order(colour, 5) == order(grey, 5) == order(colour, 5, augment=True) == first
    assert torch.equal(torch.get_rng_state(), before)
    assert order(colour, 6) != first
    assert first != sorted(first)


def test_a_second_epoch_has_another_order() -> None:
    mixture, one = Mixture(Rows(pictures(40, 8, 8))), generator()
    epochs = [[p for positions, _ in shuffled(mixture, 8, one) for p in positions.tolist()] for _ in range(2)]
    assert epochs[0] != epochs[1]


def test_an_epoch_is_gone_through_whatever_the_number_of_batches_gathered_at_once() -> None:
    count = 2 * CHUNK * 3 + 7
    seen = [p for positions, _ in shuffled(Mixture(Rows(numbered(count))), 3, generator()) for p in positions.tolist()]
    assert len(seen) == len(set(seen)) == count - 1  # 7 = 3 + 3 + the one left over


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    seed=st.integers(0, 2**40),
    channels=st.sampled_from([None, 1, 3]),
    some=st.booleans(),
)
def test_a_mixture_is_its_parts_one_after_the_other(
    sizes: list[int], seed: int, channels: int | None, some: bool
) -> None:
    shape = (4, 5) if channels is None else (4, 5, channels)
    parts, whole = [], []
    for i, size in enumerate(sizes):
        images = pictures(size + 3, *shape, seed=i)
        rows = torch.randperm(size + 3, generator=generator(seed + i))[:size] if some else None
        parts.append(Rows(images, rows))
        whole.append(images if rows is None else images[rows])
    mixture, expected = Mixture(*parts), torch.cat(whole).reshape(-1, 4, 5, channels or 1)
    assert len(mixture) == len(expected)
    if len(mixture):
        positions = torch.randint(len(mixture), (20,), generator=generator(seed))
        assert torch.equal(mixture.take(positions), expected[positions])
        assert torch.equal(torch.cat(list(in_order(mixture, 4))), expected.permute(0, 3, 1, 2))


LOADERS: dict[str, Callable[[Mixture], Tensor]] = {
    "shuffled": lambda mixture: next(shuffled(mixture, 64, generator()))[1],
    "augmented": lambda mixture: next(shuffled(mixture, 64, generator(), augment=True))[1],
    "in order": lambda mixture: next(in_order(mixture, 64)),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_images_come_as_bytes_with_channels_first_to_the_eye_and_last_in_memory(loader: str) -> None:
    for mixture in (
        Mixture(Rows(pictures(6, 8, 9, 3))),
        Mixture(Rows(pictures(4, 8, 9, 3)), Rows(pictures(2, 8, 9, 3))),
    ):
        colour = LOADERS[loader](mixture)
        assert colour.shape == (6, 3, 8, 9)
        assert colour.dtype == torch.uint8
        assert colour.is_contiguous(memory_format=torch.channels_last)
    grey = LOADERS[loader](Mixture(Rows(pictures(6, 8, 9))))
    assert (grey.shape, grey.dtype) == ((6, 1, 8, 9), torch.uint8)


def variants(image: Tensor) -> dict[tuple[int, int, bool], Tensor]:
    """Every crop of H×W×C out of its black border, as it is and mirrored, pixel by pixel."""
    height, width = image.shape[:2]
    found = {}
    for down in range(-PAD, PAD + 1):
        for right in range(-PAD, PAD + 1):
            crop = torch.zeros_like(image)
            for y in range(height):
                for x in range(width):
                    if 0 <= y + down < height and 0 <= x + right < width:
                        crop[y, x] = image[y + down, x + right]
            found[down, right, False] = crop
            found[down, right, True] = crop.flip(1)
    return found


@pytest.mark.parametrize("channels", [1, 3])
def test_augmentation_shifts_and_mirrors_each_image_in_every_way_and_no_other(channels: int) -> None:
    count = 4_000
    originals = pictures(4, 5, 6, channels)
    by_content = [{crop.numpy().tobytes(): how for how, crop in variants(image).items()} for image in originals]
    assert [len(contents) for contents in by_content] == [2 * 81] * 4, "the test's images cannot be told apart"
    augmented = flip_and_crop(originals.repeat(count // 4, 1, 1, 1), generator())
    assert augmented.dtype == torch.uint8
    ways = Counter(by_content[i % 4].get(image.numpy().tobytes()) for i, image in enumerate(augmented))
    assert None not in ways, "an image that is no shifted copy of its own original"
    assert len(ways) == 2 * 81
    expected = count / 162
    chi_square = sum((ways[way] - expected) ** 2 / expected for way in ways)
    assert chi_square < 161 + 4 * (2 * 161) ** 0.5, "some ways are more frequent than others"


def test_augmentation_is_the_generators_and_leaves_everything_else_alone() -> None:
    images = pictures(50, 8, 8, 3)
    kept, before = images.clone(), torch.get_rng_state()
    first = flip_and_crop(images, generator(3))
    assert torch.equal(flip_and_crop(images, generator(3)), first)
    assert not torch.equal(flip_and_crop(images, generator(4)), first)
    assert torch.equal(images, kept)
    assert torch.equal(torch.get_rng_state(), before)


def test_augmented_images_go_with_their_own_positions() -> None:
    originals = torch.full((200, 8, 8), 1, dtype=torch.uint8) * torch.arange(1, 201, dtype=torch.uint8)[:, None, None]
    for positions, images in shuffled(Mixture(Rows(originals)), 16, generator(), augment=True):
        assert torch.equal(images.amax((1, 2, 3)), (positions + 1).to(torch.uint8))
