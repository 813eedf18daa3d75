"""The test for a new group rings as often as it says where nothing is novel, and at a group of a few hundredths."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from erd.statistics import candidates, scan
from erd.statistics.candidates import Known, Space

WIDTH, CLASSES = 20, 4
LABELLED, BATCH, HELD_OUT = 200, 150, 150  # images of S, U and C
DRAWS = 99
REPETITIONS = 150
# Class 0 five times as often as among the labelled images, compared with the others.
OTHER_WEEK = (5 / 8, 1 / 8, 1 / 8, 1 / 8)


class Drawn(NamedTuple):
    """In the directions of a space of all of them."""

    batch: Tensor  # the novel ones first
    held_out: Tensor
    known: Known

    def p(self, seed: int = 0, draws: int = DRAWS) -> float:
        return scan.group_test(*self, seed, draws)


def draw(
    seed: int,
    novel: int = 0,
    week: tuple[float, ...] | None = None,
    held_out: int = HELD_OUT,
    width: int = WIDTH,
) -> Drawn:
    rng = np.random.default_rng(seed)
    means = 6 * rng.standard_normal((CLASSES + 1, width)) / math.sqrt(width)

    def known(count: int, proportions: tuple[float, ...] | None = None) -> tuple[Tensor, Tensor]:
        classes = rng.choice(CLASSES, count, p=proportions)
        return torch.from_numpy(means[classes] + rng.standard_normal((count, width))).float(), torch.from_numpy(classes)

    train, labels = known(LABELLED)
    new = torch.from_numpy(means[CLASSES] + 0.5 * rng.standard_normal((novel, width))).float()
    batch, calibration = torch.cat([new, known(BATCH - novel, week)[0]]), known(held_out)[0]
    space = Space.of(train, labels, [batch, calibration])
    return Drawn(space(batch), space(calibration), Known.of(space(train), labels))


def of_many(week: tuple[float, ...] | None = None) -> np.ndarray:
    """p-values of batches in which nothing is novel."""
    return np.array([draw(seed, week=week).p(seed) for seed in range(REPETITIONS)])


def allowed(level: float) -> float:
    return level + 3.5 * math.sqrt(level * (1 - level) / REPETITIONS)


@pytest.mark.parametrize("week", [None, OTHER_WEEK], ids=["as among the labelled", "other proportions"])
def test_where_nothing_is_novel_p_values_are_small_as_often_as_they_say(week: tuple[float, ...] | None) -> None:
    p = of_many(week)
    for level in (0.05, 0.1, 0.2, 0.5):
        assert (p <= level).mean() < allowed(level)
        assert (p <= level).mean() > 2 * level - allowed(level), "and nothing is given away"


def test_if_classes_were_mixed_other_proportions_would_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above would notice. All centres as one: then every image is taken for the same class."""
    p = []
    for seed in range(15):
        there = draw(seed, week=OTHER_WEEK)
        images = torch.cat([there.batch, there.held_out])
        likenesses = iter([there.known.likeness(kind) for kind in (images, there.known.background)])
        blind = Known(there.known.background, torch.zeros_like(there.known.centres[:1]))
        with monkeypatch.context() as patch:
            patch.setattr(Known, "likeness", lambda *_, of=likenesses: next(of))
            p.append(scan.group_test(there.batch, there.held_out, blind, seed, DRAWS))
    assert np.mean(np.array(p) <= 0.1) > 0.5


def test_a_group_of_four_hundredths_gives_the_smallest_p_value_there_is() -> None:
    """C is three times the batch here: of as many images, all six stay in a random batch once in 64 times."""
    p = np.array([draw(seed, 6, held_out=3 * BATCH, width=40).p(seed) for seed in range(10)])
    assert (p == 1 / (DRAWS + 1)).sum() >= 7
    assert max(p) <= 0.05
    alike = np.array([draw(seed, 6, width=40).p(seed) for seed in range(10)])
    assert (alike <= 0.05).sum() >= 8
    other = np.array([draw(seed, 12, OTHER_WEEK, 3 * BATCH, 40).p(seed) for seed in range(6)])
    assert max(other) == 1 / (DRAWS + 1), "twice as many, where known classes come in other proportions"


def test_a_group_that_is_in_c_as_well_is_not_news() -> None:
    """Though nobody has labelled it: what has been there all along does not ring."""
    p = []
    for seed in range(20):
        there = draw(seed, 12)
        swapped = torch.cat([there.held_out[:6], there.batch[6:]]), torch.cat([there.batch[:6], there.held_out[6:]])
        p.append(scan.group_test(*swapped, there.known, seed, DRAWS))
    assert np.mean(np.array(p) <= 0.05) < 0.3
    assert np.median(p) > 0.2


