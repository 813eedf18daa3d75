"""The share of a batch that is of an unknown class, by a random audit: an interval that holds as often as it says."""

import numpy as np
import pytest
from scipy.stats import binomtest

from erd.statistics.audit import NOTHING, estimate


def test_in_a_large_batch_it_is_clopper_and_pearsons_interval() -> None:
    found, exact = estimate(8, 22, 50_000), binomtest(8, 30).proportion_ci(0.95, "exact")
    assert found.share == pytest.approx(8 / 30)
    assert (found.low, found.high) == (pytest.approx(exact.low, abs=1e-3), pytest.approx(exact.high, abs=1e-3))
    small = estimate(8, 22, 60)
    assert found.low < small.low < found.share < small.high < found.high, "half of the batch was seen"


@pytest.mark.parametrize("novel", [0, 1, 5, 30, 60])
def test_the_true_share_is_in_the_interval_as_often_as_it_says(novel: int) -> None:
    rng, images, drawn = np.random.default_rng(novel), 60, 12
    truth = np.arange(images) < novel
    inside = []
    for _ in range(400):
        seen = int(rng.permutation(truth)[:drawn].sum())
        found = estimate(seen, drawn - seen, images)
        inside.append(found.low <= novel / images <= found.high)
        assert found.rings == (seen > 0), "one image that experts call new is enough, and nothing less"
    assert np.mean(inside) >= 0.95 - 3 * (0.05 * 0.95 / 400) ** 0.5


def test_images_that_experts_disagree_on_widen_it() -> None:
    sure, unsure = estimate(4, 16, 400), estimate(4, 16, 400, unsure=4)
    assert unsure.share == sure.share
    assert unsure.low < sure.low
    assert unsure.high > sure.high


def test_where_nobody_has_looked_everything_is_possible() -> None:
    assert estimate(0, 0, 400, unsure=2) == NOTHING
    assert not NOTHING.rings
    everything = estimate(3, 57, 60)
    assert (everything.low, everything.high) == (0.05, 0.05), "all were seen"
