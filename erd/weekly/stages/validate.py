"""validate: what came with reviews since the classifier before is learned only if that makes the classifier no worse.

Both are asked about images that neither was trained on. Where the new one is worse, what is new waits: a new class
until it has more images, other answers until they were corrected. Then the classifier is trained without it, so that a
refused one scores nothing, and what it could not learn stays novel and is flagged. With no review since, as with no
earlier classifier, there is nothing to refuse, and this stage only tells what was learned (learned.json).

Each training has its luck. An earlier classifier that had much would refuse all answers for ever, so what is new is
blamed only where a classifier that is trained now without it, with other random numbers, would do better too.
"""

import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from scipy.stats import binom

from erd.base.errors import UserError
from erd.data import collect, library, packed
from erd.data.library import Held
from erd.reporting import answer_words
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, OfClass, Refused
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training.members import classes_of, save_net
from erd.weekly import class_accuracy, sealed
from erd.weekly.stages import encode, ingest, pretrain
from erd.weekly.stages.base import Stage, one

log = logging.getLogger("erd")
LEARNED = 0.5  # of a new class's images that nobody trained on, so many are right at least: else it is not known
FELL = 0.05  # a known class may lose so much, as a class like it is learned …
BY_CHANCE = 0.05  # … or more where that can be chance: a p-value, over all classes together
MORE = 2  # times as many images a class takes before it is tried again: with a few more it would be the same


def validate(settings: Settings, run: RunDir) -> Done:
    """Tell what was learned since the batch before; train again without what made the classifier worse."""
    other, refused = class_accuracy.previous(settings, run), _refused_before(settings, run)
    try:
        found = class_accuracy.side_by_side(settings, run, other)
    except UserError as error:  # cleared away meanwhile, or damaged: another batch's files stop no run
        if other is None:
            raise
        log.warning("the classifier is not compared with that of %s: %s", other.batch_name, error)
        other, found = None, class_accuracy.side_by_side(settings, run, None)
    place, net = collect.library_of(settings), collect.net_of(settings)
    while sealed.own_images(settings) and other is not None and (more := _refused(settings, run, other, found)):
        classes = {one.what: one.needs for one in more if one.needs is not None}
        library.hold(place, net, Held(classes, [one.what for one in more if one.needs is None]))
        refused += more
        for sentence, command in map(answer_words.refused, more):
            log.warning("%s %s", sentence, command)
        ingest.ingest(settings, run)
        encode.gather(settings, run)  # of images that are encoded already
        pretrain.pretrain(settings, run)
        found = class_accuracy.side_by_side(settings, run, other)
    found = replace(found, refused=refused, worse=bool(_fell(settings, run, other, found)))
    found.write(run)
    for line in answer_words.learned(found):
        log.info("%s", line)
    return Done("validate", (run.class_accuracy,))


def _refused_before(settings: Settings, run: RunDir) -> list[Refused]:
    """Of an earlier time that this run was made: it is dealt without them now, and is to tell of them all the same."""
    told = ClassAccuracy.read(run)
    if told is None or not sealed.own_images(settings):
        return []
    still = library.held(collect.library_of(settings), collect.net_of(settings))
    return [one for one in told.refused if one.what in {*still.classes, *still.batches}]


def _refused(settings: Settings, run: RunDir, other: RunDir, found: ClassAccuracy) -> list[Refused]:
    """New classes that are not recognised. Else, where the classifier is worse: all new classes; where there is none
    the answers about batches that are new."""
    if found.before is None:
        return []
    before = set(classes_of(other.pretrained))
    fresh = [row for row in found.classes if row.name not in before]
    names = [row.name for row in fresh if row.now is None or row.now < LEARNED]
    fell = _fell(settings, run, other, found)
    if not names and not (fell and _is_to_blame(settings, run, other)):
        return []
    names = names or [row.name for row in fresh]
    known = library.read(collect.library_of(settings)).table
    if names:
        return [_one(name, found, known[known["label"] == name], fell, new=True) for name in names]
    here, there = (set(packed.table(each.labeled)["id"]) for each in (run, other))
    came = known[known["id"].isin(here - there) & (known["batch"] != "")]
    return [_one(str(batch), found, rows, fell) for batch, rows in came.groupby("batch", sort=False)]


def _one(what: str, found: ClassAccuracy, rows: pd.DataFrame, fell: list[OfClass], *, new: bool = False) -> Refused:
    return Refused(
        what=what,
        images=len(rows),
        needs=MORE * len(rows) if new else None,
        right=next((row.now for row in found.classes if row.name == what), None) if new else None,
        fell=fell[0] if fell else None,
        reviews=[batch for batch in rows["batch"].unique() if batch],
    )


def _is_to_blame(settings: Settings, run: RunDir, other: RunDir) -> bool:
    """Whether the classifier is also worse than one that is trained now, without what was labelled since `other`."""
    with TemporaryDirectory() as place:
        net = Path(place, "without.safetensors")
        labeled, known = packed.read(run.seen(run.labeled, settings)), packed.table(other.labeled)["id"]
        earlier = torch.from_numpy(np.flatnonzero(packed.table(run.labeled)["id"].isin(known)))
        fitted = pretrain.train(settings, labeled.only(earlier), "without what is new")
        save_net(net, *fitted, {"classes": labeled.facts["classes"]})
        return bool(_fell(settings, run, other, class_accuracy.side_by_side(settings, run, other, net=net), net))


def _fell(
    settings: Settings, run: RunDir, other: RunDir | None, found: ClassAccuracy, net: Path | None = None
) -> list[OfClass]:
    """Where it is worse than the one before by more than chance, the worst first: a class that both know, or all images
    together as the gate of the registry has them. `net` stands in for the one before.

    A class is judged by images that were labelled before: where answers are wrong, so are those it would be judged by.
    """
    if other is None or found.before is None:
        return []
    same = class_accuracy.side_by_side(settings, run, other, labelled_before=True, net=net).classes
    known = [row for row in same if row.images and row.before is not None]
    fell = [row for row in known if _worse(row, FELL, BY_CHANCE / len(known))]
    everything = OfClass("the classifier", found.images, found.accuracy, found.accuracy_before,
                         sum(row.lost for row in found.classes), sum(row.won for row in found.classes))  # fmt: skip
    if not fell and _worse(everything, settings.registry.accuracy_drop, BY_CHANCE):
        fell = [everything]
    return sorted(fell, key=lambda row: row.won - row.lost)


def _worse(row: OfClass, allowed: float, level: float) -> bool:
    """By a sign test on the images of which only one of the two was right."""
    drop = (row.before or 0.0) - (row.now or 0.0)
    return drop > allowed and float(binom.sf(row.lost - 1, row.lost + row.won, 0.5)) <= level


STAGE = Stage(
    "validate",
    "what is new is learned only if that makes the classifier no worse; how it does on each class",
    ("data.scenario", "data.source", "data.path", "model", "registry.accuracy_drop"),
    lambda run: [run.labeled, run.features, run.pretrained],
    lambda run: [run.class_accuracy],
    one(validate),
)
