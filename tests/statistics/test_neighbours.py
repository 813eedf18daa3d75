"""Neighbours in the batch: they find a compact new class, and with C among them flags keep their rates."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from erd.base import files
from erd.base.errors import RunError
from erd.statistics import flags, neighbours
from erd.statistics.joint import Joint, joined
from erd.statistics.neighbours import Index, nearness

WIDTH, LABELLED, KNOWN, HIDDEN = 20, 300, 150, 60  # of features; images of S, known ones of U, C
LEVEL, FDR = 0.1, 0.2
REPETITIONS = 600


class Drawn(NamedTuple):
    """Features of three Gaussian classes, and of a compact fourth one that nobody has labelled."""

    train: Tensor
    labels: Tensor
    batch: Tensor  # the novel ones first
    hidden: Tensor

    @property
    def mixed(self) -> Tensor:
        return torch.cat([self.batch, self.hidden])


def draw(rng: np.random.Generator, novel: int, *, pairs: bool = False) -> Drawn:
    """With `pairs` the images of U and of C come two by two, as those of a patient who is in one of the two do."""
    means = 6 * rng.standard_normal((4, WIDTH)) / math.sqrt(WIDTH)

    def known(count: int, alike: int = 1) -> tuple[Tensor, Tensor]:
        classes = rng.integers(0, 3, count // alike).repeat(alike)
        own = rng.standard_normal((count // alike, WIDTH)).repeat(alike, axis=0)
        own = 0.9 * own + 0.1 * rng.standard_normal((count, WIDTH)) if alike > 1 else own
        return torch.from_numpy(means[classes] + own).float(), torch.from_numpy(classes)

    train, labels = known(LABELLED)
    unlabelled, hidden = (known(count, 2 if pairs else 1)[0] for count in (KNOWN, HIDDEN))
    new = torch.from_numpy(means[3] + 0.6 * rng.standard_normal((novel, WIDTH))).float()
    return Drawn(train, labels, torch.cat([new, unlabelled]), hidden)


# What is found


def test_a_compact_new_class_comes_first_and_neither_what_is_merely_odd_nor_what_is_merely_dense() -> None:
    """Strangers are far from S, but nothing in the batch is like them; a dense class that is labelled is no news."""
    rng = np.random.default_rng(0)
    there = draw(rng, 60)
    strangers = torch.from_numpy(6 * rng.standard_normal((15, WIDTH))).float()
    middle = 6 * rng.standard_normal(WIDTH) / math.sqrt(WIDTH)
    dense = torch.from_numpy(middle + 0.3 * rng.standard_normal((160, WIDTH))).float()
    train, labels = torch.cat([there.train, dense[:100]]), torch.cat([there.labels, torch.full((100,), 3)])
    batch = torch.cat([there.batch, dense[100:], strangers])
    index = Index.of(train, labels, batch)
    assert set(np.argsort(-index.scores(batch))[:60]) == set(range(60))
    seen = index.whitening(batch)
    from_train, from_batch = (nearness(seen, others, 40) for others in (index.background, index.batch))
    assert from_train[-15:].mean() < from_train[60:-75].mean() - 0.1, "by the distance to S alone they would be novel"
    assert from_batch[-75:-15].mean() > from_batch[60:-75].mean() + 0.1, "and these by how dense the batch is"


def test_a_score_does_not_depend_on_who_else_is_asked_about_nor_on_the_order_of_the_batch() -> None:
    there = draw(np.random.default_rng(1), 30)
    index = Index.of(there.train, there.labels, there.mixed)
    scores = index.scores(there.mixed)
    order = torch.randperm(len(there.mixed), generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(index.scores(there.mixed[order]), scores[order], atol=1e-5)
    shuffled = Index.of(there.train, there.labels, there.mixed[order])
    np.testing.assert_allclose(shuffled.scores(there.mixed), scores, atol=1e-5)
    alone = np.concatenate([index.scores(image[None]) for image in there.mixed[:40]])
    np.testing.assert_allclose(alone, scores[:40], atol=1e-5)
    assert index.scores(there.mixed[:0]).shape == (0,)


def test_nobody_is_its_own_neighbour() -> None:
    """The score of an image is the same whether the batch that it is compared with holds the image or not."""
    there = draw(np.random.default_rng(2), 30)
    whole = Index.of(there.train, there.labels, there.mixed)
    scores = whole.scores(there.mixed)
    for row in range(0, len(there.mixed), 7):
        others = torch.arange(len(there.mixed)) != row
        without = Index(whole.whitening, whole.background, whole.batch[others])
        assert without.scores(there.mixed[row : row + 1])[0] == pytest.approx(scores[row], abs=1e-5)


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("others", [1, 3, 17, 60])
def test_nearness_is_the_mean_of_the_largest_cosines_however_few_there_are(others: int, count: int) -> None:
    generator = torch.Generator().manual_seed(others)
    asked, there = (
        torch.nn.functional.normalize(torch.randn(number, 6, generator=generator)) for number in (11, others)
    )
    cosines = (asked @ there.T).sort(dim=1, descending=True).values
    if count < others:
        torch.testing.assert_close(nearness(asked, there, count), cosines[:, :count].mean(1))
    assert nearness(asked, there, count).isfinite().all()
    assert nearness(asked, there[:0], count).tolist() == [0] * 11


# Memory


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor has that is made meanwhile."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor) and tensor.untyped_storage().nbytes() == tensor.nbytes:  # no view
                self.numbers = max(self.numbers, tensor.numel())
        return result


def test_blocks_change_nothing_and_bound_what_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    others, asked = (
        torch.nn.functional.normalize(torch.randn(count, 8, generator=generator)).half() for count in (1_500, 400)
    )
    asked[:100] = others[700:800]  # some are in both, and their copies in any block
    whole = nearness(asked, others, 40)
    for rows, block in ((7, 100), (64, 13), (1, 1_500), (400, 41)):
        monkeypatch.setattr(neighbours, "ROWS", rows)
        monkeypatch.setattr(neighbours, "BLOCK", block)
        with Largest() as held:
            torch.testing.assert_close(nearness(asked, others, 40), whole, rtol=0, atol=1e-6)
        assert held.numbers <= max(rows * max(block, 2 * 41), block * 8, len(asked)), (rows, block)


# The promise: known images of U and images of C, which is hidden among them, cannot be told apart


class Rates(NamedTuple):
    """Means over many batches, and their standard errors."""

    fpr: float
    fpr_error: float
    fdr: float
    fdr_error: float
    power: float


def rates(novel: int, *, join: bool = False, with_hidden: bool = True, pairs: bool = False, seed: int = 3) -> Rates:
    """Of U's known images, the share with a p-value within LEVEL; of discoveries at FDR, the share that is known."""
    rng = np.random.default_rng(seed)
    fpr, fdr, power = [], [], []
    for _ in range(REPETITIONS):
        there = draw(rng, novel, pairs=pairs)
        within = there.mixed if with_hidden else there.batch
        index = Index.of(there.train, there.labels, within)
        scores = index.scores(there.mixed)
        if join:  # with something that, like members, sees how far an image is from S, and errs
            other = torch.cdist(there.mixed, there.train).amin(1).numpy() + 0.5 * rng.standard_normal(len(scores))
            both = np.stack([scores, other], 1)
            scores = joined(both, both[: len(within)])
        batch, reference = np.split(scores, [len(there.batch)])
        small = flags.p_values(batch, reference) <= LEVEL
        flagged = flags.discoveries(batch, reference, FDR)
        fpr.append(small[novel:].mean())
        fdr.append(flagged[novel:].sum() / max(flagged.sum(), 1))
        power.append(small[:novel].mean() if novel else 0.0)
    fpr_error, fdr_error = (float(np.std(values) / math.sqrt(REPETITIONS)) for values in (fpr, fdr))
    return Rates(float(np.mean(fpr)), fpr_error, float(np.mean(fdr)), fdr_error, float(np.mean(power)))


