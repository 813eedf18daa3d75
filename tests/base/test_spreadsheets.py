"""Tables for people: whatever a file or a class is called, a spreadsheet calculates nothing."""

from pathlib import Path

import pandas as pd
import pytest

from erd.base import spreadsheets
from erd.base.errors import RunError
from erd.data import reading

WILD = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "'=1", "''-1", '=HYPERLINK("http://x")']
HARMLESS = ["a.png", "'tis.png", "NA", "1e5", "007", "a=1", "", "週.png", 'say "hi", twice']


@pytest.mark.parametrize("text", WILD)
def test_what_a_spreadsheet_would_calculate_is_text_and_comes_back(text: str) -> None:
    assert spreadsheets.shown(text) == f"'{text}"
    assert spreadsheets.meant(spreadsheets.shown(text)) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_any_other_text_stays_as_it_is(text: str) -> None:
    assert spreadsheets.shown(text) == spreadsheets.meant(text) == text


def test_files_that_were_set_aside_keep_their_names_and_are_no_formulas(tmp_path: Path) -> None:
    place = tmp_path / "quarantine.csv"
    rejected = [(name, "no image") for name in [*WILD, *HARMLESS]]
    reading.write_rejected(place, rejected)
    cells = pd.read_csv(place, dtype=str, keep_default_na=False)["file"]
    assert not cells.str.match(r"\s*[=+\-@＝]").any()
    assert [*spreadsheets.load(place).itertuples(index=False, name=None)] == rejected


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    spreadsheets.save(
        tmp_path / "t.csv", pd.DataFrame({"score": [-0.5, 1.0], "file": ["-a", "b"], "none": [None, "x"]})
    )
    assert (tmp_path / "t.csv").read_text() == "score,file,none\n-0.5,'-a,\n1.0,b,x\n"


def test_a_table_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is missing; run the stage"):
        spreadsheets.load(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RunError, match="cannot be read"):
        spreadsheets.load(tmp_path / "t.csv")
