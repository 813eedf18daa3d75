"""The published sets of the scenarios, each as its authors lay it out; and pure noise, which is made.

    load("nih", Path("data"), image_size=64)         # through erd.data.sources: data/nih/Data_Entry_2017.csv, images/…

A set of image files is one function that lists them (`published_files.py`). Where the files must lie is in
docs/scenarios.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from erd.base.errors import RunError
from erd.base.seeds import derive
from erd.data.arrays import read_npy, read_npy_images
from erd.data.images import Images
from erd.data.sources.base import FOLDER_SIZE, Source, Wanted, source
from erd.data.sources.public import CIFAR10
from erd.data.sources.published_files import (
    SETS,
    File,
    Set,
    as_one_file,
    by_name,
    candidates,
    latest,
    not_found,
    pictures,
    published,
    rows,
    words,
)

NOISE = 10_000  # images of pure noise that are made
CIFAR10V2 = "cifar10.1_v6_data.npy"
# The diseases that the medical benchmark (Cao et al., 2020) keeps out of both chest X-ray sets.
UNSEEN = ("cardiomegaly", "pneumothorax", "nodule", "mass")
VIEWS = ("PA", "AP", "AP_horizontal")
# PadChest's words for the conditions that NIH's labels have too; images with none of them are left out.
CONDITIONS = ("pleural effusion", "emphysema", "pneumonia", "infiltrates", "consolidation", "atelectasis",
              "pulmonary edema", "pulmonary fibrosis", "hiatal hernia", "pleural thickening", *UNSEEN)  # fmt: skip
CLASSES: dict[str, tuple[str, ...]] = {  # of sets whose classes the scenarios number; of others they are as found
    "cifar10v2": CIFAR10,
    "nih": ("no finding", "finding", *UNSEEN),
    "padchest": ("normal", "finding", *UNSEEN, *VIEWS, "pediatric"),  # the first six are lateral
    "drd": ("healthy", "retinopathy"),
    "pcam": ("normal", "tumour"),
    "noise": ("uniform", "normal"),
}


# ---------------------------------------------------------------------------------------------------- arrays


@source("noise", shows="noise")
def noise(wanted: Wanted) -> Source:
    """Half of the images have pixels of any value, half have them around the middle."""
    size, random = wanted.image_size or FOLDER_SIZE, np.random.default_rng(derive(0, "noise"))
    uniform = random.integers(0, 256, (NOISE // 2, size, size), dtype=np.uint8)
    normal = np.clip(random.normal(127.5, 63.75, (NOISE // 2, size, size)), 0, 255).astype(np.uint8)
    ids = np.array([f"noise/{i:05d}" for i in range(NOISE)], dtype=str)
    everything = Images(np.concatenate([uniform, normal]), np.repeat([0, 1], NOISE // 2), ids, ids)
    return Source("noise", CLASSES["noise"], everything, everything.take(slice(0, 0)))


SETS["cifar10v2"] = Set(
    "cifar10v2",
    (".", "CIFAR-10.1", "CIFAR-10.1/datasets"),
    "cifar10.1_v6_data.npy and cifar10.1_v6_labels.npy",
    CLASSES["cifar10v2"],
)


@source("cifar10v2", shows="photographs")
def cifar10v2(wanted: Wanted) -> Source:
    """CIFAR-10.1: 2,000 images chosen like those of CIFAR-10, years later."""
    known = SETS["cifar10v2"]
    if (whole := as_one_file(known, wanted)) is not None:
        return whole
    file = next((folder / CIFAR10V2 for folder in candidates(known, wanted) if (folder / CIFAR10V2).is_file()), None)
    if file is None:
        raise not_found(known, wanted)
    images, labels = np.array(read_npy_images(file)), read_npy(file.with_name(CIFAR10V2.replace("data", "labels")))
    if labels.shape != (len(images),) or not np.isin(labels, np.arange(10)).all():
        raise RunError(f"{file} and its labels do not fit: both must be of the same images, labels from 0 to 9")
    ids = np.array([f"cifar10v2/{i:05d}" for i in range(len(images))], dtype=str)
    everything = Images(images, labels.astype(np.int64), ids, ids)
    return Source("cifar10v2", CIFAR10, everything, everything.take(slice(0, 0)))


# ---------------------------------------------------------------------------------------------------- photographs


@published("tinyimagenet", shows="photographs", folders=("tiny-imagenet-200",), needs="train and val of Tiny ImageNet")
def tinyimagenet(folder: Path) -> Iterator[File]:
    """train/<wnid>/images/*.JPEG; val/images/*.JPEG with val_annotations.txt; the test images have no labels."""
    for path in sorted((folder / "train").glob("*/images/*.JPEG")):
        yield File(path, path.parts[-3])
    notes, columns = folder / "val" / "val_annotations.txt", ("file", "wnid")
    for row in rows(notes, columns, sep="\t", header=None, names=list(columns), usecols=[0, 1]):
        yield File(folder / "val" / "images" / row["file"], row["wnid"], test=True)


# A red line, two pixels wide, is around each of its images: anybody could tell them by that.
@published("objectnet", shows="photographs", folders=("objectnet-1.0",), needs="the folder images of ObjectNet",
           only_novel=True, border=2)  # fmt: skip
def objectnet(folder: Path) -> Iterator[File]:
    for path in sorted((folder / "images").glob("*/*.png")):
        yield File(path, path.parent.name)


