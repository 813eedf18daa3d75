"""All images of a run: from a scenario's sources, or an organisation's own and an inbox, dealt out and packed.

collected = collect(settings)
write(collected, run)                # labelled images, batch and holdout, each a packed set (`packed.py`)
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from erd.base import files
from erd.base.errors import RunError, UserError, nearest
from erd.base.seeds import derive
from erd.data import corrupted_sets, inbox, library, near_copies, reading, sources
from erd.data.arrays import in_colour
from erd.data.dealing import own_sizes, set_apart, split
from erd.data.images import Images
from erd.data.packed import PARTS, manifest, pack, refer
from erd.data.pixels import Pixels
from erd.data.sources.base import Source
from erd.settings.families import get
from erd.settings.scenarios import SIZES, Scenario, hidden
from erd.settings.schema import Settings


@dataclass(frozen=True)
class Collected:
    """All images of a run. `part` indexes PARTS; `truth` is "known" or "novel", None where nobody knows."""

    classes: list[str]
    labeled: Images
    part: np.ndarray
    batch: Images
    batch_truth: np.ndarray | None
    holdout: Images
    holdout_truth: np.ndarray
    rejected: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    batch_files: dict[str, np.ndarray] = field(default_factory=dict)  # further columns of an inbox's manifest
    waiting: dict[str, str] = field(default_factory=dict)  # classes that are not learned yet, a sentence each
    refer_to: Path | None = None  # the library that holds the labelled images: nets look at features, not at a copy


class Places(Protocol):
    """Where `write` puts what: packed sets, a JSON of facts, a CSV of what was set aside."""

    @property
    def labeled(self) -> Path: ...
    @property
    def batch(self) -> Path: ...
    @property
    def holdout(self) -> Path: ...
    @property
    def ingested(self) -> Path: ...
    @property
    def quarantine(self) -> Path: ...


def collect(settings: Settings) -> Collected:
    """Read the scenario's sources and deal the images out."""
    data, scenario = settings.data, get(settings.data.scenario)
    known_source, novel_source = load_sources(settings, scenario)
    known_classes, novel_classes = known_and_novel(settings, scenario, known_source, novel_source)
    # Candidate classes and neighbours compare with whatever is labelled; only members need classes to disagree about.
    compares = settings.score.join == "neighbours" and settings.detect.calibration != "paper"
    if len(known_classes) < (1 if compares else 2):
        waiting = "".join(f"; {text}" for text in known_source.waiting.values())
        enough = ", or one with an encoder (model.encoder)" if settings.encoder is None and known_classes else ""
        count = f"{len(known_classes)} known class{'es' * (not known_classes)}"
        raise UserError(f"{known_source.name} has {count}; a classifier needs two or more{enough}{waiting}")
    if known_source.name == "library" and not (data.inbox or novel_classes or data.batch_known):
        raise UserError(
            "which week? `--batch 2026-W46` takes the images of inbox/2026-W46; for a trial name classes that are "
            "played as new, such as --set 'data.novel=[dog]'"
        )
    known, in_test = join(known_source, known_classes)
    wanted_novel, shift = (data.batch_novel or 0) + (data.holdout_novel or 0), scenario.shift
    novel = _novel_pool(novel_source, novel_classes, wanted_novel)
    root = Path(data.root) if data.root else None
    if shift is not None and shift.on == "novel":  # they are known images, corrupted: any, where we make them
        if corrupted_sets.corrupted_file(novel_source.name, root, shift) is None:
            novel, _ = join(novel_source, novel_classes)
        stays, chosen_rows = set_apart(known, novel, wanted_novel, settings.seed)
        known, in_test, novel = known.take(stays), in_test[stays], novel.take(chosen_rows)

    sizes = _sizes(settings, labeled=int((~in_test).sum()), test=int(in_test.sum()), novel=len(novel))
    if data.inbox is not None or scenario.name != "own":
        in_test = np.zeros(len(known), bool)
    audited, picked = (np.isin(known.ids, ids) for ids in (known_source.audited, known_source.picked))
    dealt = split(known, in_test, novel, sizes, settings.seed, audited=audited, picked=picked)

    positions = np.concatenate([dealt[name] for name in PARTS])
    chosen = known.take(positions)
    part = np.repeat(np.arange(len(PARTS)), [len(dealt[name]) for name in PARTS])
    chosen = replace(chosen, labels=np.searchsorted(known_classes, chosen.labels))
    names = [known_source.classes[c] for c in known_classes]
    _check_labeled(chosen, part, names, known_source.name)

    rejected, warnings = list(known_source.rejected), [*known_source.waiting.values(), *dealt.warnings]
    if len(names) == 1:
        warnings.append(f"one known class, {names[0]}: there is nothing to classify, so its accuracy says nothing; an "
                        "image is compared with the labelled ones and with the rest of the batch")  # fmt: skip
    if novel_source is not known_source:
        rejected += novel_source.rejected

    def mixed(name: str) -> tuple[Images, np.ndarray]:
        unknown = novel.take(dealt[f"{name}_novel"])
        if shift is not None and shift.on in ("novel", name):
            unknown, told = corrupted_sets.shifted(unknown, novel_source.name, root, shift)
            warnings.extend({told} - {"", *warnings})
        return _mix(known.take(dealt[f"{name}_known"]), unknown, settings.seed, name)

    if data.inbox is not None:
        place, size, colour = Path(data.inbox), chosen.images.shape[1], chosen.images.ndim == 4
        arrived = inbox.batch(place, size, settle=data.settle, colour=colour)
        batch, batch_truth, batch_files = arrived.images, None, arrived.columns
        rejected += arrived.rejected
        if settings.encoder is None:  # else features find them, once there are some
            trained = chosen.take(part == PARTS.index("train"))
            pairs = near_copies.near_duplicates(np.asarray(batch.images), np.asarray(trained.images))
            warnings += near_copies.warnings(pairs, batch.ids.tolist(), trained.ids.tolist())
    else:
        batch_files = {}
        batch, batch_truth = mixed("batch")
    holdout, holdout_truth = mixed("holdout")
    if not len(batch):
        raise UserError("the batch has no images: set data.batch_known and data.batch_novel above 0, or fill the inbox")
    refer_to = library_of(settings) if settings.encoder and isinstance(chosen.images, Pixels) else None
    return Collected(
        names, chosen, part, batch, batch_truth, holdout, holdout_truth, rejected, warnings, batch_files,
        known_source.waiting, refer_to,
    )  # fmt: skip


