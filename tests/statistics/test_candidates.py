"""Candidate classes: a rare new class is found as a group, none is where nothing is new, nobody votes for itself."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from erd.statistics import candidates, neighbours
from erd.statistics.candidates import Candidates, Known, Space
from erd.statistics.neighbours import Index

WIDTH, CLASSES = 60, 20
LABELLED, BATCH, HIDDEN = 400, 600, 150  # images of S, U and C
NOVEL = 20  # 3% of the batch
DRAWS = 8


class Drawn(NamedTuple):
    """Features of Gaussian classes, and of as many new images as were asked for."""

    train: Tensor
    labels: Tensor
    batch: Tensor  # the novel ones first
    hidden: Tensor
    later: Tensor  # as many novel ones again, that no fit has seen

    @property
    def space(self) -> Space:
        return Space.of(self.train, self.labels, [self.batch, self.hidden])

    def known(self, space: Space) -> Known:
        return Known.of(space(self.train), self.labels)


def draw(seed: int, novel: int = NOVEL, *, opposite: bool = False, width: int = WIDTH) -> Drawn:
    """With `opposite` a second new class is there, on the other side of the known ones and as frequent."""
    rng = np.random.default_rng(seed)
    means = 5 * rng.standard_normal((CLASSES + 1, width)) / math.sqrt(width)

    def known(count: int) -> tuple[Tensor, Tensor]:
        classes = rng.integers(0, CLASSES, count)
        return torch.from_numpy(means[classes] + rng.standard_normal((count, width))).float(), torch.from_numpy(classes)

    def new(side: int = 1) -> Tensor:
        return torch.from_numpy(side * means[CLASSES] + rng.standard_normal((novel, width))).float()

    train, labels = known(LABELLED)
    found = [new(), new(-1)] if opposite else [new()]
    batch = torch.cat([*found, known(BATCH - novel * len(found))[0]])
    return Drawn(train, labels, batch, known(HIDDEN)[0], new())


def fit(there: Drawn) -> tuple[Candidates, Space]:
    space = there.space
    return Candidates.of(space(there.batch), there.known(space)), space


# What is found


def test_twenty_new_images_among_six_hundred_come_first_where_neighbours_lose_every_third() -> None:
    """They are fewer than the neighbours that are asked, and each is as far from S as odd known images are."""
    by_candidates: list[float] = []
    by_neighbours: list[float] = []
    for seed in range(DRAWS):
        there = draw(seed)
        found, _ = fit(there)
        alone = Index.of(there.train, there.labels, there.batch).scores(there.batch)
        for precision, scores in ((by_candidates, found.within.numpy()), (by_neighbours, alone)):
            precision.append((np.argsort(-scores)[:NOVEL] < NOVEL).mean())
    assert min(by_candidates) >= 0.9
    assert np.mean(by_neighbours) < 0.7


def test_images_that_the_fit_has_not_seen_are_told_apart_as_well() -> None:
    for seed in range(DRAWS):
        there = draw(seed)
        found, space = fit(there)
        new, known = (found.scores(space(images)) for images in (there.later, there.hidden))
        assert (new > np.quantile(known, 0.95)).mean() >= 0.9
        assert (new > 0).mean() >= 0.8, "log odds: more likely of the new class than known"
        assert (known > 0).mean() < 0.02


def test_a_new_class_is_strong_and_where_nothing_is_new_the_strongest_candidate_is_weak() -> None:
    for seed in range(DRAWS):
        nothing, something = (fit(draw(seed, novel))[0] for novel in (0, NOVEL))
        assert len(nothing.strength) == len(something.strength) == 1
        assert nothing.strength[0] < 12 < 25 < something.strength[0]
        assert nothing.belongs.sum() < NOVEL / 2
        assert something.belongs[0, :NOVEL].mean() > 0.8
        assert something.belongs[0, NOVEL:].mean() < 0.01


def test_a_subgroup_of_a_known_class_that_is_in_s_as_well_is_no_candidate() -> None:
    """The same images are a strong candidate as long as nobody has labelled any of their kind."""
    for seed in range(4):
        there = draw(seed, 30)
        unlabelled, _ = fit(there)
        assert unlabelled.belongs[0, :30].mean() > 0.8
        names = torch.zeros(30, dtype=torch.int64)  # as a part of class 0, whose other images look otherwise
        labels = torch.cat([there.labels, names])
        labelled, _ = fit(there._replace(train=torch.cat([there.train, there.later]), labels=labels))
        assert labelled.strength[0] < 12 < 40 < unlabelled.strength[0]


def test_two_new_classes_are_two_candidates() -> None:
    for seed in range(4):
        there = draw(seed, 25, opposite=True)
        found, _ = fit(there)
        assert len(found.strength) == len(found.centres) == 2
        assert min(found.strength) > candidates.STRONG
        first, second = (found.belongs[:, rows].mean(1) for rows in (slice(0, 25), slice(25, 50)))
        of_first, of_second = int(first.argmax()), int(second.argmax())
        assert {of_first, of_second} == {0, 1}
        assert min(first[of_first], second[of_second]) > 0.8
        assert max(first[of_second], second[of_first]) < 0.05
        best = np.argsort(-found.within.numpy())[:50]
        assert (best < 50).mean() > 0.9, "both count, whichever is the stronger"


# Who counts


def test_the_order_of_the_images_changes_nothing() -> None:
    for seed, novel in ((0, NOVEL), (1, 0), (2, NOVEL)):
        there = draw(seed, novel)
        space = there.space
        found = Candidates.of(space(there.batch), there.known(space))
        generator = torch.Generator().manual_seed(seed)
        order, of_train = (torch.randperm(len(kind), generator=generator) for kind in (there.batch, there.train))
        known = Known.of(space(there.train[of_train]), there.labels[of_train])
        shuffled = Candidates.of(space(there.batch)[order], known)
        torch.testing.assert_close(shuffled.within, found.within[order], rtol=0, atol=1e-3)
        torch.testing.assert_close(shuffled.belongs, found.belongs[:, order], rtol=0, atol=1e-3)
        assert shuffled.strength == pytest.approx(found.strength, rel=1e-3)
        asked = space(there.hidden)
        np.testing.assert_allclose(shuffled.scores(asked), found.scores(asked), atol=1e-3)


def test_a_score_does_not_depend_on_who_else_is_asked_about() -> None:
    there = draw(3)
    found, space = fit(there)
    whole = found.scores(space(there.hidden))
    alone = np.concatenate([found.scores(space(image[None])) for image in there.hidden[:30]])
    np.testing.assert_allclose(alone, whole[:30], atol=0.02)  # β × the last bit of float16
    assert found.scores(space(there.hidden[:0])).shape == (0,)


def test_an_image_is_scored_as_if_the_fit_had_been_made_without_it() -> None:
    """By the centre that it counts for, each image of the new class would look a little more like it."""
    there = draw(4)
    found, space = fit(there)
    seen, known = space(there.batch), there.known(space)
    rows = range(NOVEL)
    without = np.array([
        Candidates.of(seen[torch.arange(BATCH) != row], known).scores(seen[row : row + 1])[0] for row in rows
    ])  # fmt: skip
    counted, ours = found.scores(seen)[:NOVEL] - without, found.within.numpy()[:NOVEL] - without
    assert counted.min() > 0.1
    assert np.abs(ours).mean() < 0.2 * counted.mean()
    assert abs(ours.mean()) < 0.1 * counted.mean()


@pytest.mark.parametrize("alike", [1, 2])
def test_what_is_unlike_everything_else_does_not_become_its_own_class(alike: int) -> None:
    """Nor do two copies: the rest of the batch gives the same candidate without them."""
    there = draw(5, 0)
    stranger = torch.from_numpy(30 * np.random.default_rng(105).standard_normal((1, WIDTH))).float()
    space = Space.of(there.train, there.labels, [there.batch, there.hidden, stranger])
    known, seen = there.known(space), space(there.batch)
    rest, whole = (Candidates.of(torch.cat([space(stranger)] * there_are + [seen]), known) for there_are in (0, alike))
    assert whole.strength == pytest.approx(rest.strength, abs=0.05)
    assert whole.belongs[:, :alike].max() < 0.5
    np.testing.assert_allclose(whole.within[:alike], rest.scores(space(stranger)).repeat(alike), atol=0.5)


@pytest.mark.parametrize(("copies", "is_class"), [(1, False), (4, True)])
def test_one_image_does_not_grow_to_a_class_and_a_few_that_are_alike_do(copies: int, is_class: bool) -> None:
    there = draw(6, 0)
    stranger = torch.from_numpy(30 * np.random.default_rng(106).standard_normal((1, WIDTH))).float()
    space = Space.of(there.train, there.labels, [there.batch, there.hidden, stranger])
    seen = torch.cat([space(stranger)] * copies + [space(there.batch)])
    grown = candidates.grown(seen.float(), there.known(space).likeness(seen), torch.arange(copies), candidates.ROUNDS)
    assert grown.belongs.any(1).tolist() == [is_class] * copies
    if is_class:
        assert grown.belongs[:, :copies].min() > 0.9
        assert grown.belongs[:, copies:].sum(1).max() < 0.5


@pytest.mark.parametrize("images", [0, 1, 2, candidates.FROM, candidates.FROM + 1, 20])
def test_too_few_images_say_nothing(images: int) -> None:
    there = draw(6)
    space = there.space
    few = Candidates.of(space(there.batch[:images]), there.known(space))
    assert few.within.shape == (images,)
    assert few.belongs.shape == (len(few.strength), images)
    assert np.isfinite(few.scores(space(there.hidden))).all()
    assert few.within.isfinite().all()
    if images <= candidates.FROM:
        assert not few.strength
        assert not few.within.any()
        assert not few.scores(space(there.hidden)).any()


# Directions


@pytest.mark.parametrize("width", [30, 200], ids=["fewer than are kept", "more than are kept"])
def test_the_space_looks_at_all_images_alike_and_keeps_the_directions_in_which_they_differ(width: int) -> None:
    there = draw(7, width=width)
    space = there.space
    mixed = torch.cat([there.hidden, there.batch])[torch.randperm(BATCH + HIDDEN)]
    other = Space.of(there.train, there.labels, [mixed])
    assert space.axes.shape == (width, min(width, candidates.WIDTH))
    seen, seen_otherwise = (kind(there.batch).float() for kind in (space, other))
    torch.testing.assert_close(seen @ seen.T, seen_otherwise @ seen_otherwise.T, rtol=0, atol=2e-3)
    torch.testing.assert_close(seen.norm(dim=1), torch.ones(BATCH), rtol=0, atol=1e-3)
    whole = space.whitening(there.batch).float() - space.mean
    kept = (whole @ space.axes).square().sum() / whole.square().sum()
    assert kept > (0.999 if width < candidates.WIDTH else 1.2 * candidates.WIDTH / width), "more than in any others"
    assert space(there.batch[:0]).shape == (0, space.axes.shape[1])


def test_how_many_images_are_looked_at_at_once_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = draw(8)
    expected = there.space(there.batch).float()
    for module in (candidates, neighbours):
        monkeypatch.setattr(module, "CHUNK", 37)
    found = there.space(there.batch).float()
    torch.testing.assert_close(found @ found.T, expected @ expected.T, rtol=0, atol=2e-3)
