"""A user's own files: what is used, what is set aside and why."""

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from files_to_read import colour, deny, grey, same, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from erd.base.errors import RunError, UserError
from erd.data import decode as decoding
from erd.data.reading import take

# ---------------------------------------------------------------------------------------------------- a folder


def test_a_folder_in_the_order_of_paths_without_hidden_files(tmp_path: Path) -> None:
    names = [f"{letter}.png" for letter in "hcfbgdea"]
    for i, name in enumerate([*names, "b/z.png", ".c.png", ".d/e.png"]):
        save(tmp_path / name, np.full((16, 16), i, np.uint8))
    taken = take(tmp_path, 16)
    assert taken.ids.tolist() == ["a.png", "b/z.png", *sorted(names)[1:]]
    assert taken.images[:, 0, 0].tolist() == [7, 8, 3, 1, 5, 6, 2, 4, 0]
    assert taken.groups.tolist() == taken.ids.tolist()
    assert set(taken.labels) == set(taken.acquired) == {""}
    assert taken.rejected == []


def test_an_empty_folder_gives_no_images(tmp_path: Path) -> None:
    taken = take(tmp_path, 16)
    assert taken.images.shape == (0, 16, 16)
    assert len(taken.ids) == len(taken.labels) == len(taken.sha256) == 0


def test_one_colour_image_makes_all_colour_and_changes_none(tmp_path: Path) -> None:
    first, last = grey(2)
    bright = colour(1)[0]
    for name, image in {"a.png": first, "b.png": bright, "c.png": last}.items():
        save(tmp_path / name, image)
    images = take(tmp_path, 32).images
    assert (images == np.stack([np.stack([first] * 3, 2), bright, np.stack([last] * 3, 2)])).all()


