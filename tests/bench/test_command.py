"""`erd bench` and `erd methods` as a user meets them."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from small_bench import brightness, erd

from erd.base import files
from erd.bench.detectors import Detector, Given
from erd.bench.rows import read_rows
from erd.data import packed
from erd.runs.folder import RunDir
from erd.runs.results import Ingested
from erd.training.batches import Mixture
from erd.training.loop import predict
from erd.training.members import load_net

CONTRACT = {"scenario", "method", "seed", "auroc", "tnr95", "aupr", "seconds", "paper_auroc", "paper_tnr95"}


def test_the_command_prints_a_row_a_cell_with_the_true_figures() -> None:
    code, out, _ = erd("bench", "--method", "max-softmax", "--seeds", "2", "--json")
    assert code == 0
    rows = json.loads(out.splitlines()[-1])["rows"]
    assert [(row["scenario"], row["method"], row["seed"]) for row in rows] == [
        ("digits-near", "max-softmax", 0),
        ("digits-near", "max-softmax", 1),
    ]
    for row in rows:
        assert set(row) >= CONTRACT
        folder = RunDir(Path(f"bench/digits-near/seed{row['seed']}"))
        sizes = Ingested.read(folder).sizes
        assert (sizes["train"], sizes["calibration"]) == (450, 0), "as in the paper, which has no calibration set"
        model, snapshots = load_net(folder.pretrained)
        for name, images in (("batch", folder.batch), ("holdout", folder.holdout)):
            softmax = predict(model, snapshots, Mixture(packed.read(images).rows()))
            truth = pd.read_parquet(packed.manifest(images))["truth"] == "novel"
            assert row[f"{name}_auroc"] == pytest.approx(roc_auc_score(truth, 1 - softmax.amax(1).numpy()))
        assert row["auroc"] == row["holdout_auroc"], "where the scenario's row says that the paper evaluates"
        assert row["evaluated_on"] == "holdout"
        assert row["seconds"] > 0
        assert row["error"] is None
    assert rows[0]["auroc"] != rows[1]["auroc"], "a seed is another split"
    for name in ("results.json", "results.md", "results.html"):
        assert (Path("bench") / name).exists()
    assert files.load_json(Path("bench/results.json"))["rows"] == rows
    assert [row.as_json() for row in read_rows(Path("bench/results.json"))] == rows


def test_a_failed_cell_stops_no_other_and_is_tried_again(enter: Callable[..., None]) -> None:
    fits: list[str] = []

    def fit(given: Given) -> Detector:
        fits.append(given.method.name)
        if given.method.name == "moody" and fits.count("moody") == 1:
            raise ValueError("not today")
        return Detector(brightness)

    for name in ("moody", "steady"):
        enter(name, fit, "train")
    command = ("bench", "--method", "moody", "--method", "steady", "--seeds", "1", "--json")
    code, out, err = erd(*command)
    assert code == 1
    assert "1 of 2 cells failed, such as digits-near, moody: method 'moody' fails with ValueError: not today" in err
    moody, steady = json.loads(out.splitlines()[-1])["rows"]
    assert (moody["auroc"], steady["error"]) == (None, None)
    assert "failed with 1 of 1 seeds" in Path("bench/results.md").read_text()

    code, out, _ = erd(*command)
    assert code == 0
    assert fits == ["moody", "steady", "moody"], "what was good is kept"
    assert json.loads(out.splitlines()[-1])["rows"][1] == steady
    assert not list(Path("bench").rglob("*.traceback.txt"))


def test_without_json_the_tables_are_printed_and_put_where_they_belong(enter: Callable[..., None]) -> None:
    enter("any", lambda given: Detector(brightness))
    Path("page.md").write_text("# By hand\n\n<!-- mine:begin -->\n<!-- mine:end -->\n")
    code, out, _ = erd("bench", "--method", "any", "--seeds", "1", "--output", "page.md#mine")
    assert code == 0
    assert "## digits-near" in out
    assert [line.split()[-1] for line in out.splitlines()[-4:]] == [
        *(str(Path("bench") / f"results.{kind}") for kind in ("json", "md", "html")),
        "page.md",
    ]
    assert "### digits-near" in Path("page.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "max-softmx"), "unknown method 'max-softmx': did you mean 'max-softmax'?"),
        (("--scenario", "digit-near"), "unknown scenario 'digit-near': did you mean 'digits-near'?"),
        (("--seeds", "0"), "the bench takes 1 to 1,000 seeds, not 0"),
        (("--sweep", "labels", "--seeds", "0"), "the bench takes 1 to 1,000 seeds, not 0"),
        (("--set", "seed=3"), "say how many with --seeds"),
        (("--scenario", "own"), "name classes of yours to be played as novel"),
        (("--set", "model.encoder=tf_efficientnet_lite9"), "there is no encoder 'tf_efficientnet_lite9'"),
        (("--output", "page.md"), "page.md has no place for the table"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_nothing_is_begun(words: tuple[str, ...], said: str) -> None:
    Path("page.md").write_text("# No markers here\n")
    code, out, err = erd("bench", *words)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert not Path("bench").exists()


def test_methods_are_listed() -> None:
    code, out, _ = erd("methods", "--json")
    assert code == 0
    listed = {row["name"]: row for row in json.loads(out)["methods"]}
    assert listed["max-softmax"]["setting"] == "unsupervised"
    assert listed["max-softmax"]["sees"] == ["classifier"]
    _, text, _ = erd("methods")
    assert all(name in text for name in listed)
