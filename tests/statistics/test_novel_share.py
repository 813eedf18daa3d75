"""The interval contains the share as often as it says where its assumption holds; its lower end wherever."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from erd.statistics.novel_share import Share, novel_share

few_values = st.lists(st.integers(0, 6).map(float), max_size=40).map(lambda values: np.array(values, dtype=float))
WEAK, STRONG = 1.0, 3.0  # normal scores so far apart: AUROC .76 and .98


def _simulated(
    share: float, shift: float, images: int, references: int, repetitions: int, ties: bool = False
) -> list[Share]:
    rng = np.random.default_rng(0)
    novel, found = round(share * images), []
    for _ in range(repetitions):
        batch, reference = rng.standard_normal(images), rng.standard_normal(references)
        batch[:novel] += shift
        if ties:
            batch, reference = np.floor(batch * 2), np.floor(reference * 2)
        found.append(novel_share(batch, reference, confidence=0.8))
    return found


def _rate_at_least(hits: list[bool], rate: float) -> bool:
    return float(np.mean(hits)) >= rate - 4 * math.sqrt(rate * (1 - rate) / len(hits))


@pytest.mark.parametrize(
    ("share", "shift"),
    [(0, 0), (0.02, WEAK), (0.02, STRONG), (0.1, WEAK), (0.1, STRONG), (0.5, WEAK), (0.5, STRONG)],
)
@pytest.mark.parametrize(("images", "references", "ties"), [(200, 100, True), (600, 600, False)])
def test_the_interval_contains_the_share_with_the_stated_confidence(
    share: float, shift: float, images: int, references: int, ties: bool
) -> None:
    found = _simulated(share, shift, images, references, 150, ties)
    assert _rate_at_least([one.low <= share <= one.high for one in found], 0.8)
    assert _rate_at_least([one.low <= share for one in found], 0.9)


def test_the_upper_end_is_tight_where_its_assumption_is() -> None:
    """Nothing hidden, nothing allowed to be: it misses as often as it says, so it gives nothing away."""
    rng = np.random.default_rng(1)
    misses = []
    for _ in range(500):
        batch, reference = rng.random(400), rng.random(300)
        batch[:100] += 1
        misses.append(novel_share(batch, reference, confidence=0.8, hidden=0).high < 0.25)
    assert 0.05 < np.mean(misses) < 0.1 + 4 * math.sqrt(0.1 * 0.9 / len(misses))


def test_the_lower_end_holds_where_novel_images_score_like_known_ones_and_the_upper_one_cannot() -> None:
    found = _simulated(share=0.5, shift=0, images=500, references=500, repetitions=100)
    assert all(one.low <= 0.05 for one in found)
    assert np.mean([one.high < 0.5 for one in found]) > 0.9


def test_the_number_of_novel_images_is_the_lower_end() -> None:
    for one in _simulated(share=0.1, shift=STRONG, images=1_000, references=1_000, repetitions=20):
        assert one.novel == round(one.low * 1_000)
        assert 40 <= one.novel <= 100


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_estimates_are_near_the_share_of_well_separated_images(share: float) -> None:
    found = _simulated(share, STRONG, images=2_000, references=2_000, repetitions=50)
    for estimates in ([one.storey for one in found], [one.bbe for one in found]):
        assert np.mean(estimates) == pytest.approx(share, abs=0.02)
        assert np.std(estimates) < 0.03


def test_more_hidden_images_raise_the_upper_end_alone() -> None:
    rng = np.random.default_rng(2)
    batch, reference = np.concatenate([rng.random(600), 1 + rng.random(400)]), rng.random(1_000)
    few, many = (novel_share(batch, reference, hidden=hidden) for hidden in (0.0, 0.1))
    assert few.low == many.low
    assert few.high < many.high


@given(batch=few_values, reference=few_values)
def test_an_interval_is_one_with_the_estimates_inside(batch: np.ndarray, reference: np.ndarray) -> None:
    share = novel_share(batch, reference)
    assert 0 <= share.low <= min(share.storey, share.bbe) <= max(share.storey, share.bbe) <= share.high <= 1


def test_without_images_or_reference_nothing_is_known() -> None:
    assert novel_share(np.array([]), np.ones(5)) == novel_share(np.ones(5), np.array([])) == Share(0, 0, 0, 1, 0)