def test_what_cannot_be_used_is_set_aside_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_PIXELS", 100 * 100)
    monkeypatch.setattr(decoding, "MAX_BYTES", 50_000)
    inbox, outside = tmp_path / "inbox", save(tmp_path / "outside.png", grey(1)[0])
    whole = save(inbox / "good.png", grey(1, 64)[0]).read_bytes()
    save(inbox / "jpeg called.png", colour(1, 64)[0], format="JPEG")
    (inbox / "link to good.png").symlink_to("good.png")
    (inbox / "cut.png").write_bytes(whole[: len(whole) // 2])
    jpeg = save(inbox / "cut.jpg", colour(1, 64)[0])
    jpeg.write_bytes(jpeg.read_bytes()[:-500])
    (inbox / "empty.png").touch()
    (inbox / "text.png").write_text("not a picture")
    (inbox / "script.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (inbox / "broken link.png").symlink_to("gone")
    (inbox / "folder").symlink_to(inbox)
    (inbox / "out").symlink_to(tmp_path)
    (inbox / "out.png").symlink_to(outside)
    (inbox / "loop.png").symlink_to("loop 2.png")
    (inbox / "loop 2.png").symlink_to("loop.png")
    save(inbox / "large.png", np.zeros((101, 100), np.uint8))
    save(inbox / "small.png", np.zeros((7, 64), np.uint8))
    save(inbox / "float.tif", np.zeros((16, 16), np.float32))
    save(inbox / "deep.tif", np.full((16, 16), 70_000, np.int32))
    frames = [Image.fromarray(image) for image in grey(3, 16)]
    for suffix in ("gif", "webp", "png", "tif"):
        frames[0].save(inbox / f"animated.{suffix}", save_all=True, append_images=frames[1:])
    os.mkfifo(inbox / "pipe.png")
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(os.path.relpath(inbox / "socket.png"))  # a socket's path may have 100 characters only
    save(inbox / "huge.bmp", np.zeros((99, 200, 3), np.uint8))
    (inbox / "half.png.part").write_bytes(whole[:100])
    (inbox / "z again.png").write_bytes(whole)

    taken = take(inbox, 16)
    reasons = dict(taken.rejected)
    assert taken.ids.tolist() == ["good.png", "jpeg called.png"]
    for file, words in {
        "cut.png": "damaged or cut off",
        "cut.jpg": "damaged or cut off",
        "empty.png": "empty file",
        "text.png": "not an image of a known format",
        "script.png": "not an image of a known format",
        "broken link.png": "not there",
        "folder": "a link to a folder: not followed",
        "out": "a link out of the folder: not followed",
        "out.png": "a link out of the folder: not followed",
        "loop.png": "a link that leads back to itself",
        "loop 2.png": "a link that leads back to itself",
        "large.png": "too large (100×101",
        "small.png": "too small (64×7",
        "float.tif": "floating-point",
        "deep.tif": "32-bit",
        "animated.gif": "animated or of several pages (3",
        "animated.webp": "animated or of several pages (3",
        "animated.png": "animated or of several pages (3",
        "animated.tif": "animated or of several pages (3",
        "pipe.png": "not a regular file",
        "socket.png": "not a regular file",
        "huge.bmp": "too large a file",
        "half.png.part": "an unfinished copy",
        "link to good.png": "the same file as good.png",
        "z again.png": "the same file as good.png",
    }.items():
        assert words in reasons.pop(file), file
    assert not reasons


def test_a_decompression_bomb_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow raises beyond twice its limit
    save(tmp_path / "bomb.png", np.zeros((20, 20), np.uint8))
    taken = take(tmp_path, 8)
    assert len(taken.images) == 0
    assert "too large" in taken.rejected[0][1]


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    save(tmp_path / "b.png", grey(1)[0])
    deny(monkeypatch, "a.png")
    taken = take(tmp_path, 16)
    assert taken.ids.tolist() == ["b.png"]
    assert taken.rejected == [("a.png", "may not be read (permission denied)")]


def test_a_duplicate_with_another_label_says_so(tmp_path: Path) -> None:
    image = grey(1)[0]
    save(tmp_path / "cat/a.png", image)
    save(tmp_path / "dog/a.png", image)
    save(tmp_path / "dog/b.png", grey(1)[0])
    taken = take(tmp_path, 16, labeled=True)
    assert taken.labels.tolist() == ["cat", "dog"]
    assert taken.rejected == [("dog/a.png", "the same file as cat/a.png, there with the label cat")]


def test_strays_among_class_folders_are_set_aside(tmp_path: Path) -> None:
    save(tmp_path / "cat/a.png", grey(1)[0])
    (tmp_path / "notes.txt").write_text("read me")
    (tmp_path / "dog").symlink_to("/")
    taken = take(tmp_path, 16, labeled=True)
    assert taken.ids.tolist() == ["cat/a.png"]
    assert dict(taken.rejected) == {"notes.txt": "in no class folder", "dog": "a link out of the folder: not followed"}


def test_the_same_folder_gives_the_same_arrays_whatever_the_threads(tmp_path: Path) -> None:
    for i in range(40):
        save(tmp_path / f"{i}.png", grey(1, 20 + i)[0])
        (tmp_path / f"{i}.jpg").write_bytes(b"no image")
    first = take(tmp_path, 16, workers=1)
    assert len(first.ids) == len(first.rejected) == 40
    for workers in (1, 2, 7):
        assert same(first, take(tmp_path, 16, workers=workers))


def test_originals_are_untouched(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    save(tmp_path / "b.tif", grey(1)[0])
    (tmp_path / "c.png").write_text("no image")

    def seen() -> list[Any]:
        files = sorted(tmp_path.iterdir())
        return [(file, file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode) for file in files]

    before = seen()
    take(tmp_path, 16)
    assert seen() == before


def test_a_name_that_is_not_utf8_can_be_written_to_a_table(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.png"
    save(tmp_path / "x.png", grey(1)[0])
    os.rename(tmp_path / "x.png", path)
    (name,) = take(tmp_path, 16).ids
    assert name.encode()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=400),
    suffix=st.sampled_from([".png", ".tif", ".dcm", ""]),
    head=st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"II*\0", b"GIF89a", bytes(128) + b"DICM"]),
)
def test_no_bytes_stop_the_intake(tmp_path: Path, content: bytes, suffix: str, head: bytes) -> None:
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    file = folder / f"file{suffix}"
    file.write_bytes(head + content)
    taken = take(folder, 16, workers=1)
    assert len(taken.ids) + len(taken.rejected) == 1
    assert all(reason and "\n" not in reason for _, reason in taken.rejected)
    file.unlink()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 0.95), suffix=st.sampled_from(["png", "jpg", "tif", "bmp"]))