def test_it_stops_as_soon_as_enough_random_batches_are_as_strong(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    strength = scan._Pool.strength

    def counted(self: scan._Pool, rows: Tensor) -> float:
        nonlocal asked
        asked += 1
        return strength(self, rows)

    monkeypatch.setattr(scan._Pool, "strength", counted)
    early = 0
    for seed in range(12):
        asked = 0
        p = draw(seed).p(seed)
        drawn = asked - 1  # the first is the batch itself
        assert drawn <= DRAWS
        if drawn < DRAWS:
            early += 1
            # Where no candidate has more images than are expected nothing has to be drawn.
            assert p == (scan.ENOUGH / drawn if drawn else 1) >= scan.ENOUGH / DRAWS
        else:
            assert p == pytest.approx(round(p * (DRAWS + 1)) / (DRAWS + 1)) or p == scan.ENOUGH / DRAWS
    assert early >= 6, "most batches have nothing new"


def test_the_same_seed_gives_the_same_p_value_and_the_order_of_images_does_not_count() -> None:
    there = draw(1)
    found = [there.p(seed) for seed in (0, 0, 1, 2, 3)]
    assert found[0] == found[1]
    assert len(set(found)) > 1, "another seed draws other batches"
    backwards = Drawn(there.batch.flip(0), there.held_out.flip(0), there.known)
    p = [np.mean([kind.p(seed) for seed in range(8)]) for kind in (there, backwards)]
    assert p[0] == pytest.approx(p[1], abs=0.1)


@pytest.mark.parametrize(("images", "held_out"), [(0, 50), (candidates.FROM, 50), (50, 0)])
def test_too_few_images_do_not_ring(images: int, held_out: int) -> None:
    there = draw(2, 6)
    assert there._replace(batch=there.batch[:images], held_out=there.held_out[:held_out]).p() == 1


@pytest.mark.parametrize(("images", "held_out"), [(candidates.FROM + 1, 1), (20, 2), (30, 150)])
def test_few_images_are_enough_for_a_p_value(images: int, held_out: int) -> None:
    there = draw(3)
    p = there._replace(batch=there.batch[:images], held_out=there.held_out[:held_out]).p(draws=19)
    assert 1 / 20 <= p <= 1


def test_of_very_many_images_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_IMAGES", 100)
    sizes = []
    strength = scan._Pool.strength

    def noted(self: scan._Pool, rows: Tensor) -> float:
        sizes.append((len(rows), len(self.seen)))
        return strength(self, rows)

    monkeypatch.setattr(scan._Pool, "strength", noted)
    p = [draw(seed, 30).p(seed) for seed in range(5)]
    assert set(sizes) == {(100, 150)}
    assert max(p) <= 0.03, "a fifth of them is novel, whoever is drawn"


def test_images_of_one_patient_are_exchanged_together_and_are_no_new_class() -> None:
    """Five images of each patient that are nearly the same: torn apart they would be the densest group there is."""
    together, apart = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        means = 6 * rng.standard_normal((CLASSES, WIDTH)) / math.sqrt(WIDTH)

        def patients(count: int, rng: np.random.Generator = rng, means: np.ndarray = means) -> Tensor:
            each = means[rng.integers(CLASSES, size=count)] + rng.standard_normal((count, WIDTH))
            return torch.from_numpy(np.repeat(each, 5, 0) + 0.2 * rng.standard_normal((5 * count, WIDTH))).float()

        classes = rng.integers(CLASSES, size=LABELLED)
        train = torch.from_numpy(means[classes] + rng.standard_normal((LABELLED, WIDTH))).float()
        labels = torch.from_numpy(classes)
        batch, held_out = patients(30), patients(30)
        space = Space.of(train, labels, [batch, held_out])
        there = space(batch), space(held_out), Known.of(space(train), labels)
        whose = np.repeat(np.arange(30), 5)
        together.append(scan.group_test(*there, seed, DRAWS, groups=(whose, whose)))
        apart.append(scan.group_test(*there, seed, DRAWS))
    assert np.mean(np.array(together) <= 0.1) < 0.1 + 3.5 * math.sqrt(0.09 / 60)
    assert np.mean(np.array(apart) <= 0.1) > 0.4, "which is why"


def test_groups_of_a_batch_may_be_larger_than_those_of_c() -> None:
    """Patients who came again in each of four weeks, and single images in C: a random batch has as many images."""
    p = []
    for seed in range(30):
        there = draw(seed)
        whose = np.arange(BATCH) // 4, np.arange(HELD_OUT)
        p.append(scan.group_test(there.batch, there.held_out, there.known, seed, DRAWS, groups=whose))
        single = np.where(np.arange(BATCH) < BATCH // 2, np.arange(BATCH) // 4, np.arange(BATCH))
        p.append(scan.group_test(there.batch, there.held_out, there.known, seed, DRAWS, (single, whose[1])))
    assert np.mean(np.array(p) <= 0.1) < 0.1 + 3.5 * math.sqrt(0.09 / 30)