@pytest.mark.parametrize("join", [False, True], ids=["neighbours", "joined"])
@pytest.mark.parametrize("novel", [0, 37])
def test_known_images_are_flagged_at_the_stated_rates_whatever_is_novel(novel: int, join: bool) -> None:
    found = rates(novel, join=join)
    exact = math.floor(LEVEL * (HIDDEN + 1)) / (HIDDEN + 1)
    assert abs(found.fpr - exact) < 4 * found.fpr_error, "not more, and nothing is given away"
    assert found.fdr < FDR * KNOWN / (KNOWN + novel) + 4 * found.fdr_error
    assert found.power > 0.9 or not novel


def test_with_the_batch_alone_as_neighbours_the_rates_are_wrong() -> None:
    """So the tests above would notice. Two images of a patient are in one part: those of U then find each other among
    the neighbours and those of C do not."""
    right, wrong = (rates(37, pairs=True, with_hidden=with_hidden) for with_hidden in (True, False))
    assert right.fpr < LEVEL + 4 * right.fpr_error
    assert right.fdr < FDR + 4 * right.fdr_error
    assert wrong.fpr > LEVEL + 4 * wrong.fpr_error
    assert wrong.fdr > FDR + 4 * wrong.fdr_error
    lone = rates(0, with_hidden=False)  # without pairs an image of U has one neighbour fewer to choose from
    assert lone.fpr < math.floor(LEVEL * (HIDDEN + 1)) / (HIDDEN + 1) - 4 * lone.fpr_error


