"""Each published set as its authors lay it out, made small here."""

from pathlib import Path

import numpy as np
import pytest
from files_to_read import colour, grey, picture, refusal
from PIL import Image

from erd.base.errors import RunError, UserError
from erd.data.sources import SOURCES, load, published_files


def by_class(name: str, root: Path) -> dict[str, list[int]]:
    """Class → the first value of each of its images, in both parts."""
    source = load(name, root, image_size=16)
    found: dict[str, list[int]] = {}
    for part in (source.train, source.test):
        for image, label in zip(part.images, part.labels, strict=True):
            found.setdefault(source.classes[label], []).append(int(image.flat[0]))
    return found


@pytest.mark.parametrize("folder", [".", "CIFAR-10.1", "CIFAR-10.1/datasets"])
def test_cifar10_version_two(tmp_path: Path, folder: str) -> None:
    images = colour(4)
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    np.save(tmp_path / folder / "cifar10.1_v6_data.npy", images)
    np.save(tmp_path / folder / "cifar10.1_v6_labels.npy", np.array([9, 0, 3, 3], np.int32))
    source = load("cifar10v2", tmp_path)
    assert (source.train.images == images).all()
    assert [source.classes[label] for label in source.train.labels] == ["truck", "airplane", "cat", "cat"]
    assert len(source.test) == 0
    np.save(tmp_path / folder / "cifar10.1_v6_labels.npy", np.array([9, 0, 3]))
    refusal(RunError, "cifar10v2", "cifar10.1_v6_data.npy", "do not fit", root=tmp_path)
    (tmp_path / folder / "cifar10.1_v6_labels.npy").unlink()
    refusal(RunError, "cifar10v2", "cifar10.1_v6_labels.npy", "missing", root=tmp_path)


