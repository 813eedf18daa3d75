"""The scores of Algorithm 2: the fast form is the definition, and larger always means more novel."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from erd.statistics import disagreement as d

SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: partial(d.disagreement, distance=name) for name in d.DISTANCES},
    "entropy_of_mean": d.entropy_of_mean,
    "max_softmax": d.max_softmax,
    "variance": d.variance,
}


def softmaxes(members: int, images: int, classes: int, seed: int, *, sharpness: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(members, images, classes, generator=generator, dtype=torch.float64)
    return (logits * sharpness).softmax(-1)


shapes = {
    "members": st.integers(2, 12),
    "images": st.integers(1, 9),
    "classes": st.integers(2, 11),
    "seed": st.integers(0, 2**32),
    "sharpness": st.sampled_from([0.01, 1.0, 5.0, 60.0]),
}


@given(**shapes)
def test_sorting_gives_the_mean_over_pairs(
    members: int, images: int, classes: int, seed: int, sharpness: float
) -> None:
    p = softmaxes(members, images, classes, seed, sharpness=sharpness)
    by_hand = torch.stack([(p[i] - p[j]).abs().sum(-1) / 2 for i in range(members) for j in range(i)]).mean(0)
    torch.testing.assert_close(d.disagreement(p), by_hand, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(d.pairwise(p), by_hand, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(d.disagreement(p.float()), by_hand.float(), rtol=1e-5, atol=1e-6)


@given(**shapes)
def test_total_variation_lies_between_0_and_1(
    members: int, images: int, classes: int, seed: int, sharpness: float
) -> None:
    score = d.disagreement(softmaxes(members, images, classes, seed, sharpness=sharpness).float())
    assert score.shape == (images,)
    assert score.min() >= 0
    assert score.max() <= 1 + 1e-6


@given(members=st.integers(2, 12), extra=st.integers(0, 3))
def test_total_variation_is_1_where_every_member_is_sure_of_another_class(members: int, extra: int) -> None:
    one_hot = torch.eye(members, members + extra)[:, None]
    assert d.disagreement(one_hot).item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["tv", "kl", "hellinger", "l2", "argmax"])
@pytest.mark.parametrize("members", [5, 50])
def test_members_that_agree_have_a_disagreement_of_exactly_0(members: int, name: str, dtype: torch.dtype) -> None:
    same = softmaxes(1, 500, 10, seed=1).to(dtype).expand(members, -1, -1)
    assert torch.equal(d.disagreement(same, name), torch.zeros(500, dtype=dtype))


@pytest.mark.parametrize("name", SCORES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_neither_the_order_of_members_nor_that_of_classes_matters(name: str, seed: int) -> None:
    p = softmaxes(5, 7, 6, seed)
    generator = torch.Generator().manual_seed(seed)
    reordered = p[torch.randperm(5, generator=generator)][..., torch.randperm(6, generator=generator)]
    torch.testing.assert_close(SCORES[name](reordered), SCORES[name](p), rtol=1e-10, atol=1e-12)


# Three members on one image: p = (.5, .5), q = (.5, .5), r = (.9, .1): two pairs of (p, r) and one of equals.
KL = (0.4 * math.log(0.9 / 0.5) - 0.4 * math.log(0.1 / 0.5)) / 2
ENTROPY_R = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
JS = -(0.7 * math.log(0.7) + 0.3 * math.log(0.3)) - (math.log(2) + ENTROPY_R) / 2
HELLINGER = math.sqrt(1 - (math.sqrt(0.5 * 0.9) + math.sqrt(0.5 * 0.1)))
WORKED = {
    "tv": 2 / 3 * 0.4,
    "kl": 2 / 3 * KL,
    "js": 2 / 3 * JS,
    "hellinger": 2 / 3 * HELLINGER,
    "l2": 2 / 3 * math.sqrt(0.4**2 + 0.4**2),
    "argmax": 0.0,  # all prefer the first class
    "entropy_of_mean": -(1.9 / 3 * math.log(1.9 / 3) + 1.1 / 3 * math.log(1.1 / 3)),
    "max_softmax": 1 - 1.9 / 3,
    # .4 around their mean of 1.9/3, in both classes: deviations of 2/15, 2/15 and 4/15
    "variance": 2 * (2 * (2 / 15) ** 2 + (4 / 15) ** 2) / 3,
}


@pytest.mark.parametrize("name", SCORES)
def test_a_score_worked_out_by_hand(name: str) -> None:
    p = torch.tensor([[[0.5, 0.5]], [[0.5, 0.5]], [[0.9, 0.1]]], dtype=torch.float64)
    assert SCORES[name](p).item() == pytest.approx(WORKED[name], rel=1e-9)


def test_argmax_counts_the_pairs_that_choose_different_classes() -> None:
    p = torch.tensor([[[0.6, 0.4]], [[0.7, 0.3]], [[0.1, 0.9]]])
    assert d.disagreement(p, "argmax").item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", SCORES)
def test_an_image_the_members_differ_on_scores_above_one_they_are_sure_of(name: str) -> None:
    sure = torch.tensor([[1.0, 0, 0], [1, 0, 0], [1, 0, 0]])
    torn = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    agreed, disputed = SCORES[name](torch.stack([sure, torn], dim=1))
    assert math.isfinite(disputed)
    assert disputed > agreed


@pytest.mark.parametrize("name", d.DISTANCES)
def test_working_in_parts_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = softmaxes(4, 1_000, 7, seed=2)
    whole = d.disagreement(p, name)
    monkeypatch.setattr(d, "CHUNK", 300)  # 10 images at once
    torch.testing.assert_close(d.disagreement(p, name), whole, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(d, "CHUNK", 1)  # less than one image: one at a time
    torch.testing.assert_close(d.disagreement(p[:, :5], name), whole[:5], rtol=1e-12, atol=1e-14)


def test_a_hundred_members_need_no_memory_for_all_their_pairs() -> None:
    """80 MB of softmax; all pairs at once would be 8 GB, and all images at once three copies of it."""
    script = (
        "import resource, torch; from erd.statistics.disagreement import disagreement\n"
        "torch.set_num_threads(1); p = torch.rand(100, 20_000, 10)\n"
        "disagreement(p[:, :10]); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "disagreement(p); print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200, "MB beyond the softmax itself"
