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


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("known", "novel"), [(10, 0), (15, 5), (10, 20)])
def test_adaptive_e_values_of_known_images_add_up_to_at_most_the_batch_as_well(
    known: int, novel: int, ties: bool
) -> None:
    rng, sums, plain = np.random.default_rng(7), [], []
    for _ in range(6_000):
        batch, reference = _batch(rng, known, novel, 2, ties), _batch(rng, 99, 0, 0, ties)
        sums.append(float(detection.e_values(batch, reference, 0.2, adaptive=True)[novel:].sum()))
        plain.append(float(detection.e_values(batch, reference, 0.2)[novel:].sum()))
    mean, error = _mean_and_error(sums)
    assert mean < known + novel + 4 * error
    if novel > known:
        assert mean > 1.5 * np.mean(plain), "and where much is novel that is more evidence"


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


def _e_with_a_look_ahead(scores: np.ndarray, reference: np.ndarray, fdr: float, others: np.ndarray) -> np.ndarray:
    """The lowest score of the batch that would do as the cut: then no reference image comes next, and that is known."""
    batch = np.concatenate([scores, others])
    cuts = np.unique(batch)
    above, known = ((kind[:, None] >= cuts).sum(0) for kind in (batch, reference))
    does = (known + 1) * len(batch) <= fdr * above * (len(reference) + 1)
    first = does.argmax()
    return does.any() * (scores >= cuts[first]) * ((len(reference) + 1) / (known[first] + 1))


@pytest.mark.parametrize(
    ("novel", "inflated"),
    [(0, 0.0), (3, 0.0), (0, 1.0), (3, 1.0), (0, 2.0), (0, -2.0)],
    ids=["alike", "novel", "higher", "novel and higher", "much higher", "lower"],
)
def test_the_e_value_of_a_known_image_is_1_on_average_whatever_the_others_of_the_batch_score(
    novel: int, inflated: float
) -> None:
    """A fold of twelve images, and thirty-six others that were learned; three of twelve may be novel in each."""
    rng = np.random.default_rng(13)
    e, ahead = [], []
    for _ in range(4_000):
        scores, reference = _batch(rng, 12 - novel, novel, 3, ties=False), rng.standard_normal(49)
        others = _batch(rng, 36 - 3 * novel, 3 * novel, 3, ties=False) + inflated
        e.append(float(detection.e_values(scores, reference, 0.3, others)[novel:].mean()))
        ahead.append(float(_e_with_a_look_ahead(scores, reference, 0.3, others)[novel:].mean()))
    mean, error = _mean_and_error(e)
    assert mean < 1 + 4 * error
    if novel or inflated > 0:  # else there is often no cut at all
        assert mean > 0.9 - 4 * error, "and little is given away"
    if novel or inflated > 1:
        mean, error = _mean_and_error(ahead)
        assert mean > 1 + 4 * error, "with a look ahead it would be more"


@given(batch=scores, reference=scores, others=scores, fdr=st.integers(1, 99).map(lambda n: n / 100))
def test_the_others_choose_the_cut_and_are_not_given_evidence(
    batch: np.ndarray, reference: np.ndarray, others: np.ndarray, fdr: float
) -> None:
    """The e-values are those of the whole batch, of which the others are left out."""
    whole = detection.e_values(np.concatenate([batch, others]), reference, fdr)
    assert detection.e_values(batch, reference, fdr, others).tolist() == whole[: len(batch)].tolist()
    assert detection.e_values(batch, reference, fdr, others[:0]).tolist() == (
        detection.e_values(batch, reference, fdr).tolist()
    )
    assert detection.e_values(batch[:0], reference, fdr, others).shape == (0,)
    assert detection.e_values(batch[:0], reference, fdr).shape == (0,)


def test_four_folds_that_look_at_each_other_flag_what_none_could_flag_alone() -> None:
    """Twelve novel images of four hundred, three in each fold: with so few the cut of a fold is a matter of luck."""
    rng = np.random.default_rng(14)
    found: dict[bool, list[float]] = {True: [], False: []}
    wrong = []
    for _ in range(100):
        batch, reference = _batch(rng, 388, 12, 5, ties=False), rng.standard_normal(299)
        folds = np.array_split(rng.permutation(400), 4)
        for look, shares in found.items():
            e = np.zeros(400)
            for rows in folds:
                rest = np.delete(batch, rows) if look else None
                e[rows] = detection.e_values(batch[rows], reference, 0.15, rest)
            flagged = detection.e_benjamini_hochberg(e, 0.2)
            shares.append(flagged[:12].mean())
            if look:
                wrong.append(_realised_fdr(flagged, 12))
    assert np.mean(found[True]) > 0.8
    assert np.mean(found[True]) > np.mean(found[False]) + 0.2
    mean, error = _mean_and_error(wrong)
    assert mean < 0.2 + 4 * error


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


# What to look at, whether or not it can be flagged


some_bounds = st.lists(
    st.tuples(st.integers(1, 12), st.integers(0, 1), st.booleans(), st.booleans()), min_size=1, max_size=25
)