def test_tiny_imagenet_in_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    for number, wnid in enumerate(("n01443537", "n01629819")):
        for i in range(2):
            picture(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", (60 * number + 9, 0, 0), 64)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
        picture(root / "val" / "images" / f"val_{number}.JPEG", (60 * number + 9, 0, 0), 64)
    picture(root / "test" / "images" / "test_0.JPEG", (250, 0, 0), 64)
    notes = "val_1.JPEG\tn01629819\t0\t32\t44\t62\nval_0.JPEG\tn01443537\t52\t55\t57\t59\n"
    (root / "val" / "val_annotations.txt").write_text(notes)
    source = load("tinyimagenet", tmp_path, image_size=32)
    assert source.classes == ("n01443537", "n01629819")
    assert source.train.labels.tolist() == [0, 0, 1, 1]
    assert source.test.labels.tolist() == [1, 0]
    assert source.train.images.shape == (4, 32, 32, 3)
    assert source.test.images[0, 0, 0, 0] > 50 > source.test.images[1, 0, 0, 0]
    (root / "val" / "val_annotations.txt").unlink()
    refusal(RunError, "tinyimagenet", "val_annotations.txt", "missing", root=tmp_path)


def test_objectnet_loses_its_red_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, name in enumerate(("air_freshener", "alarm_clock", "backpack")):
        path = tmp_path / "objectnet-1.0" / "images" / name / f"{i}.png"
        path.parent.mkdir(parents=True)
        image = Image.new("RGB", (90, 60), (255, 0, 0))
        image.paste((0, 10 * i, 200), (2, 2, 88, 58))
        image.save(path)
    source = load("objectnet", tmp_path, image_size=32)
    assert source.classes == ("air_freshener", "alarm_clock", "backpack")
    assert source.train.images.shape == (3, 32, 32, 3)
    assert source.train.images[..., 0].max() == 0, "nothing red is left"
    monkeypatch.setattr(published_files, "MOST", 2)
    assert len(load("objectnet", tmp_path, image_size=32).train) == 2
    assert load("objectnet", tmp_path).train.ids.tolist() == load("objectnet", tmp_path).train.ids.tolist()


def test_nih_chest_xrays_by_their_table(tmp_path: Path) -> None:
    folder = tmp_path / "nih"
    findings = ["No Finding", "Effusion|Infiltration", "Cardiomegaly|Effusion", "Nodule|Mass", "Hernia", "Mass"]
    rows = ["Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"]
    for i, found in enumerate(findings):
        rows.append(f"{i:08d}_000.png,{found},0,{i // 2},58,M,PA")
        if i < 5:  # the last is in no part that was unpacked
            picture(folder / f"images_{i // 3 + 1:03d}" / "images" / f"{i:08d}_000.png", 40 * i)
    (folder / "Data_Entry_2017_v2020.csv").write_text("\n".join(rows) + "\n")
    (folder / "test_list.txt").write_text("00000004_000.png\n00000005_000.png\n")
    source = load("nih", tmp_path, image_size=16)
    assert source.classes == ("no finding", "finding", "cardiomegaly", "pneumothorax", "nodule", "mass")
    assert by_class("nih", tmp_path) == {"no finding": [0], "finding": [40, 160], "cardiomegaly": [80], "nodule": [120]}
    assert source.train.groups.tolist() == ["nih/0", "nih/0", "nih/1", "nih/1"]
    assert source.test.labels.tolist() == [1]
    (folder / "Data_Entry_2017_v2020.csv").write_text("Image Index,Patient ID\n")
    refusal(RunError, "nih", "Data_Entry_2017_v2020.csv", "'Finding Labels'", root=tmp_path)


def test_padchest_by_view_and_finding(tmp_path: Path) -> None:
    folder = tmp_path / "padchest"
    rows = [  # projection, pediatric, labels → class
        ("L", "No", "['normal']", "normal"),
        ("L", "No", "['chronic changes', 'pleural effusion']", "finding"),
        ("L", "No", "['multiple nodules', 'pneumonia']", "nodule"),
        ("L", "No", "['pseudonodule', 'atelectasis']", "finding"),
        ("L", "No", "['nodule', 'cardiomegaly']", "cardiomegaly"),
        ("L", "No", "['unchanged']", None),
        ("L", "PED", "['normal']", "pediatric"),
        ("PA", "No", "['cardiomegaly']", "PA"),
        ("AP", "No", "['normal']", "AP"),
        ("AP_horizontal", "No", "['normal']", "AP_horizontal"),
        ("COSTAL", "No", "['normal']", None),
    ]
    lines = [",ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,Projection,Pediatric,Labels"]
    expected: dict[str, list[int]] = {}
    for i, (view, child, labels, name) in enumerate(rows):
        lines.append(f'{i},{i}.png,{i % 3},20140915,{i},p{i // 2},{view},{child},"{labels}"')
        path = folder / str(i % 3) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((40, 40), 257 * 20 * i, np.uint16)).save(path)  # 16 bits, as published
        if name is not None:
            expected.setdefault(name, []).append(20 * i)
    (folder / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv").write_text("\n".join(lines) + "\n")
    assert by_class("padchest", tmp_path) == expected
    source = load("padchest", tmp_path, image_size=16)
    assert source.train.groups[:3].tolist() == ["padchest/p0", "padchest/p0", "padchest/p1"]


def test_diabetic_retinas_by_patient(tmp_path: Path) -> None:
    lines = ["image,level"]
    for i, (eye, level) in enumerate((("10_left", 0), ("10_right", 3), ("13_left", 1))):
        lines.append(f"{eye},{level}")
        picture(tmp_path / "drd" / "train" / f"{eye}.jpeg", (60 * i, 60 * i, 60 * i + 3))
    (tmp_path / "drd" / "trainLabels.csv").write_text("\n".join(lines) + "\n")
    source = load("drd", tmp_path, image_size=16)
    assert [source.classes[label] for label in source.train.labels] == ["healthy", "retinopathy", "retinopathy"]
    assert source.train.groups.tolist() == ["drd/10", "drd/10", "drd/13"]


@pytest.mark.parametrize("form", ["table", "folders"])
def test_histology_patches(tmp_path: Path, form: str) -> None:
    for i, label in enumerate((0, 1, 1)):
        name = f"train/f{i}.tif" if form == "table" else f"train/{label}/f{i}.png"
        picture(tmp_path / "pcam" / name, (50 * i, 0, 99))
    if form == "table":
        (tmp_path / "pcam" / "train_labels.csv").write_text("id,label\nf2,1\nf0,0\nf1,1\n")
    else:
        picture(tmp_path / "pcam" / "test" / "1" / "t.png", (200, 0, 99))
    found = {name: sorted(values) for name, values in by_class("pcam", tmp_path).items()}
    assert found == {"normal": [0], "tumour": [50, 100] + [200] * (form == "folders")}
    assert len(load("pcam", tmp_path, image_size=16).test) == (form == "folders")


@pytest.mark.parametrize(
    ("name", "files", "kept", "groups"),
    [
        ("mura", ["valid/XR_HAND/patient11185/study1_positive/image1.png",
                  "valid/XR_WRIST/patient11186/study1_negative/image1.png"], [0, 1], ["patient11185", "patient11186"]),
        ("malaria", ["cell_images/Parasitized/C33P1thinF_cell_1.png", "cell_images/Uninfected/C1_thinF_cell_2.png"],
         [0, 1], ["C33P1", None]),
        ("drimdb", ["Good/drimdb_good (1).jpg", "Bad/drimdb_bad (1).jpg", "Outlier/drimdb_outlier (1).jpg"],
         [1, 2], [None, None]),
        ("riga", ["BinRushed1/image1-1.tif", "BinRushed1/image1prime.tif"], [1], [None]),
        ("idc", ["8863/0/8863_idx5_x51_y1251_class0.png", "8864/1/8864_idx5_x51_y1_class1.png"], [0, 1],
         ["8863", "8864"]),
        ("anhir", ["breast_1/patch_0.png", "readme.txt"], [0], ["breast_1"]),
    ],
)  # fmt: skip
def test_sets_that_are_only_novel_need_no_labels(
    tmp_path: Path, name: str, files: list[str], kept: list[int], groups: list[str | None]
) -> None:
    for file in files:
        if file.endswith(".txt"):
            (tmp_path / name / file).write_text("no image")
        else:
            picture(tmp_path / name / file, (9, 90, 30))
    source = load(name, tmp_path, image_size=16)
    assert source.train.ids.tolist() == [f"{name}/{files[i]}" for i in kept]
    assert [a for a, b in zip(source.train.groups.tolist(), source.train.ids.tolist(), strict=True) if a != b] == [
        f"{name}/{group}" for group in groups if group is not None
    ]


def test_noise_needs_no_files() -> None:
    source = load("noise", image_size=8)
    assert source.train.images.shape == (10_000, 8, 8)
    assert (
        source.train.images[source.train.labels == 0].std() > source.train.images[source.train.labels == 1].std() > 40
    )
    assert (source.train.images == load("noise", image_size=8).train.images).all()


def test_any_of_them_can_be_a_manifest_or_an_npz(tmp_path: Path) -> None:
    for i in range(3):
        picture(tmp_path / "scans" / f"{i}.png", 70 * i)
    rows = "path,label,group\nscans/0.png,finding,a\nscans/1.png,mass,a\nscans/2.png,no finding,b\n"
    (tmp_path / "nih.csv").write_text(rows)
    source = load("nih", tmp_path, image_size=16)
    assert source.name == "nih"
    assert source.train.labels.tolist() == [1, 5, 0]
    assert source.train.groups.tolist() == ["a", "a", "b"]
    np.savez(tmp_path / "nih.npz", x_train=grey(3), y_train=[5, 0, 1])
    assert load("nih", tmp_path).train.labels.tolist() == [5, 0, 1], "the packed one comes first"
    (tmp_path / "drd.csv").write_text("path,label\nscans/0.png,ill\n")
    refusal(RunError, "drd", "drd.csv", "'ill'", "healthy, retinopathy", root=tmp_path)


def test_damaged_files_of_a_set_are_set_aside(tmp_path: Path) -> None:
    picture(tmp_path / "riga" / "a.png", 9)
    (tmp_path / "riga" / "b.png").write_bytes(b"no image")
    source = load("riga", tmp_path, image_size=16)
    assert len(source.train) == 1
    assert source.rejected[0][0] == "b.png"
    assert "not an image" in source.rejected[0][1]
    (tmp_path / "riga" / "a.png").unlink()
    refusal(RunError, "riga", "no readable image", "b.png", root=tmp_path)
    (tmp_path / "riga" / "b.png").unlink()
    refusal(RunError, "riga", "no image of riga", root=tmp_path)


@pytest.mark.parametrize("name", sorted(published_files.SETS))
def test_a_published_set_that_is_not_there_says_where_it_must_lie(tmp_path: Path, name: str) -> None:
    refusal(UserError, name, str(tmp_path), f"{name}.npz", "--data DIR", "docs/scenarios.md", root=tmp_path)
    refusal(UserError, name, "no data folder is given")


def test_every_published_set_has_a_reader_and_a_place_in_the_docs() -> None:
    assert set(published_files.SETS) < set(SOURCES)
    text = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for name, known in published_files.SETS.items():
        assert f"`{name}`" in text
        assert known.folders[0] == "." or known.folders[0] in text
