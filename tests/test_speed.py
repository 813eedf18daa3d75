"""benchmarks/speed.py: what it compares is comparable, and what got slower is said."""

import importlib
import json
import operator
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from erd import evaluation, models, stages
from erd.data import sources
from erd.data.batches import Mixture, Rows
from erd.ensemble import load_net
from erd.rundir import RunDir
from erd.training import Examples, Recipe, fit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
speed: Any = importlib.import_module("speed")


def row(key: str, ratio: float) -> dict[str, Any]:
    return speed.row(key, speed.Figure([ratio]))


def baseline(**ratios: float) -> dict[str, Any]:
    return {"figures": {key.replace("_", "."): {"ratio": ratio, "tolerance": 0.1} for key, ratio in ratios.items()}}


@pytest.mark.parametrize(
    ("key", "was", "now", "verdict"),
    [
        ("b.resnet20", 0.95, 0.80, "worse"),  # a share of the limit's speed: less is worse
        ("b.resnet20", 0.80, 0.95, "better"),
        ("b.resnet20", 0.95, 0.90, None),
        ("b.mlp", 1.4, 1.8, "worse"),  # a multiple of the floor: more is worse
        ("b.mlp", 1.8, 1.4, "better"),
        ("b.mlp", 1.40, 1.45, None),
    ],
)
def test_what_changed_beyond_its_tolerance_is_said(key: str, was: float, now: float, verdict: str | None) -> None:
    found = speed.compared([row(key, now)], baseline(**{key.replace(".", "_"): was}))
    assert [how for how, lines in found.items() if lines] == ([verdict] if verdict else [])


def test_the_sentence_names_the_part_the_change_and_both_ratios() -> None:
    found = speed.compared([row("c.cores", 1.5), row("f.score", 3.0)], baseline(c_cores=1.9, f_score=1.5))
    cores, memory = found["worse"]
    assert cores.startswith("(c) ")
    assert "27% slower" in cores
    assert "was 1.9 and is 1.5" in cores
    assert "100% larger" in memory


def test_a_figure_without_baseline_is_new_and_a_part_that_was_not_measured_is_passed_over() -> None:
    found = speed.compared([row("c.cores", 1.9)], baseline(b_mlp=1.4))
    assert (found["worse"], found["better"]) == ([], [])
    assert "--keep" in found["new"][0]


def test_a_new_baseline_keeps_other_parts_and_tolerances_set_by_hand() -> None:
    before = baseline(b_mlp=1.4, c_cores=1.9)
    kept = speed.kept([row("c.cores", 1.7), row("a.auroc", 0.001)], before, {"cores": 2})["figures"]
    assert kept == {"b.mlp": {"ratio": 1.4, "tolerance": 0.1}, "c.cores": {"ratio": 1.7, "tolerance": 0.1}}


