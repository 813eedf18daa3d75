"""What experts said about a batch becomes part of the labelled set, and can be taken back.

An image enters with the class that all who saw it agree on. Images from the random audit are kept for calibration: they
are drawn like next week's known ones; flagged images are not, they were picked for being odd.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from erd.base.errors import RunError, UserError
from erd.data import collect, library, packed
from erd.data.entries import MANIFESTS
from erd.data.library import Library
from erd.runs import configure
from erd.runs.answers import Answer, Answers, agreed, audited
from erd.runs.folder import RunDir


@dataclass(frozen=True)
class Incorporated:
    added: int  # images of this batch that are in the labelled set now
    removed: int  # that were in it before and are no more
    new_classes: list[str]
    waiting: dict[str, int]  # classes with too few images to be learned yet, and how many they have
    needs: dict[str, int]  # and how many they need
    disagreed: int  # images that reviewers call different things: left out


def incorporate(run: RunDir, place: Path = library.PLACE) -> Incorporated:
    """Add what was answered about the batch. Again with more answers, the images of this batch are taken anew."""
    settings = configure.read(run)
    answers = Answers(run.answers).current()
    if not answers:
        raise UserError(f"nobody has answered anything about {run.batch_name}: `erd review --batch {run.batch_name}`")
    settled, disputed = agreed(answers)
    before = library.read(place)
    rest = before.take(~before.of_batch(run.batch_name))
    after = rest.joined(_arrived(run, settled, audited(answers)))
    _save(before, after, place, run.batch_name)
    needs = library.held(place, collect.net_of(settings)).classes
    waiting = library.waiting(after.table, settings.data.least, needs)
    return Incorporated(
        added=len(after) - len(rest),
        removed=len(before) - len(rest),
        new_classes=sorted(set(after.table["label"]) - set(rest.table["label"])),
        waiting=waiting,
        needs={name: max(settings.data.least, needs.get(name, 0)) for name in waiting},
        disagreed=len(disputed),
    )


def take_back(run: RunDir, place: Path = library.PLACE) -> Incorporated:
    """The labelled set as if the batch had never been incorporated; what was answered stays."""
    before = library.read(place)
    rest = before.take(~before.of_batch(run.batch_name))
    if len(rest) == len(before):
        raise UserError(f"nothing of {run.batch_name} is in the labelled images")
    _save(before, rest, place, run.batch_name)
    return Incorporated(0, len(before) - len(rest), [], {}, {}, 0)


def _arrived(run: RunDir, settled: dict[str, Answer], drawn: set[str]) -> Library:
    """The images of the batch that were given a class, with the class."""
    images, manifest = packed.read(run.batch).images, packed.table(run.batch)
    labels = {image: answer.label for image, answer in settled.items() if answer.label}
    rows = np.flatnonzero(manifest["id"].isin(labels))
    chosen = manifest.iloc[rows]
    if "sha256" not in chosen:  # a scenario's batch came from no files
        pixels = [hashlib.sha256(images[row].numpy().tobytes()).hexdigest() for row in rows.tolist()]
        chosen = chosen.assign(sha256=pixels, acquired_at="")
    columns = {
        # A batch's ids are paths below its inbox, where next week has the same names.
        "id": run.batch_name + "/" + chosen["id"],
        "sha256": chosen["sha256"],
        "label": chosen["id"].map(labels),
        "group": np.where(chosen["group"] == chosen["id"], run.batch_name + "/" + chosen["id"], chosen["group"]),
        "acquired_at": chosen["acquired_at"],
        "audited": chosen["id"].isin(drawn),
        "batch": run.batch_name,
        "original": _originals(run, chosen),
    }
    table = pd.DataFrame(columns)[list(library.COLUMNS)].reset_index(drop=True)
    return Library(images[rows].numpy(), table)


def _originals(run: RunDir, chosen: pd.DataFrame) -> list[str]:
    """The file each image came from; "" where it was in none of its own, or its name may not be kept."""
    inbox = configure.read(run).data.inbox
    if inbox is None or "file" not in chosen:
        return [""] * len(chosen)
    folder = Path(inbox).parent if Path(inbox).suffix.lower() in MANIFESTS else Path(inbox)
    return [(folder / file).as_posix() if file else "" for file in chosen["file"]]


def _save(before: Library, after: Library, place: Path, batch: str) -> None:
    if not len(after):
        raise RunError(f"that would leave no labelled image in {place}")
    library.save(after, place)
    labels = [grown.table.set_index("id")["label"] for grown in (before, after)]
    gone = labels[0][labels[0] != labels[1].reindex(labels[0].index)]  # taken out, or called something else
    library.release(place, set(gone), batch)
