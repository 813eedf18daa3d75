"""What a quiet week is worth: from which share of the batch on would a new class have been noticed?

Nobody knows what the next new class looks like, but labelled classes are known: each is played as new in turn, at
growing shares of a batch as large as the real one, and it is asked how likely such a group is by chance. From labelled
images and an encoder alone; no net is trained.
"""

import math

import numpy as np
import torch

from erd.base import progress
from erd.base.errors import UserError
from erd.base.seeds import derive
from erd.data import packed
from erd.runs import pruned
from erd.runs.folder import RunDir
from erd.runs.results import Encoded, Ingested, OfNewClass, Sensitivity
from erd.settings.schema import Settings
from erd.statistics import scan
from erd.statistics.candidates import Known, Space
from erd.statistics.verdict import (
    NOTICED,
)  # people are then told; the alarm, which keeps a rate over a year, takes more
from erd.training import devices

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
CLASSES = 8  # that are played at most, drawn by the seed
FEWEST = 3  # images that can be a group; the class counts as noticed where people would be told (NOTICED)


def measure(settings: Settings, run: RunDir) -> Sensitivity:
    """Written beside the run's other results, and returned."""
    pruned.check(run)
    if Encoded.read(run).encoder is None:
        raise UserError("the sensitivity is measured on the features of an encoder: set model.encoder and run again")
    labeled = packed.read(run.features_of(run.labeled))
    assert labeled.labels is not None
    features, labels = labeled.images.flatten(1), labeled.labels.numpy()
    names = Ingested.read(run).classes
    if len(names) < 2:
        raise UserError(
            f"the sensitivity plays known classes as new in turn, and {names[0]} is the only one: label a second one"
        )
    rng = np.random.default_rng(derive(settings.seed, "sensitivity"))
    played = np.sort(rng.permutation(len(names))[:CLASSES])
    images = len(packed.read(run.batch))
    with devices.threads(settings.pretrain.threads):
        turns = progress.each(played.tolist(), "sensitivity", unit="class")
        found = [OfNewClass(names[c], _noticed_from(features, labels, c, images, rng)) for c in turns]
    shares = sorted(math.inf if one.noticed_from is None else one.noticed_from for one in found)
    middle = shares[len(shares) // 2]
    result = Sensitivity(None if math.isinf(middle) else middle, found)
    result.write(run)
    return result


def _noticed_from(
    features: torch.Tensor, labels: np.ndarray, new: int, images: int, rng: np.random.Generator
) -> float | None:
    """The smallest share at which it would have been noticed; None where it would at none that was tried."""
    known, novel = (rng.permutation(np.flatnonzero(which)) for which in (labels != new, labels == new))
    size = min(images, len(known) // 4)
    batch, calibration, train = np.split(known, [size, size + 2 * (len(known) - size) // 5])
    for share in SHARES:
        count = round(size * share / (1 - share))
        if count < FEWEST or count > len(novel):
            continue
        rows = [torch.from_numpy(part) for part in (train, calibration, np.concatenate([batch, novel[:count]]))]
        kinds, given = torch.from_numpy(labels[train]), [features[part] for part in rows]
        seen = list(map(Space.of(given[0], kinds, given[1:]), given))
        if scan.estimated_p(seen[2], seen[1], Known.of(seen[0], kinds), new) <= NOTICED:
            return share
    return None
