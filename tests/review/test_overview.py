"""The batch as a whole: its map, and the images that are chosen to differ."""

from pathlib import Path
from typing import Any

import batches_to_review
import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from torch.nn import functional as F

from erd.base import files
from erd.review import app, queue
from erd.review.overview import farthest_first
from erd.runs.folder import RunDir

PORT = 8600


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return batches_to_review.make(tmp_path, groups=(6,), budget=20)


def told(run: RunDir, path: str, *, prepared: bool = True) -> Any:
    application = app.make(queue.load(run), PORT)
    if prepared:
        application.state.prepare()
    return TestClient(application, base_url=f"http://127.0.0.1:{PORT}").get(path).json()


def test_farthest_first_takes_one_of_each_kind_before_a_second_of_any() -> None:
    kinds = torch.eye(4).repeat_interleave(5, 0)
    seen = F.normalize(kinds + 0.05 * torch.randn(20, 4, generator=torch.Generator().manual_seed(0)))
    order = farthest_first(seen, 6)
    assert order[0] == 0, "the most novel one"
    assert {place // 5 for place in order[:4]} == {0, 1, 2, 3}
    assert len(set(order)) == 6
    assert sorted(farthest_first(seen, 50)) == [*range(20)]


def test_the_most_useful_are_some_of_the_most_novel_each_once(run: RunDir) -> None:
    useful, order = told(run, "/api/useful")["useful"], batches_to_review.most_novel(run)
    rows = [image["row"] for image in useful]
    assert len(rows) == len(set(rows)) == 20
    assert rows[0] == order[0]
    assert set(rows) <= set(order[:40])
    assert rows != order[:20]
    assert all(image["place"] == order.index(image["row"]) for image in useful), "where they are on the list of all"


def test_the_map_has_every_image_and_what_looks_alike_lies_together(run: RunDir) -> None:
    found = told(run, "/api/map")["map"]
    points, ground = np.array(found["points"]), np.array(found["ground"])
    assert points.shape == (60, 2)
    assert ground.shape == (160, 2)
    assert len(found["classes"]) == 160
    assert np.isfinite(points).all()
    assert points.std(0)[0] >= points.std(0)[1] > 0, "the direction in which they differ most lies across"
    assert sum(found["flagged"]) == 20
    assert found["look"] == batches_to_review.most_novel(run)[:20]
    assert found["groups"] == [batches_to_review.most_novel(run)[:6]]
    classes = np.array(found["classes"])
    own = np.mean([ground[classes == kind].std(0).mean() for kind in np.unique(classes)])
    assert own < ground.std(0).mean(), "a class lies closer together than all"


def test_it_is_found_once_and_again_when_the_scores_are_others(run: RunDir) -> None:
    assert told(run, "/api/map", prepared=False) == {"map": None, "failed": ""}, "not yet"
    first = told(run, "/api/useful")["useful"]
    kept = files.load_json(run.overview)
    kept["layout"]["useful"] = [3]
    files.save_json(run.overview, kept)
    assert [image["row"] for image in told(run, "/api/useful")["useful"]] == [3], "as it was kept"
    table = files.load_table(run.scores)
    files.save_table(run.scores, table.assign(score=-table["score"], flagged=False))
    anew = [image["row"] for image in told(run, "/api/useful")["useful"]]
    assert anew != [3]
    assert anew[0] != first[0]["row"]


def test_without_a_classifier_it_is_said_why_there_is_no_map(run: RunDir) -> None:
    run.pretrained.unlink()
    found = told(run, "/api/map")
    assert found["map"] is None
    assert "pretrained" in found["failed"]
