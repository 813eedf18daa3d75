"""encode: what a frozen encoder makes of every image (`model.encoder`), which the nets then see in place of pixels.

An image is encoded once: features are kept by the hash of its pixels, with the library or beside the runs of a public
set, so that a week costs only its new images, and a killed run goes on where it was. Without an encoder nothing is
done.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from erd.base import code_digest, files, progress
from erd.data import collect, near_copies, packed
from erd.data.feature_store import Store, hashes_of
from erd.data.packed import Rows
from erd.nets import encoders, weights_file
from erd.nets.encoders import Encoder
from erd.runs import alarm_ledger, stage_records
from erd.runs.folder import RunDir
from erd.runs.results import Encoded
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training import devices, runners
from erd.weekly.stages.base import Job, Stage

BESIDE = ".features"  # no batch can have that name
AT_ONCE = 256  # images after which what was encoded is kept
FEWEST = 32  # images that a process more is worth starting for
LIKEST = 8  # training images by features, of which one may be a copy
NEAR = 512  # images of the batch that are compared at once


class Todo(NamedTuple):
    """Images of a set that nobody has encoded yet."""

    packed: Path
    rows: np.ndarray
    hashes: np.ndarray


def encode(settings: Settings, run: RunDir, todo: Sequence[Todo], number: int) -> Done:
    """A part of the images. Its number picks its GPU."""
    store, done = store_of(settings, run), 0
    tell = progress.to_file(told(run, number), sum(len(part.rows) for part in todo))

    def on_kept(images: int) -> None:
        nonlocal done
        done += images
        tell({"epoch": done})

    for part in todo:
        rows = packed.read(part.packed).some(torch.from_numpy(part.rows))
        fill(store, settings, rows, part.hashes, number, on_kept)
    return Done("encode", ())


def fill(
    store: Store,
    settings: Settings,
    rows: Rows,
    hashes: np.ndarray,
    number: int = 0,
    on_kept: Callable[[int], None] = lambda images: None,
) -> None:
    """Encode images and keep what comes of it, some hundred at a time."""
    for some in torch.arange(len(rows)).split(AT_ONCE):
        store.add(hashes[some.numpy()], encoder_of(settings, number).features(rows.take(some)))
        on_kept(len(some))


def gather(settings: Settings, run: RunDir) -> Done:
    """The features of each set in a file of its own, as the nets see them."""
    outputs = [run.encoded, *(run.features_of(path) for path in sets_of(run))] if settings.encoder else [run.encoded]
    earlier = remembered(settings, run)
    if settings.encoder:
        outputs.append(run.older)

    def work(key: str) -> None:
        if settings.encoder is None:
            for left in run.features.glob("*.safetensors"):  # of a run with one
                left.unlink()
            Encoded(None).write(run)
            return
        store = store_of(settings, run)
        for path in sets_of(run):
            packed.table(path)  # a set that is damaged is told before anything is replaced
        for path in sets_of(run):
            packed.pack_features(run.features_of(path), store.take(hashes_of(packed.read(path).rows())), path)
        _remember(earlier, run)
        width = packed.read(run.features_of(run.labeled)).images.shape[-1]
        facts = _chosen(settings)
        Encoded(settings.encoder, facts["weights"], facts["input_size"], width, _copies(settings, run)).write(run)

    code = [__name__, "erd.nets.encoders"]
    chosen = _chosen(settings) | {"earlier": [other.batch_name for other in earlier]}
    inputs = [*sets_of(run), *(other.features_of(other.batch) for other in earlier),
              *(packed.manifest(other.batch) for other in earlier)]  # fmt: skip
    return stage_records.once(run, "encode", code, chosen, inputs, outputs, work)


def remembered(settings: Settings, run: RunDir) -> list[RunDir]:
    """Runs of the batches before this one that are looked at with it (`data.window`), the earliest first."""
    if settings.encoder is None or settings.data.inbox is None or settings.data.window < 2:
        return []
    names = alarm_ledger.before(run.alarms, settings.stream, run.batch_name)[1 - settings.data.window :]
    there = [RunDir(run.root.parent / name) for name in names]
    chosen = _chosen(settings)
    sees = (settings.encoder, chosen["weights"], chosen["input_size"])
    return [other for other in there if other.features_of(other.batch).exists() and Encoded.read(other).sees == sees]


def _remember(earlier: Sequence[RunDir], run: RunDir) -> None:
    """Features of earlier batches, without images that have been labelled since: in C they would not be held out."""
    mine = [packed.read(run.features_of(path)).images.flatten(1) for path in (run.labeled, run.batch)]
    seen = {row.tobytes() for part in mine for row in part.numpy()}
    found: list[Tensor] = []
    groups: list[str] = []
    for other in earlier:
        table = packed.table(other.batch)
        # A patient may come again; an image that belongs to nobody is its own group, and others may have its name.
        whose = table["group"].mask(table["group"] == table["id"], other.batch_name + "/" + table["id"]).tolist()
        rows = packed.read(other.features_of(other.batch)).images.flatten(1)
        new = [number for number, row in enumerate(rows.numpy()) if row.tobytes() not in seen]
        seen |= {rows[number].numpy().tobytes() for number in new}
        found.append(rows[new])
        groups += [whose[number] for number in new]
    features = torch.cat([mine[0][:0], *found])[:, None, None, :].contiguous()
    facts = {"batches": [other.batch_name for other in earlier], "groups": groups}
    files.save_tensors(run.older, {"images": features}, facts)


def sets_of(run: RunDir) -> list[Path]:
    return [run.labeled, run.batch, run.holdout]


def told(run: RunDir, number: int) -> Path:
    return run.progress(run.features / f"part{number}")


def encoder_of(settings: Settings, number: int = 0) -> Encoder:
    """Loaded once a process."""
    assert settings.encoder is not None
    weights = weights_file(settings.model.weights)
    device = devices.device(settings.run, number)
    known = files.sha256(weights) if weights else ""  # another file may have the name since
    return _loaded(settings.encoder, weights, _input_size(settings), settings.data.download, device, known)


@functools.cache
def _loaded(name: str, weights: Path | None, size: int, download: bool, device: torch.device, known: str) -> Encoder:
    return encoders.load(name, weights=weights, size=size, download=download, device=device)


def store_of(settings: Settings, run: RunDir) -> Store:
    """With the library where there is one, else beside the runs."""
    own = settings.data.scenario == "own" and settings.data.source in (None, "library")
    place = collect.library_of(settings) / "features" if own else run.root.parent / BESIDE
    code = code_digest.of("erd.nets.encoders")["erd.nets.encoders"]
    return Store(place, files.digest([_chosen(settings), code])[:16])


def _chosen(settings: Settings) -> dict[str, Any]:
    """What decides the features of an image."""
    if settings.encoder is None:
        return {"encoder": None}
    weights = weights_file(settings.model.weights)
    if weights is not None:
        known = files.sha256(weights)
    elif settings.encoder in encoders.BUNDLED:
        known = encoders.BUNDLED[settings.encoder].sha256
    else:  # of the hub, where another version may have the same name
        known = encoder_of(settings).weights
    return {
        "encoder": settings.encoder,
        "weights": known,
        "input_size": _input_size(settings),
    }


def _input_size(settings: Settings) -> int:
    return settings.model.input_size or encoders.own_size(settings.encoder or "")


def _copies(settings: Settings, run: RunDir) -> list[str]:
    """A warning of images of an inbox that are near copies of training images: by features the likest, which pixels
    confirm."""
    if settings.data.inbox is None:
        return []
    seen, batch_seen = packed.read(run.features_of(run.labeled)), packed.read(run.features_of(run.batch))
    labeled, batch = packed.read(run.labeled), packed.read(run.batch)
    assert labeled.part is not None
    trained = torch.nonzero(labeled.part == packed.PARTS.index("train"))[:, 0]
    known = seen.images[trained].flatten(1).float()
    mean, std = known.mean(0), known.std(0).clamp_min(1e-6)
    known = F.normalize((known - mean) / std)
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(batch), NEAR):
        asked = F.normalize((batch_seen.images[start : start + NEAR].flatten(1).float() - mean) / std)
        likest = (asked @ known.T).topk(min(LIKEST, len(known)), dim=1).indices
        found: dict[int, int] = {}
        for rank in likest.T:
            partners = labeled.some(trained[rank]).every().numpy()
            for i in near_copies.copies(batch.images[start : start + NEAR].numpy(), partners):
                found.setdefault(start + i, int(trained[rank[i]]))
        pairs += sorted(found.items())
    ids = [packed.table(path)["id"].tolist() for path in (run.batch, run.labeled)]
    return near_copies.warnings(pairs, *ids)


def _jobs(settings: Settings, run: RunDir) -> list[Job]:
    """As many parts as the runner does at a time, of the images that nobody has encoded."""
    if settings.encoder is None:
        return []
    todo = _missing(settings, run)
    total = sum(len(part.rows) for part in todo)
    if not total:
        return []
    count = max(1, min(runners.of(settings.run, total).count, total // FEWEST))
    jobs = []
    for number in range(count):
        mine = [Todo(part.packed, part.rows[number::count], part.hashes[number::count]) for part in todo]
        images = sum(len(part.rows) for part in mine)
        jobs.append(
            Job(f"{number + 1} of {count}", encode, (settings, run, mine, number), told(run, number), epochs=images)
        )
    return jobs


def _missing(settings: Settings, run: RunDir) -> list[Todo]:
    encoders.check(
        settings.encoder or "",
        weights=weights_file(settings.model.weights),
        size=settings.model.input_size,
        download=settings.data.download,
    )
    store = store_of(settings, run)
    found: list[Todo] = []
    seen: set[bytes] = set()  # an image may be in two sets
    for path in sets_of(run):
        hashes = hashes_of(packed.read(path).rows())
        if rows := [row for row in store.missing(hashes) if hashes[row].tobytes() not in seen]:
            found.append(Todo(path, np.array(rows), hashes[rows]))
            seen |= {code.tobytes() for code in hashes[rows]}
    return found


STAGE = Stage(
    "encode",
    "what a frozen encoder makes of every image, once; nothing without one",
    ("data.scenario", "data.inbox", "data.window", "model"),
    lambda run: [path for data in sets_of(run) for path in (data, packed.manifest(data))],
    lambda run: [run.features],
    _jobs,
    side_by_side=True,
    finish=gather,
    unit="image",
)
