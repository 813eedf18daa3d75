"""benchmarks/speed.py: what it compares is comparable, and what got slower is said."""

import json
import operator
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import pandas as pd
import pytest
import speed
import torch
import users_loop
from measuring import Asked, Case, Figure, Figures
from random_runs import finetuned_and_scored, settings_of
from speed_cases import end_to_end, epoch, growth, memory, scoring
from torch.utils.flop_counter import FlopCounterMode

from erd import nets
from erd.data import packed
from erd.data.packed import Rows
from erd.data.sources import public
from erd.runs import stage_records
from erd.runs.folder import RunDir
from erd.settings.schema import Settings
from erd.statistics import disagreement, metrics
from erd.training import loop
from erd.training.batches import Mixture
from erd.training.loop import Examples, Recipe, fit
from erd.training.members import load_net
from erd.weekly.stages.finetune import member_labels
from erd.weekly.stages.ingest import ingest
from erd.weekly.stages.pretrain import pretrain


def row(key: str, ratio: float) -> dict[str, Any]:
    return speed.row(key, Figure([ratio]))


def baseline(**ratios: float) -> dict[str, Any]:
    return {"figures": {key.replace("_", "."): {"ratio": ratio, "tolerance": 0.1} for key, ratio in ratios.items()}}


@pytest.fixture
def own_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(speed.psutil, "cpu_percent", lambda interval: 0.0)


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
    cores, size = found["worse"]
    assert cores.startswith("(c) ")
    assert "27% slower" in cores
    assert "was 1.9 and is 1.5" in cores
    assert "100% larger" in size


def test_a_figure_without_baseline_is_new_and_a_part_that_was_not_measured_is_passed_over() -> None:
    found = speed.compared([row("c.cores", 1.9)], baseline(b_mlp=1.4))
    assert (found["worse"], found["better"]) == ([], [])
    assert "--keep" in found["new"][0]


def test_a_new_baseline_keeps_other_parts_and_tolerances_set_by_hand() -> None:
    before = baseline(b_mlp=1.4, c_cores=1.9)
    kept = speed.kept([row("c.cores", 1.7), row("a.auroc", 0.001)], before, {"cores": 2})["figures"]
    assert kept == {"b.mlp": {"ratio": 1.4, "tolerance": 0.1}, "c.cores": {"ratio": 1.7, "tolerance": 0.1}}


def test_every_file_of_the_cases_is_a_part_and_each_figure_bears_its_letter() -> None:
    files = {path.stem for path in Path(speed.speed_cases.__path__[0]).glob("[!_]*.py")}
    assert {case.measure.__module__.rpartition(".")[2] for case in speed.CASES.values()} == files
    assert all(key.startswith(f"{part}.") for part, case in speed.CASES.items() for key in case.goals)


def test_the_command_ends_with_1_if_something_is_slower(
    tmp_path: Path, own_baseline: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def doublings(asked: Asked) -> Figures:
        return {"e.images": Figure([1.9, ratio, 2.6][: asked.repeat])}

    monkeypatch.setattr(speed, "CASES", {"e": Case("e", "two doublings", {}, doublings)})
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


def test_smaller_sizes_have_a_baseline_of_their_own_and_meet_no_goal(
    own_baseline: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ratios = {True: 1.9, False: 2.4}
    case = Case("e", "two doublings", {}, lambda asked: {"e.images": Figure([ratios[asked.full]])})
    monkeypatch.setattr(speed, "CASES", {"e": case})
    for how in ([], ["--quick"]):
        assert speed.main([*how, "--keep"]) == 0
    for how in ([], ["--quick"]):
        assert speed.main([*how, "--check"]) == 0
    assert "| 2.4 (2.4 – 2.4) | – |" in capsys.readouterr().out
    ratios[False] = 2.9
    assert speed.main(["--quick", "--check"]) == 1
    assert speed.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("tiny", "module", "name", "sentence"),
    [
        (replace(epoch.CASE, measure=partial(epoch.of_mlp, train=300, batch=200, val=100)), loop, "evaluate",
         "epoch of an MLP member"),
        (replace(scoring.CASE, measure=partial(scoring.measure, members=(20,), count=50)), disagreement,
         "disagreement", "score of 50 members"),
    ],
    ids=["training", "scoring"],
)  # fmt: skip
def test_code_that_is_made_slower_is_found_by_the_guard(
    tiny: Case, module: Any, name: str, sentence: str, own_baseline: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(speed, "CASES", {tiny.part: tiny})
    assert speed.main(["--repeat", "1", "--keep"]) == 0
    monkeypatch.setattr(module, name, slower(getattr(module, name)))
    assert speed.main(["--repeat", "1", "--check"]) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"worse: ({tiny.part}) ")]
    assert any(sentence in line and "slower" in line for line in said)


def slower(work: Callable[..., Any]) -> Callable[..., Any]:
    """By so much that nothing else on the machine can be taken for it."""

    def slow(*arguments: Any) -> Any:
        time.sleep(0.3)
        return work(*arguments)

    return slow


