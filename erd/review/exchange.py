"""Answers as a CSV table, and as tasks of Label Studio (https://labelstud.io): out, and in again."""

import csv
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from erd.base import files, spreadsheets
from erd.base.errors import RunError, UserError, why
from erd.review.queue import Queue
from erd.runs.answers import KINDS, LISTS, Answer, now, tidy

COLUMNS = ("image", "kind", "label", "reviewer", "list", "at")
CHOICES = {kind.name: kind.choice for kind in KINDS.values() if kind.choice}  # what is no class, in Label Studio
_parsing = threading.Lock()  # a file of JSON takes many times its size in memory: one at a time


def to_csv(queue: Queue) -> str:
    return spreadsheets.text(pd.DataFrame([asdict(answer) for answer in queue.answers.current()], columns=COLUMNS))


def to_label_studio(queue: Queue, address: str) -> list[dict[str, Any]]:
    """A task for each image that the page begins with and each audited one; `address` is where it serves the images."""
    given: dict[tuple[str, str], list[Answer]] = {}
    for answer in queue.answers.current():
        given.setdefault((answer.list, answer.image), []).append(answer)
    shown = [*queue.items("flagged", 0, queue.shown), *queue.items("audit", 0, len(queue.table))]
    tasks = []
    for number, item in enumerate(shown):
        name = "flagged" if number < queue.shown else "audit"
        tasks.append(_task(queue, address, name, item, given.pop((name, item["id"]), [])))
    rows = {image: row for row, image in enumerate(queue.table["id"])}
    for (name, image), answers in given.items():  # further down the list
        if image in rows:
            tasks.append(_task(queue, address, name, {"row": rows[image], "id": image}, answers))
    return tasks


def read(path: Path, queue: Queue) -> dict[str, int]:
    """Take in a file by its ending; how many answers were added, there already, and of images that are not here."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    return take_in(content, path.suffix, queue)


def write(path: Path, queue: Queue, address: str) -> int:
    if path.suffix not in (".csv", ".json"):
        raise UserError(f"{path} must end in .csv, or in .json for Label Studio")
    if path.suffix == ".csv":
        with files.replacing(path) as draft:
            draft.write_text(to_csv(queue), encoding="utf-8", newline="")
    else:
        files.save_json(path, to_label_studio(queue, address))
    return len(queue.answers.current())


def take_in(content: bytes, ending: str, queue: Queue) -> dict[str, int]:
    """All of it or, where anything is wrong, nothing. The same file once more changes nothing."""
    if ending not in (".csv", ".json"):
        raise UserError("a file to import ends in .csv, or in .json for Label Studio")
    try:
        with _parsing:
            text = content.decode("utf-8-sig")  # spreadsheets put a mark in front
            found = list(_from_csv(text) if ending == ".csv" else _from_label_studio(text, queue.run.batch_name))
    except (ValueError, RecursionError, csv.Error) as error:  # also of a number with thousands of digits
        raise RunError(f"the file is no {ending[1:].upper()} ({why(error)})") from error
    ids = set(queue.table["id"])
    known = [answer for answer in found if answer.image in ids]
    added = queue.answers.merge(known)
    return {"added": added, "there": len(known) - added, "unknown": len(found) - len(known)}


def _task(queue: Queue, address: str, name: str, item: dict[str, Any], answers: list[Answer]) -> dict[str, Any]:
    version = f"erd {queue.run.batch_name}"
    predictions = (
        [{"model_version": version, "score": item["score"], "result": [_choice(item["predicted"])]}]
        if "score" in item
        else []
    )
    return {
        "data": {
            "image": f"{address}/image/{item['row']}/large.png",
            "id": item["id"],
            "list": name,
            "batch": queue.run.batch_name,
        },
        "predictions": predictions,
        # Label Studio refuses a task whose `completed_by` is no user of its own, so names go beside it.
        "annotations": [
            {"result": [_choice(CHOICES.get(a.kind, a.label or ""))], "reviewer": a.reviewer, "created_at": a.at}
            for a in answers
        ],
    }


def _choice(text: str) -> dict[str, Any]:
    return {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [text]}}


def _from_csv(text: str) -> Iterator[Answer]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
        raise RunError(f"the table has no column {', '.join(missing)}; it must have {','.join(COLUMNS)}")
    for row in reader:
        try:
            cells = {column: (row[column] or "").strip() for column in COLUMNS} | {"image": row["image"] or ""}
            cells = {column: spreadsheets.meant(cell) for column, cell in cells.items()}
            label, at = tidy(cells["label"]) or None, _time(cells["at"])
            yield Answer(cells["image"], cells["kind"], label, tidy(cells["reviewer"]), cells["list"], at)
        except UserError as error:
            raise RunError(f"line {reader.line_num}: {why(error)}") from error


def _from_label_studio(text: str, batch: str) -> Iterator[Answer]:
    """Choices of annotations that were not cancelled; a task without annotations says nothing. Images of another
    batch may have the same names: their ids are made ones that no image has."""
    tasks = json.loads(text)
    if not isinstance(tasks, list) or not all(isinstance(t, dict) and isinstance(t.get("data"), dict) for t in tasks):
        raise RunError("the file is no list of Label Studio tasks; export there as JSON, not as JSON-MIN")
    kinds = {text: kind for kind, text in CHOICES.items()}
    for number, task in enumerate(tasks, start=1):
        data = task["data"]
        try:
            for annotation in task.get("annotations") or []:
                choices = [
                    choice
                    for result in annotation.get("result") or []
                    if result.get("type") == "choices"
                    for choice in result["value"]["choices"]
                ]
                if annotation.get("was_cancelled") or not choices:
                    continue
                kind = kinds.get(choices[0], "class")
                label = tidy(choices[0]) if kind == "class" else None
                at = _time(annotation.get("updated_at") or annotation.get("created_at") or "")
                name = data.get("list") if data.get("list") in LISTS else LISTS[0]
                image = str(data.get("id", "")) if data.get("batch", batch) == batch else ""
                yield Answer(image, kind, label, _who(annotation), name, at)
        except (UserError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"task {number} is not as Label Studio writes it: {why(error)}") from error


def _who(annotation: dict[str, Any]) -> str:
    """Label Studio names a user by number, or by number, name and address."""
    user = annotation.get("reviewer") or annotation.get("completed_by")
    if isinstance(user, dict):
        user = user.get("email") or user.get("username") or user.get("id")
    return tidy(f"user {user}" if isinstance(user, int) else str(user or "Label Studio"))


def _time(text: str) -> str:
    """In UTC; without a time, now."""
    try:
        at = datetime.fromisoformat(text or now())
        return (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).isoformat()
    except (ValueError, TypeError, OverflowError):  # the last: in another year than there are in UTC
        raise UserError(f"'{str(text)[:40]}' is no time such as 2026-11-16T09:30:00+00:00") from None
