"""What there is to look at in a batch, and in which order."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from erd.base import files
from erd.base.errors import UserError
from erd.data import collect, library
from erd.reporting import tiers, wording
from erd.runs import configure, pruned, results
from erd.runs.answers import Answers, audit_rows
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Ingested, Metrics
from erd.settings.schema import Settings
from erd.weekly import sealed


@dataclass(frozen=True)
class Queue:
    """`flagged` is the whole batch, the flagged images first and then on down by score: `cut` of them are flagged, and
    the first `shown` are what the page begins with."""

    run: RunDir
    settings: Settings
    table: pd.DataFrame  # scores.parquet; row i is image i of the batch
    known: list[str]
    named: list[str]  # classes of earlier reviews that are not learned yet: nobody has to type them again
    lists: dict[str, np.ndarray]  # "flagged", "audit" → rows in the order they are shown
    cut: int
    shown: int
    budget: int  # images that are worth a look
    wrong_at_most: np.ndarray  # of the first k + 1 of "flagged", so many are known
    groups: list[tuple[str, list[int]]]  # candidate classes, the strongest first: in words, and their rows
    key: str  # of this batch as it was scored now: rows and places mean nothing for another

    @functools.cached_property
    def answers(self) -> Answers:
        return Answers(self.run.answers)

    @functools.cached_property
    def places(self) -> dict[str, dict[int, int]]:
        """Of each list: row → place."""
        return {name: {int(row): place for place, row in enumerate(rows)} for name, rows in self.lists.items()}

    def begins_with(self) -> list[int]:
        """Rows that a reviewer meets first, each once."""
        grouped = [row for _, rows in self.groups for row in rows]
        return [
            int(row) for row in dict.fromkeys([*grouped, *self.lists["flagged"][: self.shown], *self.lists["audit"]])
        ]

    def facts(self) -> dict[str, Any]:
        metrics = Metrics.read(self.run)
        return {
            "batch": self.run.batch_name,
            "key": self.key,
            "headline": wording.headline(metrics, wording.noticed(self.run)),
            "alarm": wording.alarm(metrics),
            "rings": metrics.verdict.rings,
            "worth_a_look": wording.beyond_headline(metrics, self.settings.detect.confidence),
            "findings": [*wording.findings(metrics), *filter(None, [pruned.words(self.run)])],
            "confidence": self.settings.detect.confidence,
            "bounded": metrics.verdict.promised and not metrics.verdict.bulk_moved,
            "images": len(self.table),
            "flagged": self.cut,
            "shown": self.shown,
            "last_good": wording.last_good(metrics),
            "groups": len(self.groups),
            "useful": min(self.budget, len(self.table)),
            "audit": len(self.lists["audit"]),
            "known": self.known,
        }

    def items(self, name: str, start: int, count: int) -> list[dict[str, Any]]:
        return self.images(self.lists[name][start : start + count], name)

    def images(self, rows: Sequence[int] | np.ndarray, name: str = "flagged") -> list[dict[str, Any]]:
        """The audit says nothing of scores and classes, which would lead the eye."""
        shown = []
        for row in map(int, rows):
            image, place = self.table.iloc[row], self.places[name][row]
            item = {"place": place, "row": row, "id": image["id"]}
            if name == "flagged":
                item |= {"predicted": image["predicted"], "score": float(image["score"]), "p": float(image["p_value"])}
                item |= {"flagged": bool(image["flagged"]), "wrong": int(self.wrong_at_most[place])}
            shown.append(item)
        return shown


def load(run: RunDir) -> Queue:
    settings = configure.read(run)
    for needed in (run.scores, run.metrics, run.batch, run.ingested):
        if not needed.exists():
            raise UserError(f"{needed} is missing: `erd run` makes it, then there is something to review")
    table = results.scores(run)
    order = tiers.order(table)
    # A bound for a larger set holds for a smaller one: where flags do not follow the scores, of the largest so far.
    wrong, first = np.maximum.accumulate(table["wrong_at_most"].to_numpy()[order]), np.arange(1, len(table) + 1)
    verdict = Metrics.read(run).verdict
    # What the headline promises of some images holds for more of them too; and fewer have no more wrong ones.
    wrong = np.where(first < verdict.look_at, wrong, np.minimum(wrong, first - verdict.look_at_least))
    wrong = np.minimum.accumulate(wrong[::-1])[::-1]
    audit = audit_rows(len(table), settings.review.audit, settings.seed, run.batch_name)
    return Queue(
        run,
        settings,
        table,
        known := Ingested.read(run).classes,
        _named(settings, known),
        {"flagged": order, "audit": audit},
        int(table["flagged"].sum()),
        len(tiers.shown(run)),
        tiers.budget(run),
        np.minimum(wrong, first),
        _groups(run, table),
        files.digest([run.batch_name, files.sha256(run.scores)])[:16],
    )


def _named(settings: Settings, known: list[str]) -> list[str]:
    place = collect.library_of(settings)
    if not (sealed.own_images(settings) and library.exists(place)):
        return []
    return sorted(set(library.table_of(place)["label"]) - set(known))


def _groups(run: RunDir, table: pd.DataFrame) -> list[tuple[str, list[int]]]:
    rows = {image: row for row, image in enumerate(table["id"])}
    groups = Decided.read(run).groups if run.decision.exists() else []
    return [
        (wording.group(group.images, group.at_least, group.like), [rows[image] for image in group.ids])
        for group in groups
        if all(image in rows for image in group.ids)
    ]
