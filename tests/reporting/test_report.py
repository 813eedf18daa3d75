"""What a reader of report.html sees of the two tiers, and what the experts get as files."""

import base64
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from batches_to_review import make, most_novel
from PIL import Image

from erd.base import files
from erd.base.version import VERSION
from erd.data import library, packed
from erd.reporting import flagged_images, report, tiers
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Decided, Group, Metrics, Refused, Sensitivity
from erd.statistics.metrics import Detection

WHEN = "2026-11-16T03:00:00+00:00"
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
    return re.findall(r'<li class="flagged">[^\n]*?<img alt="([^"]+)"', page)


def first_screen(page: str) -> str:
    """All above the first pictures, without the style sheet."""
    return page[page.index("</style>") : page.index('<ul class="images')]


def folded(page: str) -> str:
    return page[page.index("<summary>For the engineer</summary>") :]


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
    assert "The 12 flagged images come first, with a red frame." in page
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
    assert pictured(after[: after.index("</ul>")]) == chosen
    assert pictured(after)[3:] == ids(run)[:20], "and then the list"
    assert "Even a tenth of the batch" in page[page.index("How sure") :]


def test_where_nearly_all_images_have_moved_no_bound_is_given(tmp_path: Path) -> None:
    page = report.write(scored(tmp_path, bulk_moved="nearly all have moved", **LOOK)).read_text()
    assert "<h1>Batch 2026-W46 as a whole has changed" in page
    assert '<p class="note">Nearly all have moved.</p>' in page
    assert "are known after all" not in page
    assert 'class="edge"' not in page


MACHINE_WORDS = ("trained on: ", "finetune", "detect.", "calibration", "AUROC", "p = ", "false discovery", "validation")


def test_machine_words_are_folded_away_for_the_engineer(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=12, weeks=4, weeks_p=0.0002, weeks_alarm=True, **LOOK)
    warnings = [
        "1,400 of 1,800 images are trained on: 400 are kept to compare the batch with",
        "add labelled images, or set detect.rule=fpr",
    ]
    metrics = replace(
        Metrics.read(run), warnings=warnings, on_batch=Detection(auroc=0.93123, p50=0.9, realised_fdr=0.1)
    )
    metrics.write(run)
    files.save_json(run.record("score"), {"key": "", "outputs": {}, "started": WHEN, "finished": WHEN})
    files.save_json(run.tracked, {"run_id": "f00d"})
    page = report.write(run).read_text()
    assert not [word for word in MACHINE_WORDS if word in first_screen(page)]
    assert "16 November 2026" in first_screen(page)
    for fact in (
        *warnings,
        "p = 1e-06",
        "AUROC 0.931",
        VERSION,
        "2026-11-16 03:00 UTC",
        "f00d",
        "8×8 pixels, grey",
        "net",
    ):
        assert fact in folded(page), fact
        assert fact == "net" or fact not in page[: page.index("For the engineer")], fact


def test_no_figure_has_more_digits_than_a_person_reads(tmp_path: Path) -> None:
    run = scored(tmp_path, alarm_p=0.00012345678, novel_share=0.123456789, **LOOK)
    replace(Metrics.read(run), val_accuracy=0.9987000226974487).write(run)
    page = report.write(run).read_text() + (flagged_images.export(run) / "flagged.csv").read_text()
    assert re.findall(r"\.0*[1-9]\d{4,}", re.sub(r"base64,[^\"]+", "", page)) == []
    rows = tiers.readable(
        pd.DataFrame({"id": ["a"], "score": np.array([0.9987], np.float32), "p_value": [1 / 3], "flagged": [True]})
    )
    assert rows.to_dict("records") == [{"id": "a", "score": 0.9987, "p_value": 0.3333, "flagged": True}]


def test_a_weak_classifier_is_warned_of_where_it_is_seen_first(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=0, look_at_novel=0.0)
    assert 'class="note"' not in report.write(run).read_text()
    replace(Metrics.read(run), val_accuracy=0.64).write(run)
    ClassAccuracy("2026-W45", [], 310, 0.7, 0.95, worse=True).write(run)
    page = first_screen(report.write(run).read_text())
    assert "right on only 64% of the images" in page
    assert "The classifier has become worse: it is right on 70.0%, the one of 2026-W45 on 95.0%" in page


def test_a_class_that_waits_is_told_every_week_where_it_is_seen_first(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=0, look_at_novel=0.0)
    said = library.waits("cardboard", 1, 30)
    replace(Metrics.read(run), warnings=[said]).write(run)
    files.save_json(run.ingested, files.load_json(run.ingested) | {"waiting": {"cardboard": said}})
    page = report.write(run).read_text()
    assert "“cardboard” waits: 1 image, needs about 30 to be learned; until then its images count as novel." in page
    assert page.count("needs about 30") == 1, "and not for the engineer again"
    ClassAccuracy("2026-W45", [], 310, 0.9, 0.9, [Refused("cardboard", 1, 30, None, None, ["2026-W45"])]).write(run)
    assert report.write(run).read_text().count("waits: 1 image") == 1, "in the week that refused it as well"


def test_pictures_are_large_and_smooth_and_the_original_is_a_click_away(tmp_path: Path) -> None:
    run = scored(tmp_path, inbox=tmp_path / "in box")
    originals = pd.read_parquet(run.manifest(run.batch))
    hashes = [files.sha256(tmp_path / "in box" / name) for name in originals["id"]]
    files.save_table(run.manifest(run.batch), originals.assign(file=originals["id"], sha256=hashes))
    gone = ids(run)[1]
    (tmp_path / "in box" / gone).write_bytes(b"another file under the old name")
    page = report.write(run).read_text()
    first = re.search(r'alt="[^"]+" src="data:image/jpeg;base64,([^"]+)"', page)
    assert first is not None
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(first[1]))), int)
    assert shown.shape == (224, 224)
    assert np.abs(np.diff(shown, axis=0)).max() < 60, "no hard edge between two of its eight pixels"
    links = re.findall(r'<a href="([^"]+)">(ward [^<]+)</a>', page)
    assert [name for _, name in links] == [name for name in ids(run)[:20] if name != gone]
    assert all((run.root / unquote(href)).samefile(tmp_path / "in box" / name) for href, name in links)


def test_weak_groups_and_all_but_the_first_pictures_are_folded(tmp_path: Path) -> None:
    run = scored(tmp_path, flagged=0, budget=40, alarm=True, **LOOK)
    sure, weak = Group(12, 9, "digit 3", ids(run)[:12]), Group(5, 0, "digit 1", ids(run)[30:35])
    Decided(Metrics.read(run).verdict, [], [sure, weak]).write(run)
    page = report.write(run).read_text()
    assert "<h1>Something in batch 2026-W46 is new: 12 of 60 images look alike, and unlike anything" in page
    assert "Look at the 12 look-alikes, then at the 40 images that look most novel" in page
    unfolded = re.sub(r"(?s)<details.*?</details>", "", page)
    assert pictured(unfolded)[:8] == ids(run)[:8]
    assert len(pictured(unfolded)) == 8 + 24
    assert "The other 4 of them" in page
    assert "1 other group of look-alikes, perhaps by chance" in page
    assert "The next 16 images" in page


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
