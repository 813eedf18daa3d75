"""Thousands of files, some of them bad: all are told apart, in little memory."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from files_to_read import deny, grey, photos, save
from PIL import Image

from erd.data import decode as decoding
from erd.data.reading import take


@contextmanager
def growth() -> Iterator[Callable[[], int]]:
    """Bytes by which the process has grown at most while the block ran."""
    gc.collect()
    process, finished = psutil.Process(), threading.Event()
    seen = [process.memory_info().rss]

    def watch() -> None:
        while not finished.wait(0.01):
            seen.append(process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: max(seen) - seen[0]
    finally:
        finished.set()
        watcher.join()


def test_thousands_of_files_of_which_some_are_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 files, 200 of them bad in ten ways, and three odd kinds that must be used."""
    monkeypatch.setattr(decoding, "MAX_PIXELS", 512 * 512)
    monkeypatch.setattr(decoding, "MAX_BYTES", 1_000_000)
    inbox = tmp_path / "inbox"
    for number in range(10):
        (inbox / f"day {number}").mkdir(parents=True)
    photo = photos(1, 64, 3)[0]
    png, jpeg = (save(tmp_path / f"photo.{kind}", photo).read_bytes() for kind in ("png", "jpg"))
    deep = save(tmp_path / "deep.png", photo.astype(np.uint16) * 257).read_bytes()
    cmyk = save(tmp_path / "cmyk.jpg", Image.fromarray(photo).convert("CMYK")).read_bytes()
    palette = save(tmp_path / "palette.png", Image.fromarray(photo).convert("P")).read_bytes()
    frames = [Image.fromarray(image) for image in grey(2, 16)]
    frames[0].save(tmp_path / "animated.gif", save_all=True, append_images=frames[1:])
    animated = (tmp_path / "animated.gif").read_bytes()
    bomb = save(tmp_path / "bomb.png", np.zeros((513, 512), np.uint8)).read_bytes()

    def place(i: int, suffix: str) -> Path:
        return inbox / f"day {i % 10}" / f"{i:04}.{suffix}"

    good: set[str] = set()
    for i, (content, suffix) in enumerate(
        [(png, "png"), (jpeg, "jpg"), (deep, "png"), (cmyk, "jpg"), (palette, "png")] * 960
    ):
        place(i, suffix).write_bytes(content + i.to_bytes(4, "big"))  # decoders do not read on after the end
        good.add(place(i, suffix).relative_to(inbox).as_posix())
    first = min(good)
    bad: dict[str, str] = {}
    unreadable = []
    for i in range(4800, 5000):
        tail = i.to_bytes(4, "big")
        path, reason = place(i, "png"), ""
        match i % 10:
            case 0:
                path.write_bytes(png[: len(png) // 2] + tail)
                reason = "damaged or cut off"
            case 1:
                path.touch()
                reason = "empty file"
            case 2:
                path.write_bytes(b"a text called an image" + tail)
                reason = "not an image of a known format"
            case 3:
                path.write_bytes(bomb + tail)
                reason = "too large (512×513 pixels"
            case 4:
                path.write_bytes(animated + tail)
                reason = "animated"
            case 5:
                path.symlink_to(path.name)
                reason = "a link that leads back to itself"
            case 6:
                path.write_bytes(png + tail)
                unreadable.append(path.name)
                reason = "may not be read"
            case 7:
                path.touch()
                os.truncate(path, 1_000_001)
                reason = "too large a file"
            case 8:
                path.write_bytes((inbox / first).read_bytes())
                reason = f"the same file as {first}"
            case 9:
                path.symlink_to(tmp_path / "photo.png")
                reason = "a link out of the folder"
        bad[path.relative_to(inbox).as_posix()] = reason
    deny(monkeypatch, *unreadable)

    take(inbox / "day 0", 64)  # what is loaded once
    with growth() as most:
        taken = take(inbox, 64)

    assert set(taken.ids) == good
    assert taken.ids.tolist() == sorted(good)
    reasons = dict(taken.rejected)
    assert reasons.keys() == bad.keys()
    for file, words in bad.items():
        assert words in reasons[file], file
    assert most() < taken.images.nbytes + 40e6


def test_originals_are_let_go_one_by_one(tmp_path: Path) -> None:
    """60 files of 3 MB each when decoded: all of them at once would be 180 MB."""
    content = save(
        tmp_path / "large.png", np.zeros((1024, 1024, 3), np.uint8) + np.array([9, 0, 0], np.uint8)
    ).read_bytes()
    for i in range(60):
        (tmp_path / f"{i}.png").write_bytes(content + bytes([i]))
    take(tmp_path, 16, workers=2)  # what is loaded once
    with growth() as most:
        assert len(take(tmp_path, 16, workers=2).ids) == 61
    assert most() < 60e6
