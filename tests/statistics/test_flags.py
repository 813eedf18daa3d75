"""Flags keep the false-positive rate they state, and p-values are what they say."""

import math
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from erd.statistics import flags as detection

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


# The false discovery rate


def _batch(rng: np.random.Generator, known: int, novel: int, shift: float, ties: bool) -> np.ndarray:
    """Normal scores, the novel ones first and higher by `shift`."""
    drawn = rng.standard_normal(novel + known) + shift * (np.arange(novel + known) < novel)
    return np.floor(drawn * 2) if ties else drawn


def _realised_fdr(flagged: np.ndarray, novel: int) -> float:
    return float(flagged[novel:].sum() / max(flagged.sum(), 1))


def _mean_and_error(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values) / math.sqrt(len(values)))


some_p = st.lists(st.integers(1, 20).map(lambda n: n / 20), max_size=40).map(lambda p: np.array(p, dtype=float))


@given(p=some_p, fdr=st.integers(1, 40).map(lambda n: n / 40))
def test_benjamini_hochberg_is_the_textbook_loop(p: np.ndarray, fdr: float) -> None:
    flagged = [False] * len(p)
    for count, image in enumerate(np.argsort(p), start=1):
        if round(p[image] * 20) * len(p) * 40 <= round(fdr * 40) * count * 20:  # in whole numbers: no rounding
            flagged = [other <= p[image] for other in p]
    assert detection.benjamini_hochberg(p, fdr).tolist() == flagged


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(("known", "novel", "references"), [(10, 0, 99), (8, 2, 99), (5, 5, 99), (5, 5, 9)])
def test_of_the_discoveries_the_stated_share_is_wrong(
    known: int, novel: int, references: int, adaptive: bool, ties: bool
) -> None:
    """Without ties and adaption it is fdr × the known share exactly where (n + 1) × fdr / 10 images is whole."""
    rng = np.random.default_rng(2)
    fdr, wrong = 0.2, []
    for _ in range(4_000):
        batch, reference = _batch(rng, known, novel, 2.5, ties), _batch(rng, references, 0, 0, ties)
        wrong.append(_realised_fdr(detection.discoveries(batch, reference, fdr, adaptive), novel))
    mean, error = _mean_and_error(wrong)
    assert mean < (fdr if adaptive else fdr * known / (known + novel)) + 4 * error
    if not ties and not adaptive and references == 99:
        assert mean > fdr * known / (known + novel) - 4 * error


def test_adaptive_discoveries_find_more_where_much_is_novel() -> None:
    rng = np.random.default_rng(4)
    batch, reference = _batch(rng, 500, 500, 2, ties=False), rng.standard_normal(1_000)
    plain, adaptive = (detection.discoveries(batch, reference, 0.05, adaptive) for adaptive in (False, True))
    assert adaptive[plain].all()
    assert adaptive.sum() > 1.1 * plain.sum()


@given(batch=st.integers(1, 500), fdr=st.integers(1, 99).map(lambda n: n / 100), flags=st.integers(1, 20))
@example(batch=5_102, fdr=0.05, flags=1)
@example(batch=1_000_000, fdr=0.05, flags=1)
def test_images_needed_for_so_many_discoveries_is_the_smallest_number(batch: int, fdr: float, flags: int) -> None:
    flags = min(flags, batch)
    needed = detection.images_needed_fdr(batch, fdr, flags)
    best = np.arange(batch) < flags  # these above all reference scores, the others below

    def flagged(references: int) -> bool:
        return bool(detection.discoveries(best.astype(float), np.full(references, 0.5), fdr)[best].all())

    assert flagged(needed)
    assert not needed or not flagged(needed - 1)
    assert detection.flags_needed(batch, needed, fdr) <= flags
    assert not needed or detection.flags_needed(batch, needed - 1, fdr) > flags