def test_if_an_image_were_its_own_neighbour_the_rates_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "ITSELF", 2.0)  # a cosine that none has
    wrong = rates(37, with_hidden=False)
    assert wrong.fpr > LEVEL + 4 * wrong.fpr_error
    assert wrong.fdr > FDR + 4 * wrong.fdr_error


# Several scores as one

columns = st.lists(st.tuples(st.integers(-8, 8), st.integers(-8, 8)), min_size=1, max_size=30)


@given(values=columns, in_batch=columns)
def test_only_ranks_in_the_batch_count(values: list[tuple[int, int]], in_batch: list[tuple[int, int]]) -> None:
    asked, there = np.array(values, float), np.array(in_batch, float)
    expected = joined(asked, there)
    assert np.isfinite(expected).all()

    def stretched(table: np.ndarray) -> np.ndarray:
        return np.stack([np.exp(table[:, 0]) - 1e3, 1e-6 * table[:, 1] ** 3], 1)

    assert np.array_equal(joined(stretched(asked), stretched(there)), expected)


def test_first_by_one_score_is_not_made_average_by_the_other() -> None:
    rng = np.random.default_rng(4)
    in_batch = rng.random((1_000, 2))
    first_and_last = np.array([[0.9999, 0.0], [0.0, 0.9999]])
    average, good = np.array([[0.5, 0.5]]), np.array([[0.9, 0.9]])
    assert joined(first_and_last, in_batch).min() > joined(good, in_batch)[0] > joined(average, in_batch)[0]
    assert joined(np.array([[0.99, 0.99]]), in_batch)[0] > joined(first_and_last, in_batch).max(), "both is better yet"


def test_a_value_beyond_all_of_the_batch_is_finite_and_never_less_than_the_highest_there() -> None:
    in_batch = np.random.default_rng(5).random((50, 2))
    within = joined(in_batch, in_batch)
    beyond = joined(np.array([[1e30, 1e30], [-1e30, -1e30]]), in_batch)
    assert np.isfinite(beyond).all()
    assert beyond[0] > within.max()
    assert beyond[1] <= within.min()


# Kept for new images


def test_what_is_kept_gives_the_same_scores_and_an_empty_file_stands_for_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    there = draw(rng, 20)
    made = Joint.of(there.train, there.labels, there.mixed, rng.random(len(there.mixed)).astype(np.float32))
    made.save(tmp_path / "neighbours.safetensors")
    kept = Joint.load(tmp_path / "neighbours.safetensors")
    assert kept is not None
    table = pd.DataFrame({"id": [f"{row}" for row in range(80)], "disagreement": rng.random(80).astype(np.float32)})
    asked = torch.cat([there.batch[:40], torch.from_numpy(rng.standard_normal((40, WIDTH))).float()])
    before, after = (joint.of_table(table, asked) for joint in (made, kept))
    assert after.equals(before)
    assert list(after.columns) == ["id", "disagreement", "score", "candidates", "neighbours"]
    files.save_tensors(tmp_path / "empty.safetensors", {}, {})
    assert Joint.load(tmp_path / "empty.safetensors") is None
    with pytest.raises(RunError, match=r"gone.safetensors is missing; run the stage that writes it first"):
        Joint.load(tmp_path / "gone.safetensors")
