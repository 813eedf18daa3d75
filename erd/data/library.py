"""The labelled images of an organisation: one packed set in its workspace, which grows by what experts say.

    library/images.safetensors    pixels at the working size
    library/images.parquet        a row an image; `batch` is the one whose review brought it, "" for the first ones
    library/held.json             what made the classifier worse, and waits

Who has changed them puts both (`files_of`) under DVC, so that every state of the set can be had again.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from pydantic import TypeAdapter, ValidationError

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.data import arrays, reading, scratch
from erd.data.decode import Unfit, decode
from erd.data.entries import check_class_folders
from erd.data.images import Images
from erd.data.pixels import Pixels
from erd.data.sources.base import Source

PLACE = Path("library")
# `original` is the file that an image of a review came from, "" where there is none: it may be wanted larger one day.
CURE = "get it again with `dvc checkout`, or move the folder away and `erd ingest --labeled DIR` the images again"
COLUMNS = ("id", "sha256", "label", "group", "acquired_at", "audited", "batch", "original")
KINDS = dict.fromkeys(COLUMNS[:-1], str) | {"audited": bool}  # earlier versions had no originals


@dataclass(frozen=True, eq=False)
class Library:
    images: np.ndarray | Pixels  # uint8, N×S×S or N×S×S×3
    table: pd.DataFrame  # COLUMNS; row i is image i

    def __len__(self) -> int:
        return len(self.table)

    def take(self, chosen: np.ndarray) -> "Library":
        return Library(self.images[chosen], self.table[chosen].reset_index(drop=True))

    def of_batch(self, batch: str) -> np.ndarray:
        return (self.table["batch"] == batch).to_numpy()

    def joined(self, other: "Library") -> "Library":
        """This set and what of the other is not in it: no image enters twice."""
        fresh = other.take(~other.table["sha256"].isin(self.table["sha256"]).to_numpy())
        if not len(self) or not len(fresh):
            return self if len(self) else fresh
        sides = self.images.shape[1], fresh.images.shape[1]
        if sides[0] != sides[1]:
            raise UserError(
                f"the labelled images are {sides[0]} pixels wide and those to be added {sides[1]}: run the batch again "
                "with the library as it is now, or take the labelled images in again with the other data.image_size"
            )
        kind = max(self.images.shape[1:], fresh.images.shape[1:], key=len)  # one in colour makes all of them so
        room = scratch.empty((len(self) + len(fresh), *kind))
        scratch.copy(self.images, room[: len(self)])
        scratch.copy(fresh.images, room[len(self) :])
        return Library(room, pd.concat([self.table, fresh.table], ignore_index=True))


def table(columns: Mapping[str, object], length: int) -> pd.DataFrame:
    """Rows of the set's table; what is not said is empty."""
    empty: dict[str, object] = dict.fromkeys(COLUMNS, "") | {"audited": False}
    whole = {name: columns.get(name, empty[name]) for name in COLUMNS}
    return pd.DataFrame(whole, index=range(length))


def packed(place: Path) -> Path:
    return place / "images.safetensors"


def manifest(place: Path) -> Path:
    return place / "images.parquet"


def files_of(place: Path) -> list[Path]:
    return [packed(place), manifest(place)]


def exists(place: Path = PLACE) -> bool:
    return packed(place).exists()


def read(place: Path = PLACE) -> Library:
    if not exists(place):
        raise UserError(f"there are no labelled images in {place}: take some in with `erd ingest --labeled DIR`")
    tensors, facts = files.load_tensors(packed(place), "images", cure=CURE)
    with files.understood(packed(place), CURE):
        if (shape := tuple(tensors["images"].shape))[1:2] != shape[2:3] or len(shape) not in (3, 4):
            raise ValueError(f"images of shape {shape}")
    _finish_saving(place, facts)
    rows = table_of(place)
    if len(rows) != len(tensors["images"]) or facts.get("table", files.sha256(manifest(place))) != files.sha256(
        manifest(place)
    ):
        raise RunError(f"{place} is half written or mixed up: {CURE}")
    rows = rows.reindex(columns=list(COLUMNS), fill_value="")
    return Library(Pixels.of(tensors["images"].numpy(), facts.get("table", "")), rows)


def table_of(place: Path) -> pd.DataFrame:
    return files.load_table(manifest(place), KINDS, CURE)


