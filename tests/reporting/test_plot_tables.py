"""The tables that `dvc plots` draws."""

import numpy as np
import pandas as pd
import pytest

from erd.reporting import plot_tables

BATCH = pd.DataFrame({"score": [0.0, 0.2, 0.6, 0.8], "truth": ["known", "known", "novel", "novel"]})


def test_the_roc_goes_from_nothing_flagged_to_everything() -> None:
    rows = plot_tables.roc(BATCH)
    assert rows[0] == {"false_positive": 0.0, "caught": 0.0}
    assert rows[-1] == {"false_positive": 1.0, "caught": 1.0}
    assert {"false_positive": 0.0, "caught": 1.0} in rows
    assert plot_tables.roc(BATCH.drop(columns="truth")) == plot_tables.roc(BATCH[:2]) == []


def test_what_is_found_after_so_many_looks() -> None:
    rows = plot_tables.looks(BATCH[::-1])
    assert rows[0] == {"looks": 1, "found": 0.5, "precision": 1.0}
    assert rows[1] == {"looks": 2, "found": 1.0, "precision": 1.0}
    assert rows[-1] == {"looks": 4, "found": 1.0, "precision": 0.5}
    assert plot_tables.looks(BATCH.drop(columns="truth")) == plot_tables.looks(BATCH[:2]) == []


def test_of_a_large_batch_the_first_looks_are_drawn_one_by_one_and_the_last_ones_sparsely() -> None:
    random = np.random.default_rng(0)
    truth = np.where(random.random(20_000) < 0.02, "novel", "known")
    rows = plot_tables.looks(pd.DataFrame({"score": random.random(20_000), "truth": truth}))
    after = [row["looks"] for row in rows]
    assert after[:20] == list(range(1, 21))
    assert after[-1] == 20_000
    assert 100 < len(after) <= 300
    assert rows[-1]["precision"] == pytest.approx((truth == "novel").mean())


def test_the_histogram_holds_every_image_of_each_set_once() -> None:
    rows = pd.DataFrame(plot_tables.scores(BATCH, np.array([0.1, 0.3])))
    assert rows.drop(columns="score").sum().tolist() == pytest.approx([1, 1, 1, 1])
    assert rows.loc[rows["novel"] > 0, "score"].min() > 0.5
    unknown = plot_tables.scores(BATCH.drop(columns="truth"), np.array([]))
    assert {row["known"] for row in unknown} == {row["calibration"] for row in unknown} == {None}


def test_learning_curves_are_means_of_the_members_still_trained() -> None:
    history = [{"epoch": 1, "val_accuracy": 0.5}, {"epoch": 2, "val_accuracy": 0.7}]
    rows = plot_tables.learning_curves({0: history, 3: [{"epoch": 1, "val_accuracy": 0.9}]})
    assert [(row["epoch"], row["val_accuracy"]) for row in rows] == [(1, pytest.approx(0.7)), (2, 0.7)]
    assert rows[0]["batch_accuracy"] is None
