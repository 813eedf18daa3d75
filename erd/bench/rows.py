"""What the bench writes down, typed; written and read here and nowhere else.

record = CellRecord.read(path)                  # results/<method>.json of a place, one cell
write_rows(folder / "results.json", rows, version=__version__)          # and of the tables, a row a cell
rows = read_rows(folder / "results.json")
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from erd.base import files
from erd.base.errors import RunError

log = logging.getLogger("erd")


@dataclass(frozen=True)
class Figures:
    """How well scores tell novel from known images; all None where nobody knows the truth."""

    auroc: float | None = None
    tnr95: float | None = None
    aupr: float | None = None
    p20: float | None = None  # of the 20 highest scores, the share that is novel
    p50: float | None = None
    first: float | None = None  # of as many as there are novel images, but at most 50
    found_20: float | None = None  # of the novel images, the share among the 20 highest scores
    found_50: float | None = None
    found_100: float | None = None
    share: float | None = None  # of all images, the share that is novel: what a random order has among its first


@dataclass(frozen=True)
class Sent:
    """Where in MLflow a record is."""

    uri: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class CellRecord:
    """A cell that was done."""

    key: str  # of all that can change it
    figures: dict[str, Figures]  # on the batch and on the holdout
    seconds: float  # to fit and to score
    batch_p: float | None
    outliers: str | None  # which images were the known outliers
    started: str
    finished: str
    mlflow: Sent | None = None

    def write(self, path: Path) -> None:
        files.save_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "CellRecord | None":
        """None where there is none, or what is there is no record: then the cell is to be done."""
        found = files.load_json_if_whole(path)
        try:
            return None if found is None else _RECORD.validate_python(found)
        except ValidationError:
            log.warning("note: %s is passed over: it is no record of a cell", path)
            return None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A cell as the tables have it, also one that failed. The names are those of the JSON that users read."""

    scenario: str
    at: dict[str, Any] = field(default_factory=dict)  # where it stands on the axes of a sweep
    method: str
    setting: str  # what its method may use
    seed: int
    auroc: float | None = None  # these, of Figures, where the paper evaluates the scenario …
    tnr95: float | None = None
    aupr: float | None = None
    p20: float | None = None
    p50: float | None = None
    first: float | None = None
    found_20: float | None = None
    found_50: float | None = None
    found_100: float | None = None
    share: float | None = None
    evaluated_on: str  # … which is the batch or the holdout
    batch_auroc: float | None = None
    batch_tnr95: float | None = None
    batch_p50: float | None = None
    batch_first: float | None = None
    batch_share: float | None = None
    holdout_auroc: float | None = None
    holdout_tnr95: float | None = None
    holdout_p50: float | None = None
    holdout_first: float | None = None
    seconds: float | None = None
    paper_auroc: float | None = None
    paper_tnr95: float | None = None
    batch_p: float | None = None
    outliers: str | None = None
    otherwise: dict[str, Any] = field(default_factory=dict)  # settings that are not the scenario's own
    error: str | None = None  # why there are no figures

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def write_rows(path: Path, rows: Sequence[Row], **about: Any) -> None:
    """The rows, and before them what they are `about`."""
    files.save_json(path, {**about, "rows": [row.as_json() for row in rows]})


def read_rows(path: Path) -> list[Row]:
    found = files.load_json(path)
    try:
        return _ROWS.validate_python(found["rows"])
    except (ValidationError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged or of another version; run the bench again, which writes it anew") from error


_RECORD = TypeAdapter(CellRecord)
_ROWS = TypeAdapter(list[Row])