def library_of(settings: Settings) -> Path:
    return Path(settings.data.path) if settings.data.path else library.PLACE


def net_of(settings: Settings) -> str:
    """By what it is known in the library that a class could not be learned."""
    return f"{settings.model.net} on {settings.encoder}" if settings.encoder else str(settings.model.net)


def write(collected: Collected, places: Places) -> list[Path]:
    """Pack everything; returns what was written."""
    classes, part = collected.classes, collected.part
    if collected.refer_to is not None:
        labeled = refer(places.labeled, collected.labeled, collected.refer_to, classes, part)
    else:
        labeled = pack(places.labeled, collected.labeled, classes, part=part)
    written = [
        labeled,
        pack(places.batch, collected.batch, None, truth=collected.batch_truth, columns=collected.batch_files),
        pack(places.holdout, collected.holdout, None, truth=collected.holdout_truth),
    ]
    sizes = {name: int((collected.part == code).sum()) for code, name in enumerate(PARTS)}
    for name, truth in (("batch", collected.batch_truth), ("holdout", collected.holdout_truth)):
        if truth is None:
            sizes[name] = len(collected.batch)
        else:
            sizes |= {f"{name}_{kind}": int((truth == kind).sum()) for kind in ("known", "novel")}
    facts = {"classes": collected.classes, "sizes": sizes, "warnings": collected.warnings, "waiting": collected.waiting}
    files.save_json(places.ingested, facts)
    reading.write_rejected(places.quarantine, collected.rejected)
    return [*written, *map(manifest, written), places.ingested, places.quarantine]


# ---------------------------------------------------------------------------------------------------- what there is


def load_sources(settings: Settings, scenario: Scenario) -> tuple[Source, Source]:
    """Where the known images come from, and the novel ones: often the same."""
    data = settings.data
    root = Path(data.root) if data.root else None

    def one(name: str) -> Source:
        if name == "own":
            path = Path(data.path) if data.path else None
            if data.source in (None, "library"):
                return library.source(library_of(settings), data.image_size, data.least, net_of(settings))
            return sources.load(data.source, root, path=path, image_size=data.image_size, largest=data.largest)
        return sources.load(name, root, download=data.download, image_size=data.image_size)

    known = one(scenario.known_source)
    novel = known if scenario.novel_source == scenario.known_source else one(scenario.novel_source)
    if known.train.images.ndim != novel.train.images.ndim:
        known, novel = _in_colour(known), _in_colour(novel)
    return known, novel


