"""Parts of a page that commands write; the rest of it is people's."""

from pathlib import Path

import pytest

from erd.base.errors import UserError
from erd.bench import page_parts


def test_a_page_gets_the_tables_between_its_markers_and_keeps_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text("# Ours\n\n<!-- bench:begin -->\nold\n<!-- bench:end -->\n\n## By hand\n")
    for text in ("first\n", "second\n"):
        page_parts.into(page, "bench", text)
        assert page.read_text() == f"# Ours\n\n<!-- bench:begin -->\n{text}<!-- bench:end -->\n\n## By hand\n"
    new = tmp_path / "new.md"
    page_parts.into(new, "bench", "text\n")
    assert new.read_text() == "<!-- bench:begin -->\ntext\n<!-- bench:end -->\n"


@pytest.mark.parametrize("text", ["no markers", "<!-- bench:end --> <!-- bench:begin -->", "<!-- bench:begin -->"])
def test_a_page_without_both_markers_in_order_is_left_alone(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(UserError, match="has no place for the table"):
        page_parts.into(page, "bench", "table\n")
    assert page.read_text() == text


def test_a_page_has_several_parts(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- a:begin -->\n<!-- a:end -->\nbetween\n<!-- b:begin -->\n<!-- b:end -->\n")
    assert page_parts.named(f"{page}#b", "bench") == (page, "b")
    assert page_parts.named(str(page), "bench") == (page, "bench")
    page_parts.into(page, "b", "new\n")
    assert page.read_text() == "<!-- a:begin -->\n<!-- a:end -->\nbetween\n<!-- b:begin -->\nnew\n<!-- b:end -->\n"
