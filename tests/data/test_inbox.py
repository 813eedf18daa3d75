"""An inbox is waited for while it is filled, and its files are found again."""

import io
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from files_to_read import grey, save
from PIL import Image

from erd.base import files
from erd.base.errors import RunError
from erd.data import collect, inbox, packed
from erd.data.inbox import original, settled
from erd.data.reading import take
from erd.review.pictures import Pictures
from erd.review.queue import Queue
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.settings import schema
from erd.settings.schema import Settings

# ---------------------------------------------------------------------------------------------------- half-copied


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "QUIET", 0.4)
    monkeypatch.setattr(inbox, "EVERY", 0.05)


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_quiet_folder_is_taken_at_once(tmp_path: Path) -> None:
    for name in ("a.png", "old.png.part"):
        age(save(tmp_path / name, grey(1)[0], format="PNG"), 11)
    started = time.monotonic()
    settled(tmp_path, 60)
    settled(tmp_path / "nowhere", 60)
    assert time.monotonic() - started < 1


def test_a_wrong_clock_does_not_stop_a_run(tmp_path: Path) -> None:
    age(save(tmp_path / "a.png", grey(1)[0]), -100_000)
    settled(tmp_path, 60)


def test_no_wait_where_none_is_wanted(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    settled(tmp_path, 0)


def growing(path: Path, seconds: float, then: Callable[[], Any] = lambda: None) -> threading.Thread:
    def write() -> None:
        with path.open("ab", buffering=0) as stream:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                stream.write(b"more")
                time.sleep(0.02)
        then()

    path.touch()
    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.mark.usefixtures("hasty")
def test_a_copy_under_way_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = save(tmp_path / "whole.png", grey(1)[0]).read_bytes()
    part = tmp_path / "inbox/b.png.part"
    part.parent.mkdir()

    def finish() -> None:
        part.write_bytes(whole)
        part.rename(part.with_suffix(""))

    caplog.set_level("INFO", "erd")
    thread = growing(part, 0.5, finish)
    settled(part.parent, 20)
    assert not thread.is_alive()
    assert take(part.parent, 16).ids.tolist() == ["b.png"]
    assert "waiting up to 20 s" in caplog.text


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", ["b.png", ".b.png.x7Yz", "deep/er/b.png"])
def test_a_copy_that_takes_too_long_is_named(tmp_path: Path, name: str) -> None:
    age(save(tmp_path / "a.png", grey(1)[0]), 100)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    thread = growing(tmp_path / name, 1.5)
    with pytest.raises(RunError) as caught:
        settled(tmp_path, 0.6)
    thread.join()
    assert f"still being copied into {tmp_path} (1: {name})" in str(caught.value)
    assert "run again" in str(caught.value)


@pytest.mark.usefixtures("hasty")
def test_an_unfinished_name_is_waited_for_while_the_folder_is_filled(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(1)[0])
    (tmp_path / "b.crdownload").touch()
    with pytest.raises(RunError, match=r"\(1: b\.crdownload\)"):
        settled(tmp_path, 1)


@pytest.mark.usefixtures("hasty")
def test_a_run_does_not_start_on_half_an_inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "QUIET", 600.0)
    save(tmp_path / "a.png", grey(1, 8)[0])
    chosen = configure.resolve(schema.load(None, [f"data.inbox={tmp_path}", "data.settle=1"]))
    with pytest.raises(RunError, match="still being copied"):
        collect.collect(chosen)
    assert collect.collect(chosen.override({"data.settle": 0})).batch.ids.tolist() == ["a.png"]


# ---------------------------------------------------------------------------------------------------- found again


@dataclass(frozen=True)
class Batch:
    """A batch as ingest leaves it: where it is, its table, and what the review page asks for."""

    place: Path
    run: RunDir

    @property
    def table(self) -> pd.DataFrame:
        return pd.read_parquet(packed.manifest(self.run.batch))

    @property
    def settings(self) -> Settings:
        return Settings().override({"data.inbox": str(self.place)})


def ingested(place: Path, workspace: Path) -> Batch:
    run = RunDir(workspace / "runs" / "week")
    chosen = configure.resolve(schema.load(None, [f"data.inbox={place}", "data.settle=0"]))
    collect.write(collect.collect(chosen), run)
    return Batch(place, run)


def large(batch: Batch, row: int) -> np.ndarray:
    """What the review page shows."""
    return np.asarray(Image.open(io.BytesIO(Pictures(cast(Queue, batch)).large(row))))


