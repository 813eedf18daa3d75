"""Public sets as their authors publish them: files of arrays, folders of images with a table beside them.

    load("nih", Path("data"), image_size=64)         # through erd.data.sources: data/nih/Data_Entry_2017.csv, images/…
    shifted(images, "cifar10", Path("data"), Shift("fog", 5, "novel"))

Where the files must lie is in docs/scenarios.md. Each set can also be given as `<name>.npz`, or as a manifest
`<name>.csv` with columns path, label and group; its labels are then the names of the classes below, or their numbers.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from erd import compute, progress
from erd.data.arrays import read_npy, read_npy_images, resized
from erd.data.corruptions import Shift, corrupt
from erd.data.decode import Unfit, decode, opened
from erd.data.intake import MANIFESTS
from erd.data.sources import CIFAR10, FOLDER_SIZE, Images, Place, Source, load
from erd.errors import RunError, UserError, why
from erd.seeds import derive

MOST = 10_000  # images of a set that only serves as novel; a fixed draw where there are more
PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
OBJECTNET_BORDER = 2  # red pixels around each image of ObjectNet, by which anybody could tell it
CIFAR10V2 = "cifar10.1_v6_data.npy"
NOISE = 10_000  # images of pure noise that are made
# The diseases that the medical benchmark (Cao et al., 2020) keeps out of both chest X-ray sets.
UNSEEN = ("cardiomegaly", "pneumothorax", "nodule", "mass")
CLASSES: dict[str, tuple[str, ...]] = {  # of sets whose classes the scenarios number; of others they are as found
    "cifar10v2": CIFAR10,
    "nih": ("no finding", "finding", *UNSEEN),
    "padchest": ("normal", "finding", *UNSEEN, "PA", "AP", "AP_horizontal", "pediatric"),  # the first six are lateral
    "drd": ("healthy", "retinopathy"),
    "pcam": ("normal", "tumour"),
    "noise": ("uniform", "normal"),
}
VIEWS = ("PA", "AP", "AP_horizontal")
# PadChest's words for the conditions that NIH's labels have too; images with none of them are left out.
CONDITIONS = ("pleural effusion", "emphysema", "pneumonia", "infiltrates", "consolidation", "atelectasis",
              "pulmonary edema", "pulmonary fibrosis", "hiatal hernia", "pleural thickening", *UNSEEN)  # fmt: skip
# Names of the folders of corrupted images, by the set they were made of; each holds its 10,000 test images five times.
CORRUPTED = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}


@dataclass(frozen=True)
class File:
    """An image of a set: where it is, its class, what it must stay together with, whether the set calls it a test."""

    path: Path
    label: str
    group: str = ""
    test: bool = False


def read(name: str, place: Place) -> Source:
    """The first of: `<name>.npz`, a manifest `<name>.csv` or `.parquet`, the set's own files."""
    if name == "noise":
        return _noise(place)
    root = place.root
    packed = [root / f"{name}{suffix}" for suffix in (".npz", *MANIFESTS)] if root else []
    for file in packed:
        if file.is_file():
            kind = "npz" if file.suffix == ".npz" else "manifest"
            return _numbered(replace(load(kind, path=file, image_size=place.image_size), name=name), file)
    reader, folders, expected = LAYOUTS[name]
    for folder in (root / folder for folder in folders) if root else ():
        if name == "cifar10v2" and (folder / CIFAR10V2).is_file():
            return _cifar10v2(folder)
        if name != "cifar10v2" and folder.is_dir():
            return _from_files(name, folder, list(reader(folder)), place.image_size or FOLDER_SIZE, expected)
    where = f"looked for {folders[0]}, {name}.npz and {name}.csv in {root}" if root else "no data folder is given"
    remedy = f"put {expected} in a folder DIR/{folders[0]} and pass --data DIR or set ERD_DATA (docs/scenarios.md)"
    raise UserError(f"{name} was not found ({where}): {remedy}")


# ---------------------------------------------------------------------------------------------------- arrays


def corrupted_file(source: str, root: Path | None, shift: Shift) -> Path | None:
    """The published file of a source's corrupted test images; None where it is not there."""
    if root is None or source not in CORRUPTED:
        return None
    file = root / CORRUPTED[source] / f"{shift.corruption.replace('-', '_')}.npy"
    return file if file.is_file() else None


