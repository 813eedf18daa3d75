"""What README and docs say can be done: links lead somewhere, and every `erd` command in them is one."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from erd import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`(?:\.venv/bin/)?(erd [^`\n]+)`")
BLOCK = re.compile(r"^(?:\s{4,})?(?:\.venv/bin/)?(erd [a-z-]+.*)$", re.MULTILINE)
USAGE = ("[--", "…", "|", "<", ">", "NAME", "$")  # how a command is called in general, and not a call


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name} links to {link}"
        if heading:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {_anchor(one) for one in headings}, f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page: Path) -> None:
    parser = cli.parser()
    for command in _commands(page):
        try:
            parser.parse_args(shlex.split(command, comments=True)[1:])
        except SystemExit as error:
            if error.code:  # 0 is --help
                pytest.fail(f"{page.name}: {command}")


def test_there_are_commands_to_understand() -> None:
    assert len(list(_commands(ROOT / "README.md"))) > 15


def _commands(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for pattern in (CODE, BLOCK):
        for command in pattern.findall(text):
            called = shlex.split(command, comments=True) if not any(sign in command for sign in USAGE) else []
            if len(called) > 2:  # else it is only named
                yield command


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
