"""Published corruptions are those of the same image; what is not published is made."""

from pathlib import Path

import numpy as np
import pytest
from files_to_read import colour, grey

from erd.base.errors import RunError
from erd.data import corrupted_sets
from erd.data.corruptions import corrupt
from erd.data.sources import Images
from erd.settings.scenarios import Shift


def cifar_c(root: Path, folder: str = "CIFAR-10-C", tests: int = 6) -> tuple[Images, np.ndarray]:
    """A folder in the true layout, five severities after each other; test images of CIFAR, and what is in the file."""
    stored, labels = colour(5 * tests), np.arange(tests) * 3 % 10
    (root / folder).mkdir()
    np.save(root / folder / "gaussian_noise.npy", stored)
    np.save(root / folder / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    ids = np.array([f"cifar{folder[6:-2].replace('-', '')}/test/{i:05d}" for i in range(tests)])
    return Images(colour(tests), labels, ids, ids), stored


@pytest.mark.parametrize(("source", "folder"), [("cifar10", "CIFAR-10-C"), ("cifar100", "CIFAR-100-C")])
def test_published_corruptions_are_those_of_the_same_image_at_that_severity(
    tmp_path: Path, source: str, folder: str
) -> None:
    clean, stored = cifar_c(tmp_path, folder)
    some = clean.take([4, 0])
    for severity in (1, 2, 5):
        made, told = corrupted_sets.shifted(some, source, tmp_path, Shift("gaussian-noise", severity, "novel"))
        assert (made.images == stored[[6 * (severity - 1) + 4, 6 * (severity - 1)]]).all()
        assert made.labels.tolist() == some.labels.tolist()
        assert made.groups.tolist() == some.groups.tolist(), "stays with the clean image"
        assert made.ids[0] == f"{source}/test/00004/gaussian-noise-{severity}"
        assert told == ""
    small = Images(some.images[:, :16, :16], some.labels, some.ids, some.groups)
    made, _ = corrupted_sets.shifted(small, source, tmp_path, Shift("gaussian-noise", 5, "novel"))
    assert made.images.shape == (2, 16, 16, 3), "in the size of the clean ones"


def test_corruptions_that_are_not_published_are_made_and_said(tmp_path: Path) -> None:
    clean, _ = cifar_c(tmp_path)
    made, told = corrupted_sets.shifted(clean, "cifar10", tmp_path, Shift("fog", 5, "novel"))
    assert (made.images == corrupt(clean.images, clean.ids, "fog", 5)).all()
    assert told == "fog at severity 5 is made here: there is no CIFAR-10-C"
    grey_ones = Images(grey(2), np.zeros(2, int), np.array(["a", "b"]), np.array(["a", "b"]))
    assert corrupted_sets.shifted(grey_ones, "mnist", tmp_path, Shift("gaussian-noise", 5, "novel"))[1] == ""


def test_published_corruptions_that_do_not_fit_are_told(tmp_path: Path) -> None:
    clean, _ = cifar_c(tmp_path)
    noise, folder = Shift("gaussian-noise", 2, "novel"), tmp_path / "CIFAR-10-C"

    def refused(images: Images, *words: str) -> None:
        with pytest.raises(RunError) as caught:
            corrupted_sets.shifted(images, "cifar10", tmp_path, noise)
        assert "\n" not in str(caught.value)
        for word in ("gaussian_noise.npy", *words):
            assert word in str(caught.value)

    refused(Images(clean.images, clean.labels[::-1], clean.ids, clean.groups), "order", "labels")
    train = np.array(["cifar10/train/00000"] * 6)
    refused(Images(clean.images, clean.labels, train, train), "only test images", "data.holdout_novel")
    more = np.array(["cifar10/test/00006"] * 6)
    refused(Images(clean.images, clean.labels, more, more), "6 test images")
    np.save(folder / "labels.npy", np.zeros(7))
    refused(clean, "30 images and 7 labels")
    (folder / "gaussian_noise.npy").write_bytes(b"no array")
    refused(clean, "damaged")
    np.save(folder / "gaussian_noise.npy", np.array([{}], dtype=object), allow_pickle=True)
    refused(clean, "no .npy file of numbers")
