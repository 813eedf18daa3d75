"""The alarm's p-value is exact with few images and ties, few and many novel images ring, and a year keeps its rate."""

import json
import math
import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, mannwhitneyu

from erd import alarm as alarms
from erd.alarm import Look, alarm, look
from erd.errors import RunError, UserError

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


@given(batch=few_values, reference=few_values)
def test_counts_are_those_of_a_plain_loop_over_distinct_scores(batch: np.ndarray, reference: np.ndarray) -> None:
    pooled = np.concatenate([batch, reference])
    cuts = alarms._cuts(np.sort(pooled)[::-1])
    assert cuts.top.tolist() == [(pooled >= score).sum() for score in cuts.score]
    assert (np.diff(cuts.top) > 0).all()
    assert not len(cuts.top) or cuts.top[-1] < len(pooled)


def test_random_counts_have_the_law_of_shuffled_orders() -> None:
    """Mean and covariance of the counts in the top a and top b: those of drawing without replacement."""
    top, images, total = np.array([3, 10, 60]), 30, 80
    counts = alarms._random_counts(top, images, total, 40_000, seed=0)
    assert (np.diff(counts, prepend=0) >= 0).all()
    assert (counts <= top).all()
    assert counts.mean(0) == pytest.approx(top * images / total, rel=0.01)
    shape = images * (total - images) / (total**2 * (total - 1))
    expected = np.minimum.outer(top, top) * (total - np.maximum.outer(top, top)) * shape
    assert np.cov(counts.T) == pytest.approx(expected, rel=0.06)


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
    assert alarm(batch, reference, seed=0) == 1 / (alarms.DRAWS + 1)
    assert time.perf_counter() - started < 10


def test_the_same_seed_gives_the_same_p_value() -> None:
    rng = np.random.default_rng(7)
    batch, reference = rng.random(50), rng.random(80)
    assert len({alarm(batch, reference, 1), alarm(batch, reference, 1), alarm(batch, reference, 2)}) == 2


# The ledger


def test_every_look_gets_the_same_level_for_ever(tmp_path: Path) -> None:
    levels = {look(tmp_path / "alarms.json", "xray", f"W{week}", 0.5, alpha=0.05).level for week in range(120)}
    assert levels == {0.05 / 52}


def test_an_alarm_rings_up_to_its_level(tmp_path: Path) -> None:
    ledger = tmp_path / "workspace" / "alarms.json"
    assert look(ledger, "xray", "W1", 0.005, alpha=0.05, looks=10) == Look(0.005, True, True)
    assert look(ledger, "xray", "W2", 0.0051, alpha=0.05, looks=10) == Look(0.005, False, False)
    assert json.loads(ledger.read_text()) == {
        "xray": {
            "W1": {"level": 0.005, "p": 0.005, "rang": True},
            "W2": {"level": 0.005, "p": 0.0051, "rang": False},
        }
    }


def test_a_rerun_keeps_the_level_and_takes_the_new_p_value(tmp_path: Path) -> None:
    ledger = tmp_path / "alarms.json"
    first = look(ledger, "xray", "W1", 0.5, alpha=0.05)
    again = look(ledger, "xray", "W1", 0.0001, alpha=0.5)  # the setting was changed in between
    assert again == Look(first.level, True, True)
    assert json.loads(ledger.read_text())["xray"] == {"W1": {"level": 0.05 / 52, "p": 0.0001, "rang": True}}
    assert not look(ledger, "xray", "W1", 0.0001, alpha=0.05).first, "people were told already"


def test_streams_do_not_share_their_looks(tmp_path: Path) -> None:
    ledger = tmp_path / "alarms.json"
    look(ledger, "xray", "W1", 0.5, alpha=0.05)
    assert look(ledger, "ct", "W1", 0.5, alpha=0.1) == Look(0.1 / 52, False, False)
    assert set(json.loads(ledger.read_text())) == {"xray", "ct"}


def test_a_year_of_looks_with_shared_calibration_images_keeps_its_rate(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    years, alpha, looks, false_alarms = 150, 0.2, 3, 0
    for year in range(years):
        reference = rng.random(60)  # the same all year: its luck is every week's
        weeks = [alarm(rng.random(40), reference, seed=week, draws=99) for week in range(looks)]
        ledger = tmp_path / f"{year}.json"
        rang = [look(ledger, "xray", f"W{week}", p, alpha, looks).rang for week, p in enumerate(weeks)]
        false_alarms += any(rang)
    assert 0.05 < false_alarms / years < alpha + 4 * math.sqrt(alpha * (1 - alpha) / years)


def test_a_rate_finer_than_the_p_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"could never ring.* set alarm.rate to 0\.0026 or more"):
        look(tmp_path / "alarms.json", "xray", "W1", 0.5, alpha=0.001)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"{", b"\xff"])
def test_a_ledger_that_cannot_be_read_is_not_begun_anew(tmp_path: Path, content: bytes) -> None:
    ledger = tmp_path / "alarms.json"
    ledger.write_bytes(content)
    with pytest.raises(RunError, match=r"alarms\.json cannot be read .* delete it to begin a new one"):
        look(ledger, "xray", "W1", 0.5, alpha=0.05)
    assert ledger.read_bytes() == content


def _enter(ledger: Path, stream: str) -> None:
    for week in range(20):
        look(ledger, stream, f"W{week}", 0.5, alpha=0.05)


def test_looks_taken_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    ledger = tmp_path / "alarms.json"
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_enter, args=(ledger, f"stream {number}")) for number in range(4)]
    for process in others:
        process.start()
    for process in others:
        process.join()
    assert {stream: len(entries) for stream, entries in json.loads(ledger.read_text()).items()} == {
        f"stream {number}": 20 for number in range(4)
    }
