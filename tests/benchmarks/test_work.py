"""benchmarks/work.py: no more work is done than in the baseline, and what does more is found and said."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import counting
import numpy as np
import pytest
import torch
import work
from PIL import JpegImagePlugin

from erd.base import files
from erd.data import collect, reading
from erd.data.feature_store import Store
from erd.nets.encoders import Encoder
from erd.nets.heads import Stack
from erd.statistics import candidates, disagreement, neighbours, scan
from erd.training import loop, step
from erd.training.batches import Mixture
from erd.weekly.stages import score

Works = dict[str, Callable[[], object]]
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def elsewhere() -> Iterator["subprocess.Popen[str]"]:
    """The command in another process, with all cores and two threads of torch's."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "5"}
    environment |= {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, work.__file__, "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def works(elsewhere: object, tmp_path_factory: pytest.TempPathFactory) -> Works:
    """`elsewhere` is under way meanwhile."""
    return work.prepared(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def counts(works: Works) -> work.Counts:
    """With one thread (tests/conftest.py), as if there were one core."""
    with mock.patch("os.sched_getaffinity", return_value={0}, create=True):
        return {name: work.count(job) for name, job in works.items()}


def test_no_more_work_is_done_than_in_the_baseline(counts: work.Counts) -> None:
    report = work.compared(counts, files.load_json(work.BASELINE))
    assert (report["worse"], report["new"]) == ([], []), work.said(report)


def test_counts_are_the_same_in_another_process_and_with_other_cores(
    counts: work.Counts, elsewhere: "subprocess.Popen[str]"
) -> None:
    output, _ = elsewhere.communicate()
    assert json.loads(output.splitlines()[-1])["counts"] == counts


# Each path is made to do more -----------------------------------------------------------------------------------------


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    def doubled(*arguments: Any, **named: Any) -> Any:
        function(*arguments, **named)
        return function(*arguments, **named)

    return doubled


def doubled(patch: Patch, owner: Any, name: str) -> None:
    patch.setattr(owner, name, twice(getattr(owner, name)))


def files_decoded_twice(patch: Patch) -> None:
    doubled(patch, reading, "decode")


def jpegs_decoded_whole(patch: Patch) -> None:
    patch.setattr(JpegImagePlugin.JpegImageFile, "draft", lambda *_: None)


def images_copied(patch: Patch) -> None:
    pack = collect.pack
    patch.setattr(collect, "pack", lambda path, images, *more, **named: pack(path, copied(images), *more, **named))


def copied(images: Any) -> Any:
    return images.take(np.arange(len(images)))


def encoded_again(patch: Patch) -> None:
    """As if nothing had been kept."""
    patch.setattr(Store, "missing", lambda store, hashes: np.sort(np.unique(hashes, return_index=True)[1]))


def chunks_half_full(patch: Patch) -> None:
    features = Encoder.features
    patch.setattr(Encoder, "features", lambda net, images: torch.cat([features(net, few) for few in images.split(8)]))


def steps_done_twice(patch: Patch) -> None:
    make = step.of
    patch.setattr(step, "of", lambda *arguments, **named: twice(make(*arguments, **named)))


def heads_step_twice(patch: Patch) -> None:
    doubled(patch, Stack, "gradients")


def validated_twice(patch: Patch) -> None:
    doubled(patch, loop, "evaluate")


def gathered_bit_by_bit(patch: Patch) -> None:
    take = Mixture.take
    patch.setattr(Mixture, "take", lambda mixture, rows: torch.cat([take(mixture, few) for few in rows.split(32)]))


def predicted_twice(patch: Patch) -> None:
    doubled(patch, score, "predict")


def compared_in_double_precision(patch: Patch) -> None:
    form = disagreement.total_variation
    patch.setattr(disagreement, "total_variation", lambda softmax: form(softmax.double()).float())


def scored_bit_by_bit(patch: Patch) -> None:
    patch.setattr(disagreement, "CHUNK", 1 << 12)


def nothing_remembered(patch: Patch) -> None:
    """Of what a stage keeps while it works."""
    patch.setattr(functools, "cache", lambda function: function)


def alarm_tested_twice(patch: Patch) -> None:
    doubled(patch, scan, "group_test")


def candidates_grown_twice(patch: Patch) -> None:
    doubled(patch, candidates, "grown")


def neighbours_bit_by_bit(patch: Patch) -> None:
    patch.setattr(neighbours, "ROWS", 8)


@pytest.mark.parametrize(
    ("path", "more", "of"),
    [
        ("take in", files_decoded_twice, "pixels decoded"),
        ("take in", jpegs_decoded_whole, "pixels decoded"),
        ("take in", images_copied, "bytes of new memory"),
        ("encode", encoded_again, "floating-point operations"),
        ("encode", chunks_half_full, "floating-point operations"),
        ("train on features", heads_step_twice, "floating-point operations"),
        ("train on features", gathered_bit_by_bit, "lines of Python"),
        ("train on images", steps_done_twice, "floating-point operations"),
        ("train on images", validated_twice, "floating-point operations"),
        ("train on images", gathered_bit_by_bit, "operations of torch"),
        ("score", predicted_twice, "floating-point operations"),
        ("score", compared_in_double_precision, "bytes read and written"),
        ("score", scored_bit_by_bit, "operations of torch"),
        ("score", nothing_remembered, "floating-point operations"),
        ("groups", alarm_tested_twice, "floating-point operations"),
        ("groups", candidates_grown_twice, "floating-point operations"),
        ("groups", neighbours_bit_by_bit, "lines of Python"),
    ],
)
def test_a_path_that_is_made_to_do_more_is_found(
    path: str, more: Callable[[Patch], None], of: str, works: Works, counts: work.Counts, monkeypatch: Patch
) -> None:
    more(monkeypatch)
    report = work.compared({path: counting.counted(works[path])}, {"counts": counts})
    assert [line for line in report["worse"] if line.startswith(f"{path}: ") and of in line], report


# What is said ---------------------------------------------------------------------------------------------------------


def test_the_command_ends_with_1_and_a_sentence_if_more_is_done(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = torch.ones(10, 100)
    works = {"score": lambda: images + 1, "encode": lambda: images @ images.T}
    monkeypatch.setattr(work, "prepared", lambda place: works)
    monkeypatch.setattr(work, "BASELINE", tmp_path / "work.json")
    monkeypatch.setattr(work, "PATHS", dict.fromkeys(works, ""))
    assert work.main(["--keep"]) == 0
    assert "| score | 1 | 0 | 8,000 |" in capsys.readouterr().out
    assert work.main(["--check"]) == 0
    assert "No more work is done" in capsys.readouterr().out
    works["score"] = lambda: images + 1 + 1
    assert work.main(["--check", "--only", "encode"]) == 0
    assert work.main(["--check"]) == 1
    *_, said, report = capsys.readouterr().out.splitlines()
    assert said.startswith(
        "worse: score: 100.0% more bytes read and written by torch (8,000 in the baseline, 16,000 now"
    )
    assert json.loads(report)["worse"]
    assert work.main(["--keep", "--only", "score"]) == 0
    assert work.main(["--check"]) == 0


def of_lines(lines: int, **versions: str) -> dict[str, Any]:
    counts = {"score": dict.fromkeys(work.KINDS, 0) | {"lines": lines}}
    return {"versions": work.versions() | versions, "counts": counts}


@pytest.mark.parametrize(
    ("was", "now", "how", "words"),
    [
        (1000, 1030, None, ""),
        (1000, 1031, "worse", "score: 3.1% more lines of Python (1,000 in the baseline, 1,031 now; 3% is allowed)"),
        (0, 1, "worse", "score: there are lines of Python (0 in the baseline, 1 now; 3% is allowed)"),
        (1000, 970, None, ""),
        (1000, 500, "better", "score: 50.0% fewer lines of Python (1,000 in the baseline, 500 now)"),
    ],
)
def test_what_is_beyond_its_tolerance_is_said(was: int, now: int, how: str | None, words: str) -> None:
    report = work.compared(of_lines(now)["counts"], of_lines(was))
    assert {name: found for name, found in report.items() if found} == ({how: [words]} if how else {})


def test_other_versions_are_told_where_they_may_be_why() -> None:
    there = of_lines(1000, torch="2.0")
    assert not work.compared(of_lines(1000)["counts"], there)["notes"]
    (note,) = work.compared(of_lines(2000)["counts"], there)["notes"]
    assert "torch 2.0" in note
    assert f"torch {torch.__version__}" in note


def test_a_path_without_baseline_is_new_and_less_work_is_to_be_kept() -> None:
    report = work.compared(of_lines(500)["counts"], {})
    assert report["new"] == ["score: no baseline yet, --keep writes it"]
    assert any("--keep" in line for line in work.said(work.compared(of_lines(500)["counts"], of_lines(1000))))
