"""The rates a report states hold for images the members were trained on; and promises are in the right words."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from chains import do
from scipy.stats import combine_pvalues

from erd.reporting import wording
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings import schema
from erd.settings.schema import Settings
from erd.statistics import decisions
from erd.statistics.decisions import Compared
from erd.statistics.metrics import Detection

REPETITIONS = 12
LEVEL = 0.05 / 52  # of the alarm
# A few epochs too many on few images: the members are pulled towards c as strongly as they ever are.
FAST = ["pretrain.epochs=10", "finetune.epochs=10", "finetune.members=2", "run.runner=serial"]
NOTHING_NOVEL = ["data.batch_novel=0", "data.holdout_known=0", "data.holdout_novel=0"]


def settings(*more: str) -> Settings:
    return configure.resolve(schema.load(None, [*FAST, *more]))


def scored(root: Path, *more: str) -> RunDir:
    run, chosen = RunDir(root), settings(*more)
    do(chosen, run, "ingest", "pretrain", "finetune", "score")
    return run


@pytest.fixture(scope="module")
def nothing_novel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[RunDir]]:
    """Batches of known images only, with C hidden in them and with C kept out of training."""
    place = tmp_path_factory.mktemp("nothing-novel")
    return {
        mode: [
            scored(place / f"{mode}-{seed}", *NOTHING_NOVEL, f"seed={seed}", f"detect.calibration={mode}")
            for seed in range(REPETITIONS)
        ]
        for mode in ("mixed", "holdout")
    }


def alarms(runs: list[RunDir]) -> list[float]:
    return [json.loads(run.decision.read_text())["alarm_p"] for run in runs]


def test_a_batch_of_known_images_looks_known_only_if_calibration_images_were_trained_on_like_it(
    nothing_novel: dict[str, list[RunDir]],
) -> None:
    """Fails when C is kept out of training: the second assertion shows that the first could."""
    assert combine_pvalues(alarms(nothing_novel["mixed"])).pvalue > 0.005
    assert combine_pvalues(alarms(nothing_novel["holdout"])).pvalue < 1e-4


@pytest.mark.parametrize("level", [0.05, 0.1, 0.3])
def test_known_images_of_the_batch_are_rare_at_small_p_values(
    nothing_novel: dict[str, list[RunDir]], level: float
) -> None:
    """Within the error of as many draws of 100 calibration and 180 batch images."""
    rates = [(pd.read_parquet(run.scores)["p_value"] <= level).mean() for run in nothing_novel["mixed"]]
    error = (level * (1 - level) * (1 / 101 + 1 / 180) / REPETITIONS) ** 0.5
    assert abs(np.mean(rates) - int(level * 101) / 101) < 3.5 * error


def test_no_flag_and_no_share_where_nothing_is_novel(nothing_novel: dict[str, list[RunDir]]) -> None:
    found = [json.loads(run.decision.read_text()) for run in nothing_novel["mixed"]]
    assert sum(facts["flagged"] > 0 for facts in found) <= 2
    assert all(facts["novel_share"] is None for facts in found if not facts["alarm"])


def test_the_bound_at_every_cut_holds_for_the_batch(nothing_novel: dict[str, list[RunDir]]) -> None:
    """All images are known, so k of the k highest are: the bound must never say less, but in one run of ten."""
    failures = 0
    for run in nothing_novel["mixed"]:
        table = pd.read_parquet(run.scores)
        above = [(table["score"] >= score).sum() for score in table["score"]]
        failures += bool((table["wrong_at_most"] < above).any())
    assert failures <= 4  # P(more | 12 runs at 10%) < 0.5%


def draws(rng: np.random.Generator, known: int, novel: int, references: int) -> tuple[Compared, np.ndarray]:
    scores = np.concatenate([rng.normal(0, 1, known), rng.normal(3, 1, novel)])
    truth = np.repeat([False, True], [known, novel])
    return Compared(np.arange(known + novel), scores, rng.normal(0, 1, references)), truth


def test_the_false_discovery_rate_holds_over_two_folds_whose_evidence_is_joined() -> None:
    rng, wrong, caught = np.random.default_rng(0), [], []
    chosen = settings("detect.fdr=0.1")
    for _ in range(40):
        sets, truths, start = [], [], 0
        for _ in range(2):
            compared, truth = draws(rng, 80, 20, 200)
            sets.append(compared._replace(rows=compared.rows + start))
            truths.append(truth)
            start += len(truth)
        decision, truth = decisions.decide(sets, chosen, LEVEL), np.concatenate(truths)
        flagged = decision.flagged
        wrong.append((~truth)[flagged].mean() if flagged.any() else 0.0)
        caught.append(flagged[truth].mean())
    assert np.mean(wrong) < 0.1 + 3 * np.std(wrong) / len(wrong) ** 0.5
    assert np.mean(caught) > 0.5


def test_each_rule_flags_what_it_says() -> None:
    compared, truth = draws(np.random.default_rng(1), 900, 100, 999)
    by_rule = {
        rule: decisions.decide([compared], settings(f"detect.rule={rule}", "detect.novel_at_most=0.1"), LEVEL).flagged
        for rule in ("fdr", "fpr", "catch")
    }
    assert by_rule["fpr"][~truth].mean() == pytest.approx(0.05, abs=0.02)
    assert by_rule["catch"][truth].mean() > 0.85
    assert (~truth)[by_rule["fdr"]].mean() < 0.12


def test_too_few_calibration_images_are_said_with_how_many_it_takes() -> None:
    few, _ = draws(np.random.default_rng(2), 900, 100, 30)
    [warning] = decisions.decide([few], settings(), LEVEL).warnings
    assert "fewer than 646 of 1,000 images cannot be flagged" in warning
    assert "to flag as few as 20 takes 999" in warning
    [warning] = decisions.decide([few], settings("detect.rule=fpr", "detect.fpr=0.01"), LEVEL).warnings
    assert "takes at least 99 calibration images to compare with and there are 30" in warning
    enough, _ = draws(np.random.default_rng(3), 900, 100, 2000)
    assert decisions.decide([enough], settings(), LEVEL).warnings == []


def test_drift_is_said_and_likeness_is_not() -> None:
    rng = np.random.default_rng(4)
    assert decisions.drift(rng.random(300), rng.random(300)) is None
    assert "not score like validation images" in (decisions.drift(rng.random(300) + 0.3, rng.random(300)) or "")


def test_the_report_promises_nothing_where_nothing_is_promised(tmp_path: Path) -> None:
    compared, _ = draws(np.random.default_rng(5), 900, 100, 999)

    def said(mode: str) -> str:
        decision = decisions.decide([compared], settings(f"detect.calibration={mode}"), LEVEL)
        metrics = Metrics("W46", "own", Detection(), Detection(), 1000, decision.verdict, None, 0.9, 3, {})
        return wording.headline(metrics)

    assert "at most about 1 in 20 of these is expected to be a false alarm" in said("mixed")
    for mode in ("paper", "holdout"):
        assert "how many of these are false alarms is not known" in said(mode)
    assert "there is no promise" in decisions.assumptions(settings("detect.calibration=paper"))[0]


def test_crossfit_scores_each_image_by_members_that_did_not_learn_it(tmp_path: Path) -> None:
    run = scored(tmp_path / "run", "detect.calibration=crossfit")
    table = pd.read_parquet(run.scores)
    assert len(table) == 360
    assert table["id"].is_unique
    assert len(pd.read_parquet(run.reference_scores)) == 400, "C by the members of either fold"
    novel = table["truth"] == "novel"
    assert table["score"][novel].mean() > table["score"][~novel].mean() + 0.2
    assert json.loads(run.decision.read_text())["alarm"]


def test_a_decision_can_be_made_again_with_the_same_numbers(tmp_path: Path) -> None:
    compared, _ = draws(np.random.default_rng(6), 90, 10, 99)
    first, second = (decisions.decide([compared], settings(), LEVEL) for _ in range(2))
    assert first.p_value.tolist() == second.p_value.tolist()
    assert first.verdict == second.verdict
