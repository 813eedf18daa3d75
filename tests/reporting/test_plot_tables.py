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
