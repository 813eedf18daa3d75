"""What a classifier has learned since an earlier one: the accuracy of both, class by class, on the same images.

Neither was trained on these images: they are validation and calibration images of the later run that were not in the
earlier one's training set. A class that the earlier classifier did not have it gets wrong, which is the point.
"""

from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from erd.base.errors import UserError
from erd.data import packed
from erd.data.packed import Packed
from erd.runs import configure, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Encoded, OfClass
from erd.settings.schema import Settings
from erd.training import devices, members
from erd.training.batches import Mixture
from erd.training.loop import predict
from erd.training.members import load_net

UNSEEN = ("val", "calibration", "clean")


def previous(settings: Settings, run: RunDir) -> RunDir | None:
    """The run of the same stream that was scored last before this one."""
    candidates = []
    mine = stage_records.read(run, "score")  # of an earlier time that this run was made
    for path in run.root.parent.glob(f"*/{run.settings.name}"):
        other = RunDir(path.parent)
        if other.root == run.root or not other.pretrained.exists():
            continue
        if (record := stage_records.read(other, "score")) is None:
            continue
        if mine is None or record.finished < mine.finished:  # an old batch run again was never after the later ones
            candidates.append((record.finished, other))
    for _, other in sorted(candidates, key=lambda found: found[0], reverse=True):
        with suppress(UserError):  # of another version
            if configure.read(other).stream == settings.stream:
                return other
    return None


def side_by_side(
    settings: Settings, run: RunDir, other: RunDir | None, *, labelled_before: bool = False, net: Path | None = None
) -> ClassAccuracy:
    """Accuracies on images of `run` that neither its classifier nor that of `other` was trained on; on request on those
    alone that were labelled when `other` was made. `net` stands in for the classifier of `other`."""
    if other is not None and not fits(other, run):
        other = None
    labeled = packed.read(run.seen(run.labeled, settings))
    manifest = packed.table(run.labeled, "part", "label")
    unseen = manifest["part"].isin(UNSEEN)
    if other is not None:
        earlier = packed.table(other.labeled, "part")
        unseen &= ~manifest["id"].isin(earlier.query("part == 'train'")["id"])
        if labelled_before:
            unseen &= manifest["id"].isin(earlier["id"])
    rows = np.flatnonzero(unseen)
    truth = manifest["label"].to_numpy()[rows]
    now = _right(settings, run.pretrained, labeled, rows, truth)
    before, known_before = None, set()
    if other is not None:
        before = _right(settings, net or other.pretrained, labeled, rows, truth)
        known_before = set(members.classes_of(other.pretrained))
    classes: list[OfClass] = []
    for name in labeled.facts["classes"]:
        here = truth == name
        old = _share(before[here]) if before is not None and name in known_before else None
        lost, won = (0, 0) if before is None else ((before & ~now)[here].sum(), (now & ~before)[here].sum())
        classes.append(OfClass(name, int(here.sum()), _share(now[here]), old, int(lost), int(won)))
    overall = None if before is None else _share(before)
    return ClassAccuracy(other.batch_name if other else None, classes, len(rows), _share(now), overall)


def fits(other: RunDir, run: RunDir) -> bool:
    """Whether the classifier of another run takes this run's images, and it is known what it was trained on."""
    if not (other.pretrained.exists() and packed.manifest(other.labeled).exists()):
        return False
    mine, theirs = (members.made_of(net) for net in (run.pretrained, other.pretrained))
    if run.encoded.exists() and other.encoded.exists() and Encoded.read(run).sees != Encoded.read(other).sees:
        return False
    return all(mine[key] == theirs[key] for key in ("image_size", "channels"))


def _right(settings: Settings, net: Path, labeled: Packed, rows: np.ndarray, truth: np.ndarray) -> np.ndarray:
    if not len(rows):
        return np.zeros(0, bool)
    device = devices.device(settings.run)
    model, snapshots = load_net(net, device)
    with devices.threads(settings.pretrain.threads):
        chosen = predict(model, snapshots, Mixture(labeled.some(torch.from_numpy(rows)), device=device))
    return np.array(members.classes_of(net))[chosen.argmax(1).numpy()] == truth


def _share(right: np.ndarray) -> float | None:
    return float(right.mean()) if len(right) else None