@given(batch=scores, reference=scores, fdr=st.integers(1, 99).map(lambda n: n / 100))
def test_e_values_of_one_fold_give_the_flags_of_benjamini_hochberg(
    batch: np.ndarray, reference: np.ndarray, fdr: float
) -> None:
    flagged = detection.discoveries(batch, reference, fdr)
    e = detection.e_values(batch, reference, fdr)
    assert detection.e_benjamini_hochberg(e, fdr).tolist() == flagged.tolist()
    assert not e[~flagged].any()
    assert len(np.unique(e[flagged])) <= 1


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("known", "novel"), [(10, 0), (15, 5)])
def test_e_values_of_known_images_add_up_to_at_most_the_batch(known: int, novel: int, ties: bool) -> None:
    rng = np.random.default_rng(5)
    sums = [
        float(detection.e_values(_batch(rng, known, novel, 2, ties), _batch(rng, 99, 0, 0, ties), 0.2)[novel:].sum())
        for _ in range(6_000)
    ]
    mean, error = _mean_and_error(sums)
    assert 0.1 * known < mean < known + 4 * error
    if not novel and not ties:
        assert mean > known - 4 * error  # nothing is given away


def test_e_values_averaged_over_scorings_keep_the_rate() -> None:
    rng = np.random.default_rng(6)
    wrong, found = [], []
    for _ in range(800):
        batch, reference = _batch(rng, 40, 10, 3, ties=False), rng.standard_normal(399)
        noisy = [0.5 * rng.standard_normal((2, 400)) for _ in range(4)]  # four scorings, dependent
        e = np.mean([detection.e_values(batch + n[0][:50], reference + n[1][:399], 0.1) for n in noisy], axis=0)
        flagged = detection.e_benjamini_hochberg(e, 0.2)
        wrong.append(_realised_fdr(flagged, 10))
        found.append(flagged[:10].mean())
    mean, error = _mean_and_error(wrong)
    assert mean < 0.2 + 4 * error
    assert np.mean(found) > 0.5


def test_a_million_images_are_flagged_in_two_seconds() -> None:
    rng = np.random.default_rng(7)
    batch, reference = rng.random(1_000_000), rng.random(100_000)
    started = time.perf_counter()
    detection.discoveries(batch, reference, 0.05)
    assert time.perf_counter() - started < 2


# Catching nearly all


def test_the_catching_threshold_leaves_the_stated_share_of_novel_images_in_large_batches() -> None:
    rng = np.random.default_rng(8)
    batch, reference = _batch(rng, 80_000, 20_000, 2, ties=False), rng.standard_normal(100_000)
    limit = detection.catching_threshold(batch, reference, share=0.2, miss=0.1)
    assert (batch[:20_000] <= limit).mean() == pytest.approx(0.1, abs=0.02)
    careful = detection.catching_threshold(batch, reference, share=0.3, miss=0.1)  # an upper bound, not the share
    assert careful < limit
    assert (batch[:20_000] <= careful).mean() < 0.1


def test_where_all_may_be_novel_the_catching_threshold_is_the_quantile_of_the_batch() -> None:
    batch = np.random.default_rng(9).permutation(np.arange(100.0))
    assert detection.catching_threshold(batch, np.arange(7.0), share=1, miss=0.1) == 9  # 0 … 9 are left


def test_the_catching_threshold_counts_images_at_a_cut_as_below_and_is_made_monotone() -> None:
    batch, reference = np.repeat([0.0, 1, 2], [2, 3, 5]), np.array([0.0, 0, 1, 1])
    assert detection.catching_threshold(batch, reference, share=0.5, miss=0.1) == 1  # F_novel is −.1, 0, 1
    batch, reference = np.repeat([0.0, 1, 2], [3, 3, 14]), np.array([1.0, 2])
    assert detection.catching_threshold(batch, reference, share=0.5, miss=0.25) == 1  # .3, .1, 1: made .2, .2, 1
    assert detection.catching_threshold(batch, reference, share=0.5, miss=0.15) == -math.inf


