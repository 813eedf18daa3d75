"""Doing what a plan says: what is done again, who shares what, in which order, and what is told meanwhile."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_bench import FAST, brightness, done, erd, run, timeless

from erd.base import progress
from erd.base.errors import RunError
from erd.bench import cells, plan
from erd.bench.detectors import Detector, Given
from erd.bench.plan import Asked
from erd.training.checkpoint import Recording


def test_processes_give_the_same_figures_as_one_after_the_other() -> None:
    one = run("max-softmax", seeds=2)
    two = run("max-softmax", seeds=2, overrides=("run.runner=process", "run.workers=2"), root=Path("other"))
    assert timeless(one) == timeless(two)
    assert one[0].otherwise == {"pretrain.epochs": 3}, "and nothing of how and where it was run"


def test_members_are_trained_once_for_all_that_look_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("erd", "erd-last", "erd-avg", "erd-entropy", "erd-avg-ema")
    alone = [run(name, root=Path(name))[0] for name in names]
    epochs: list[float] = []
    write = Recording.write

    def counted(recording: Recording, record: dict[str, float], *more: Any) -> None:
        epochs.append(record["epoch"])
        write(recording, record, *more)

    monkeypatch.setattr(Recording, "write", counted)
    together = run(*names)
    settings = plan.place("digits-near", 0).settings.finetune
    assert len(epochs) == (settings.members or 0) * (settings.epochs or 0), "as many as one of them needs"
    assert timeless(together) == timeless(alone)
    assert not list(Path("bench").rglob("recordings")), "nothing is left of them"
    slowest = max(row.seconds or 0 for row in alone)
    for row in together:  # also where the members were there already
        assert (row.seconds or 0) > slowest / 4


def test_long_work_says_every_minute_how_far_it_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    with caplog.at_level("INFO", "erd"):
        run("erd", "mcd", overrides=("run.runner=process", "pretrain.epochs=30"))
    assert re.search(r"after 0 min at the classifier of digits-near seed 0, epoch \d+ of 30", caplog.text)
    assert re.search(r"after .*digits-near seed 0 erd, epoch \d+ of 20", caplog.text), "members"
    assert re.search(r"after .*digits-near seed 0 mcd, epoch \d+ of 20", caplog.text), "and other nets"
    assert not [*here.rglob(".*.progress.json")]


def test_processes_share_members() -> None:
    names = ("erd", "erd-last", "vanilla", "vanilla-disagreement")
    both = run(*names, overrides=("run.runner=process", "run.workers=2"))
    one = run(*names, root=Path("other"))
    assert timeless(one) == timeless(both)


def test_what_changed_is_done_again(enter: Callable[..., None]) -> None:
    fits: list[str] = []

    def fit(given: Given) -> Detector:
        fits.append(given.method.name)
        return Detector(brightness)

    def refitted(*names: str, **more: Any) -> list[str]:
        fits.clear()
        run(*names, **more)
        return sorted(fits)

    enter("one", fit)
    enter("two", fit, "train")
    both = ["one", "two"]
    assert refitted(*both) == both
    assert refitted(*both, overrides=("run.workers=1",)) == [], "how many processes changes nothing"
    assert refitted(*both, seeds=2) == both, "the new seed alone"
    assert refitted(*both, overrides=("finetune.epochs=3",)) == both, "a method may look at the settings"
    assert refitted(*both, overrides=("data.batch_novel=90",)) == both, "other images"
    record = Path("bench/digits-near/seed0/results/one.json")
    record.unlink()
    assert refitted(*both, overrides=("data.batch_novel=90",)) == ["one"]
    record.write_text(record.read_text()[:50])
    assert refitted(*both, overrides=("data.batch_novel=90",)) == ["one"], "half a record is none"
    enter("two", fit, "train", "val")
    assert refitted(*both, overrides=("data.batch_novel=90",)) == ["two"], "its record is another one"


def test_two_benches_in_one_folder_do_not_meet(enter: Callable[..., None]) -> None:
    def fit(given: Given) -> Detector:
        with pytest.raises(RunError, match="another bench is working in bench/digits-near/seed0"):
            run("outer")
        run("inner", root=Path("elsewhere"))
        return Detector(brightness)

    enter("outer", fit)
    enter("inner", lambda given: Detector(brightness))
    assert run("outer")[0].error is None


def test_a_scenario_without_data_fails_alone(enter: Callable[..., None]) -> None:
    enter("any", lambda given: Detector(brightness))
    good, bad = done(plan.of(["digits-near", "cifar100-near"], ["any"], 1, Asked(overrides=FAST)))
    assert good.error is None
    assert "cifar100 was not found" in (bad.error or "")
    code, out, err = erd("bench", "--scenario", "cifar100-near", "--method", "any")
    assert (code, out) == (2, ""), "with nothing to do at all it is one sentence"
    assert err.splitlines()[-1].startswith("erd: cifar100 was not found")


def test_what_looks_at_anothers_members_begins_after_all_that_train(caplog: pytest.LogCaptureFixture) -> None:
    names = ("erd-avg", "erd", "binary", "vanilla", "vanilla-disagreement", "erd-avg-ema")
    with caplog.at_level("INFO", "erd"):
        run(*names, overrides=("finetune.epochs=2", "pretrain.epochs=2"))
    order = re.findall(r"\d of 6: digits-near seed 0 ([\w-]+)", caplog.text)
    assert set(order) == set(names)
    assert set(order[-2:]) == {"erd", "vanilla-disagreement"}


def test_slow_cells_begin_first(enter: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def fit(given: Given) -> Detector:
        begun.append(given.method.name)
        return Detector(brightness)

    for name in ("a", "b", "c"):
        enter(name, fit)
    clock = itertools.accumulate([1, 3, 2])  # what a, b and c take, and nothing else
    ticks = iter(np.repeat([0, *clock], 2)[1:].tolist() + [6] * 99)
    with monkeypatch.context() as timed:
        timed.setattr(cells.time, "perf_counter", lambda: next(ticks))
        run("a", "b", "c")
    begun.clear()
    run("a", "b", "c", seeds=2, overrides=("finetune.epochs=2",))
    assert [name for name in begun if name] == ["b", "b", "c", "c", "a", "a"]