def test_repetitions_alternate_and_the_first_does_not_count() -> None:
    calls: list[str] = []

    def called(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    ways = {name: partial(called, name) for name in "ab"}
    assert measuring.in_turn(ways, 2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert calls == list("ababab")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, RunDir]:
    overrides = ["detect.calibration=paper", "finetune.keep=best", "finetune.members=2", "finetune.epochs=8",
                 "finetune.batch_size=128", "run.runner=serial"]  # fmt: skip
    settings, run = settings_of("digits-near", overrides), RunDir(tmp_path_factory.mktemp("speed") / "digits")
    ingest(settings, run)
    pretrain(settings, run)
    return settings, run


def test_the_users_net_sees_what_ours_sees(digits: tuple[Settings, RunDir]) -> None:
    _, run = digits
    given = users_loop.as_the_user_has_them(run)
    model, _ = load_net(run.pretrained)
    items = given.items(given.batch, torch.zeros(len(given.batch)))
    theirs = users_loop.users_net(run)(torch.stack([items[i][0] for i in range(20)]))
    torch.testing.assert_close(theirs, model(given.batch[:20, None]), rtol=1e-4, atol=1e-4)


def test_the_users_loop_finds_what_ours_finds(digits: tuple[Settings, RunDir]) -> None:
    settings, run = digits
    finetuned_and_scored(settings, run)
    ours = pd.read_parquet(run.scores)["score"].to_numpy()
    labels, epochs = member_labels(settings, run), Recipe.of(settings.finetune).epochs
    theirs = users_loop.users_loop(run, labels, users_loop.as_the_user_has_them(run), epochs)
    novel = packed.truth_of(run.batch) == "novel"
    both = [metrics.auroc(scores[~novel], scores[novel]) for scores in (ours, theirs)]
    assert min(both) > 0.9
    assert both[0] == pytest.approx(both[1], abs=0.04)


def test_our_seconds_are_those_of_all_the_work_and_nothing_is_taken_from_the_time_before(
    digits: tuple[Settings, RunDir],
) -> None:
    settings, run = digits
    stages = [*(f"finetune-{label}" for label in member_labels(settings, run)), "score"]
    finetuned_and_scored(settings, run)
    begun = datetime.now(UTC)
    seconds = finetuned_and_scored(settings, run)
    worked = 0.0
    for stage in stages:
        record = stage_records.read(run, stage)
        assert record is not None
        started, finished = map(datetime.fromisoformat, (record.started, record.finished))
        assert started >= begun, f"{stage} was not done anew"
        worked += (finished - started).total_seconds()
    assert seconds >= worked


def test_the_floor_has_the_products_of_an_epoch_and_no_more() -> None:
    model = nets.build("mlp", channels=1, image_size=8, classes=5, seed=0)
    images, labels = torch.zeros(300, 8, 8, dtype=torch.uint8), torch.zeros(300, dtype=torch.long)
    train, val = (Examples(Mixture(Rows(images[:count])), labels[:count]) for count in (300, 70))
    recipe = Recipe.of(settings_of("fmnist-near", ["finetune.epochs=1"]).finetune)
    with FlopCounterMode(display=False) as trained:
        fit(model, train, val, recipe, torch.Generator())
    with FlopCounterMode(display=False) as products:
        epoch.matrix_products(model, torch.zeros(300, 64), torch.zeros(70, 64), recipe.batch_size)
    assert products.get_total_flops() == trained.get_total_flops()


def test_without_fashion_mnist_the_images_are_random_and_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "DEBIAN_FASHION", tmp_path / "none")
    settings = settings_of("fmnist-near", [*end_to_end.PLAIN, "data.train=50", "data.val=10"], str(tmp_path))
    _, run, note = end_to_end.fashion(Asked(str(tmp_path), 1, False, tmp_path), settings)
    assert "random images" in note
    labeled = packed.read(run.labeled)
    assert labeled.images.shape == (60, 28, 28)
    assert len(labeled.rows("train")) == 50


def test_a_ratio_is_that_of_the_seconds_beside_it(tmp_path: Path) -> None:
    asked = Asked(None, 1, False, tmp_path)  # one repetition: the median ratio is that of the medians
    found = epoch.of_mlp(asked, 300, 200, 100) | epoch.of_resnet20(asked, steps=2, batch_size=4)
    found |= growth.grown(asked, images=(300, 600), members=(2, 4))
    seconds = {key: speed.row(key, figure)["details"]["seconds"] for key, figure in found.items()}
    assert {key: speed.row(key, figure)["ratio"] for key, figure in found.items()} == pytest.approx(
        {
            "b.mlp": seconds["b.mlp"]["epoch"] / seconds["b.mlp"]["floor"],
            "b.resnet20": seconds["b.resnet20"]["floor"] / seconds["b.resnet20"]["epoch"],
            "e.images": seconds["e.images"]["600 images, 2 members"] / seconds["e.images"]["300 images, 2 members"],
            "e.members": seconds["e.members"]["300 images, 4 members"] / seconds["e.members"]["300 images, 2 members"],
        },
        rel=2e-3,
    )


def test_the_score_is_shown_at_its_worst_and_for_the_most_members(tmp_path: Path) -> None:
    found = scoring.measure(Asked(None, 1, False, tmp_path), members=(2, 20), count=50)
    most, least = (speed.row(key, found[key]) for key in ("d.fifty", "d.least"))
    ratios = most["details"]["members"]
    assert most["ratio"] == pytest.approx(ratios["20"], abs=0.006)
    assert least["ratio"] == pytest.approx(min(ratios.values()), abs=0.006)
    assert ratios[str(least["details"]["members"])] == min(ratios.values())
    table = speed.table([most, least])
    assert len(table) == 2 + len(found)
    assert f"{most['ratio']:.3g}×" in table[2]


@pytest.mark.skipif(not memory.SHARES.exists(), reason="memory is read from Linux's /proc")
def test_the_peak_of_memory_is_that_of_the_work() -> None:
    size = 700_000_000  # more than any process of ours has without work to do
    found = memory.peak(operator.mul, b"x", size)  # a string of that length, gone again before anyone looks
    assert size < found["resident"] < 2 * size
    assert found["shared"] > 50_000_000
