"""The page of a run that has no copy of its training images: they are the library's, which goes on without it."""

import io
import shutil
from pathlib import Path

import chains
import numpy as np
import pandas as pd
import pictures_of_shapes
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from erd.base import files
from erd.data import library, packed
from erd.review import app, queue
from erd.runs import configure
from erd.runs.folder import RunDir

PORT = 8600
HOME = f"http://127.0.0.1:{PORT}"
BATCH = "2026-W46"
SMALL = ("data.scenario=own", f"data.batch={BATCH}", "data.least=10", "data.settle=0", "data.calibration=20",
         "model.input_size=64", "finetune.members=2", "review.audit=5")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a library and a finished run."""
    workspace = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as there:
        there.chdir(workspace)
        library.take_in(pictures_of_shapes.files(Path("labelled"), {"rings": 40, "stripes": 40}), None)
        pictures_of_shapes.inbox(Path("inbox") / BATCH, {"blots": 6, "rings": 10, "stripes": 10})
        settings = chains.small(*SMALL)
        run = RunDir.of(settings)
        configure.keep(settings, run)
        chains.do(settings, run)
    return workspace


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """In a workspace of the test's own."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "workspace"))
    return RunDir(Path("runs") / BATCH)


def page_of(run: RunDir) -> TestClient:
    application = app.make(queue.load(run), PORT)
    application.state.prepare()
    return TestClient(application, base_url=HOME)


def picture(page: TestClient, row: int) -> np.ndarray:
    answer = page.get(f"/train/{row}.png")
    assert answer.status_code == 200
    return np.asarray(Image.open(io.BytesIO(answer.content)))


def trained(run: RunDir) -> pd.DataFrame:
    """Training images, by their row in the labelled set."""
    manifest = files.load_table(packed.manifest(run.labeled))
    return manifest[manifest["part"] == "train"]


def in_library(name: str) -> np.ndarray:
    whole = library.read()
    [row] = np.flatnonzero(whole.table["id"] == name)
    return np.asarray(whole.images[int(row)])


def test_neighbours_are_found_among_features_and_shown_as_the_librarys_pictures(run: RunDir) -> None:
    assert "images" not in files.load_tensors(run.labeled)[0], "the run has no copy"
    page, table, known = page_of(run), files.load_table(run.scores), trained(run)
    assert files.load_json(run.neighbours)["neighbours"], "kept for the next time"
    alike = []
    for row in range(len(table)):
        found = page.get(f"/api/neighbours/{row}").json()["neighbours"]
        assert len(found) == 5
        for neighbour in found:
            assert neighbour["label"] == known.loc[neighbour["row"], "label"]
            assert np.array_equal(picture(page, neighbour["row"]), in_library(known.loc[neighbour["row"], "id"]))
        kind = "blots" if row < 6 else "rings" if row < 16 else "stripes"  # as the inbox was filled, name by name
        alike += [neighbour["label"] == kind for neighbour in found if kind != "blots"]
    assert np.mean(alike) > 0.9, "the classes are those a person sees"
    hidden = files.load_table(packed.manifest(run.labeled)).query("part != 'train'").index[0]
    assert page.get(f"/train/{hidden}.png").status_code == 404


def test_the_map_is_in_the_directions_of_the_score_and_shows_the_new_kind_apart(run: RunDir) -> None:
    found = page_of(run).get("/api/map").json()["map"]
    points = np.array(found["points"])
    blots, others = points[:6], points[6:]
    apart = np.linalg.norm(blots.mean(0) - others.mean(0))
    assert apart > blots.std(0).max(), "six blots among rings and stripes"


def test_the_pictures_are_right_after_the_library_has_grown_in_front(run: RunDir) -> None:
    """Rows of the library are others then: the images are found by their hashes."""
    row = int(trained(run).index[3])
    before = picture(page_of(run), row)
    whole = library.read()
    fresh = library.table({"id": ["new"], "sha256": ["new"], "label": "rings", "group": ["new"], "batch": "w"}, 1)
    grown = library.Library(
        np.concatenate([np.zeros_like(np.asarray(whole.images)[:1]), np.asarray(whole.images)]),
        pd.concat([fresh, whole.table], ignore_index=True),
    )
    library.save(grown)
    assert np.array_equal(picture(page_of(run), row), before)


@pytest.mark.parametrize("lost", ["one image", "the whole library"])
def test_without_the_librarys_images_the_page_answers_with_grey_pictures(run: RunDir, lost: str) -> None:
    known = trained(run)
    if lost == "one image":
        whole = library.read()
        library.save(whole.take((whole.table["id"] != known["id"].iloc[0]).to_numpy()))
    else:
        shutil.rmtree("library")
    page = page_of(run)
    assert page.get("/api/list/flagged").status_code == 200
    assert page.get("/image/0/large.png").status_code == 200
    found = page.get("/api/neighbours/0").json()["neighbours"]
    assert len(found) == 5, "by their features they are known all the same"
    assert np.unique(picture(page, found[0]["row"])).tolist() == [128]


def test_a_class_that_an_earlier_review_named_and_that_waits_needs_no_typing(run: RunDir) -> None:
    def offered() -> list[str]:
        return page_of(run).get("/api/state", params={"batch": queue.load(run).key}).json()["new"]

    assert offered() == []
    whole = library.read()
    table = whole.table.tail(1).assign(id="2026-W45/a.png", sha256="a", label="blots", batch="2026-W45")
    library.save(whole.joined(library.Library(np.asarray(whole.images[len(whole) - 1 :]), table)))
    assert offered() == ["blots"]
