"""What a reader of report.html sees of the two tiers, and what the experts get as files."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from batches_to_review import make, most_novel
from PIL import Image

from erd.base import files
from erd.data import packed
from erd.reporting import flagged_images, report, tiers
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Group, Metrics, Sensitivity

LOOK: dict[str, Any] = {"look_at_novel": 24.6, "look_at_least": 19, "last_good": 27}


def scored(workspace: Path, **how: Any) -> RunDir:
    run = make(workspace, **how)
    pd.DataFrame({"file": [], "reason": []}).to_csv(run.quarantine, index=False)
    return run


def ids(run: RunDir) -> list[str]:
    return pd.read_parquet(run.scores)["id"].iloc[most_novel(run)].tolist()


def pictured(page: str) -> list[str]:
    return re.findall(r'alt="(ward [^"]+)"', page)


def flagged(page: str) -> list[str]:
    return re.findall(r'<li class="flagged"><img alt="([^"]+)"', page)


def test_without_flags_the_budgets_images_are_shown_with_a_line_after_the_last_good_one(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=0, budget=40, alarm=True, **LOOK)
    page = report.write(run).read_text()
    assert "Something in batch 2026-W46 is new: of the 40 images that look most novel about 25 are expected" in page
    assert "Worth a look" in page
    assert "Flagged images" not in page
    assert "at least 19 (90% confidence)" in page
    assert pictured(page) == ids(run)[:40], "most novel first"
    assert flagged(page) == []
    above = page[: page.index('<li class="edge">')]
    assert len(pictured(above)) == 27
    assert "Nothing has to be done" not in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page), "it needs no other file"


def test_flagged_images_are_marked_and_shown_once(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=12, budget=40, **LOOK)
    page = report.write(run).read_text()
    assert "The 12 flagged images come first below" in page
    assert "Of the 12 flagged images at most 3 are known after all" in page
    assert pictured(page) == ids(run)[:40]
    assert flagged(page) == ids(run)[:12]


def test_more_flags_than_the_budget_are_all_shown_up_to_a_hundred(tmp_path: Path) -> None:
    run = scored(tmp_path, images=150, flagged=130, budget=10)
    page = report.write(run).read_text()
    assert pictured(page) == ids(run)[:100]
    assert "… and 30 more in scores.parquet." in page


def test_a_quiet_week_says_what_could_have_been_missed(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=0, look_at_novel=2.2, last_good=4, alarm_p=0.4)
    assert "would have been noticed" not in report.write(run).read_text(), "nobody has asked"
    Sensitivity(0.04, []).write(run)
    page = report.write(run).read_text()
    assert "<h1>No sign of a new class in batch 2026-W46.</h1>\n<p>A class like those you know would have" in page
    assert len(pictured(page)) == 20, "a look remains the advice"
    assert 'class="edge"' not in page, "chance would have drawn it"
    assert "Candidates for a new class" not in page


def test_findings_stand_near_the_top_and_candidates_have_their_pictures(tmp_path: Path) -> None:
    run = scored(tmp_path, mix_changed="the mix of known classes has changed: <b>more</b> cats", **LOOK)
    chosen = ids(run)[40:43]
    Decided(Metrics.read(run).verdict, [], [Group(images=3, at_least=2, like="digit 3", ids=chosen)]).write(run)
    Sensitivity(None, []).write(run)
    page = report.write(run).read_text()
    note = page.index('<p class="note">The mix of known classes has changed: &lt;b&gt;more')
    assert note < page.index("What to do next")
    after = page[page.index("3 look-alikes, unlike anything labelled, nearest to “digit 3”; at least 2") :]
    assert pictured(after) == chosen
    assert "Even a tenth of the batch" in page[page.index("How sure") :]


def test_where_nearly_all_images_have_moved_no_bound_is_given(tmp_path: Path) -> None:
    page = report.write(scored(tmp_path, bulk_moved="nearly all have moved", **LOOK)).read_text()
    assert "<h1>Batch 2026-W46 as a whole has changed" in page
    assert '<p class="note">Nearly all have moved.</p>' in page
    assert "are known after all" not in page
    assert 'class="edge"' not in page


@pytest.mark.parametrize(("flags", "exported"), [(7, 7), (0, 20)])
def test_experts_get_the_flagged_images_or_else_those_worth_a_look(tmp_path: Path, flags: int, exported: int) -> None:
    run = scored(tmp_path, flagged=30)
    flagged_images.export(run)
    run = scored(tmp_path, flagged=flags)
    folder = flagged_images.export(run)
    table = pd.read_csv(folder / "flagged.csv")
    assert sorted(path.name for path in folder.glob("*.png")) == table["file"].tolist(), "nothing of the export before"
    assert table["id"].tolist() == ids(run)[:exported]
    assert table["flagged"].tolist() == [flags > 0] * exported
    shown = np.asarray(Image.open(folder / "0001.png"))
    assert np.array_equal(shown, packed.read(run.batch).images[most_novel(run)[0]].squeeze().numpy())


def test_what_is_flagged_comes_first_also_where_flags_do_not_follow_the_scores(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=5)
    table = pd.read_parquet(run.scores)
    lowest = table["score"].idxmin()
    files.save_table(run.scores, table.assign(flagged=table["flagged"] | (table.index == lowest)))
    assert tiers.shown(run).index.tolist() == [*most_novel(run)[:5], lowest, *most_novel(run)[5:19]]
    assert tiers.flagged(run).index.tolist() == [*most_novel(run)[:5], lowest]


def test_a_run_of_an_earlier_version_is_shown_by_the_budget_of_the_settings(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=0, budget=15)
    metrics = files.load_json(run.metrics)
    files.save_json(run.metrics, {name: value for name, value in metrics.items() if not name.startswith("look_at")})
    assert len(pictured(report.write(run).read_text())) == 15