def shifted(images: Images, source: str, root: Path | None, shift: Shift) -> tuple[Images, str]:
    """The corrupted versions of some images of a source, and a warning or "".

    From the published files where they are there, which hold test images only; else made.
    """
    name, level = shift.corruption, shift.severity
    ids = np.array([f"{image}/{name}-{level}" for image in images.ids], dtype=str)
    if (file := corrupted_file(source, root, shift)) is None:
        made = corrupt(images.images, images.ids, name, level)
        told = (
            f"{name} at severity {level} is made here: there is no {CORRUPTED[source]}" if source in CORRUPTED else ""
        )
        return replace(images, images=made, ids=ids), told
    stored, labels = read_npy_images(file), read_npy(file.with_name("labels.npy"))
    each = len(stored) // 5
    if len(stored) % 5 or labels.shape != (len(stored),):
        counts = f"{len(stored):,} images and {labels.size:,} labels"
        raise RunError(f"{file} and labels.npy beside it have {counts}: both must be five times as many as test images")
    rows = np.array([_test_row(image, source, file) for image in images.ids], int)
    if len(rows) and rows.max() >= each:
        raise RunError(f"{file} is of {each:,} test images, and {source} has more: get both whole")
    rows += (level - 1) * each
    if (labels[rows] != images.labels).any():
        raise RunError(f"{file} is not in the order of {source}'s test images, by its labels: get both again")
    pixels = resized(np.ascontiguousarray(stored[rows]), images.images.shape[1])
    return replace(images, images=pixels, ids=ids), ""


def _test_row(image: str, source: str, file: Path) -> int:
    found = re.fullmatch(rf"{source}/test/(\d+)", image)
    if found is None:
        raise RunError(
            f"{file} has only test images, and the scenario needs more: set data.batch_novel or data.holdout_novel "
            f"lower, or move {file.parent} away to have all made"
        )
    return int(found[1])


def _cifar10v2(folder: Path) -> Source:
    """CIFAR-10.1: 2,000 images chosen like those of CIFAR-10, years later."""
    file = folder / CIFAR10V2
    images, labels = np.array(read_npy_images(file)), read_npy(folder / CIFAR10V2.replace("data", "labels"))
    if labels.shape != (len(images),) or not np.isin(labels, np.arange(10)).all():
        raise RunError(f"{file} and its labels do not fit: both must be of the same images, labels from 0 to 9")
    ids = np.array([f"cifar10v2/{i:05d}" for i in range(len(images))], dtype=str)
    everything = Images(images, labels.astype(np.int64), ids, ids)
    return Source("cifar10v2", CIFAR10, everything, everything.take(slice(0, 0)))


