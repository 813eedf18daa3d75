"""Arguments that several commands have, what they mean, and tables of text."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from erd.runs.folder import RunDir
    from erd.settings.schema import Settings

Command = Callable[[argparse.Namespace], dict[str, Any]]
NewCommand = Callable[[str, Command, str], argparse.ArgumentParser]  # name, function, what it does
Commands = Callable[[NewCommand], None]
UNITS = ("kB", "MB", "GB", "TB")


def with_data(sub: argparse.ArgumentParser) -> None:
    folder = os.environ.get("ERD_DATA")
    sub.add_argument("--data", metavar="DIR", default=folder, help="folder with the image sets (or ERD_DATA)")


def with_overrides(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--set", metavar="a.b=v", action="append", default=[], help="override a setting; repeatable")
    sub.add_argument("--runner", metavar="R", help="process, serial or ray")
    sub.add_argument("--params", metavar="FILE", help="settings file (default: params.yaml here, if there is one)")


def with_example(sub: argparse.ArgumentParser, *commands: str) -> None:
    """Commands as one types them, at the end of the help."""
    sub.formatter_class = argparse.RawDescriptionHelpFormatter
    sub.epilog = "\n  ".join(["for example:", *commands])


def with_settings(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--scenario", metavar="S", help="a row of `erd scenarios` (default: params.yaml's)")
    sub.add_argument("--batch", metavar="B", help="the batch's name, e.g. 2026-W46; results go to runs/B")
    sub.add_argument("--inbox", metavar="DIR", help="the batch: folder, manifest or .npz of unlabelled images")
    with_data(sub)
    with_overrides(sub)


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says of the settings, by the names that `settings_for` and the weekly flow have for it."""
    names = ("scenario", "batch", "inbox", "data", "runner", "params")
    return {name: getattr(arguments, name) for name in names} | {"overrides": arguments.set}


def settings_of(arguments: argparse.Namespace) -> "Settings":
    from erd.runs.configure import settings_for

    said = asked(arguments)
    return settings_for(**said | {"params": Path(said["params"]) if said["params"] else None})


def folder_of(arguments: argparse.Namespace) -> "RunDir":
    """Of the batch that --batch names, checked like the setting."""
    from erd.runs.folder import RunDir
    from erd.settings.schema import Settings

    return RunDir.of(Settings().override({"data.batch": arguments.batch}, "--batch"))


def port(text: str) -> int:
    """For a parser: 0 is any that is free."""
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not '{text}'")
    return int(text)


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Rows as aligned text."""
    lines = [list(rows[0])] + [["–" if value is None else str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def counted(count: int, what: str) -> str:
    """1 image, 2 images."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def short(value: Any) -> Any:
    return f"{value:.3g}" if isinstance(value, float) else value


def size(count: float) -> str:
    """Bytes, in the unit that suits."""
    for unit in UNITS:
        count /= 1000
        if count < 1000 or unit == UNITS[-1]:
            break
    return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
