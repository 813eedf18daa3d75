"""What is written down can be read again, and has the names that users know."""

from pathlib import Path

import pytest

from erd.base import files
from erd.base.errors import RunError
from erd.bench.rows import CellRecord, Figures, Row, Sent, read_rows, write_rows

NAMES = ("scenario", "at", "method", "setting", "seed", "auroc", "tnr95", "aupr", "p20", "p50", "first",
         "found_20", "found_50", "found_100", "share", "evaluated_on", "batch_auroc", "batch_tnr95", "batch_p50",
         "batch_first", "batch_share", "holdout_auroc", "holdout_tnr95", "holdout_p50", "holdout_first", "seconds",
         "paper_auroc", "paper_tnr95", "batch_p", "outliers", "otherwise", "error")  # fmt: skip
ROW = Row(scenario="digits-near", at={"epoch": 3}, method="erd", setting="semi-supervised", seed=1, auroc=0.9,
          evaluated_on="holdout", otherwise={"pretrain.milestones": [1, 2]})  # fmt: skip
RECORD = CellRecord(key="k", figures={"batch": Figures(0.9, 0.8, 0.7), "holdout": Figures()}, seconds=1.5, batch_p=None,
                outliers="mnist", started="2026-11-01T00:00:00", finished="2026-11-01T00:00:02")  # fmt: skip


def test_rows_have_the_names_that_users_read() -> None:
    assert tuple(ROW.as_json()) == NAMES


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_rows(path, [ROW], version="1")
    assert files.load_json(path) == {"version": "1", "rows": [ROW.as_json()]}
    assert read_rows(path) == [ROW]


@pytest.mark.parametrize("content", [[], {}, {"rows": [{"scenario": "digits-near"}]}])
def test_other_files_are_no_rows(content: object, tmp_path: Path) -> None:
    files.save_json(tmp_path / "results.json", content)
    with pytest.raises(RunError, match=r"results\.json (is damaged or of another version|cannot be read)"):
        read_rows(tmp_path / "results.json")


def test_a_record_comes_back_also_one_from_before_it_was_sent(tmp_path: Path) -> None:
    path = tmp_path / "erd.json"
    assert CellRecord.read(path) is None
    RECORD.write(path)
    assert CellRecord.read(path) == RECORD
    kept = files.load_json(path)
    assert kept["figures"]["batch"].items() >= {"auroc": 0.9, "tnr95": 0.8, "aupr": 0.7}.items()
    files.save_json(path, {name: value for name, value in kept.items() if name != "mlflow"})
    assert CellRecord.read(path) == RECORD
    files.save_json(path, kept | {"mlflow": {"uri": "here", "run_id": "7"}})
    found = CellRecord.read(path)
    assert found is not None
    assert found.mlflow == Sent("here", "7")


def test_what_was_written_before_there_were_first_looks_can_be_read(tmp_path: Path) -> None:
    RECORD.write(tmp_path / "erd.json")
    record = files.load_json(tmp_path / "erd.json")
    record["figures"]["batch"] = {"auroc": 0.9, "tnr95": 0.8, "aupr": 0.7}
    files.save_json(tmp_path / "erd.json", record)
    assert CellRecord.read(tmp_path / "erd.json") == RECORD
    write_rows(tmp_path / "results.json", [ROW])
    rows = files.load_json(tmp_path / "results.json")
    new = ("p20", "p50", "first", "found_20", "found_50", "found_100", "share", "batch_p50", "batch_first",
           "batch_share", "holdout_p50", "holdout_first")  # fmt: skip
    rows["rows"] = [{name: value for name, value in row.items() if name not in new} for row in rows["rows"]]
    files.save_json(tmp_path / "results.json", rows)
    assert read_rows(tmp_path / "results.json") == [ROW]


@pytest.mark.parametrize("text", ["{", "[]", '{"key": "k"}'])
def test_what_is_no_record_is_passed_over_with_a_word(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "erd.json").write_text(text)
    assert CellRecord.read(tmp_path / "erd.json") is None
    assert "erd.json is passed over" in caplog.text