def save(library: Library, place: Path = PLACE) -> None:
    images = torch.from_numpy(scratch.in_one_piece(library.images, place))
    files.save_table(_coming(place), library.table)
    facts = {"table": files.sha256(_coming(place))}
    files.save_tensors(packed(place), {"images": images}, facts)  # from here on the new state is the one that counts
    _finish_saving(place, facts)


# Two files cannot be replaced at once, and labels of one state with images of another would be wrong without a word. So
# the images name the table they belong to by its hash, and that table lies ready beside before they are written.


def _coming(place: Path) -> Path:
    return place / ".images.parquet.coming"


def _finish_saving(place: Path, facts: Mapping[str, str]) -> None:
    """Put the table in its place, also where the one who saved was killed before that."""
    if (coming := _coming(place)).exists():
        if files.sha256(coming) == facts.get("table"):
            coming.replace(manifest(place))
        else:  # killed before the images were written: the old state stands
            coming.unlink()


class TakenIn(NamedTuple):
    images: int  # in the set now
    image_size: int  # pixels at which they are kept
    counts: dict[str, int]  # images a class
    kept: int  # of all images, those brought by reviews of batches, which stay
    resized: int  # of these, so many only have the pixels they were kept with: their files are gone
    quarantine: Path  # what could not be used
    set_aside: int

    @property
    def classes(self) -> list[str]:
        return list(self.counts)


def take_in(
    origin: Path,
    image_size: int | None,
    place: Path = PLACE,
    *,
    largest: int = reading.LARGEST,
    agreed: Callable[[str], bool] = lambda lost: True,
) -> TakenIn:
    """Make the set from a folder of class folders, a manifest or an .npz; what reviews brought stays in it.

    Where a class would have fewer images than it has now, `agreed` is asked first, with what would be lost in words.
    """
    before = read(place) if exists(place) else None
    reviewed = before.take((before.table["batch"] != "").to_numpy()) if before is not None else None
    if reviewed is not None and len(reviewed) and image_size is None:
        image_size = reviewed.images.shape[1]
    if origin.is_dir():
        check_class_folders(origin)
    taken = reading.take(origin, image_size, largest=largest, labeled=True)
    if not len(taken.images):
        raise RunError(f"{origin} has no usable image ({len(taken.rejected)} set aside): put some into its folders")
    columns: dict[str, object] = {"id": taken.ids, "sha256": taken.sha256, "label": taken.labels, "group": taken.groups,
                                  "acquired_at": taken.acquired}  # fmt: skip
    fresh, gone = Library(taken.images, table(columns, len(taken.ids))), 0
    if reviewed is not None and len(reviewed):
        reviewed, gone = _at_size(reviewed, fresh.images.shape[1])
        fresh = fresh.joined(reviewed)
    counts = _counts(fresh)
    had = _counts(before) if before is not None else {}
    lost = [f"{name} {count:,} → {counts.get(name, 0):,}" for name, count in had.items() if counts.get(name, 0) < count]
    if lost and not agreed(", ".join(lost)):
        raise UserError(f"{origin} was not taken in: {place} has {sum(had.values()):,} images, and would lose some "
                        f"({', '.join(lost)}); say --replace if that is meant")  # fmt: skip
    quarantine = place / "quarantine.csv"
    reading.write_rejected(quarantine, taken.rejected)
    save(fresh, place)
    kept = int((fresh.table["batch"] != "").sum())
    return TakenIn(len(fresh), fresh.images.shape[1], counts, kept, gone, quarantine, len(taken.rejected))


def _counts(library: Library) -> dict[str, int]:
    return {str(name): int(count) for name, count in library.table["label"].value_counts().sort_index().items()}


def _at_size(reviewed: Library, size: int) -> tuple[Library, int]:
    """What reviews brought, at another size: from the files, and where these are gone or others now, from the pixels
    that were kept; how many have only these."""
    if reviewed.images.shape[1] == size:
        return reviewed, 0
    images, gone = arrays.resized(np.asarray(reviewed.images), size), 0
    for row, (file, sha256) in enumerate(zip(reviewed.table["original"], reviewed.table["sha256"], strict=True)):
        try:
            found = decode(Path(file), size) if file else None
        except Unfit:
            found = None
        if found is None or found.sha256 != sha256:
            gone += 1
        else:
            images[row] = arrays.as_labeled(found.pixels[None], images.ndim == 4)[0]
    return Library(images, reviewed.table), gone


