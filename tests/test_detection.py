"""Flags keep the false-positive rate they state, and p-values are what they say."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from erd import detection

few_values = st.integers(0, 6).map(lambda n: n / 4)  # few of them: many ties
scores = st.lists(few_values, min_size=1, max_size=60).map(np.array)
rates = st.floats(0.001, 0.999)


def test_a_p_value_counts_the_reference_scores_at_least_as_high_and_the_image_itself() -> None:
    reference = np.array([0.3, 0.1, 0.2, 0.2])
    p = detection.p_values(np.array([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.31]), reference)
    assert p.tolist() == [5 / 5, 5 / 5, 4 / 5, 4 / 5, 2 / 5, 2 / 5, 1 / 5]


def test_without_reference_every_p_value_is_1() -> None:
    assert detection.p_values(np.array([0.1, 9.0]), np.array([])).tolist() == [1, 1]


@given(batch=scores, reference=st.one_of(scores, st.just(np.array([]))), fpr=rates)
@example(batch=np.array([1.0, 2.0]), reference=np.arange(19.0), fpr=0.05)
@example(batch=np.array([1.0, 2.0]), reference=np.arange(29.0), fpr=0.1)
@example(batch=np.array([1.0, 2.0]), reference=np.arange(3.0), fpr=math.nextafter(1, 0))
def test_above_the_threshold_is_the_same_as_a_p_value_within_the_rate(
    batch: np.ndarray, reference: np.ndarray, fpr: float
) -> None:
    flagged = batch > detection.threshold(reference, fpr)
    assert flagged.tolist() == (detection.p_values(batch, reference) <= fpr).tolist()


def test_the_threshold_is_the_reference_score_that_leaves_the_allowed_share_above() -> None:
    assert detection.threshold(np.arange(99.0), 0.05) == 94  # 5 of 100 ranks are above: 95 … 98 and the image's own
    assert detection.threshold(np.arange(99.0), 0.01) == 98


@given(fpr=st.integers(1, 999).map(lambda n: n / 1000))
@example(fpr=0.05)
@example(fpr=0.3)
@example(fpr=0.049)
def test_images_needed_is_the_smallest_number_that_lets_anything_be_flagged(fpr: float) -> None:
    needed = detection.images_needed(fpr)
    assert detection.threshold(np.zeros(needed), fpr) == 0
    assert detection.threshold(np.zeros(needed - 1), fpr) == math.inf


@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("ties", [False, True])
def test_known_images_are_flagged_at_the_stated_rate(fpr: float, ties: bool) -> None:
    """Exchangeable scores, many batches: the mean rate lies within its standard error of ⌊fpr (n + 1)⌋ / (n + 1)."""
    rng = np.random.default_rng(0)
    repetitions, references, images = 4_000, 249, 20
    rate = []
    for _ in range(repetitions):
        drawn = rng.random(references + images)
        drawn = np.floor(drawn * 40) if ties else drawn
        reference, batch = drawn[:references], drawn[references:]
        rate.append((batch > detection.threshold(reference, fpr)).mean())
    expected = math.floor(fpr * (references + 1)) / (references + 1)
    error = np.std(rate) / math.sqrt(repetitions)
    assert np.mean(rate) < expected + 4 * error
    if not ties:  # ties count against the image: they may only make it rarer
        assert np.mean(rate) > expected - 4 * error


@pytest.mark.parametrize("ties", [False, True])
def test_p_values_of_known_images_are_never_too_small_too_often(ties: bool) -> None:
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((20_000, 20))
    drawn = drawn.round() if ties else drawn
    p = np.array([detection.p_values(row[:1], row[1:])[0] for row in drawn])
    for level in np.arange(1, 21) / 20:
        allowed = level + 4 * math.sqrt(level * (1 - level) / len(p))
        assert (p <= level).mean() <= allowed
    assert ties or (p <= 0.5).mean() == pytest.approx(0.5, abs=0.015)