def test_the_command_ends_with_1_if_something_is_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(asked: Any) -> dict[str, Any]:
        """two doublings"""
        return {"e.images": speed.Figure([1.9, ratio, 2.6][: asked.repeat])}

    monkeypatch.setattr(speed, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(speed, "PARTS", {"e": part})
    monkeypatch.setattr(speed.psutil, "cpu_percent", lambda interval: 0.0)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- speed:begin -->\nold\n<!-- speed:end -->\nafter\n")
    ratio = 2.0
    assert speed.main(["--repeat", "3", "--keep", "--output", str(page)]) == 0
    head, text, tail = page.read_text().replace("-->", "<!--").split("<!--")[0::2]
    assert (head, tail) == ("before\n", "\nafter\n")
    assert "| ≤ 2.1× | 2× | 2 (1.9 – 2.6) | yes |" in text
    assert "old" not in text
    assert speed.main(["--repeat", "3", "--check", "--json"]) == 0
    ratio = 2.4
    capsys.readouterr()
    assert speed.main(["--repeat", "3", "--check", "--json"]) == 1
    output = capsys.readouterr()
    report = json.loads(output.out.splitlines()[-1])
    assert "20% slower" in report["worse"][0]
    (figure,) = report["figures"]
    assert (figure["ratio"], figure["low"], figure["high"], figure["met"]) == (2.4, 1.9, 2.6, False)
    assert "two doublings" in output.err


def test_repetitions_alternate_and_the_first_does_not_count() -> None:
    calls: list[str] = []

    def called(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    ways = {name: partial(called, name) for name in "ab"}
    assert speed.in_turn(ways, 2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert calls == list("ababab")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, RunDir]:
    overrides = ["detect.calibration=paper", "finetune.keep=best", "finetune.members=2", "finetune.epochs=8",
                 "finetune.batch_size=128", "run.runner=serial"]  # fmt: skip
    settings, run = speed.ours(overrides, "digits-near"), RunDir(tmp_path_factory.mktemp("speed") / "digits")
    stages.ingest(settings, run)
    stages.pretrain(settings, run)
    return settings, run


def test_the_users_net_sees_what_ours_sees(digits: tuple[Any, RunDir]) -> None:
    _, run = digits
    given = speed.as_the_user_has_them(run)
    model, _ = load_net(run.pretrained)
    items = speed.UsersSet(given["batch"], torch.zeros(len(given["batch"])), given["mean"], given["std"])
    theirs = speed.users_net(run)(torch.stack([items[i][0] for i in range(20)]))
    torch.testing.assert_close(theirs, model(given["batch"][:20, None]), rtol=1e-4, atol=1e-4)


def test_the_users_loop_finds_what_ours_finds(digits: tuple[Any, RunDir]) -> None:
    settings, run = digits
    assert speed.finetuned_and_scored(settings, run) > 0
    ours = pd.read_parquet(run.scores)["score"].to_numpy()
    labels = stages.member_labels(settings, run)
    theirs = speed.users_loop(run, labels, speed.as_the_user_has_them(run), settings.finetune.epochs)
    novel = stages.truth_of(run.batch) == "novel"
    both = [evaluation.auroc(scores[~novel], scores[novel]) for scores in (ours, theirs)]
    assert min(both) > 0.9
    assert both[0] == pytest.approx(both[1], abs=0.04)


def test_the_floor_has_the_products_of_an_epoch_and_no_more(tmp_path: Path) -> None:
    model = models.build("mlp", channels=1, image_size=8, classes=5, seed=0)
    images, labels = torch.zeros(300, 8, 8, dtype=torch.uint8), torch.zeros(300, dtype=torch.long)
    train, val = (Examples(Mixture(Rows(images[:count])), labels[:count]) for count in (300, 70))
    recipe = Recipe.of(speed.ours(["finetune.epochs=1"], "fmnist-near").finetune)
    with FlopCounterMode(display=False) as trained:
        fit(model, train, val, recipe, torch.Generator())
    with FlopCounterMode(display=False) as products:
        speed.matrix_products(model, torch.zeros(300, 64), torch.zeros(70, 64), recipe.batch_size)
    assert products.get_total_flops() == trained.get_total_flops()


def test_without_fashion_mnist_the_images_are_random_and_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "DEBIAN_FASHION", tmp_path / "none")
    asked = speed.Asked(str(tmp_path), 1, False, tmp_path)
    _, run, note = speed.fmnist(asked, ["data.train=50", "data.val=10", "detect.calibration=paper"])
    assert "random images" in note
    packed = stages.packing.read(run.labeled)
    assert packed.images.shape == (60, 28, 28)
    assert len(packed.rows("train")) == 50


def test_parts_at_a_tiny_size_give_their_figures(tmp_path: Path) -> None:
    asked = speed.Asked(None, 1, False, tmp_path)
    found = speed.scoring(asked, members=(2, 20), count=50) | speed.growth(asked, images=(300, 600), members=(2, 4))
    found |= speed.mlp_epoch(asked, 300, 200, 100) | speed.resnet_epoch(asked, steps=2, batch_size=4)
    assert set(found) == {"d.fifty", "d.least", "e.images", "e.members", "b.mlp", "b.resnet20"}
    assert all(ratio > 0 for figure in found.values() for ratio in figure.ratios)
    table = speed.table([speed.row(key, figure) for key, figure in found.items()])
    assert len(table) == 2 + len(found)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is read from Linux's /proc")
def test_the_peak_of_memory_is_that_of_the_work(tmp_path: Path) -> None:
    size = 700_000_000  # more than any process of ours has without work to do
    found = speed.peak(operator.mul, b"x", size)  # a string of that length, gone again before anyone looks
    assert size < found["resident"] < 2 * size
    assert found["shared"] > 50_000_000
