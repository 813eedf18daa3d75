"""Near copies are found, and nothing else is taken for one."""

from pathlib import Path

import numpy as np
from files_to_read import photos, save
from PIL import Image

from erd.data.near_copies import near_duplicates


def test_near_copies_are_found_and_nothing_else(tmp_path: Path) -> None:
    train, batch = photos(500, 64, 1), photos(100, 64, 2)
    batch[3] = np.asarray(Image.open(save(tmp_path / "a.jpg", train[7], quality=50)))
    batch[5] = np.rint(train[8] * 0.6 + 20)
    batch[9] = np.asarray(Image.fromarray(train[9]).resize((40, 40)).resize((64, 64)))
    batch[11] = train[499][:, ::-1]  # mirrored: another image
    batch[13] = 0  # blank images are no copies of each other
    train[0] = 0
    assert near_duplicates(batch, train) == [(3, 7), (5, 8), (9, 9)]
    in_colour = np.stack([batch] * 3, axis=3), np.stack([train] * 3, axis=3)
    assert near_duplicates(*in_colour) == [(3, 7), (5, 8), (9, 9)]
    assert near_duplicates(batch[:0], train) == near_duplicates(batch, train[:0]) == []


def test_near_copies_of_images_of_any_size() -> None:
    for size in (8, 17, 28, 31):
        train = photos(50, size, 1)
        assert near_duplicates(train[[4, 2]], train) == [(0, 4), (1, 2)]