def waiting(rows: pd.DataFrame, least: int, needs: Mapping[str, int] | None = None) -> dict[str, int]:
    """Classes with too few images to be learned yet, and how many they have; some take more than the others."""
    counts, more = rows["label"].value_counts().sort_index(), needs or {}
    return {str(name): int(count) for name, count in counts.items() if count < max(least, more.get(str(name), 0))}


def source(place: Path, image_size: int | None, least: int, net: str = "") -> Source:
    """The set as a source of images. A class with fewer than `least` images waits: learned from a handful it would be
    recognised badly, and no longer be flagged. So does what made the classifier of such a net worse."""
    whole, still_held = read(place), held(place, net)
    side = whole.images.shape[1]
    if image_size is not None and side != image_size:
        raise UserError(
            f"the labelled images in {place} are {side} pixels wide and data.image_size is {image_size}: "
            "take them in again with `erd ingest --labeled DIR`, or set data.image_size back"
        )
    still = waiting(whole.table, least, still_held.classes)
    out = whole.table["label"].isin(list(still)) | whole.table["batch"].isin(still_held.batches)
    chosen = whole.take(~out.to_numpy())
    classes = tuple(sorted(chosen.table["label"].unique()))
    rows = chosen.table
    images = Images(
        chosen.images,
        np.searchsorted(classes, rows["label"]).astype(np.int64) if classes else np.zeros(0, np.int64),
        rows["id"].to_numpy(str),
        rows["group"].to_numpy(str),
    )
    spared = _spared(rows, least)
    left_out = {batch: f"what was said about {batch} is left out: it made the classifier worse"
                for batch in still_held.batches}  # fmt: skip
    return Source(
        "library",
        classes,
        images,
        images.take(slice(0, 0)),
        audited=tuple(rows.loc[spared, "id"]),
        picked=tuple(rows.loc[(rows["batch"] != "") & ~spared, "id"]),
        waiting={name: waits(name, count, still_held.classes.get(name, least)) for name, count in still.items()}
        | left_out,
    )


def waits(name: str, images: int, needs: int) -> str:
    """Of a class that is not learned yet."""
    count = f"{images:,} image{'s' * (images != 1)}"
    return f"“{name}” waits: {count}, needs about {needs:,} to be learned; until then its images count as novel"


def _spared(rows: pd.DataFrame, least: int) -> pd.Series:
    """Audited images that can be kept for calibration: a class first has `least` others to be learned from, and where
    it has not, its oldest audited ones serve for that."""
    others = (~rows["audited"]).groupby(rows["label"]).transform("sum")
    turn = rows["audited"].groupby(rows["label"]).cumsum()  # 1 for the class's first audited image, which is its oldest
    return rows["audited"] & (turn > least - others)


class Held(NamedTuple):
    """What made the classifier worse when it was learned. It waits: its images are not trained on."""

    classes: dict[str, int]  # how many images each takes before it is tried again
    batches: list[str]  # whose answers are left out, until they are given anew


_HELD = TypeAdapter(Held)


def held(place: Path, net: str) -> Held:
    """By a classifier with such a net: another may do better, and tries by itself."""
    return _every_held(place).get(net, Held({}, []))


def hold(place: Path, net: str, more: Held) -> None:
    known = held(place, net)
    now = Held(known.classes | more.classes, sorted({*known.batches, *more.batches}))
    _save_held(place, _every_held(place) | {net: now})


def release(place: Path, classes: Collection[str], batch: str) -> None:
    """They are tried again: some of their images were taken out, or the answers were given anew."""
    if found := _every_held(place):
        _save_held(place, {
            net: Held({name: count for name, count in known.classes.items() if name not in classes},
                      [name for name in known.batches if name != batch])
            for net, known in found.items()
        })  # fmt: skip


def _every_held(place: Path) -> dict[str, Held]:
    """By net. What cannot be read is none: it is found out again."""
    found = {}
    for net, known in (files.load_json_if_whole(_held(place)) or {}).items():
        with suppress(ValidationError):
            found[net] = _HELD.validate_python(known)
    return found


def _save_held(place: Path, held: Mapping[str, Held]) -> None:
    files.save_json(_held(place), {net: known._asdict() for net, known in held.items()})


def _held(place: Path) -> Path:
    return place / "held.json"
