"""Known classes in other proportions, and a bulk that has moved: neither is a new class."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from erd.statistics import flags, shift

CLASSES = 5
REPETITIONS = 200


def week(rng: np.random.Generator, count: int, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Known images: what they are taken for, and scores that differ from class to class."""
    seen = rng.choice(CLASSES, count, p=shares)
    return seen, rng.normal(0.8 * seen, 1.0)


def compared(rng: np.random.Generator, shares: np.ndarray, match: bool) -> tuple[bool, float]:
    """Whether a change of the mix is told, and the share of known images with a p-value up to 5%."""
    usual, reference = week(rng, 800, np.full(CLASSES, 1 / CLASSES))
    seen, scores = week(rng, 400, shares)
    p = flags.p_values(scores, reference)
    told = shift.mix(seen.astype(str), p, usual.astype(str), flags.p_values(reference, reference))
    if told and match:
        rows = shift.matched(seen.astype(str), p, usual.astype(str), 0)
        p = flags.p_values(scores, reference[rows])
    return told is not None, float((p <= 0.05).mean())


def test_the_same_mix_is_hardly_ever_told_to_have_changed() -> None:
    rng = np.random.default_rng(0)
    found = [compared(rng, np.full(CLASSES, 1 / CLASSES), True) for _ in range(REPETITIONS)]
    assert sum(told for told, _ in found) <= 2
    assert np.mean([rate for _, rate in found]) == pytest.approx(0.05, abs=0.006)


def test_a_mix_that_changes_fivefold_is_told_and_rates_hold_once_it_is_matched() -> None:
    rng = np.random.default_rng(1)
    shares = np.array([1, 1, 1, 1, 5]) / 9  # the class with the highest scores is there five times as often
    matched = [compared(rng, shares, True) for _ in range(REPETITIONS)]
    assert all(told for told, _ in matched)
    assert np.mean([rate for _, rate in matched]) == pytest.approx(0.05, abs=0.01)
    assert np.mean([compared(rng, shares, False)[1] for _ in range(REPETITIONS)]) > 0.07, "without matching they do not"


def test_the_sentence_names_the_classes_that_changed_most() -> None:
    rng = np.random.default_rng(2)
    names = np.array(["cat", "dog", "owl"])
    batch, usual = names[rng.choice(3, 600, p=[0.6, 0.3, 0.1])], names[rng.choice(3, 600, p=[0.3, 0.3, 0.4])]
    plain = np.full(600, 0.5)
    told = shift.mix(batch, plain, usual, plain)
    assert told is not None
    assert told.startswith("the mix of known classes has changed: of the images that look known, ")
    assert told.index("are owl (usually ") < told.index("58% are cat (usually 28%)")
    assert "dog" not in told
    suspicious = np.where(batch == "cat", 0.01, 0.5)
    counted = shift.mix(batch[batch != "owl"], suspicious[batch != "owl"], usual[usual == "dog"], plain[usual == "dog"])
    assert counted is None, "what may be novel is not counted as a known class"


def images(rng: np.random.Generator, count: int, centres: torch.Tensor) -> torch.Tensor:
    which = torch.from_numpy(rng.integers(len(centres), size=count))
    return F.normalize(centres[which] + torch.from_numpy(0.08 * rng.standard_normal((count, centres.shape[1]))).float())


@pytest.fixture(scope="module")
def centres() -> torch.Tensor:
    return F.normalize(torch.from_numpy(np.random.default_rng(3).standard_normal((4, 40))).float())


def test_a_bulk_that_moved_is_told_from_a_group_that_is_new(centres: torch.Tensor) -> None:
    rng = np.random.default_rng(4)
    direction = torch.from_numpy(0.06 * rng.standard_normal(40)).float()
    other = F.normalize(torch.from_numpy(rng.standard_normal((1, 40))).float())
    for repetition in range(20):
        known, reference = images(rng, 300, centres), images(rng, 500, centres)
        assert shift.bulk(known, reference, centres, repetition) is None
        for new in (30, 140, 280):  # up to nearly half
            batch = torch.cat([known, images(rng, new, other)])
            assert shift.bulk(batch, reference, centres, repetition) is None, new
        told = shift.bulk(F.normalize(known + direction), reference, centres, repetition)
        assert told is not None
        assert "a new device" in told
    assert shift.bulk(known[:20], reference, centres, 0) is None, "of a handful nothing can be said"
