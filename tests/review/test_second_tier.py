"""What the page's server tells of the second tier: how long the list is, what is said above it, where the good end."""

from pathlib import Path
from typing import Any

import batches_to_review
import pytest
from fastapi.testclient import TestClient

from erd.base import files
from erd.review import app, exchange, queue
from erd.runs.folder import RunDir
from erd.runs.results import Sensitivity

PORT = 8600
LOOK: dict[str, Any] = {"look_at_novel": 24.6, "look_at_least": 19, "last_good": 27}


def facts(run: RunDir) -> dict[str, Any]:
    page = TestClient(app.make(queue.load(run), PORT), base_url=f"http://127.0.0.1:{PORT}")
    return page.get("/api/batch").json()


@pytest.mark.parametrize(
    ("flagged", "budget", "shown"), [(20, 40, 40), (20, 10, 20), (0, 30, 30), (0, 500, 60), (0, 0, 0)]
)
def test_the_list_begins_with_the_flagged_or_the_budgets_images_whichever_are_more(
    tmp_path: Path, flagged: int, budget: int, shown: int
) -> None:
    run = batches_to_review.make(tmp_path, flagged=flagged, budget=budget)
    found = facts(run)
    assert (found["flagged"], found["shown"]) == (flagged, shown)
    tasks = exchange.to_label_studio(queue.load(run), "http://127.0.0.1:8600")
    assert sum(task["data"]["list"] == "flagged" for task in tasks) == shown, "Label Studio gets the same list"


def test_the_second_tier_is_said_above_the_list_and_the_last_good_image_is_named(tmp_path: Path) -> None:
    found = facts(batches_to_review.make(tmp_path, flagged=12, budget=40, **LOOK))
    assert found["worth_a_look"].startswith("Of the 40 images that look most novel about 25 are expected to be, at ")
    assert "90% confidence" in found["worth_a_look"]
    assert (found["last_good"], found["bounded"]) == (27, True)


def test_without_flags_the_headline_tells_how_many_and_the_line_above_the_list_how_far(tmp_path: Path) -> None:
    found = facts(batches_to_review.make(tmp_path, flagged=0, budget=40, weeks_alarm=True, **LOOK))
    assert "of the 40 images that look most novel about 25" in found["headline"]
    assert found["worth_a_look"].startswith("Down to image 27")
    assert found["rings"], "over the weeks together"


def test_what_the_headline_promises_of_the_list_is_not_taken_back_beside_the_slider(tmp_path: Path) -> None:
    run = batches_to_review.make(tmp_path, flagged=0, budget=40, **LOOK)
    files.save_table(run.scores, files.load_table(run.scores).assign(wrong_at_most=60))  # no cut alone has a bound
    wrong = queue.load(run).wrong_at_most
    assert [place + 1 - wrong[place] for place in (19, 20, 21, 39, 59)] == [0, 0, 1, 19, 19]


def test_a_quiet_week_says_what_could_have_been_missed(tmp_path: Path) -> None:
    run = batches_to_review.make(tmp_path, flagged=0)
    Sensitivity(0.05, []).write(run)
    assert facts(run)["headline"].startswith("No sign of a new class in batch 2026-W46. A class like those you know")


@pytest.mark.parametrize("why", [{"bulk_moved": "nearly all have moved"}, {"promised": False}])
def test_no_bound_is_promised_where_none_holds(tmp_path: Path, why: dict[str, Any]) -> None:
    found = facts(batches_to_review.make(tmp_path, **why))
    assert not found["bounded"]
    assert found["last_good"] == 0
    assert found["findings"] == (["Nearly all have moved."] if "bulk_moved" in why else [])
