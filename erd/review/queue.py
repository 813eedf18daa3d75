"""What there is to look at in a batch, and in which order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from erd.base import files
from erd.base.errors import UserError
from erd.data import packed
from erd.reporting import tiers, wording
from erd.runs import configure
from erd.runs.answers import Answers, audit_rows
from erd.runs.folder import RunDir
from erd.runs.results import Ingested, Metrics
from erd.settings.schema import Settings


@dataclass(frozen=True)
class Queue:
    """`flagged` is the whole batch, the flagged images first and then on down by score: `cut` of them are flagged, and
    the first `shown` are what the page begins with."""

    run: RunDir
    settings: Settings
    table: pd.DataFrame  # scores.parquet; row i is image i of the batch
    known: list[str]
    lists: dict[str, np.ndarray]  # "flagged", "audit" → rows in the order they are shown
    cut: int
    shown: int
    wrong_at_most: np.ndarray  # of the first k + 1 of "flagged", so many are known
    key: str  # of this batch as it was scored now: rows and places mean nothing for another

    @property
    def answers(self) -> Answers:
        return Answers(self.run.answers)

    def facts(self) -> dict[str, Any]:
        metrics = Metrics.read(self.run)
        return {
            "batch": self.run.batch_name,
            "key": self.key,
            "headline": wording.headline(metrics, wording.noticed(self.run)),
            "alarm": wording.alarm(metrics),
            "rings": metrics.verdict.rings,
            "worth_a_look": wording.beyond_headline(metrics, self.settings.detect.confidence),
            "findings": wording.findings(metrics),
            "confidence": self.settings.detect.confidence,
            "bounded": metrics.verdict.promised and not metrics.verdict.bulk_moved,
            "images": len(self.table),
            "flagged": self.cut,
            "shown": self.shown,
            "last_good": wording.last_good(metrics),
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
    settings = configure.read(run)
    for needed in (run.scores, run.metrics, run.batch, run.ingested):
        if not needed.exists():
            raise UserError(f"{needed} is missing: `erd run` makes it, then there is something to review")
    table = files.load_table(run.scores)
    if len(table) != len(packed.read(run.batch).images):
        raise UserError(f"{run.scores} and {run.batch} are of different batches; run the batch again")
    order = tiers.order(table)
    # A bound for a larger set holds for a smaller one: where flags do not follow the scores, of the largest so far.
    wrong = np.maximum.accumulate(table["wrong_at_most"].to_numpy()[order])
    audit = audit_rows(len(table), settings.review.audit, settings.seed, run.batch_name)
    return Queue(
        run,
        settings,
        table,
        Ingested.read(run).classes,
        {"flagged": order, "audit": audit},
        int(table["flagged"].sum()),
        len(tiers.shown(run)),
        np.minimum(wrong, np.arange(1, len(table) + 1)),
        files.digest([run.batch_name, files.sha256(run.scores)])[:16],
    )
