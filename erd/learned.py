"""What a classifier has learned since an earlier one: the accuracy of both, class by class, on the same images.

Neither was trained on these images: they are validation and calibration images of the later run that were not in the
earlier one's training set. A class that the earlier classifier did not have it gets wrong, which is the point.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from erd import compute, files, params
from erd.data import ingest as packing
from erd.data.batches import Mixture, Rows
from erd.ensemble import load_net
from erd.errors import UserError
from erd.params import Settings
from erd.rundir import RunDir
from erd.training import predict

UNSEEN = ("val", "calibration", "clean")


@dataclass(frozen=True)
class SideBySide:
    before: str | None  # the batch of the earlier classifier; None where there is none to compare with
    classes: list[dict[str, Any]]  # name, images, now, before: shares that are right; None = there is no such figure
    images: int
    accuracy: float | None
    accuracy_before: float | None


def compare(settings: Settings, run: RunDir) -> SideBySide:
    """This run's classifier beside that of the stream's run before it; kept in learned.json."""
    found = side_by_side(settings, run, previous(settings, run))
    files.save_json(run.learned, found.__dict__)
    return found


def previous(settings: Settings, run: RunDir) -> RunDir | None:
    """The run of the same stream that was scored last before this one."""
    candidates = []
    mine = files.load_json(run.record("score"))["finished"]
    for path in run.root.parent.glob(f"*/{run.settings.name}"):
        other = RunDir(path.parent)
        if other.root == run.root or not other.pretrained.exists():
            continue
        if (record := files.load_json_if_whole(other.record("score"))) is None:
            continue
        try:
            if params.read(other.settings).stream != settings.stream:
                continue
        except UserError:  # of another version
            continue
        scored = record["finished"]
        if scored < mine:  # an old batch that is run again was never after the later ones
            candidates.append((scored, other))
    return max(candidates, key=lambda found: found[0])[1] if candidates else None


def side_by_side(settings: Settings, run: RunDir, other: RunDir | None) -> SideBySide:
    """Accuracies on images of `run` that neither its classifier nor that of `other` was trained on."""
    if other is not None and not fits(other, run):
        other = None
    labeled, manifest = packing.read(run.labeled), files.load_table(run.manifest(run.labeled))
    unseen = manifest["part"].isin(UNSEEN)
    if other is not None:
        trained = files.load_table(other.manifest(other.labeled)).query("part == 'train'")["id"]
        unseen &= ~manifest["id"].isin(trained)
    rows = np.flatnonzero(unseen)
    truth = manifest["label"].to_numpy()[rows]
    now = _right(settings, run, labeled, rows, truth)
    before, known_before = None, set()
    if other is not None:
        before = _right(settings, other, labeled, rows, truth)
        known_before = set(files.load_facts(other.pretrained)["classes"])
    classes: list[dict[str, Any]] = []
    for name in labeled.facts["classes"]:
        here = truth == name
        old = _share(before[here]) if before is not None and name in known_before else None
        classes.append({"name": name, "images": int(here.sum()), "now": _share(now[here]), "before": old})
    overall = None if before is None else _share(before)
    return SideBySide(other.batch_name if other else None, classes, len(rows), _share(now), overall)


def read(run: RunDir) -> SideBySide | None:
    return SideBySide(**files.load_json(run.learned)) if run.learned.exists() else None


def fits(other: RunDir, run: RunDir) -> bool:
    """Whether the classifier of another run takes this run's images, and it is known what it was trained on."""
    if not (other.pretrained.exists() and other.manifest(other.labeled).exists()):
        return False
    mine, theirs = (files.load_facts(net)["net"] for net in (run.pretrained, other.pretrained))
    return all(mine[key] == theirs[key] for key in ("image_size", "channels"))


def _right(settings: Settings, run: RunDir, labeled: packing.Packed, rows: np.ndarray, truth: np.ndarray) -> np.ndarray:
    if not len(rows):
        return np.zeros(0, bool)
    device = compute.device(settings.run)
    model, snapshots = load_net(run.pretrained, device)
    with compute.threads(settings.pretrain.threads):
        chosen = predict(model, snapshots, Mixture(Rows(labeled.images, torch.from_numpy(rows)), device=device))
    return np.array(files.load_facts(run.pretrained)["classes"])[chosen.argmax(1).numpy()] == truth


def _share(right: np.ndarray) -> float | None:
    return float(right.mean()) if len(right) else None
