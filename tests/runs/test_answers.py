"""Answers outlive crashes, two writers at once and changes of mind; files from elsewhere change nothing twice."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import batches_to_review
import numpy as np
import pytest

from erd.base.errors import RunError, UserError
from erd.cli import main
from erd.review import exchange, queue
from erd.runs.answers import Answer, Answers, agreed, audit_rows, now, tidy


def said(image: str, label: str | None = "cat", reviewer: str = "Ada", list: str = "flagged", kind: str = "") -> Answer:
    return Answer(image, kind or ("class" if label else "not-novel"), label, reviewer, list, now())


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    return Answers(tmp_path / "review" / "answers.jsonl")


def test_the_last_answer_of_each_reviewer_counts(answers: Answers) -> None:
    assert answers.current() == []
    given = [said("1"), said("1", "dog", "Ben"), said("2", None), said("1", "dog"), said("1", "cat", list="audit")]
    for answer in given:
        answers.add(answer)
    assert answers.current() == given[1:]
    assert Answers(answers.path).current() == given[1:]


def test_undo_takes_back_ones_own_last_answer_and_what_was_said_before_stands_again(answers: Answers) -> None:
    given = [said("1"), said("2"), said("1", "dog"), said("3", reviewer="Ben"), said("2", "cow", list="audit")]
    for answer in given:
        answers.add(answer)
    assert answers.undo("Ada", "flagged") == (given[2],)
    assert answers.current() == [given[0], given[1], given[3], given[4]]
    assert answers.undo("Ada") == (given[4],)
    assert [answers.undo("Ada"), answers.undo("Ada"), answers.undo("Ada")] == [(given[1],), (given[0],), ()]
    assert answers.current() == [given[3]]


def test_an_answer_to_a_whole_group_is_taken_back_as_one(answers: Answers) -> None:
    before, at = said("2", "dog"), now()
    group = [replace(said(image, "cow"), at=at) for image in "123"]
    answers.add(before)
    answers.add(*group)
    answers.add(*group)  # a page that was not told asks again
    assert answers.current() == group
    assert answers.path.read_text().count("\n") == 4
    assert answers.undo("Ada") == tuple(group)
    assert answers.current() == [before]
    assert answers.undo("Ada") == (before,)


def test_an_answer_that_a_page_sends_twice_is_one_answer(answers: Answers) -> None:
    answers.add(said("1"))
    answers.add(said("1"))
    answers.undo("Ada")
    assert answers.current() == []


def test_a_torn_last_line_is_passed_over_and_cleared_away(answers: Answers) -> None:
    first, second = said("1"), said("2")
    answers.add(first)
    with answers.path.open("ab") as file:
        file.write(b'{"image": "caf\xc3')  # also in the middle of a letter
    assert answers.current() == [first]
    answers.add(second)
    assert answers.current() == [first, second]
    assert [json.loads(line)["image"] for line in answers.path.read_text().splitlines()] == ["1", "2"]


def test_a_broken_line_in_the_middle_is_named_and_nothing_is_overwritten(answers: Answers) -> None:
    answers.add(said("1"))
    content = answers.path.read_bytes() + b"oops\n"
    answers.path.write_bytes(content)
    with pytest.raises(RunError, match=r"line 2 of .*answers\.jsonl"):
        answers.add(said("2"))
    assert answers.path.read_bytes() == content


def test_processes_that_write_at_once_lose_nothing(answers: Answers) -> None:
    code = """
import sys
from pathlib import Path
from erd.runs.answers import Answer, Answers, now
for i in range(60):
    Answers(Path(sys.argv[1])).add(Answer(str(i), "class", "cat", sys.argv[2], "flagged", now()))
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(answers.path), name]) for name in ("Ada", "Ben")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sorted((a.reviewer, int(a.image)) for a in answers.current()) == [
        (name, i) for name in ("Ada", "Ben") for i in range(60)
    ]


def test_no_space_left_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "review").write_text("a file where the folder should be")
    with pytest.raises(RunError, match="cannot write"):
        Answers(tmp_path / "review" / "answers.jsonl").add(said("1"))


def test_what_is_no_answer_is_refused() -> None:
    for change in ({"kind": "maybe"}, {"list": "other"}, {"label": None}, {"label": "a\nb"}, {"reviewer": ""}):
        with pytest.raises(UserError):
            replace(said("1"), **change)
    with pytest.raises(UserError):
        said("1", "cat", kind="bad")
    assert tidy("  a\n\tb\u200b  c ") == "a b c"


def test_agreement_is_what_all_reviewers_of_an_image_say() -> None:
    given = [
        said("both"), said("both", reviewer="Ben"),
        said("split"), said("split", "dog", "Ben"),
        said("one", None),
        said("kinds", None), said("kinds", None, "Ben", kind="bad"),
        said("later", "dog", list="audit"), said("later"), said("later", reviewer="Ben"),
    ]  # fmt: skip
    one, disputed = agreed(given)
    assert {image: answer.said for image, answer in one.items()} == {
        "both": ("class", "cat"), "one": ("not-novel", None), "later": ("class", "cat"),
    }  # fmt: skip
    assert disputed == ["split", "kinds"]
    assert agreed([]) == ({}, [])


