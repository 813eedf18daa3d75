"""`make paper`: that every piece of it is a command that works, and has a place in the docs to go to."""

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from erd.bench import page_parts
from erd.bench.plan import Asked
from erd.bench.sweeps import SWEEPS
from erd.cli import parser
from erd.cli.bench import planned

ROOT = Path(__file__).parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproduction", ROOT / "benchmarks" / "paper.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


paper = _load()
BENCHED = [name for name, words in paper.PIECES.items() if words[0] == "bench"]


@pytest.mark.parametrize("name", BENCHED)
def test_a_piece_of_the_bench_can_be_planned_and_its_page_has_a_place_for_it(name: str, tmp_path: Path) -> None:
    said = parser().parse_args(paper.PIECES[name])
    assert len(planned(said, Asked(overrides=tuple(said.set), root=tmp_path)).cells) >= 2
    page, part = page_parts.named(said.output, said.sweep or "bench")
    page_parts.check(ROOT / page, part)


def test_every_sweep_is_a_piece() -> None:
    assert set(SWEEPS) <= set(paper.PIECES)


def test_what_would_be_run_is_said_and_the_figures_of_scripts_are_in_the_docs() -> None:
    said = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "paper.py", "--list", "--data", "somewhere"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(said) == len(paper.PIECES)
    for line, name in zip(said, paper.PIECES, strict=True):
        words = shlex.split(line.partition(": ")[2])
        assert words[0] == ("erd" if name in BENCHED else "python")
        if words[0] == "python":
            assert (ROOT / words[1]).exists()
            assert (ROOT / words[words.index("--output") + 1]).exists()
