"""The command `erd completion`: what a shell needs to complete commands, options and their values, from the parser.

eval "$(erd completion bash)"               # in ~/.bashrc; with zsh in ~/.zshrc
erd completion fish > ~/.config/fish/completions/erd.fish
"""

import argparse
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from erd.cli.arguments import NewCommand

BATCHES = "$(ls -p runs 2>/dev/null | sed -n 's,/$,,p')"  # in the folder the shell is in when it completes


class Option(NamedTuple):
    names: list[str]  # none: an argument that is known by its place
    about: str
    values: list[str] | None  # to choose from; None: it takes no value
    paths: bool = False  # its value is a file or a folder


def add(command: NewCommand) -> None:
    """Tell the parser of it."""
    printed = command("completion", completion, "let a shell complete commands, options and batches")
    printed.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=f"one of {', '.join(SCRIPTS)}")
    printed.epilog = 'In ~/.bashrc, or with zsh in ~/.zshrc: eval "$(erd completion bash)"'


def completion(arguments: argparse.Namespace) -> dict[str, Any]:
    """The script, for the shell to evaluate."""
    from erd.cli import parser

    subs = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    script = "\n".join(SCRIPTS[arguments.shell](subs.choices))
    if not arguments.json:
        print(script)
    return {"shell": arguments.shell, "script": script}


Subs = dict[str, argparse.ArgumentParser]  # by the name of the command


def _bash(subs: Subs) -> Iterator[str]:
    yield "_erd() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" words=""'
    yield '  case "$COMP_CWORD ${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in'
    yield f'    "1 "*) words="{" ".join(subs)}" ;;'
    for name, sub in subs.items():
        options = list(_options(sub))
        for option in options:
            if option.names and option.values is not None:
                asked = "|".join(f'*" {name} {flag}"' for flag in option.names)
                yield f'    {asked}) words="{" ".join(option.values)}" ;;'
        every = [word for option in options for word in option.names or option.values or []]
        yield f'    *" {name} "*) words="{" ".join(every)}" ;;'
    yield "  esac"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield '  case "${COMPREPLY[0]}" in *=) type compopt >/dev/null 2>&1 && compopt -o nospace ;; esac'
    yield "}"
    yield "complete -o default -F _erd erd"  # without an answer of ours: files


def _zsh(subs: Subs) -> Iterator[str]:
    yield "autoload -U +X compinit bashcompinit && compinit && bashcompinit"
    yield from _bash(subs)


def _fish(subs: Subs) -> Iterator[str]:
    yield "complete -c erd -f"
    for name, sub in subs.items():
        yield f"complete -c erd -n __fish_use_subcommand -a {name} -d {shlex.quote(sub.description or '')}"
        for option in _options(sub):
            words = ["complete -c erd", f"-n '__fish_seen_subcommand_from {name}'"]
            words += [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.names]
            if option.paths:
                words.append("-r -F" if option.names else "-F")
            elif option.values is not None:
                values = " ".join(option.values).replace("$(", "(")
                words.append(f"{'-x ' if option.names else ''}-a {shlex.quote(values)}")
            yield f"{' '.join(words)} -d {shlex.quote(option.about)}"


def _options(sub: argparse.ArgumentParser) -> Iterator[Option]:
    """What a command takes. Which values, is known by how the help names them."""
    from erd.settings.scenarios import SCENARIOS
    from erd.settings.schema import keys

    named = {
        "B": [BATCHES],
        "S": list(SCENARIOS),
        "R": ["process", "serial"],
        "a.b=v": [f"{key}=" for key in keys()],
    }
    for action in sub._actions:
        about = sub._get_formatter()._expand_help(action) if action.help else ""
        metavar = str(action.metavar or "")
        paths = any(word in metavar for word in ("DIR", "FILE", "FOLDER"))
        values = list(action.choices) if action.choices else named.get(metavar, [])
        yield Option(list(action.option_strings), about, None if action.nargs == 0 else values, paths)


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
