"""What `erd` tells of itself: help by task, and completion as a shell does it."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from erd.cli import TASKS, main, parser


def commands() -> list[str]:
    (subs,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return list(subs.choices)


def test_help_lists_every_command_once_under_its_task_on_lines_that_fit() -> None:
    lines = parser().format_help().splitlines()
    told = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in commands()]
    assert sorted(told) == sorted(commands())
    assert [line for line in lines if line in TASKS] == list(TASKS)
    assert max(map(len, lines)) <= 100


def test_help_has_an_example_whose_commands_are_there() -> None:
    text = parser().format_help()
    shown = [line.split()[1] for line in text.splitlines() if line.startswith("  erd ")]
    assert len(shown) >= 3
    assert set(shown) <= set(commands())


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert f"usage: erd {name}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def bash_script() -> str:
    return subprocess.run(
        [sys.executable, "-m", "erd", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout


def completed(script: str, line: str, cwd: Path) -> list[str]:
    """What bash offers at the end of the line; where it has nothing to offer it completes files."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    asked = (
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _erd 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", f"{script}\n{asked}"], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_options_and_values(bash_script: str, tmp_path: Path) -> None:
    for name in ("2026-W46", "2026-W47"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "history.html").touch()

    def offers(line: str) -> list[str]:
        return completed(bash_script, line, tmp_path)

    assert sorted(offers("erd ")) == sorted(commands())
    assert offers("erd inc") == ["incorporate"]
    assert set(offers("erd run --")) >= {"--scenario", "--batch", "--set", "--quiet", "--json"}
    assert "--undo" in offers("erd incorporate --batch 2026-W46 --")
    assert offers("erd review --batch ") == ["2026-W46", "2026-W47"]
    assert offers("erd run --json --scenario fmnist-n") == ["fmnist-near"]
    assert offers("erd run --set finetune.ep") == ["finetune.epochs="]
    assert offers("erd completion ba") == ["bash"]
    assert offers("erd run --inbox ") == [], "then bash completes files"


def test_a_real_bash_session_completes_on_tab(bash_script: str, tmp_path: Path) -> None:
    (tmp_path / "erd.bash").write_text(bash_script)
    typed = 'source ./erd.bash; erd() { echo "got $*"; }\nerd incorp\t--ba\t7\n'
    bare = {"PATH": "/usr/bin:/bin", "TERM": "dumb", "HOME": str(tmp_path)}
    words = ["bash", "--norc", "-i"]
    done = subprocess.run(words, input=typed, cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert "got incorporate --batch 7" in done.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_that_knows_all_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in commands())


def test_quiet_can_stand_before_the_command_or_after_it() -> None:
    for words in (["--quiet", "doctor"], ["doctor", "--quiet"]):
        assert parser().parse_args(words).quiet
    assert not parser().parse_args(["doctor"]).quiet