def test_wherever_a_file_is_cut_off_it_is_set_aside(tmp_path: Path, where: float, suffix: str) -> None:
    image = np.random.default_rng(1).integers(0, 256, (32, 32), dtype=np.uint8)
    file = save(tmp_path / f"a.{suffix}", image)
    file.write_bytes(file.read_bytes()[: int(where * file.stat().st_size)])
    taken = take(tmp_path, 16, workers=1)
    file.unlink()
    assert len(taken.ids) == 0
    assert len(taken.rejected) == 1


# ---------------------------------------------------------------------------------------------------- manifests, .npz


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_manifest(tmp_path: Path, suffix: str) -> None:
    for i, image in enumerate(grey(3, 16)):
        save(tmp_path / f"scans/{i}.png", image)
    outside = save(tmp_path / "elsewhere.png", grey(1, 16)[0])
    table = pd.DataFrame(
        {
            "path": ["scans/2.png", str(outside), "scans/gone.png", "scans/0.png"],
            "label": [3, None, 4, 5],
            "group": ["p 1", "", "p2", "p1"],
            "acquired_at": ["2026-11-16", "2026-11-16T08:15:00", "", "2026-11-17 09:00"],
            "remark": ["ä", "", "", ""],
        }
    )
    file = tmp_path / f"week.{suffix}"
    if suffix == "csv":
        table.convert_dtypes().to_csv(file, index=False, encoding="utf-8-sig")
    else:
        table.to_parquet(file)
    taken = take(file, 16)
    assert taken.ids.tolist() == ["scans/2.png", "elsewhere.png", "scans/0.png"]
    assert taken.labels.tolist() == ["3", "", "5"]  # a gap has made them floats in the Parquet file
    assert taken.groups.tolist() == ["p 1", "elsewhere.png", "p1"]
    assert taken.acquired.tolist() == ["2026-11-16", "2026-11-16T08:15:00", "2026-11-17 09:00"]
    assert taken.rejected == [("scans/gone.png", "not there (moved, or a broken link)")]


def test_times_of_a_parquet_manifest_are_iso(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    times = pd.to_datetime(["2026-11-16T08:15:00"])
    pd.DataFrame({"path": ["a.png"], "acquired_at": times}).to_parquet(tmp_path / "week.parquet")
    assert take(tmp_path / "week.parquet", 16).acquired.tolist() == ["2026-11-16T08:15:00"]


@pytest.mark.parametrize(
    ("name", "content", "kind", "words"),
    [
        ("a.csv", b"file,label\nx.png,1\n", RunError, ["'path'", "file, label", "add it"]),
        ("a.csv", b"", RunError, ["a.csv", "is empty"]),
        ("a.csv", b"path,label\n", RunError, ["lists no images"]),
        ("a.csv", b"path\nx.png\n\xff\xfe\x00", RunError, ["a.csv", "cannot be read as a manifest"]),
        ("a.csv", b"path,acquired_at\nx.png,yesterday\n", RunError, ["'yesterday'", "row 1", "2026-11-16"]),
        ("a.parquet", b"PAR1 no more", RunError, ["a.parquet", "cannot be read as a manifest"]),
        ("a.xlsx", b"PK", UserError, ["a.xlsx", ".csv, .parquet"]),
        ("nowhere", None, UserError, ["nowhere", "is not there"]),
    ],
)
def test_a_wrong_manifest_is_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, kind: type[UserError], words: list[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        take(tmp_path / name, 16)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_npz(tmp_path: Path) -> None:
    images = grey(4, 32)
    images[3] = images[1]
    file = tmp_path / "week.npz"
    np.savez(file, x_batch=images, group_batch=np.array([7, 7, 8, 8]))
    taken = take(file, 32)
    assert (taken.images == images[:3]).all()
    assert taken.ids.tolist() == ["week/batch/00000", "week/batch/00001", "week/batch/00002"]
    assert taken.groups.tolist() == ["7", "7", "8"]
    assert taken.rejected == [("week/batch/00003", "the same image as week/batch/00001")]
    assert take(file, 16).images.shape == (3, 16, 16)
    assert take(file, 16).sha256.tolist() == taken.sha256.tolist()
    np.savez(file, x_train=images, y_train=[1, 0, 1, 0], x_test=colour(1), y_test=[0], classes=np.array(["a", "b"]))
    taken = take(file, 32, labeled=True)
    assert taken.labels.tolist() == ["b", "a", "b", "a"]
    assert taken.images.shape == (4, 32, 32, 3)
    np.savez(file, x_train=images)
    with pytest.raises(RunError, match="no array 'y_train'"):
        take(file, 32, labeled=True)
