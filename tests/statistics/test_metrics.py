"""The metrics against scikit-learn, pytorch-ood and their definitions."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import erd.base.torchvision  # noqa: F401 – makes the torchvision that pytorch-ood needs importable
from erd.statistics import metrics as evaluation

few_values = st.lists(st.integers(0, 12), min_size=1, max_size=80).map(lambda v: np.array(v) / 8)  # ties abound
many_values = st.tuples(st.integers(0, 2**32), st.integers(1, 80)).map(
    lambda drawn: np.random.default_rng(drawn[0]).standard_normal(drawn[1])
)
scores = st.one_of(few_values, many_values)


def truth(known: np.ndarray, novel: np.ndarray) -> np.ndarray:
    return np.repeat([0, 1], [len(known), len(novel)])


@given(known=scores, novel=scores)
def test_auroc_and_aupr_are_those_of_scikit_learn(known: np.ndarray, novel: np.ndarray) -> None:
    both = np.concatenate([known, novel])
    assert evaluation.auroc(known, novel) == pytest.approx(roc_auc_score(truth(known, novel), both))
    assert evaluation.aupr(known, novel) == pytest.approx(average_precision_score(truth(known, novel), both))


@given(known=scores, novel=scores)
def test_the_roc_curve_is_that_of_scikit_learn(known: np.ndarray, novel: np.ndarray) -> None:
    false, true, _ = roc_curve(truth(known, novel), np.concatenate([known, novel]))
    ours = evaluation.roc(known, novel)
    assert set(zip(*ours, strict=True)) <= set(zip(false, true, strict=True)), "theirs has one more on a straight line"
    assert np.trapezoid(ours[1], ours[0]) == pytest.approx(np.trapezoid(true, false))


@given(known=scores, novel=scores)
def test_auroc_is_the_chance_that_a_novel_image_scores_above_a_known_one(known: np.ndarray, novel: np.ndarray) -> None:
    above = (novel[:, None] > known).mean() + (novel[:, None] == known).mean() / 2
    assert evaluation.auroc(known, novel) == pytest.approx(above)


@given(known=scores, novel=scores, percent=st.sampled_from([50, 80, 95, 99, 100]))
def test_tnr_is_the_best_one_among_thresholds_that_catch_enough(
    known: np.ndarray, novel: np.ndarray, percent: int
) -> None:
    enough = [cut for cut in novel if 100 * (novel >= cut).sum() >= percent * len(novel)]
    best = max((known < cut).mean() for cut in enough)
    assert evaluation.tnr_at_tpr(known, novel, percent / 100) == best


@given(known=scores, novel=scores)
def test_tnr_and_auroc_are_those_of_pytorch_ood(known: np.ndarray, novel: np.ndarray) -> None:
    from pytorch_ood.metrics import functional as oracle  # type: ignore[import-untyped]

    both = torch.from_numpy(np.concatenate([known, novel]))
    labels = torch.from_numpy(-truth(known, novel))  # there, novel is negative
    assert evaluation.tnr_at_tpr(known, novel) == pytest.approx(1 - oracle.fpr_at_tpr(both, labels).item())
    assert evaluation.auroc(known, novel) == pytest.approx(oracle.auroc(both, labels).item())


def test_tnr_at_95_worked_out_by_hand() -> None:
    novel = np.arange(20.0)  # 19 of 20 are caught from 1 on
    assert evaluation.tnr_at_tpr(np.array([0.0, 0.5, 1.0, 7.0]), novel) == 0.5


@pytest.mark.parametrize(
    ("known", "novel", "expected"),
    [
        ([0.1, 0.2, 0.3], [0.7, 0.8], {"auroc": 1.0, "tnr95": 1.0, "aupr": 1.0}),
        ([0.7, 0.8], [0.1, 0.2], {"auroc": 0.0, "tnr95": 0.0, "aupr": (1 / 3 + 2 / 4) / 2}),
        ([0.5, 0.5, 0.5], [0.5], {"auroc": 0.5, "tnr95": 0.0, "aupr": 0.25}),
    ],
    ids=["perfect", "upside down", "useless"],
)
def test_metrics_where_the_answer_is_plain(known: list[float], novel: list[float], expected: dict[str, float]) -> None:
    rows = np.random.default_rng(0).permutation(len(known) + len(novel))
    scores = np.array(known + novel)[rows]
    is_novel = np.repeat([False, True], [len(known), len(novel)])[rows]
    assert evaluation.detection_metrics(scores, is_novel) == pytest.approx(expected)


@pytest.mark.parametrize("is_novel", [[True, True], [False, False], []])
def test_without_both_kinds_there_is_nothing_to_measure(is_novel: list[bool]) -> None:
    metrics = evaluation.detection_metrics(np.zeros(len(is_novel)), np.array(is_novel, dtype=bool))
    assert metrics == {"auroc": None, "tnr95": None, "aupr": None}


@given(known=scores, novel=scores)
def test_the_roc_curve_rises_from_nothing_to_everything_with_auroc_below_it(
    known: np.ndarray, novel: np.ndarray
) -> None:
    false_positive, true_positive = evaluation.roc(known, novel)
    assert (false_positive[0], true_positive[0]) == (0, 0)
    assert (false_positive[-1], true_positive[-1]) == (1, 1)
    assert (np.diff(false_positive) >= 0).all()
    assert (np.diff(true_positive) >= 0).all()
    assert np.trapezoid(true_positive, false_positive) == pytest.approx(evaluation.auroc(known, novel))


def on_average(scores: np.ndarray, novel: np.ndarray, looks: int) -> float:
    """Novel images among the first so many, as one would count them: all above the last score, and of those that have
    it as large a part as there is room for."""
    looks = min(looks, len(scores))
    last = sorted(scores, reverse=True)[looks - 1]
    room = looks - (scores > last).sum()
    return float(novel[scores > last].sum() + novel[scores == last].mean() * room)


@given(known=scores, novel=scores)
def test_the_first_looks_are_counted_with_ties_in_no_order(known: np.ndarray, novel: np.ndarray) -> None:
    both, is_novel = np.concatenate([known, novel]), truth(known, novel).astype(bool)
    found = {looks: on_average(both, is_novel, looks) for looks in (20, 50, 100, min(50, len(novel)))}
    figures = evaluation.first_looks(both, is_novel)
    assert figures == pytest.approx(
        {f"p{looks}": found[looks] / min(looks, len(both)) for looks in (20, 50)}
        | {f"found_{looks}": found[looks] / len(novel) for looks in (20, 50, 100)}
        | {"first": found[min(50, len(novel))] / min(50, len(novel))}
    )
    order = np.random.default_rng(0).permutation(len(both))
    assert evaluation.first_looks(both[order], is_novel[order]) == figures, "whatever the order of the images"


def test_equal_scores_count_what_random_orders_of_them_give_on_average() -> None:
    random = np.random.default_rng(0)
    scores, is_novel = random.integers(0, 6, 200) / 5, random.random(200) < 0.15
    orders = [np.lexsort([random.random(200), -scores]) for _ in range(4_000)]
    figures = evaluation.first_looks(scores, is_novel)
    for name, looks in (("p20", 20), ("p50", 50), ("first", int(is_novel.sum()))):
        assert figures[name] == pytest.approx(np.mean([is_novel[order[:looks]].mean() for order in orders]), abs=0.005)


@given(known=scores, novel=scores)
def test_what_is_found_rises_to_everything_and_begins_with_the_highest_score(
    known: np.ndarray, novel: np.ndarray
) -> None:
    both, is_novel = np.concatenate([known, novel]), truth(known, novel).astype(bool)
    found = evaluation.found_after(both, is_novel)
    assert len(found) == len(both)
    assert found[0] == pytest.approx(is_novel[both == both.max()].mean() / len(novel))
    assert (np.diff(found) >= 0).all()
    assert found[-1] == 1


def test_the_first_looks_worked_out_by_hand() -> None:
    scores = np.arange(1_000, 0, -1.0)
    is_novel = np.zeros(1_000, dtype=bool)
    is_novel[[0, 3, 19, 20, 49, 50, 99, 100, 500, 999]] = True
    assert evaluation.first_looks(scores, is_novel) == {
        "p20": 3 / 20, "p50": 5 / 50, "first": 2 / 10, "found_20": 0.3, "found_50": 0.5, "found_100": 0.7,
    }  # fmt: skip
    is_novel[:50], is_novel[500:] = True, True
    assert evaluation.first_looks(scores, is_novel)["first"] == 1, "of 550 novel ones only the first 50 are looked at"


def test_a_table_of_scores_has_the_first_looks_of_each_score() -> None:
    truths = ["novel", "known", "novel", "known"]
    table = pd.DataFrame({"score": [4, 3, 2, 1], "entropy": [4, 1, 3, 2], "flagged": False, "truth": truths})
    found = evaluation.Detection.of(table)
    assert (found.first, found.entropy_first, found.neighbours_first) == (0.5, 1.0, None)
    assert (found.p20, found.p50, found.entropy_p50) == (0.5, 0.5, 0.5), "of all four, since there are no more"
    assert found.found_20 == 1
    for none in (table.drop(columns="truth"), table[::2], table[1::2], table[:0]):
        assert {
            getattr(evaluation.Detection.of(none), name) for name in ("p20", "first", "found_50", "entropy_p50")
        } == {None}