def test_the_audit_is_a_fixed_uniform_sample_of_each_batch() -> None:
    rows = audit_rows(1000, 30, 0, "2026-W46")
    assert len(set(rows.tolist())) == 30
    assert (
        rows.tolist()
        == audit_rows(1000, 30, 0, "2026-W46").tolist()
        == audit_rows(1000, 60, 0, "2026-W46")[:30].tolist()
    )
    assert rows.tolist() != audit_rows(1000, 30, 1, "2026-W46").tolist()
    assert rows.tolist() != audit_rows(1000, 30, 0, "2026-W47").tolist()
    assert sorted(audit_rows(5, 30, 0, "few")) == [0, 1, 2, 3, 4]
    counts = np.bincount(np.concatenate([audit_rows(10, 2, seed, "b") for seed in range(2000)]))
    assert (abs(counts - 400) < 100).all()


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_answers_go_out_and_in_again_by_the_command_line(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch,
                                                         capsys: pytest.CaptureFixture) -> None:  # fmt: skip
    run = batches_to_review.make(tmp_path / "a")
    there = queue.load(run)
    first, last = (there.items("flagged", place, 1)[0]["id"] for place in (0, 50))
    audited = there.items("audit", 0, 1)[0]["id"]
    given = [said(first, 'a "new", class'), said(first, None, "Bén"), said(last)]
    for answer in [*given, said(audited, None, kind="bad", list="audit")]:
        there.answers.add(answer)
    monkeypatch.chdir(tmp_path / "a")
    assert main(["review", "--batch", run.batch_name, "--export", f"../out.{ending}"]) == 0
    other = queue.load(batches_to_review.make(tmp_path / "b"))
    monkeypatch.chdir(tmp_path / "b")
    for expected in (4, 0):
        assert main(["review", "--batch", run.batch_name, "--import", f"../out.{ending}", "--json"]) == 0
        counts = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (counts["added"], counts["there"], counts["unknown"]) == (expected, 4 - expected, 0)
        assert set(other.answers.current()) == set(there.answers.current())
    other.answers.undo("Ada")
    assert main(["review", "--batch", run.batch_name, "--import", f"../out.{ending}"]) == 0
    assert len(other.answers.current()) == 3, "what was taken back since stays so"


def test_annotations_of_label_studio_are_taken_in(tmp_path: Path) -> None:
    there = queue.load(batches_to_review.make(tmp_path))
    tasks = exchange.to_label_studio(there, "http://127.0.0.1:8600")
    assert len(tasks) == 20 + 12
    assert tasks[0]["data"]["image"] == f"http://127.0.0.1:8600/image/{there.lists['flagged'][0]}/large.png"
    assert tasks[0]["predictions"][0]["score"] == pytest.approx(there.table["score"].max())
    assert tasks[-1]["data"]["list"] == "audit"
    assert tasks[-1]["predictions"] == [], "a score would lead the eye"

    def annotate(number: int, choice: str, **facts: object) -> None:
        result = [{"type": "choices", "from_name": "x", "to_name": "y", "value": {"choices": [choice]}}]
        tasks[number]["annotations"].append({"result": result, "created_at": "2026-11-16T10:00:00.5Z"} | facts)

    annotate(0, "digit 3", completed_by={"id": 4, "email": "ada@example.org"})
    annotate(1, "not novel", completed_by=7)
    annotate(2, "bad image", completed_by=7, was_cancelled=True)
    annotate(-1, "walrus", completed_by=7)
    tasks[3]["data"]["id"] = "nowhere"
    annotate(3, "cat", completed_by=7)
    tasks[4]["data"]["batch"] = "2026-W45"  # where another image had the same name
    annotate(4, "cat", completed_by=7)
    counts = exchange.take_in(json.dumps(tasks).encode(), ".json", there)
    assert counts == {"added": 3, "there": 0, "unknown": 2}
    found = {(a.image, a.said, a.reviewer, a.list) for a in there.answers.current()}
    ids = [task["data"]["id"] for task in tasks]
    assert found == {
        (ids[0], ("class", "digit 3"), "ada@example.org", "flagged"),
        (ids[1], ("not-novel", None), "user 7", "flagged"),
        (ids[-1], ("class", "walrus"), "user 7", "audit"),
    }


@pytest.mark.parametrize(
    ("content", "ending", "words"),
    [
        (b"image,label\n1,cat\n", ".csv", "no column kind, reviewer, list, at"),
        (b"image,kind,label,reviewer,list,at\n1,class,,Ada,flagged,\n", ".csv", "line 2: an answer names a class"),
        (b"image,kind,label,reviewer,list,at\n1,bad,,Ada,flagged,noon\n", ".csv", "line 2: 'noon' is no time"),
        (b"\xff\xfe", ".csv", "no CSV"),
        (b"{", ".json", "no JSON"),
        (b'[{"choice": "cat"}]', ".json", "JSON-MIN"),
        (b'[{"data": {}, "annotations": [{"result": [{"type": "choices"}]}]}]', ".json", "task 1"),
        (b"", ".xlsx", "ends in .csv"),
    ],
)
def test_a_file_that_cannot_be_taken_in_is_refused_whole(
    tmp_path: Path, content: bytes, ending: str, words: str
) -> None:
    there = queue.load(batches_to_review.make(tmp_path))
    with pytest.raises(UserError, match=words):
        exchange.take_in(content, ending, there)
    assert there.answers.current() == []


def test_a_batch_that_is_not_there_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["review", "--batch", "nowhere"]) == 2
    assert "runs/nowhere/settings.json is missing" in capsys.readouterr().err
    assert main(["review", "--batch", "../../etc"]) == 2
    assert "data.batch" in capsys.readouterr().err