def known_and_novel(
    settings: Settings, scenario: Scenario, known: Source, novel: Source
) -> tuple[list[int], list[int]]:
    """Class numbers that are known, and that are novel."""
    if scenario.known_source != "own":
        return (
            list(range(len(known.classes)) if scenario.known is None else scenario.known),
            list(range(len(novel.classes)) if scenario.novel is None else scenario.novel),
        )

    def numbers(names: list[str | int], key: str) -> list[int]:
        for name in names:
            if str(name) not in known.classes:
                raise UserError(f"{key} names the class '{name}': {nearest(str(name), known.classes)}")
        return sorted(known.classes.index(str(name)) for name in names)

    novel_numbers = numbers(settings.data.novel or [], "data.novel")
    rest = [c for c in range(len(known.classes)) if c not in novel_numbers]
    known_numbers = rest if settings.data.known is None else numbers(settings.data.known, "data.known")
    if both := set(known_numbers) & set(novel_numbers):
        raise UserError(f"class '{known.classes[min(both)]}' is in data.known and in data.novel; it can be only one")
    return known_numbers, novel_numbers


def join(source: Source, classes: list[int]) -> tuple[Images, np.ndarray]:
    """The images of some classes, and which of them are of the official test part."""
    train, test = (part.take(np.isin(part.labels, classes)) for part in (source.train, source.test))
    return _concatenate(train, test), np.repeat([False, True], [len(train), len(test)])


def _novel_pool(source: Source, classes: list[int], wanted: int) -> Images:
    """Novel images: nobody trains on them, so the training part helps out where the test part is too small."""
    both, in_test = join(source, classes)
    return both.take(in_test) if wanted and in_test.sum() >= wanted else both


def _in_colour(source: Source) -> Source:
    train, test = (replace(part, images=in_colour(np.asarray(part.images))) for part in (source.train, source.test))
    return replace(source, train=train, test=test)


def _concatenate(first: Images, second: Images) -> Images:
    if not len(first) or not len(second):
        return first if len(first) else second
    if isinstance(first.images, Pixels) and isinstance(second.images, Pixels) and first.images.state:
        pixels: np.ndarray | Pixels = first.images.with_rows(second.images.rows)  # of one library: no pixel is read
    else:
        pixels = np.concatenate([np.asarray(first.images), np.asarray(second.images)])
    names = ("labels", "ids", "groups")
    return Images(pixels, *(np.concatenate([getattr(first, name), getattr(second, name)]) for name in names))


# ---------------------------------------------------------------------------------------------------- who gets how many


def _sizes(settings: Settings, *, labeled: int, test: int, novel: int) -> dict[str, int]:
    """What each part shall have: as the settings say, else a share of what there is."""
    data = settings.data
    wanted = {size: getattr(data, size) for size in SIZES}
    encoded = settings.encoder is not None
    own = own_sizes(labeled, test, novel, inbox=data.inbox is not None, encoded=encoded, asked=wanted)
    sizes = {size: own[size] if wanted[size] is None else wanted[size] for size in SIZES}
    if data.inbox is not None:
        sizes |= {"batch_known": 0, "batch_novel": 0, "holdout_known": 0, "holdout_novel": 0}
    if settings.detect.calibration == "paper":
        sizes["calibration"] = 0
    whole = sizes["calibration"]
    sizes["calibration"] = hidden(whole, encoded=encoded) if settings.detect.calibration == "mixed" else whole
    sizes["clean"] = whole - sizes["calibration"]
    return sizes


def _check_labeled(labeled: Images, part: np.ndarray, names: list[str], source: str) -> None:
    counts = np.bincount(labeled.labels[part == PARTS.index("train")], minlength=len(names))
    if missing := [name for name, count in zip(names, counts, strict=True) if count == 0]:
        listing = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise RunError(
            f"{source} has no training image of the known class{'es' * (len(missing) > 1)} {listing}: "
            "add some, or take the class out of the known ones"
        )
    if not (part == PARTS.index("val")).any():
        raise UserError("there is no validation image to choose the stopping time with: set data.val above 0")


def _mix(known: Images, novel: Images, seed: int, name: str) -> tuple[Images, np.ndarray]:
    """Known and novel in one random order, as a week brings them; and the truth."""
    images = _concatenate(known, novel)
    truth = np.repeat(["known", "novel"], [len(known), len(novel)])
    order = np.random.default_rng(derive(seed, name)).permutation(len(truth))
    return images.take(order), truth[order]
