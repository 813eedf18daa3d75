"""What there is to look at in a batch, and in which order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from erd import files, params, report
from erd.data import ingest as packing
from erd.errors import UserError
from erd.params import Settings
from erd.review.answers import Answers
from erd.rundir import RunDir
from erd.seeds import derive


def audit_rows(batch_size: int, audit: int, seed: int, batch_name: str) -> np.ndarray:
    """A uniform sample of the batch's rows, in random order; a larger one begins with the smaller one."""
    return np.random.default_rng(derive(seed, "audit", batch_name)).permutation(batch_size)[:audit]


@dataclass(frozen=True)
class Queue:
    """`flagged` is the whole batch, the flagged images first and then on down by score: `cut` of them are flagged."""

    run: RunDir
    settings: Settings
    table: pd.DataFrame  # scores.parquet; row i is image i of the batch
    known: list[str]
    lists: dict[str, np.ndarray]  # "flagged", "audit" → rows in the order they are shown
    cut: int
    wrong_at_most: np.ndarray  # of the first k + 1 of "flagged", so many are known
    key: str  # of this batch as it was scored now: rows and places mean nothing for another

    @property
    def answers(self) -> Answers:
        return Answers(self.run.answers)

    def facts(self) -> dict[str, Any]:
        metrics = files.load_json(self.run.metrics)
        return {
            "batch": self.run.batch_name,
            "key": self.key,
            "headline": report.headline(metrics),
            "alarm": report.alarm(metrics),
            "rings": bool(metrics["alarm"]),
            "confidence": self.settings.detect.confidence,
            "images": len(self.table),
            "flagged": self.cut,
            "audit": len(self.lists["audit"]),
            "known": self.known,
        }

    def items(self, name: str, start: int, count: int) -> list[dict[str, Any]]:
        """The audit says nothing of scores, which would lead the eye."""
        shown = []
        for place in range(start, min(start + count, len(self.lists[name]))):
            row = int(self.lists[name][place])
            image = self.table.iloc[row]
            item = {"place": place, "row": row, "id": image["id"], "predicted": image["predicted"]}
            if name == "flagged":
                item |= {"score": float(image["score"]), "p": float(image["p_value"])}
                item |= {"flagged": bool(image["flagged"]), "wrong": int(self.wrong_at_most[place])}
            shown.append(item)
        return shown


def load(run: RunDir) -> Queue:
    settings = params.read(run.settings)
    for needed in (run.scores, run.metrics, run.batch, run.ingested):
        if not needed.exists():
            raise UserError(f"{needed} is missing: `erd run` makes it, then there is something to review")
    table = files.load_table(run.scores)
    if len(table) != len(packing.read(run.batch).images):
        raise UserError(f"{run.scores} and {run.batch} are of different batches; run the batch again")
    flagged = table["flagged"].to_numpy(bool)
    order = np.lexsort((-table["score"].to_numpy(), ~flagged))
    # A bound for a larger set holds for a smaller one: where flags do not follow the scores, of the largest so far.
    wrong = np.maximum.accumulate(table["wrong_at_most"].to_numpy()[order])
    audit = audit_rows(len(table), settings.review.audit, settings.seed, run.batch_name)
    return Queue(
        run,
        settings,
        table,
        files.load_json(run.ingested)["classes"],
        {"flagged": order, "audit": audit},
        int(flagged.sum()),
        np.minimum(wrong, np.arange(1, len(table) + 1)),
        files.digest([run.batch_name, files.sha256(run.scores)])[:16],
    )
