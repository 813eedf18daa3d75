"""Whatever a file of a workspace holds and whatever a command is given: an exit code that is documented, one sentence,
no traceback, no hang, and nothing lost. `make fuzz` tries 500 of them, all others each time; CI the same few."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
import damages
import numpy as np
import odd_values
import pandas as pd
import pytest
import sandbox
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from sandbox import Forks
from small_workspace import FRESH, REVIEWED

from erd.data import library

ASKED = int(os.environ.get("FUZZ", 0))  # how many inputs; none: the same few each time
RUN = Path("runs", REVIEWED)
STAGE = commands.COMMANDS["ingest"].arguments
NO_FILES = (".png", ".html", ".lock")  # that no command reads


def fuzz(share: float, fixed: int) -> settings:
    """A share of all that are asked for."""
    return settings(
        max_examples=round(share * ASKED) or fixed,
        derandomize=not ASKED,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink] if ASKED else [Phase.explicit, Phase.generate],
    )


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as started:
        yield started


@pytest.fixture(scope="module")
def workspace(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return forks.make(tmp_path_factory.mktemp("fuzz") / "workspace")


def files_of(workspace: Path) -> list[str]:
    found = sorted(path.relative_to(workspace).as_posix() for path in workspace.rglob("*") if path.is_file())
    return [name for name in found if not name.endswith(NO_FILES) and not name.startswith("mlruns")]


@st.composite
def damaged(draw: DrawFn, files: list[str]) -> tuple[commands.Command, str, str, damages.Damage]:
    command = commands.COMMANDS[draw(st.sampled_from(sorted(commands.COMMANDS)))]
    file = draw(st.sampled_from(command.reads_of(files)))
    return command, file, *draw(damages.damages(file))


def test_a_damaged_file_is_one_sentence_and_loses_nothing(workspace: Path, forks: Forks) -> None:
    @fuzz(0.6, fixed=14)
    @given(damaged(files_of(workspace)))
    def try_it(case: tuple[commands.Command, str, str, damages.Damage]) -> None:
        command, file, words, damage = case
        place = sandbox.copied(workspace, workspace.with_name("copy"))
        damage(place / file)
        outcome = forks.run(command.arguments, place)
        note(f"{file}: {words}; erd {' '.join(command.arguments)} ends with {outcome.code}:\n{outcome.said}")
        assert not outcome.complaints(command.changes)

    try_it()


@pytest.mark.parametrize("stage", ["ingest", "pretrain"])
def test_an_odd_setting_is_one_sentence_and_loses_nothing(stage: str, workspace: Path, forks: Forks) -> None:
    @fuzz(0.1, fixed=4)
    @given(odd_values.settings())
    def try_it(setting: tuple[str, str]) -> None:
        place = sandbox.copied(workspace, workspace.with_name("copy"))
        command = commands.COMMANDS[stage]
        outcome = forks.run([*command.arguments, "--set", "=".join(setting)], place)
        note(f"{setting[0][:40]}={setting[1][:40]} ends with {outcome.code}:\n{outcome.said}")
        assert not outcome.complaints(command.changes)

    try_it()


def test_an_odd_argument_is_one_sentence_and_loses_nothing(workspace: Path, forks: Forks) -> None:
    @fuzz(0.1, fixed=8)
    @given(odd_values.commands())
    def try_it(command: list[str]) -> None:
        place = sandbox.copied(workspace, workspace.with_name("copy"))
        outcome = forks.run(command, place)
        note(f"erd {' '.join(command)[:300]!r} ends with {outcome.code}:\n{outcome.said}")
        assert not outcome.complaints(("runs/history.html",))

    try_it()


def test_an_odd_settings_file_is_one_sentence_and_loses_nothing(workspace: Path, forks: Forks) -> None:
    @fuzz(0.1, fixed=6)
    @given(odd_values.params(), st.sampled_from(["ingest", "doctor"]))
    def try_it(text: str, name: str) -> None:
        place = sandbox.copied(workspace, workspace.with_name("copy"))
        (place / "params.yaml").unlink()
        (place / "params.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
        command = commands.COMMANDS[name]
        outcome = forks.run(command.arguments, place)
        note(f"{text[:300]!r}: erd {name} ends with {outcome.code}:\n{outcome.said}")
        assert not outcome.complaints((*command.changes, "params.yaml"))

    try_it()


# -------------------------------------------------------------------------------- what once was a traceback, or hung


def overwrite(name: str | Path, text: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        (place / name).unlink(missing_ok=True)  # it is a hard link
        (place / name).write_text(text)

    return change


def without(column: str, name: str | Path) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        table = pd.read_parquet(place / name).drop(columns=column)
        (place / name).unlink()
        table.to_parquet(place / name)

    return change


def larger_library(place: Path) -> None:
    kept = library.read(place / "library")
    library.save(library.Library(np.asarray(kept.images).repeat(4, 1).repeat(4, 2), kept.table), place / "library")


def half_characters(place: Path) -> None:
    (place / "scans.npz").unlink()
    np.savez(place / "scans.npz", x_train=np.zeros((3, 8, 8), np.uint8), y_train=np.array(["a", "\ud800", "b"]))


def list_as_image(place: Path) -> None:
    answers = place / RUN / "review" / "answers.jsonl"
    said = {"image": ["a"], "kind": "class", "label": "x", "reviewer": "y", "list": "audit", "at": "2026"}
    answers.write_text(json.dumps(said) + "\n")


def nothing(place: Path) -> None:
    """The arguments alone are odd."""


@pytest.mark.parametrize(
    ("change", "arguments", "code", "said"),
    [
        (overwrite(RUN / "settings.json", "[]"), ("review", "--batch", REVIEWED), 1, "settings.json"),
        (overwrite(RUN / "data/ingest.json", '{"classes": 3}'), ("review", "--batch", REVIEWED), 1, "ingest.json"),
        (overwrite(RUN / "decision.json", "[]"), ("review", "--batch", REVIEWED), 1, "decision.json cannot be read"),
        (without("flagged", RUN / "scores.parquet"), ("review", "--batch", REVIEWED), 1, "no column flagged"),
        (without("id", RUN / "data/batch.parquet"), ("incorporate", "--batch", REVIEWED), 1, "batch.parquet"),
        (without("label", "library/images.parquet"), ("incorporate", "--batch", REVIEWED), 1, "images.parquet"),
        (overwrite(RUN / "learned.json", "3"), ("history",), 0, "learned.json is passed over"),
        (overwrite(f"runs/{FRESH}/pretrained.history.json", "[{}]"),
         ("decide", "--batch", FRESH, "--set", "detect.fdr=0.2"), 1, "pretrained.history.json cannot be read"),
        (without("part", f"runs/{FRESH}/data/labeled.parquet"),
         ("decide", "--batch", FRESH, "--set", "detect.fdr=0.2"), 1, "no column part"),
        (nothing, ("review", "--batch", REVIEWED, "--port", "99999"), 2, "a port is a number from 0 to 65535"),
        (nothing, (*STAGE, "--set", "data.image_size=1000000"), 2, "should be less than or equal to 4096"),
        (nothing, (*STAGE, "--set", f"pretrain.batch_size={10**30}"), 2, "should be less than or equal to"),
        (nothing, (*STAGE, "--set", f"run.threads={10**30}"), 2, "should be less than or equal to 1024"),
        (nothing, (*STAGE, "--set", 'data.path="a\\0b"'), 2, "a character that no name can have"),
        (nothing, (*STAGE, "--set", "data.known=" + "[" * 5000), 2, "is not a value YAML can read"),
        (nothing, (*STAGE, "--set", "seed=" + "9" * 5000), 2, "is not a value YAML can read"),
        (nothing, ("simulate", "--weeks", str(10**30)), 2, "a story takes two or more, and 1,040 at most"),
        (nothing, (*STAGE, "--set", "data.scenario=" + "x" * 100_000), 2, "erd: "),
        (overwrite("params.yaml", f"data:\n  known: {odd_values.BOMB}\n"), ("doctor",), 0, ""),
        (overwrite("params.yaml", f"data:\n  known: {odd_values.BOMB}\n"), STAGE, 2, "params.yaml is not valid YAML"),
        (larger_library, ("incorporate", "--batch", REVIEWED), 2, "are 32 pixels wide and those to be added 8"),
        (half_characters, ("ingest", "--labeled", "scans.npz", "--replace"), 1, "y_train of scans.npz is damaged"),
        (list_as_image, ("incorporate", "--batch", REVIEWED), 1, "line 1 of"),
        (nothing, (*STAGE, "--set", "data.image_size=4096"), 2, "or set data.image_size back"),
        (lambda place: (place / "library").rename(place / "away"), ("stage", "ingest", "--batch", "odd", "--scenario",
         "digits-near", "--set", "data.image_size=4096"), 1, "there is not enough memory"),
    ],
)  # fmt: skip
def test_it_is_one_sentence_now(
    change: Callable[[Path], None],
    arguments: tuple[str, ...],
    code: int,
    said: str,
    workspace: Path,
    forks: Forks,
) -> None:
    place = sandbox.copied(workspace, workspace.with_name("copy"))
    change(place)
    outcome = forks.run(arguments, place)
    assert (outcome.code, outcome.complaints(("runs/*",))) == (code, []), outcome.said
    assert said in outcome.said
