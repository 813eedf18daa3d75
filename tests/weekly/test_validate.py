"""What experts said is learned only if that makes the classifier no worse; else it waits, and people are told."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import weeks_of_digits
from chains import do
from test_encode import fill, own, picture
from weeks_of_digits import Digits, finish, week

from erd.base import files
from erd.data import library
from erd.reporting import report
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Ingested, Metrics
from erd.weekly import decide, incorporate

KNOWN = [f"digit {digit}" for digit in range(4)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Digits]:
    """A workspace after its first week."""
    workspace, digits = tmp_path_factory.mktemp("made"), Digits()
    with pytest.MonkeyPatch.context() as there:
        there.chdir(workspace)
        images, truth = digits.some({digit: 90 for digit in range(4)})
        library.save(weeks_of_digits.labelled(images, [f"digit {digit}" for digit in truth]))
        week(digits, "W1", {digit: 20 for digit in range(4)} | {6: 45})
    return workspace, digits


@pytest.fixture
def digits(made: tuple[Path, Digits], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Digits:
    """In a workspace of the test's own, with images that nobody has seen."""
    monkeypatch.chdir(shutil.copytree(made[0], tmp_path / "workspace"))
    fresh = Digits()
    fresh.rows = {digit: list(rows) for digit, rows in made[1].rows.items()}
    return fresh


def learn(digits: Digits, digit: int, count: int, label: str, batch: str = "W1") -> None:
    """As `erd incorporate` does it, with images of a digit that experts gave a name."""
    images, _ = digits.some({digit: count})
    library.save(library.read().joined(weeks_of_digits.labelled(images, [label] * count, batch)))


def learned(run: RunDir) -> ClassAccuracy:
    found = ClassAccuracy.read(run)
    assert found is not None
    return found


def test_a_class_that_is_recognised_is_learned_at_once(digits: Digits) -> None:
    learn(digits, 6, 45, "digit 6")
    run, _ = week(digits, "W2", {digit: 10 for digit in range(4)})
    assert Ingested.read(run).classes == [*KNOWN, "digit 6"]
    assert learned(run).refused == []
    assert "waits" not in run.report.read_text()


def test_a_class_that_hurts_a_known_one_waits_and_the_week_is_scored_without_it(digits: Digits) -> None:
    learn(digits, 0, 40, "viral")  # nobody can tell it from a zero
    run, _ = week(digits, "W2", {digit: 10 for digit in range(4)})
    assert Ingested.read(run).classes == KNOWN
    assert files.load_facts(run.pretrained)["classes"] == KNOWN, "the refused classifier is gone"
    assert "viral" not in set(pd.read_parquet(run.scores)["predicted"])
    [refused] = learned(run).refused
    assert (refused.what, refused.images, refused.needs, refused.reviews) == ("viral", 40, 80, ["W1"])
    assert not learned(run).worse, "without it all is as before"
    page = run.report.read_text()
    assert "<strong>viral waits: 40 images, needs about 80. Learned now it would make the classifier worse: " in page
    assert "digit 0 falls from " in page
    assert "<code>erd incorporate --batch W1 --undo</code>" in page
    assert any("“viral” waits: 40 images, needs about 80" in note for note in Metrics.read(run).warnings)


def test_the_same_run_again_tells_the_same_and_later_weeks_do_not_try_again_at_once(digits: Digits) -> None:
    learn(digits, 0, 45, "viral")
    run, _ = week(digits, "W2", {digit: 10 for digit in range(4)})
    first, trained = learned(run), run.pretrained.read_bytes()
    finish("W2")
    assert learned(run).refused == first.refused
    assert run.pretrained.read_bytes() == trained
    later, _ = week(digits, "W3", {digit: 10 for digit in range(4)})
    assert learned(later).refused == []
    assert Ingested.read(later).classes == KNOWN
    assert '<p class="note">“viral” waits: 45 images, needs about 90' in report.write(later).read_text()


def test_a_class_that_waits_is_tried_again_with_enough_images_or_with_another_net(digits: Digits) -> None:
    learn(digits, 6, 45, "digit 6")
    library.hold(library.PLACE, "mlp", library.Held({"digit 6": 90}, []))
    assert "digit 6" not in library.source(library.PLACE, 8, 30, "mlp").classes
    assert "digit 6" in library.source(library.PLACE, 8, 30, "resnet20").classes
    learn(digits, 6, 45, "digit 6", "W2")
    run, _ = week(digits, "W3", {digit: 10 for digit in range(4)})
    assert "digit 6" in Ingested.read(run).classes