# ---------------------------------------------------------------------------------------------------- X-rays


@published("nih", shows="X-rays", folders=("nih",), needs="Data_Entry_2017.csv and the images it names",
           classes=CLASSES["nih"])  # fmt: skip
def nih(folder: Path) -> Iterator[File]:
    """A row an image: its findings, joined by |, and its patient; test_list.txt names the official test part."""
    listed = words(folder / "test_list.txt")
    paths = by_name(folder)
    for row in rows(latest(folder, "Data_Entry_2017*.csv"), ("Image Index", "Finding Labels", "Patient ID")):
        if path := paths.get(row["Image Index"]):
            found = row["Finding Labels"].lower().split("|")
            unseen = [disease for disease in UNSEEN if disease in found]
            label = unseen[0] if unseen else "no finding" if "no finding" in found else "finding"
            yield File(path, label, row["Patient ID"], row["Image Index"] in listed)


@published("padchest", shows="X-rays", folders=("padchest",), classes=CLASSES["padchest"],
           needs="PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv and its images")  # fmt: skip
def padchest(folder: Path) -> Iterator[File]:
    """Lateral images by their findings, others by their view. Children's images are a view of their own."""
    paths = by_name(folder)
    table = latest(folder, "PADCHEST_chest_x_ray_images_labels*.csv*")
    for row in rows(table, ("ImageID", "PatientID", "Projection", "Pediatric", "Labels")):
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
    found = [name for name in CONDITIONS if any(set(name.rstrip("s").split()) <= label for label in labels)]
    if unseen := [disease for disease in UNSEEN if disease in found]:
        return unseen[0]
    return "finding" if found else "normal" if labels == [{"normal"}] else None


@published("mura", shows="X-rays", folders=("mura", "MURA-v1.1"), needs="MURA's images", only_novel=True)
def mura(folder: Path) -> Iterator[File]:
    return _of_patients(folder, r"patient\d+", "bones")


# ---------------------------------------------------------------------------------------------------- the fundus


@published("drd", shows="fundus", folders=("drd",), needs="trainLabels.csv and the images it names",
           classes=CLASSES["drd"])  # fmt: skip
def drd(folder: Path) -> Iterator[File]:
    """trainLabels.csv: 10_left is the left eye of patient 10; level 0 is healthy, 1 to 4 are not."""
    paths = by_name(folder)
    for row in rows(latest(folder, "trainLabels.csv"), ("image", "level")):
        if path := paths.get(f"{row['image']}.jpeg"):
            yield File(path, CLASSES["drd"][int(row["level"] != "0")], row["image"].partition("_")[0])


@published("drimdb", shows="fundus", folders=("drimdb",), needs="the folders Good, Bad and Outlier", only_novel=True)
def drimdb(folder: Path) -> Iterator[File]:
    """Photographs of bad quality, and of something else; good ones are nothing odd."""
    for path in pictures(folder):
        if "good" not in str(path.relative_to(folder)).lower():
            yield File(path, "bad")


@published("riga", shows="fundus", folders=("riga",), needs="RIGA's images", only_novel=True)
def riga(folder: Path) -> Iterator[File]:
    """Each eye once: `image1prime.tif` is the photograph, image1-1.tif and so on have doctors' marks on them."""
    found = list(pictures(folder))
    for path in [path for path in found if "prime" in path.name] or found:
        yield File(path, "glaucoma")


# ---------------------------------------------------------------------------------------------------- histology


@published("pcam", shows="histology", folders=("pcam",), classes=CLASSES["pcam"],
           needs="train_labels.csv and train/*.tif, or class folders 0 and 1")  # fmt: skip
def pcam(folder: Path) -> Iterator[File]:
    """train_labels.csv (id, label) with train/<id>.tif, or class folders: train/0/…, train/1/…, test/0/…."""
    if tables := sorted(folder.glob("train_labels.csv")):
        paths = {path.stem: path for path in pictures(folder / "train")}
        for row in rows(tables[0], ("id", "label")):
            if path := paths.get(row["id"]):
                yield File(path, row["label"])
        return
    for path in pictures(folder):
        yield File(path, path.parent.name, test="test" in path.relative_to(folder).parts)


@published("malaria", shows="histology", folders=("malaria",), needs="cell_images", only_novel=True)
def malaria(folder: Path) -> Iterator[File]:
    return _of_patients(folder, r"C\d+P\d+", "cells")


@published("idc", shows="histology", folders=("idc",), needs="the patients' folders", only_novel=True)
def idc(folder: Path) -> Iterator[File]:
    return _of_patients(folder, r"^\d+", "breast")


@published("anhir", shows="histology", folders=("anhir",), needs="patches as image files", only_novel=True)
def anhir(folder: Path) -> Iterator[File]:
    return _of_patients(folder, r"^[^/]+", "tissue")


def _of_patients(folder: Path, pattern: str, label: str) -> Iterator[File]:
    """All images below a folder, with the patient where the path says who it is."""
    for path in pictures(folder):
        patient = re.search(pattern, path.relative_to(folder).as_posix())
        yield File(path, label, patient[0] if patient else "")