def _noise(place: Place) -> Source:
    """Half of the images have pixels of any value, half have them around the middle."""
    size, random = place.image_size or FOLDER_SIZE, np.random.default_rng(derive(0, "noise"))
    uniform = random.integers(0, 256, (NOISE // 2, size, size), dtype=np.uint8)
    normal = np.clip(random.normal(127.5, 63.75, (NOISE // 2, size, size)), 0, 255).astype(np.uint8)
    ids = np.array([f"noise/{i:05d}" for i in range(NOISE)], dtype=str)
    everything = Images(np.concatenate([uniform, normal]), np.repeat([0, 1], NOISE // 2), ids, ids)
    return Source("noise", CLASSES["noise"], everything, everything.take(slice(0, 0)))


# ---------------------------------------------------------------------------------------------------- files


def _tinyimagenet(folder: Path) -> Iterator[File]:
    """train/<wnid>/images/*.JPEG; val/images/*.JPEG with val_annotations.txt; the test images have no labels."""
    for path in sorted((folder / "train").glob("*/images/*.JPEG")):
        yield File(path, path.parts[-3])
    notes = folder / "val" / "val_annotations.txt"
    table = _table(notes, ("file", "wnid"), sep="\t", header=None, names=["file", "wnid"], usecols=[0, 1])
    for row in table.itertuples():
        yield File(folder / "val" / "images" / str(row.file), str(row.wnid), test=True)


def _objectnet(folder: Path) -> Iterator[File]:
    for path in sorted((folder / "images").glob("*/*.png")):
        yield File(path, path.parent.name)


def _nih(folder: Path) -> Iterator[File]:
    """A row an image: its findings, joined by |, and its patient; test_list.txt names the official test part."""
    listed = _lines(folder / "test_list.txt")
    paths = _by_name(folder)
    for row in _dicts(_one(folder, "Data_Entry_2017*.csv"), ("Image Index", "Finding Labels", "Patient ID")):
        if path := paths.get(row["Image Index"]):
            found = row["Finding Labels"].lower().split("|")
            unseen = [disease for disease in UNSEEN if disease in found]
            label = unseen[0] if unseen else "no finding" if "no finding" in found else "finding"
            yield File(path, label, row["Patient ID"], row["Image Index"] in listed)


def _padchest(folder: Path) -> Iterator[File]:
    """Lateral images by their findings, others by their view. Children's images are a view of their own."""
    paths = _by_name(folder)
    table = _one(folder, "PADCHEST_chest_x_ray_images_labels*.csv*")
    for row in _dicts(table, ("ImageID", "PatientID", "Projection", "Pediatric", "Labels")):
        if (path := paths.get(row["ImageID"])) is None:
            continue
        if row["Pediatric"] == "PED":
            label: str | None = "pediatric"
        else:
            label = row["Projection"] if row["Projection"] in VIEWS else None
            label = _lateral(row["Labels"]) if row["Projection"] == "L" else label
        if label is not None:
            yield File(path, label, row["PatientID"])


def _lateral(text: str) -> str | None:
    """What `['chronic changes', 'multiple nodules']` comes to; None where it is nothing the benchmark knows."""
    labels = [set(label.strip(" '\"").rstrip("s").split()) for label in text.strip("[]").split(",")]
    found = [name for name in CONDITIONS if any(set(name.rstrip("s").split()) <= words for words in labels)]
    if unseen := [disease for disease in UNSEEN if disease in found]:
        return unseen[0]
    return "finding" if found else "normal" if labels == [{"normal"}] else None


def _drd(folder: Path) -> Iterator[File]:
    """trainLabels.csv: 10_left is the left eye of patient 10; level 0 is healthy, 1 to 4 are not."""
    paths = _by_name(folder)
    for row in _dicts(_one(folder, "trainLabels.csv"), ("image", "level")):
        if path := paths.get(f"{row['image']}.jpeg"):
            yield File(path, CLASSES["drd"][int(row["level"] != "0")], row["image"].partition("_")[0])


def _pcam(folder: Path) -> Iterator[File]:
    """train_labels.csv (id, label) with train/<id>.tif, or class folders: train/0/…, train/1/…, test/0/…."""
    if tables := sorted(folder.glob("train_labels.csv")):
        paths = {path.stem: path for path in _pictures(folder / "train")}
        for row in _dicts(tables[0], ("id", "label")):
            if path := paths.get(row["id"]):
                yield File(path, row["label"])
        return
    for path in _pictures(folder):
        yield File(path, path.parent.name, test="test" in path.relative_to(folder).parts)


def _riga(folder: Path) -> Iterator[File]:
    """Each eye once: `image1prime.tif` is the photograph, image1-1.tif and so on have doctors' marks on them."""
    found = list(_pictures(folder))
    for path in [path for path in found if "prime" in path.name] or found:
        yield File(path, "glaucoma")


def _drimdb(folder: Path) -> Iterator[File]:
    """Photographs of bad quality, and of something else; good ones are nothing odd."""
    for path in _pictures(folder):
        if "good" not in str(path.relative_to(folder)).lower():
            yield File(path, "bad")


def _of_patients(pattern: str, label: str) -> Callable[[Path], Iterator[File]]:
    """All images below a folder, with the patient where the path says who it is."""

    def files(folder: Path) -> Iterator[File]:
        for path in _pictures(folder):
            patient = re.search(pattern, path.relative_to(folder).as_posix())
            yield File(path, label, patient[0] if patient else "")

    return files


# name → its reader, the folders it may lie in, what must be in there
LAYOUTS: dict[str, tuple[Callable[[Path], Iterator[File]], tuple[str, ...], str]] = {
    "cifar10v2": (lambda folder: iter(()), (".", "CIFAR-10.1", "CIFAR-10.1/datasets"),
                  "cifar10.1_v6_data.npy and cifar10.1_v6_labels.npy"),
    "tinyimagenet": (_tinyimagenet, ("tiny-imagenet-200",), "train and val of Tiny ImageNet"),
    "objectnet": (_objectnet, ("objectnet-1.0",), "the folder images of ObjectNet"),
    "nih": (_nih, ("nih",), "Data_Entry_2017.csv and the images it names"),
    "padchest": (_padchest, ("padchest",), "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv and its images"),
    "drd": (_drd, ("drd",), "trainLabels.csv and the images it names"),
    "pcam": (_pcam, ("pcam",), "train_labels.csv and train/*.tif, or class folders 0 and 1"),
    "mura": (_of_patients(r"patient\d+", "bones"), ("mura", "MURA-v1.1"), "MURA's images"),
    "malaria": (_of_patients(r"C\d+P\d+", "cells"), ("malaria",), "cell_images"),
    "drimdb": (_drimdb, ("drimdb",), "the folders Good, Bad and Outlier"),
    "riga": (_riga, ("riga",), "RIGA's images"),
    "idc": (_of_patients(r"^\d+", "breast"), ("idc",), "the patients' folders"),
    "anhir": (_of_patients(r"^[^/]+", "tissue"), ("anhir",), "patches as image files"),
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- helpers


def _pictures(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)


def _by_name(folder: Path) -> dict[str, Path]:
    """Sets of this size come in parts (images_001/images/…): where each file is."""
    return {path.name: path for path in _pictures(folder)}


def _one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise RunError(f"{folder} has no {pattern}, the table of the set: put it there")
    return found[-1]  # the latest version


def _lines(file: Path) -> set[str]:
    return set(file.read_text(encoding="utf-8").split()) if file.is_file() else set()


def _dicts(file: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    return _table(file, columns)[list(columns)].to_dict("records")


def _table(file: Path, columns: tuple[str, ...], **how: object) -> pd.DataFrame:
    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, **how)
    except FileNotFoundError:
        raise RunError(f"{file} is missing: get it again, with the files beside it") from None
    except Exception as error:  # ParserError, UnicodeDecodeError, EmptyDataError, …
        raise RunError(f"{file} cannot be read as a table ({why(error)}): get it again") from error
    if missing := [name for name in columns if name not in table.columns]:
        raise RunError(f"{file} has no column '{missing[0]}': it is not the set's table; get it again")
    return table


def _from_files(name: str, folder: Path, files: list[File], size: int, expected: str) -> Source:
    if name not in CLASSES and name != "tinyimagenet" and len(files) > MOST:
        files = sorted(files, key=lambda file: derive(0, name, file.path.relative_to(folder).as_posix()))[:MOST]
        files.sort(key=lambda file: file.path)
    if not files:
        raise RunError(f"{folder} has no image of {name}: put {expected} there (docs/scenarios.md)")
    decoded = list(_decoded(files, size, OBJECTNET_BORDER if name == "objectnet" else 0, name))
    good = [i for i, result in enumerate(decoded) if not isinstance(result, str)]
    aside = tuple(
        (file.path.relative_to(folder).as_posix(), result)
        for file, result in zip(files, decoded, strict=True)
        if isinstance(result, str)
    )
    if not good:
        raise RunError(f"{folder} has no readable image ({aside[0][0]}: {aside[0][1]}): get the set again")
    pixels = [result for result in decoded if not isinstance(result, str)]
    if any(image.ndim == 3 for image in pixels):
        pixels = [image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2) for image in pixels]
    ids = np.array([f"{name}/{files[i].path.relative_to(folder).as_posix()}" for i in good], dtype=str)
    groups = np.array([f"{name}/{files[i].group}" if files[i].group else ids[n] for n, i in enumerate(good)], dtype=str)
    names = sorted({files[i].label for i in good})
    labels = np.searchsorted(names, [files[i].label for i in good]).astype(np.int64)
    everything, test = Images(np.stack(pixels), labels, ids, groups), np.array([files[i].test for i in good])
    source = Source(name, tuple(names), everything.take(~test), everything.take(test), aside)
    return _numbered(source, folder)


def _decoded(files: Iterable[File], size: int, border: int, what: str) -> Iterator[np.ndarray | str]:
    """Pixels, or why there are none, in the order of the files. Threads: Pillow works without Python's lock."""

    def one(file: File) -> np.ndarray | str:
        try:
            if not border:
                return decode(file.path, size).pixels
            image = opened(file.path, 2 * size)[0]
            inner = image.crop((border, border, image.width - border, image.height - border))
            return np.asarray(inner.resize((size, size), Image.Resampling.BILINEAR))
        except Unfit as reason:
            return str(reason)

    Image.init()  # all plugins before the threads: two threads that load them at once can miss a format
    files = list(files)
    with ThreadPoolExecutor(compute.cores()) as pool, progress.bar(len(files), what, unit="image") as shown:
        for result in pool.map(one, files):
            shown.update()
            yield result


def _numbered(source: Source, where: Path) -> Source:
    """Labels as numbers of CLASSES, whatever classes were found; `0` and `1` may stand for names."""
    if (names := CLASSES.get(source.name)) is None:
        return source
    numbers = []
    for label in source.classes:
        if label not in names and not (label.isdecimal() and int(label) < len(names)):
            raise RunError(f"{where} has the label '{label}', which is no class of {source.name}: {', '.join(names)}")
        numbers.append(names.index(label) if label in names else int(label))
    new = np.array(numbers, np.int64)
    train, test = (replace(part, labels=new[part.labels]) for part in (source.train, source.test))
    return replace(source, classes=names, train=train, test=test)