def test_what_is_taken_back_is_forgotten_and_can_be_tried_anew(digits: Digits) -> None:
    learn(digits, 0, 45, "viral")
    week(digits, "W2", {digit: 10 for digit in range(4)})
    assert library.held(library.PLACE, "mlp").classes == {"viral": 90}
    incorporate.take_back(RunDir(Path("runs/W1")))
    assert library.held(library.PLACE, "mlp") == library.Held({}, [])
    assert "viral" not in set(library.read().table["label"])


def test_with_an_encoder_it_is_the_same_and_other_rules_need_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bricks", "grass", "sky"):
        fill(Path("labeled") / name, {name: 40}, 0)
    for number in (1, 2):
        fill(Path("inbox") / f"W{number}", {"bricks": 5, "grass": 5, "sky": 4, "zebra": 6}, 100 * number)
    library.take_in(Path("labeled"), None)
    once = own("W1")
    do(once, RunDir.of(once))
    bricks = library.Library(np.stack([np.asarray(picture("bricks", n)) for n in range(300, 340)]),
                             weeks_of_digits.labelled(np.zeros(0), ["viral"] * 40, "W1").table)  # fmt: skip
    library.save(library.read().joined(bricks))
    again = own("W2")
    run = RunDir.of(again)
    do(again, run)
    assert [one.what for one in learned(run).refused] == ["viral"]
    assert files.load_facts(run.features_of(run.labeled))["classes"] == ["bricks", "grass", "sky"]
    assert Ingested.read(run).classes == ["bricks", "grass", "sky"]
    scores, members = pd.read_parquet(run.scores), {path: path.read_bytes() for path in run.members.iterdir()}
    done = decide.decide(run, ["detect.rule=fpr", "detect.fpr=0.5"])
    now = pd.read_parquet(run.scores)
    assert done.now.verdict.flagged == now["flagged"].sum() > scores["flagged"].sum()
    assert now["score"].equals(scores["score"])
    assert {path: path.read_bytes() for path in run.members.iterdir()} == members


def test_answers_that_only_mix_up_known_classes_are_left_out_until_they_are_corrected(digits: Digits) -> None:
    images, truth = digits.some({0: 55, 1: 55})
    swapped = weeks_of_digits.labelled(images, [f"digit {1 - digit}" for digit in truth], "W1")
    library.save(library.read().joined(swapped))
    run, _ = week(digits, "W2", {digit: 10 for digit in (2, 3)})
    [refused] = learned(run).refused
    assert (refused.what, refused.images, refused.needs) == ("W1", 110, None)
    assert refused.fell is not None
    assert (refused.fell.before or 0) > 0.9, "judged by images labelled before: the wrong answers would say .6"
    assert not learned(run).worse
    assert len(files.load_table(RunDir.manifest(run.labeled))) == 360, "it has what it had before"
    assert "What was said about W1 made the classifier worse (digit" in run.report.read_text()
    assert "<code>erd incorporate --batch W1 --undo</code>" in run.report.read_text()
    library.release(library.PLACE, [], "W1")
    assert len(library.source(library.PLACE, 8, 30, "mlp").train) == 470


def test_right_answers_are_not_blamed_for_what_the_training_did(digits: Digits) -> None:
    for digit in range(4):
        learn(digits, digit, 3, f"digit {digit}", f"W1-{digit}")
    run, _ = week(digits, "W2", {digit: 10 for digit in range(4)}, "pretrain.epochs=3")
    found = learned(run)
    assert (found.accuracy or 1) < (found.accuracy_before or 0) - 0.05
    assert found.refused == []
    assert len(files.load_table(RunDir.manifest(run.labeled))) == 372, "they are learned"
    assert found.worse
    assert "and no review since explains it" in run.report.read_text()


def test_a_damaged_classifier_of_an_earlier_week_stops_no_run(digits: Digits, caplog: pytest.LogCaptureFixture) -> None:
    before = Path("runs/W1/pretrained.safetensors")
    before.write_bytes(before.read_bytes()[:100])
    learn(digits, 0, 3, "digit 0")
    run, _ = week(digits, "W2", {digit: 10 for digit in range(4)})
    assert learned(run).before is None
    assert "the classifier is not compared with that of W1: runs/W1/pretrained.safetensors" in caplog.text
