"""A reviewed batch stays as it was judged; other rules are applied to the scores that are there."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import weeks_of_digits
from weeks_of_digits import Digits, answer, finish, week

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.cli import main
from erd.data import library
from erd.reporting import history
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.weekly import decide, incorporate, sealed

WEEK = "2026-W45"
KNOWN = {digit: 80 for digit in range(4)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a reviewed week: experts have named its sixes."""
    workspace = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as there:
        there.chdir(workspace)
        digits = Digits()
        images, truth = digits.some(KNOWN)
        library.save(weeks_of_digits.labelled(images, [f"digit {digit}" for digit in truth]))
        run, said = week(digits, WEEK, {digit: 15 for digit in range(4)} | {6: 40})
        answer(run, {image: label for image, label in said.items() if label == "digit 6"})
        answer(run, dict(list(said.items())[::3]), on="audit")
    return workspace


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """In a workspace of the test's own."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "workspace"))
    return RunDir(Path("runs") / WEEK)


def content(run: RunDir) -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in sorted(run.root.rglob("*")) if path.is_file()}


def changed(run: RunDir, before: dict[str, bytes]) -> list[str]:
    now = content(run)
    return [name for name in sorted({*now, *before}) if now.get(name) != before.get(name)]


def test_a_reviewed_week_is_not_run_again_and_the_sentence_says_what_to_do(run: RunDir) -> None:
    before = content(run)
    with pytest.raises(UserError, match=rf"{WEEK} has been reviewed.*`erd decide --batch {WEEK} .*--replace` begins"):
        finish(WEEK, "detect.fdr=0.2")
    assert not changed(run, before)


@pytest.mark.parametrize("command", [["run"], ["stage", "pretrain"]])
def test_the_commands_say_so_in_one_sentence(command: list[str], run: RunDir, capsys: pytest.CaptureFixture) -> None:
    before = content(run)
    more = [part for text in weeks_of_digits.FAST for part in ("--set", text)]
    assert main([*command, "--scenario", "own", "--batch", WEEK, "--inbox", f"inbox/{WEEK}.npz", *more]) == 2
    assert capsys.readouterr().err.startswith(f"erd: {WEEK} has been reviewed")
    assert not changed(run, before)


def test_a_week_whose_answers_were_learned_cannot_be_replaced_before_they_are_taken_out(run: RunDir) -> None:
    chosen = configure.read(run)
    sealed.check(chosen, run, replaced=True)
    incorporate.incorporate(run)
    with pytest.raises(UserError, match=f"would learn its own answers.*`erd incorporate --batch {WEEK} --undo`"):
        sealed.check(chosen, run, replaced=True)
    incorporate.take_back(run)
    sealed.check(chosen, run, replaced=True)
    run.move_away()
    finish(WEEK)


def test_undo_restores_the_history_to_what_it_was_before_anything_was_learned(run: RunDir) -> None:
    page, rows = history.write().read_bytes(), history.weeks()
    assert main(["incorporate", "--batch", WEEK]) == 0
    with pytest.raises(UserError):
        finish(WEEK)
    assert history.weeks() == rows, "what was learned later does not change what was judged then"
    assert main(["incorporate", "--batch", WEEK, "--undo"]) == 0
    assert history.weeks() == rows
    assert Path("runs/history.html").read_bytes() == page


def test_other_rules_are_applied_without_training_and_can_be_taken_back(
    run: RunDir, capsys: pytest.CaptureFixture
) -> None:
    before, scores = content(run), pd.read_parquet(run.scores)
    assert main(["decide", "--batch", WEEK, "--set", "detect.rule=fpr", "--set", "detect.fpr=0.3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    now = pd.read_parquet(run.scores)
    assert said["flagged"] == now["flagged"].sum() > said["flagged_before"] == scores["flagged"].sum()
    assert now["score"].equals(scores["score"])
    trained = [name for name in before if "members/" in name or "pretrained" in name]
    assert trained
    assert all(content(run)[name] == before[name] for name in trained)
    assert f"{now['flagged'].sum()} of 100 images" in run.report.read_text()
    assert configure.read(run).detect.fpr == 0.3
    assert history.weeks()[0]["scored"] == json.loads(before[run.record("score").as_posix()])["finished"]

    assert main(["decide", "--batch", WEEK, "--set", "detect.rule=fdr", "--set", "detect.fpr=0.05"]) == 0
    assert "back     erd decide --batch 2026-W45 --set detect.rule=fpr --set detect.fpr=0.3" in capsys.readouterr().out

    assert pd.read_parquet(run.scores).equals(scores)


def test_what_takes_a_training_is_no_rule(run: RunDir, capsys: pytest.CaptureFixture) -> None:
    before = content(run)
    assert main(["decide", "--batch", WEEK, "--set", "finetune.epochs=9"]) == 2
    assert "finetune.epochs takes a new run; without one these can be changed: detect.rule" in capsys.readouterr().err
    assert main(["decide", "--batch", WEEK]) == 2
    assert "which rules?" in capsys.readouterr().err
    assert main(["decide", "--batch", "2026-W99", "--set", "detect.fdr=0.2"]) == 2
    assert "holds no scored batch" in capsys.readouterr().err
    assert not changed(run, before)


def test_scores_that_would_be_others_are_left_as_they_are(run: RunDir) -> None:
    scores = pd.read_parquet(run.scores)
    scores["score"] += 0.01  # as by another version
    files.save_table(run.scores, scores)
    before = content(run)
    with pytest.raises(RunError, match="was scored by another version of erd"):
        decide.decide(run, ["detect.fdr=0.3"])
    assert not changed(run, before)