@pytest.mark.parametrize("ties", [False, True])
def test_the_catching_threshold_of_a_confidence_holds_with_it(ties: bool) -> None:
    """Novel images that score low are the hard case: nothing is assumed about them."""
    rng = np.random.default_rng(10)
    for shift in (3, 0, -1):
        held = []
        for _ in range(200):
            batch, reference = _batch(rng, 700, 300, shift, ties), _batch(rng, 1_000, 0, 0, ties)
            limit = detection.catching_threshold(batch, reference, share=0.3, miss=0.2, confidence=0.8)
            held.append(float((batch[:300] <= limit).sum() <= 0.2 * 300))
        mean, error = _mean_and_error(held)
        assert mean >= 0.8 - 4 * error
    assert detection.catching_threshold(np.zeros(50), np.zeros(50), 0.1, 0.1, confidence=0.9) == -math.inf


# Any cut


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("known", "novel", "shift"), [(300, 0, 0.0), (285, 15, 3.0), (150, 150, 1.0)])
def test_the_bounds_hold_at_all_cuts_at_once_with_the_stated_confidence(
    known: int, novel: int, shift: float, ties: bool
) -> None:
    rng = np.random.default_rng(11)
    held, confidence = [], 0.8
    for _ in range(400):
        batch, reference = _batch(rng, known, novel, shift, ties), _batch(rng, 200, 0, 0, ties)
        bounds = detection.false_discovery_bounds(batch, reference, confidence)
        order = np.lexsort([np.arange(len(batch)) < novel, -batch])  # the known ones first at ties: the worst cuts
        false = (order >= novel).cumsum()
        held.append(float((false <= bounds.false).all()))
        assert bounds.novel <= novel or not held[-1]
    mean, error = _mean_and_error(held)
    assert mean >= confidence - 4 * error
    if not novel and not ties:
        assert mean < confidence + 0.06  # and not because they say nothing


@given(batch=scores, reference=st.one_of(scores, st.just(np.array([]))))
def test_bounds_at_neighbouring_cuts_agree(batch: np.ndarray, reference: np.ndarray) -> None:
    bounds = detection.false_discovery_bounds(batch, reference)
    steps = np.diff(bounds.false, prepend=0)
    assert ((steps == 0) | (steps == 1)).all()
    assert bounds.proportion.tolist() == (bounds.false / np.arange(1, len(batch) + 1)).tolist()
    assert bounds.novel == len(batch) - bounds.false[-1]


def test_the_bounds_say_something_at_small_cuts() -> None:
    rng = np.random.default_rng(12)
    batch, reference = _batch(rng, 4_500, 500, 3, ties=False), rng.standard_normal(2_500)
    bounds = detection.false_discovery_bounds(batch, reference)
    assert bounds.proportion[99] <= 0.12  # of the first hundred
    assert 300 < bounds.novel <= 500


@given(
    references=st.integers(1, 3_000),
    known=st.integers(1, 3_000),
    fewer=st.floats(0, 1),
    limit=st.floats(0.1, 12),
)
def test_a_band_for_more_known_images_contains_one_for_fewer(
    references: int, known: int, fewer: float, limit: float
) -> None:
    """What lets the bounds replace the size of the batch by the number of known images they find."""
    ranks = np.arange(references + 1)
    small, large = (
        detection._most_above(references, number, limit, ranks) for number in (max(int(known * fewer), 1), known)
    )
    assert (small <= large).all()
    assert (np.diff(large) >= 0).all()


def test_the_band_is_the_likelihood_ratio_one() -> None:
    """Above all of n reference scores are a or more of N known ones with probability Π (N − i) / (N + n − i)."""
    references, known = 1_000, 1_000
    for above in (1, 3, 6):
        exact = -math.log(math.prod((known - i) / (known + references - i) for i in range(above)))
        assert detection._surprise(np.array(0), np.array(above), references, known) == pytest.approx(exact, rel=0.02)