@given(images=some_bounds)
def test_at_least_so_many_of_the_chosen_images_are_novel_is_the_best_that_any_cut_says(
    images: list[tuple[int, int, bool, bool]],
) -> None:
    """The bound is the truth and somewhat more, the same for images of equal p-value and never less at a lower cut."""
    ranks, more, is_known, is_chosen = (np.array(column) for column in zip(*images, strict=True))
    p, chosen = ranks / 13, np.flatnonzero(is_chosen)
    spare = {rank: more[ranks <= rank].sum() for rank in ranks.tolist()}
    wrong = np.array([is_known[ranks <= rank].sum() + spare[rank] for rank in ranks.tolist()])
    found = detection.novel_at_least(chosen, p, wrong)
    possible = [len(chosen)]  # so many of the chosen are known at most: all of them
    for cut in np.unique(p):
        possible.append(int(wrong[p == cut][0]) + int((p[chosen] > cut).sum()))
    assert found == len(chosen) - min(possible)
    assert found <= (~is_known[chosen]).sum()


def _said_and_true(by: str, known: int, novel: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """How many of the fifty first are said to be novel at least, and how many are, with bounds at cuts by p-value, as
    of several folds, or by score, as of one set: there they differ among images above the same reference images."""
    rng = np.random.default_rng(15)
    said, true = [], []
    for _ in range(100):
        batch, reference = _batch(rng, known, novel, shift, ties=False), rng.standard_normal(150)
        p, bounds = detection.p_values(batch, reference), detection.false_discovery_bounds(batch, reference, 0.9)
        values = p if by == "p-value" else -batch
        wrong = bounds.false[np.searchsorted(np.sort(values), values, side="right") - 1]
        first = np.argsort(-batch)[:50]
        said.append(detection.novel_at_least(first, p, wrong))
        true.append((first < novel).sum())
    return np.array(said), np.array(true)


@pytest.mark.parametrize(("known", "novel", "shift"), [(300, 0, 0.0), (285, 15, 5.0)])
@pytest.mark.parametrize("by", ["p-value", "score"])
def test_no_more_of_the_first_images_are_said_to_be_novel_than_are(
    known: int, novel: int, shift: float, by: str
) -> None:
    said, true = _said_and_true(by, known, novel, shift)
    assert (said > true).mean() < 0.1 + 3.5 * math.sqrt(0.1 * 0.9 / len(said))
    assert not novel or said.mean() > 5, "and that is not nothing"


def test_nothing_is_said_of_no_images() -> None:
    p = np.array([0.1, 0.2])
    assert detection.novel_at_least(np.array([], dtype=int), p, np.array([0, 1])) == 0
    assert detection.novel_expected(p, 0, 1.0) == 0
    assert detection.last_good(p[:0]) == 0


@pytest.mark.parametrize("count", [50, 200, 500])
def test_as_many_of_the_first_images_are_novel_as_was_expected(count: int) -> None:
    """On average, if the share of known images is right; fewer are expected where all may be known."""
    rng = np.random.default_rng(16)
    off, careful = [], []
    for _ in range(300):
        batch, reference = _batch(rng, 800, 200, 2.5, ties=False), rng.standard_normal(1_000)
        p = detection.p_values(batch, reference)
        truth = (np.argsort(p, kind="stable")[:count] < 200).sum()  # the novel ones first at ties
        off.append(detection.novel_expected(p, count, 0.8) - truth)
        careful.append(detection.novel_expected(p, count, 1.0) - truth)
    mean, error = _mean_and_error(off)
    assert abs(mean) < 4 * error + 0.02 * count
    assert np.mean(careful) < mean


def test_no_more_images_are_expected_to_be_novel_than_there_are_and_no_fewer_than_none() -> None:
    p = np.arange(1, 101) / 100
    assert [detection.novel_expected(p, count, 1.0) for count in (1, 50, 100)] == [0, 0, 0]
    assert detection.novel_expected(p, 50, 1.7) == 0, "an estimated share may exceed 1"
    assert detection.novel_expected(np.full(100, 0.01), 20, 1.0) == pytest.approx(19)
    assert detection.novel_expected(np.full(100, 0.01), 20, 0.5) == pytest.approx(19.5)


@pytest.mark.parametrize(("known", "novel"), [(100, 0), (90, 10), (60, 40)])
@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_the_last_good_image_is_known_as_often_as_the_rate_says(known: int, novel: int, rate: float) -> None:
    """Rate × the share of known images exactly, where p-values of known images are independent and uniform."""
    rng = np.random.default_rng(17)
    last_known = []
    for _ in range(3_000):
        p = np.concatenate([rng.random(novel) ** 6 * 0.05, rng.random(known)])
        count = detection.last_good(p, rate)
        last_known.append(float(count > 0 and np.argsort(p)[count - 1] >= novel))
    mean, error = _mean_and_error(last_known)
    assert abs(mean - rate * known / (known + novel)) < 4 * error


def test_there_are_as_many_good_images_as_novel_ones_and_few_where_nothing_is_novel() -> None:
    rng = np.random.default_rng(18)
    clear: list[int] = []
    nothing: list[int] = []
    for _ in range(100):
        reference = rng.standard_normal(1_000)
        for found, shift in ((clear, 6), (nothing, 0)):
            found.append(detection.last_good(detection.p_values(_batch(rng, 900, 100, shift, ties=False), reference)))
    assert np.median(clear) == pytest.approx(100, abs=3)
    assert np.quantile(clear, 0.05) >= 99
    assert np.median(nothing) <= 2
    assert np.quantile(nothing, 0.9) < 40
    assert detection.last_good(np.array([0.9, 0.8, 1.0])) == 0
    assert detection.last_good(np.full(5, 0.01)) == 5
