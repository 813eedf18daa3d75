"""Candidates, neighbours and disagreement as one score: nobody is compared with itself, and what is kept is whole."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from erd.statistics import joint
from erd.statistics.candidates import Space
from erd.statistics.joint import Joint, joined
from erd.statistics.neighbours import Index

WIDTH, CLASSES = 40, 12
LABELLED, BATCH, ASKED = 240, 300, 100
NOVEL = 50  # in the batch and among the asked


class Drawn(NamedTuple):
    train: Tensor
    labels: Tensor
    batch: Tensor  # the novel ones first, here and below
    asked: Tensor
    disagreement: np.ndarray  # on the batch
    disagreement_asked: np.ndarray

    def joint(self, images: int = BATCH) -> Joint:
        return Joint.of(self.train, self.labels, self.batch[:images], self.disagreement[:images])


def draw(seed: int) -> Drawn:
    """Two new classes on two sides of the known ones, and a disagreement that sees some of it."""
    rng = np.random.default_rng(seed)
    means = 6 * rng.standard_normal((CLASSES + 1, WIDTH)) / math.sqrt(WIDTH)

    def images(count: int, new: int) -> tuple[np.ndarray, np.ndarray]:
        classes = rng.integers(0, CLASSES, count)
        centres = means[classes]
        centres[:new] = means[CLASSES] * np.where(np.arange(new) % 2, 1, -1)[:, None]
        return centres + rng.standard_normal((count, WIDTH)), classes

    (train, labels), (batch, _), (asked, _) = images(LABELLED, 0), images(BATCH, NOVEL), images(ASKED, NOVEL)
    noise = [(rng.random(count) + (np.arange(count) < NOVEL)).astype(np.float32) for count in (BATCH, ASKED)]
    seen = [torch.from_numpy(kind).float() for kind in (train, batch, asked)]
    return Drawn(seen[0], torch.from_numpy(labels), seen[1], seen[2], *noise)


def table(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"id": [f"{row}" for row in range(len(values))], "disagreement": values})


def test_what_one_part_misses_the_others_find() -> None:
    there = draw(0)
    made = there.joint()
    scored = made.of_table(table(there.disagreement_asked), there.asked)
    new = np.arange(ASKED) < NOVEL
    assert scored["score"][new].min() > scored["score"][~new].quantile(0.9)
    blind = made.of_table(table(np.zeros(ASKED, np.float32)), there.asked)
    assert blind["score"][new].median() > blind["score"][~new].max()
    assert list(scored.columns) == ["id", "disagreement", "score", "candidates", "neighbours"]


def test_an_image_that_it_was_made_with_has_the_parts_it_would_have_without_itself() -> None:
    there = draw(1)
    made = there.joint()
    parts = made.parts(there.batch)
    np.testing.assert_array_equal(parts["candidates"], made.candidates.within.numpy())
    counted = made.candidates.scores(made.space(there.batch))
    assert np.abs(counted - parts["candidates"])[:NOVEL].min() > 0.05, "its own centre would have been another value"
    for row in range(0, BATCH, 9):
        others = torch.arange(BATCH) != row
        index = Index(made.space, made.index.background, made.index.batch[others])
        assert parts["neighbours"][row] == pytest.approx(index.scores(there.batch[row : row + 1])[0], abs=1e-5)
    without = Joint.of(
        there.train, there.labels, there.batch[1:], there.disagreement[1:], made.space
    )  # the first is of a new class, where that makes a difference
    assert parts["candidates"][0] == pytest.approx(without.parts(there.batch[:1])["candidates"][0], abs=0.03)


def test_the_parts_of_an_image_do_not_depend_on_who_else_is_asked_about() -> None:
    there = draw(2)
    made = there.joint()
    mixed = torch.cat([there.asked, there.batch])
    order = torch.randperm(len(mixed), generator=torch.Generator().manual_seed(0))
    whole, shuffled = made.parts(mixed), made.parts(mixed[order])
    for name, values in whole.items():  # within what the last bit of float16 makes of them
        np.testing.assert_allclose(shuffled[name], values[order], atol=0.02)
        np.testing.assert_allclose(made.parts(there.asked[:1])[name], values[:1], atol=0.02)
    assert all(len(values) == 0 for values in made.parts(there.asked[:0]).values())


def test_the_scores_of_what_it_learned_are_those_of_a_table_of_these_images() -> None:
    for seed, images in ((3, BATCH), (4, 120), (5, 5)):
        there = draw(seed)
        made = there.joint(images)
        scored = made.of_table(table(there.disagreement[:images]), there.batch[:images])
        np.testing.assert_allclose(made.learned, scored["score"], rtol=1e-9)
        np.testing.assert_allclose(made.within[:, 1], scored["neighbours"], atol=1e-6)


def test_the_images_it_is_made_with_are_a_set() -> None:
    there = draw(6)
    made = there.joint()
    order = torch.randperm(BATCH, generator=torch.Generator().manual_seed(1))
    shuffled = Joint.of(there.train, there.labels, there.batch[order], there.disagreement[order], made.space)
    asked = table(there.disagreement_asked)
    one, other = (kind.of_table(asked, there.asked)["score"] for kind in (made, shuffled))
    for difference in (shuffled.learned - made.learned[order], one - other):
        assert np.quantile(np.abs(difference), 0.95) < 0.05  # ranks: a tie may turn


def test_the_space_is_of_the_images_that_are_given_or_of_those_that_were_looked_at() -> None:
    there = draw(7)
    alone = there.joint()
    space = Space.of(there.train, there.labels, [there.batch, there.asked])
    wide = Joint.of(there.train, there.labels, there.batch, there.disagreement, space)
    assert wide.space is space
    expected = Space.of(there.train, there.labels, [there.batch])
    torch.testing.assert_close(alone.space.axes, expected.axes)
    torch.testing.assert_close(wide.index.batch, space(there.batch))


@pytest.mark.parametrize("images", [BATCH, 5], ids=["candidates", "too few for any"])
def test_what_is_kept_is_whole(tmp_path: Path, images: int) -> None:
    there = draw(8)
    made = there.joint(images)
    assert len(made.candidates.strength) == (2 if images == BATCH else 0)
    made.save(tmp_path / "joint.safetensors")
    kept = Joint.load(tmp_path / "joint.safetensors")
    assert kept is not None
    assert kept.candidates.strength == pytest.approx(made.candidates.strength)
    torch.testing.assert_close(kept.candidates.centres, made.candidates.centres, rtol=0, atol=0)
    torch.testing.assert_close(kept.candidates.within, made.candidates.within, rtol=0, atol=0)
    assert kept.learned.tolist() == made.learned.tolist()
    both, values = torch.cat([there.asked, there.batch]), [there.disagreement_asked, there.disagreement]
    before, after = (kind.of_table(table(np.concatenate(values)), both) for kind in (made, kept))
    assert after.equals(before), "of images that it was made with, too"


def test_a_part_that_counts_twice_is_as_good_as_two_of_its_kind() -> None:
    rng = np.random.default_rng(9)
    asked, there = rng.random((50, 3)), rng.random((400, 3))
    twice = joined(asked[:, [0, 0, 1, 2]], there[:, [0, 0, 1, 2]])
    np.testing.assert_allclose(joined(asked, there, (2, 1, 1)), twice)
    np.testing.assert_allclose(joined(asked, there, (1, 1, 1)), joined(asked, there))
    assert joint.WEIGHTS["candidates"] == 2 * joint.WEIGHTS["neighbours"] == 2 * joint.WEIGHTS["disagreement"]
    assert list(joint.WEIGHTS) == ["candidates", "neighbours", "disagreement"], "the order of the columns of `within`"
