"""The alarm's p-value is exact with few images and ties; few and many novel images ring."""

import itertools
import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, mannwhitneyu

from erd.statistics.novelty_test import DRAWS, Kinds, alarm

few_values = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=40).map(np.array)


@pytest.mark.parametrize(("images", "references"), [(20, 200), (150, 60)])
def test_p_values_of_batches_without_novel_images_are_uniform(images: int, references: int) -> None:
    rng = np.random.default_rng(0)
    p = [alarm(rng.random(images), rng.random(references), seed, draws=99) for seed in range(300)]
    assert kstest(p, "uniform").pvalue > 0.01


@pytest.mark.parametrize("levels", [2, 6])
def test_with_ties_p_values_are_never_too_small_too_often(levels: int) -> None:
    rng = np.random.default_rng(1)
    p = np.array(
        [alarm(rng.integers(levels, size=30), rng.integers(levels, size=50), seed, draws=49) for seed in range(800)]
    )
    for level in (0.02, 0.1, 0.2, 0.5):
        assert (p <= level).mean() <= level + 4 * math.sqrt(level * (1 - level) / len(p))
    assert (p <= 0.2).mean() > 0.1  # and yet it is a test


def test_a_p_value_is_never_0() -> None:
    assert alarm(np.full(50, 2.0), np.zeros(500), seed=0, draws=99) == 0.01


@given(batch=few_values, reference=few_values)
def test_the_order_of_images_and_the_scale_of_scores_do_not_matter(batch: np.ndarray, reference: np.ndarray) -> None:
    p = alarm(batch, reference, seed=3, draws=49)
    assert alarm(np.exp(batch[::-1]), np.exp(reference), seed=3, draws=49) == p
    if len(np.unique(np.concatenate([batch, reference]))) == 1:
        assert p == 1  # nothing can be told apart


def test_without_images_or_reference_nothing_rings() -> None:
    assert alarm(np.array([]), np.ones(9), 0) == alarm(np.ones(9), np.array([]), 0) == 1


@pytest.mark.parametrize("scores", [range(9), (0, 0, 1, 1, 1, 2, 3, 3, 4)], ids=["all different", "with ties"])
def test_over_all_orders_of_a_few_images_a_p_value_is_small_as_seldom_as_it_says(scores: Sequence[int]) -> None:
    """Exact, not by chance: every way in which 4 of 9 images can be the batch. Counts of another law, or ties counted
    the wrong way, would make small p-values too frequent."""
    values = np.array(scores, float)
    p = []
    for batch in itertools.combinations(range(len(values)), 4):
        here = np.isin(np.arange(len(values)), batch)
        p.append(alarm(values[here], values[~here], seed=0, draws=4_999))
    for level in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        assert np.mean(np.array(p) <= level) <= level + 0.006, "but for the draws"
    assert min(p) < 0.02, "the highest four are told from the others"


@pytest.mark.parametrize(
    ("images", "references", "novel", "shift", "least", "mann_whitney"),
    [
        (20, 200, 8, 3.0, 0.9, 0.9),  # a small batch, 40% novel
        (1_000, 1_000, 20, 3.5, 0.9, 0.3),  # 2% with high scores: Mann–Whitney is blind
        (1_000, 1_000, 500, 0.4, 0.9, 1.0),  # half of all, a little higher: its home game
        (2_000, 1_000, 200, 1.5, 0.95, 0.9),
    ],
)
def test_few_and_many_novel_images_ring(
    images: int, references: int, novel: int, shift: float, least: float, mann_whitney: float
) -> None:
    rng = np.random.default_rng(4)
    found, compared = [], []
    for seed in range(40):
        batch, reference = rng.standard_normal(images), rng.standard_normal(references)
        batch[:novel] += shift
        found.append(alarm(batch, reference, seed, draws=399) <= 0.01)
        compared.append(mannwhitneyu(batch, reference, alternative="greater").pvalue <= 0.01)
    assert np.mean(found) >= least
    assert np.mean(compared) <= mann_whitney


def test_lower_scores_do_not_ring() -> None:
    rng = np.random.default_rng(5)
    assert alarm(rng.random(200) - 0.5, rng.random(200), seed=0) > 0.9


def test_a_million_images_take_seconds() -> None:
    rng = np.random.default_rng(6)
    batch, reference = rng.random(1_000_000), rng.random(100_000)
    batch[:2_000] += 0.9
    started = time.perf_counter()
    assert alarm(batch, reference, seed=0) == 1 / (DRAWS + 1)
    assert time.perf_counter() - started < 10


def test_the_same_seed_gives_the_same_p_value() -> None:
    rng = np.random.default_rng(7)
    batch, reference = rng.random(50), rng.random(80)
    assert len({alarm(batch, reference, 1), alarm(batch, reference, 1), alarm(batch, reference, 2)}) == 2


def _hard_class(rng: np.random.Generator, often: int, rarely: int) -> tuple[np.ndarray, np.ndarray, Kinds]:
    """A class whose scores are higher than others', learned a week ago: often in the batch and rare in C."""
    kinds = np.repeat([1, 0], [often, 100 - often]), np.repeat([1, 0], [rarely, 200 - rarely])
    batch, reference = (2.0 * kind + rng.standard_normal(len(kind)) for kind in kinds)
    return batch, reference, kinds


def test_a_class_that_is_rare_in_c_does_not_ring_where_orders_are_compared_within_classes() -> None:
    rng = np.random.default_rng(3)
    drawn = [_hard_class(rng, 30, 6) for _ in range(300)]
    plain, within = (
        np.array(
            [alarm(batch, known, n, 499, kinds if asked else None) for n, (batch, known, kinds) in enumerate(drawn)]
        )
        for asked in (False, True)
    )
    assert (plain <= 0.05).mean() > 0.9, "which it does without that"
    assert kstest(within, "uniform").pvalue > 0.01


def test_what_is_novel_rings_within_classes_too() -> None:
    rng = np.random.default_rng(4)
    for seed in range(20):
        batch, known, kinds = _hard_class(rng, 30, 6)
        batch[-12:] += 7.0  # taken for the other class
        assert alarm(batch, known, seed, kinds=kinds) < 0.001


def test_of_many_classes_the_rare_ones_are_compared_together() -> None:
    rng = np.random.default_rng(5)
    kinds = rng.integers(0, 500, 400), rng.integers(0, 500, 400)
    batch, reference = rng.standard_normal((2, 400))
    batch[:20] += 5.0
    assert alarm(batch, reference, 0, kinds=kinds) < 0.001
