"""Files are whole or not there, the same bytes every time; and one run at a time works in a folder."""

import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import torch

from erd.base import files
from erd.base.errors import RunError
from erd.base.locks import alone_in

TENSORS = {name: torch.arange(12.0).reshape(3, 4) + i for i, name in enumerate("wxyzab")}
FACTS = {"classes": ["cat", "dög"], "epoch": 3, "nested": {"b": 1, "a": [1.5, None]}}
SAVERS: dict[str, Callable[[Path], None]] = {
    "json": lambda path: files.save_json(path, FACTS),
    "table": lambda path: files.save_table(path, pd.DataFrame({"id": ["a", "b"], "score": [0.5, 1.0]})),
    "tensors": lambda path: files.save_tensors(path, TENSORS, FACTS),
}
EVERY = pytest.mark.parametrize("save", SAVERS.values(), ids=SAVERS)


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


def _write_and_fail(draft: Path, failure: type[BaseException]) -> None:
    draft.write_text("half")
    raise failure


@pytest.mark.parametrize("failure", [ValueError, Interrupted])
def test_a_failure_while_writing_keeps_the_former_file_and_leaves_nothing_behind(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    path = tmp_path / "result.json"
    files.save_json(path, ["former"])
    with pytest.raises(failure), files.replacing(path) as draft:
        _write_and_fail(draft, failure)
    assert files.load_json(path, list) == ["former"]
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_stands_at_its_place_before_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "result.txt"
    with files.replacing(path) as draft:
        draft.write_text("half")
        assert not path.exists()
        draft.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


@EVERY
def test_a_place_that_cannot_be_written_to_is_one_sentence(save: Callable[[Path], None], tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("mine")
    for path in (in_the_way / "result", in_the_way / "deeper" / "result"):
        with pytest.raises(RunError, match=rf"^cannot write {re.escape(str(path))}: [^\n]+; check space and rights$"):
            save(path)
    assert in_the_way.read_text() == "mine"


@EVERY
def test_a_folder_in_the_place_of_a_file_is_one_sentence(save: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.mkdir()
    with pytest.raises(RunError, match=r"^cannot write [^\n]*result: is a directory; check space and rights$"):
        save(path)
    assert list(tmp_path.iterdir()) == [path]


@contextmanager
def full_disk(limit: int = 1 << 20) -> Iterator[None]:
    """No file can grow beyond `limit` bytes: the nearest thing to a full disk that needs no other disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


NUMBERS = torch.rand(500_000, generator=torch.Generator().manual_seed(0))
LARGE: dict[str, Callable[[Path], None]] = {
    "json": lambda path: files.save_json(path, NUMBERS.tolist()),
    "table": lambda path: files.save_table(path, pd.DataFrame({"number": NUMBERS.numpy()})),
    "tensors": lambda path: files.save_tensors(path, {"numbers": NUMBERS}, {}),
}


@pytest.mark.parametrize("save", LARGE.values(), ids=LARGE)
def test_a_full_disk_is_one_sentence_and_keeps_the_former_file(save: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("former")
    with full_disk(), pytest.raises(RunError, match=r"(?i)^cannot write [^\n]*result: [^\n]*file too large[^\n]*$"):
        save(path)
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_another_kind_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no image"), files.replacing(tmp_path / "x"):
        raise OSError("no image")  # as Pillow does


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    for name, save in SAVERS.items():
        save(tmp_path / name)
    tensors, facts = files.load_tensors(tmp_path / "tensors")
    assert facts == files.load_facts(tmp_path / "tensors") == FACTS
    assert set(tensors) == set(TENSORS)
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert files.load_json(tmp_path / "json") == FACTS
    assert "dög" in (tmp_path / "json").read_text(encoding="utf-8")
    assert pd.read_parquet(tmp_path / "table").to_dict("list") == {"id": ["a", "b"], "score": [0.5, 1.0]}


def test_a_view_with_gaps_and_with_gradient_is_saved_as_it_looks(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3).requires_grad_()
    files.save_tensors(tmp_path / "a", {"weight": weight.t()}, {})
    assert torch.equal(files.load_tensors(tmp_path / "a")[0]["weight"], weight.detach().t())


WRITE = """
import os, sys; os.umask(int(sys.argv[2], 8))
from pathlib import Path
from tests_of_files import SAVERS
for name, save in SAVERS.items(): save(Path(sys.argv[1]) / name)
"""


def test_the_same_content_is_the_same_bytes_in_every_process_with_rights_as_the_umask_says(tmp_path: Path) -> None:
    SAVERS["tensors"](tmp_path / "here")
    expected = (tmp_path / "here").read_bytes()
    for _ in range(20):
        SAVERS["tensors"](tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == expected
    script = WRITE.replace("tests_of_files", Path(__file__).stem)
    written = {}
    for seed, umask, mode in (("1", "022", 0o644), ("77", "007", 0o660)):
        folder = tmp_path / seed
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
        subprocess.run([sys.executable, "-c", script, folder, umask], env=environment, check=True)
        written[seed] = {name: (folder / name).read_bytes() for name in SAVERS}
        assert {stat.S_IMODE((folder / name).stat().st_mode) for name in SAVERS} == {mode}
    assert written["1"] == written["77"]
    assert written["1"]["tensors"] == expected


def test_a_missing_file_says_which_one_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^[^\n]*gone\.safetensors is missing; run the stage that writes it first$"):
        files.load_tensors(tmp_path / "gone.safetensors")


@pytest.mark.parametrize("damage", ["emptied", "cut short", "garbled", "header", "folder"])
def test_a_damaged_file_is_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    SAVERS["tensors"](path)
    whole = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(
            {
                "emptied": b"",
                "cut short": whole[:-5],
                "garbled": b"\x7fELF" * 100,
                "header": whole.replace(b'\\"epoch\\":', b'\\"epoch\\";'),
            }[damage]
        )
        assert path.read_bytes() != whole
    with pytest.raises(RunError, match=r"^[^\n]*damaged cannot be read \([^\n]+\); delete it and run again$"):
        files.load_tensors(path)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"flagged": [True, False]}, "it has no column score"),
        ({"score": ["a", "b"]}, "its column score is no number in all rows"),
        ({"score": [0.5, None]}, "its column score is no number in all rows"),
    ],
)
def test_a_table_without_what_is_needed_is_one_sentence(column: dict, said: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    pd.DataFrame(column).to_parquet(path)
    with pytest.raises(RunError, match=rf"^[^\n]*scores\.parquet cannot be read \({said}\); delete it and run again$"):
        files.load_table(path, {"score": float})


@pytest.mark.parametrize("text", ["[]", "3", "null", '"x"', '{"a": "\\ud800"}', "9" * 5000, "[" * 100_000, "{"])
def test_json_of_another_shape_is_one_sentence_or_passed_over(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RunError, match=r"^[^\n]*record\.json cannot be read \([^\n]+\); delete it and run again$"):
        files.load_json(path)
    assert files.load_json_if_whole(path) is None
    assert "record.json is passed over" in caplog.text
    assert files.load_json_if_whole(tmp_path / "gone.json") is None
    assert "gone.json" not in caplog.text


def test_a_hash_of_settings_knows_their_meaning_not_their_order() -> None:
    assert files.digest({"a": 1, "b": [1, 2]}) == files.digest({"b": [1, 2], "a": 1})
    different = [{"a": 1}, {"a": 2}, {"a": "1"}, {"b": 1}, [1], None]
    assert len({files.digest(value) for value in different}) == len(different)


def test_the_hash_of_a_file_is_the_one_sha256sum_prints(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert files.sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


HOLD = """
import sys; from pathlib import Path; from erd.base.locks import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_run(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds `folder` until the block ends."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_run_in_the_same_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "week"
    with another_run(folder):
        with pytest.raises(RunError, match=r"^another run is working in [^\n]*week; wait for it, [^\n]*--batch$"):
            alone_in(folder).__enter__()
        assert folder.is_dir(), "the refused run took the other one's folder away"
        with alone_in(folder.with_name("other")):
            pass
    with alone_in(folder):
        assert folder.is_dir()


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    with another_run(tmp_path / "week") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with alone_in(tmp_path / "week"):
        assert (tmp_path / "week").is_dir()


def test_a_killed_writers_half_file_goes_and_a_living_ones_stays(tmp_path: Path) -> None:
    folder = tmp_path / "week"
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    dead, living = (folder / "members" / f".3.safetensors.{pid}.part" for pid in (gone.pid, os.getpid()))
    for draft in (dead, living):
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(b"half")
    with alone_in(folder):
        assert not dead.exists()
        dead.write_bytes(b"half")  # by a worker that was killed while this run went on
    assert not dead.exists()
    assert living.exists()


def test_a_folder_nothing_was_written_to_goes_away_again(tmp_path: Path) -> None:
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    with pytest.raises(ValueError, match="wrong setting"), alone_in(tmp_path / "runs" / "week"):
        raise ValueError("wrong setting")
    assert list(tmp_path.iterdir()) == [neighbour]


def test_a_folder_with_something_in_it_stays(tmp_path: Path) -> None:
    with alone_in(tmp_path / "runs" / "week"):
        files.save_json(tmp_path / "runs" / "week" / "metrics.json", {})
    with alone_in(tmp_path / "runs" / "empty"):
        pass
    assert json.loads((tmp_path / "runs" / "week" / "metrics.json").read_text()) == {}
    assert not (tmp_path / "runs" / "empty").exists()


def test_a_run_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match=r"^cannot write to [^\n]*week: not a directory; check path and rights$"),
        alone_in(tmp_path / "file" / "week"),
    ):
        raise AssertionError("must not run")
