"""Parts of a Markdown page that commands write: between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`.

page, name = page_parts.named("docs/results.md#shift", "bench")   # the part `shift`; `bench` if none is named
page_parts.check(page, name)                                      # before hours are spent
page_parts.into(page, name, text)
"""

from pathlib import Path

from erd.base import files
from erd.base.errors import UserError


def named(output: str, name: str) -> tuple[Path, str]:
    """Page and part of FILE.md#PART."""
    page, _, part = output.partition("#")
    return Path(page), part or name


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def check(page: Path, name: str) -> None:
    """Whether `into` will find its place."""
    begin, end = marks(name)
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if page.exists() and not 0 <= text.find(begin) < text.find(end):
        raise UserError(f"{page} has no place for the table: put the lines {begin} and {end} into it")


def into(page: Path, name: str, text: str) -> None:
    """A page that is not there is made."""
    check(page, name)
    begin, end = marks(name)
    before, _, rest = (page.read_text(encoding="utf-8") if page.exists() else f"{begin}{end}\n").partition(begin)
    with files.replacing(page) as draft:
        draft.write_text(f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}", encoding="utf-8")
