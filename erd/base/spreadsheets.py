"""Tables for people, as CSV: a spreadsheet that opens one takes no cell of it for a formula.

A text that a spreadsheet would calculate (=1+1, @SUM, -x) gets a ' before it, and loses it when it is read here again.
"""

import csv
import re
from pathlib import Path

import pandas as pd

from erd.base import files

# Also in full width, and after what spreadsheets pass over. A ' before one makes another one: so nothing is lost.
FORMULA = re.compile(r"['\s]*[=+\-@＝＋－＠]|'*[\t\r\n]")


def shown(text: str) -> str:
    """As a cell of a CSV that people open."""
    return f"'{text}" if FORMULA.match(text) else text


def meant(cell: str) -> str:
    """The text of such a cell."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell[1:]) else cell


def text(table: pd.DataFrame) -> str:
    cells = table.map(lambda cell: shown(cell) if isinstance(cell, str) else cell)
    torn = any("\r" in cell for column in cells for cell in cells[column] if isinstance(cell, str))
    # By itself a carriage return is not quoted, and would begin a row of its own.
    return cells.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_ALL if torn else csv.QUOTE_MINIMAL)


def save(path: Path, table: pd.DataFrame) -> None:
    with files.replacing(path) as draft:
        draft.write_text(text(table), encoding="utf-8", newline="")


def load(path: Path) -> pd.DataFrame:
    """All of it as text: a file may be called NA, or 1e5."""
    with files.understood(path):
        return pd.read_csv(path, dtype=str, keep_default_na=False).map(meant)
