"""The stage finetune with heads on features: members and folds at once, in one job, and the bytes of any other way."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from chains import do
from test_encode import fill, own
from test_stages import watching

from erd.data import library
from erd.runs.folder import RunDir
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training import together
from erd.weekly import chain
from erd.weekly.stages import finetune
from erd.weekly.stages.finetune import STAGE, member_labels

CHOSEN = ("finetune.members=3", "detect.folds=3")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A week with another one before it, up to its classifier."""
    place = tmp_path_factory.mktemp("weeks")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        for name in ("bricks", "grass", "sky"):
            fill(place / "labeled" / name, {name: 25}, 0)
        library.take_in(Path("labeled"), None)
        for week in (1, 2):
            fill(place / "inbox" / f"W{week}", {"bricks": 5, "grass": 5, "sky": 4, "zebra": 6}, 100 * week)
            do(own(f"W{week}"), RunDir.of(own(f"W{week}")), "ingest", "encode", "pretrain")
    return RunDir(place / "runs" / "W2")


@pytest.fixture
def week(prepared: RunDir, tmp_path: Path) -> Callable[..., tuple[Settings, RunDir]]:
    """A copy of it, in which nothing is fine-tuned, and the settings."""

    def copied(name: str, *more: str) -> tuple[Settings, RunDir]:
        return own("W2", *CHOSEN, *more), RunDir(shutil.copytree(prepared.root, tmp_path / name))

    return copied


Week = Callable[..., tuple[Settings, RunDir]]


def members(run: RunDir) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in run.members.glob("[0-9]*")}
    assert found
    return found


def test_it_is_one_job_that_is_done_in_this_process(week: Week, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, run = week("run", "run.runner=process", "detect.calibration=crossfit")
    assert (run.older.exists(), len(member_labels(settings, run))) == (True, 3)
    jobs = STAGE.jobs(settings, run)
    assert not chain.elsewhere(STAGE, jobs)
    assert [job.arguments[2] for job in jobs] == [member_labels(settings, run)]
    monkeypatch.setattr(finetune, "A_JOB", 2 * 95 * 5 * 3)  # images, epochs, folds: two members take as long
    jobs = STAGE.jobs(settings, run)
    assert [len(job.arguments[2]) for job in jobs] == [2, 1]
    assert chain.elsewhere(STAGE, jobs), "they take long enough for processes of their own"


@pytest.mark.parametrize("calibration", ["crossfit", "mixed"])
def test_the_scores_are_those_of_members_that_are_trained_in_turn(
    week: Week, calibration: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, run = week("at-once", f"detect.calibration={calibration}")
    do(settings, run, "finetune", "score")
    _, other = week("in-turn")
    monkeypatch.setattr(finetune, "stacked", lambda settings: False)
    do(settings, other, "finetune", "score")
    assert sorted(members(run)) == sorted(members(other))
    ours, theirs = (pd.read_parquet(one.scores) for one in (run, other))
    assert ours["disagreement"].tolist() == pytest.approx(theirs["disagreement"].tolist(), abs=1e-6)
    assert ours["flagged"].tolist() == theirs["flagged"].tolist()


def test_members_have_the_same_bytes_all_at_once_and_each_alone_and_in_processes(
    week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, run = week("at-once")
    do(settings, run, "finetune")
    _, alone = week("alone")
    for number, label in enumerate(member_labels(settings, run)):
        finetune.finetune(settings, alone, [label], number)
    assert members(alone) == members(run)
    monkeypatch.setattr(finetune, "A_JOB", 1)
    settings, apart = week("apart", "run.runner=process", "run.workers=2")
    assert chain.elsewhere(STAGE, STAGE.jobs(settings, apart))
    do(settings, apart, "finetune")
    assert members(apart) == members(run)


def test_one_that_was_killed_begins_again_and_ends_in_the_same_bytes(
    week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, whole = week("whole")
    do(settings, whole, "finetune")
    _, run = week("killed")

    class KilledError(Exception):
        pass

    def kill(path: Path, *more: object) -> None:
        raise KilledError

    with monkeypatch.context() as here:
        here.setattr(together, "keep", kill)  # in its first epoch
        with pytest.raises(KilledError):
            do(settings, run, "finetune")
    label = member_labels(settings, run)[0]
    with monkeypatch.context() as here:  # when one member is written
        saved = finetune.save_net
        here.setattr(
            finetune, "save_net", lambda path, *more: (saved if path == run.member(label) else kill)(path, *more)
        )
        with pytest.raises(KilledError):
            do(settings, run, "finetune")
    assert [path.name for path in run.members.glob("[0-9]*.safetensors")] == [f"{label}.safetensors"]
    do(settings, run, "finetune")
    assert members(run) == members(whole)


def test_only_what_is_missing_is_made_again(week: Week) -> None:
    settings, run = week("run")

    def again() -> list[Done]:
        return do(settings, run, "finetune")

    assert [one.reused for one in again()] == [False]
    assert [one.reused for one in again()] == [True]
    before, label = members(run), member_labels(settings, run)[1]
    written = {path: path.stat().st_mtime_ns for path in run.members.glob("[0-9]*")}
    run.member(label).unlink()
    assert [one.reused for one in again()] == [False]
    assert members(run) == before
    kept = [path for path, when in written.items() if path.stat().st_mtime_ns == when]
    assert len(kept) == 4, "weights and history of the two others"


def test_the_epochs_of_all_members_and_folds_are_told(week: Week) -> None:
    settings, run = week("run", "detect.calibration=crossfit")
    (job,) = STAGE.jobs(settings, run)
    assert job.epochs == 3 * 3 * (settings.finetune.epochs or 0)
    assert job.told is not None
    with watching(job.told) as seen:
        job.function(*job.arguments)
    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert seen[-1] == (job.epochs, job.epochs)