def test_the_files_of_a_folder_are_kept_with_the_batch(tmp_path: Path) -> None:
    save(tmp_path / "inbox/ward 1/a.png", grey(1)[0])
    save(tmp_path / "inbox/b.png", grey(1)[0])
    batch = ingested(tmp_path / "inbox", tmp_path)
    assert batch.table["file"].tolist() == batch.table["id"].tolist() == ["b.png", "ward 1/a.png"]
    found = [original(batch.place, row.file, row.sha256) for row in batch.table.itertuples()]
    assert found == [tmp_path / "inbox/b.png", tmp_path / "inbox/ward 1/a.png"]


def test_the_files_of_a_manifest_are_kept_and_shown_wherever_they_lie(tmp_path: Path) -> None:
    images = grey(4, 32)
    paths = ["week/scans/0.png", "week/scans/1.png", "archive/2.png", "archive/deep/3.png"]
    for path, image in zip(paths, images, strict=True):
        save(tmp_path / path, image)
    listed = ["scans/0.png", tmp_path / paths[1], "../archive/2.png", tmp_path / paths[3]]
    manifest = tmp_path / "week/list.csv"
    pd.DataFrame({"path": [str(path) for path in listed]}).to_csv(manifest, index=False)
    batch = ingested(manifest, tmp_path)
    relative = ["scans/0.png", "scans/1.png", "../archive/2.png", "../archive/deep/3.png"]
    assert batch.table["file"].tolist() == batch.table["id"].tolist() == relative, "nothing tells where on the disk"
    for row, (path, image) in enumerate(zip(paths, images, strict=True)):
        assert original(manifest, batch.table["file"][row], batch.table["sha256"][row]) == tmp_path / path
        assert (large(batch, row) == image).all(), "as it came"
    save(tmp_path / paths[2], images[0])  # another one under the same name
    assert original(manifest, batch.table["file"][2], batch.table["sha256"][2]) is None
    assert (large(batch, 2) == packed.read(batch.run.batch).images[2].numpy()).all()


def test_an_npz_has_no_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "week.npz", x_batch=grey(2, 16))
    batch = ingested(tmp_path / "week.npz", tmp_path)
    assert batch.table["file"].tolist() == ["", ""]
    assert original(tmp_path / "week.npz", "", batch.table["sha256"][0]) is None
    assert large(batch, 0).shape == (8, 8), "the pixels that were kept"


def test_a_run_made_before_finds_its_files_by_their_ids(tmp_path: Path) -> None:
    first, second = grey(2, 32)
    save(tmp_path / "inbox/a.png", first)
    save(tmp_path / "inbox/b.png", second)
    batch = ingested(tmp_path / "inbox", tmp_path)
    files.save_table(packed.manifest(batch.run.batch), batch.table.drop(columns="file"))
    assert (large(batch, 0) == first).all()
    save(tmp_path / "inbox/b.png", first)
    assert (large(batch, 1) == packed.read(batch.run.batch).images[1].numpy()).all()


def test_nothing_outside_the_folder_is_taken_for_an_original(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside.png", tmp_path / "inbox/a.png"
    for path in (outside, inside):
        save(path, np.zeros((16, 16), np.uint8))
    sha256 = files.sha256(outside)
    (tmp_path / "inbox/link.png").symlink_to(outside)
    (tmp_path / "inbox/folder").symlink_to(tmp_path)
    (tmp_path / "inbox/within.png").symlink_to("a.png")
    (tmp_path / "inbox/loop.png").symlink_to("loop.png")
    os.mkfifo(tmp_path / "inbox/pipe.png")
    for file in ("../outside.png", str(outside), "link.png", "folder/outside.png", "gone.png", "loop.png", "pipe.png",
                 ".", "x\0y", ""):  # fmt: skip
        assert original(tmp_path / "inbox", file, sha256) is None, file
    for file in ("a.png", "within.png", "../inbox/a.png"):
        assert original(tmp_path / "inbox", file, sha256) == inside
    assert original(tmp_path / "inbox", "a.png", "0" * 64) is None
    assert original(tmp_path / "gone", "../outside.png", sha256) is None
    assert original(tmp_path / "gone.csv", "outside.png", sha256) == outside, "what it listed is still there"
    assert original(tmp_path / "gone.csv", "outside.png", "") is None, "nothing tells that it listed this"
