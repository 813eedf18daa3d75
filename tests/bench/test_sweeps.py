"""The sweeps: what they vary, and that each ends in a table and a figure."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from small_bench import done

from erd.base.errors import UserError
from erd.bench import sweeps
from erd.bench.plan import Asked
from erd.bench.rows import Row, read_rows
from erd.bench.tables import short
from erd.cli import main

TINY = ("pretrain.epochs=2", "finetune.epochs=2", "data.train=60", "data.val=30", "run.runner=serial")


def run(name: str, *overrides: str) -> pd.DataFrame:
    plan = sweeps.plan(name, seeds=1, asked=Asked(overrides=(*TINY, *overrides)))
    rows = done(plan)
    assert not [row.error for row in rows if row.error]
    kept, table, figure = sweeps.write(name, rows, plan.root)
    assert read_rows(kept) == rows
    assert len(table.read_text().splitlines()) > 5
    with Image.open(figure) as image:
        assert min(image.size) > 300
    return pd.DataFrame([row.as_json() | row.at for row in rows])


def table(name: str) -> list[dict[str, str]]:
    """The rows of a sweep's table, by the headings of its columns."""
    lines = Path(f"bench/sweeps/{name}.md").read_text().splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_members_have_different_labels_and_more_of_them_are_no_worse() -> None:
    rows = run("members", "data.train=300", "pretrain.epochs=8", "finetune.epochs=5")
    assert rows.groupby("members")["labels"].nunique().to_dict() == {2: 3, 3: 3, 4: 3, 5: 1}
    means = rows.groupby("members")["auroc"].mean()
    assert means[5] > means[2] - 0.02
    assert rows["auroc"].nunique() > 5, "other labels, other scores"


def test_a_batch_with_few_novel_images_is_dealt_as_asked() -> None:
    plan = sweeps.plan("share", seeds=1)
    points = {(dict(cell.at)["images in the batch"], dict(cell.at)["novel"]): cell.place for cell in plan.cells}
    assert set(points) >= {(180, 0.5), (180, 0.02), (22, 0.1)}
    data = points[180, 0.05].settings.data
    assert (data.batch_known, data.batch_novel) == (171, 9)
    assert len({place.run.root for place in points.values()}) == len(points), "each has images of its own"


def test_the_share_of_novel_images_becomes_a_heat_map(monkeypatch: pytest.MonkeyPatch) -> None:
    share = sweeps.SWEEPS["share"]
    monkeypatch.setitem(sweeps.SWEEPS, "share", replace(share, points=lambda *a: share.points(*a)[-5:]))
    rows = run("share")
    assert set(rows["novel"]) >= {0.2, 0.3, 0.5}
    last = table("share")[-1]
    assert last["AUROC"] == short(rows["holdout_auroc"].iloc[-1], 3), "a small batch has too few novel images"
    assert rows["holdout_auroc"].iloc[-1] != rows["batch_auroc"].iloc[-1]
    assert last["P@50, batch"] == short(rows["batch_p50"].iloc[-1], 3), "looks are taken in the batch that is swept"
    assert last["first, batch"] == short(rows["batch_first"].iloc[-1], 3)
    assert rows["batch_share"].iloc[-1] > 0.5, "all have these columns where few images are novel in one of them"


def test_the_shares_of_one_new_class_are_those_of_its_scenarios_and_of_the_whole_batch() -> None:
    plan = sweeps.plan("share", ["mnist-one-3"], seeds=1)
    points = {(dict(cell.at)["images in the batch"], dict(cell.at)["novel"]): cell.place for cell in plan.cells}
    for share in (0.01, 0.02, 0.03, 0.05, 0.1):
        data = points[1_000, share].settings.data
        assert (data.batch_known, data.batch_novel) == (1_000 - round(1_000 * share), round(1_000 * share))
    assert set(dict(points)) >= {(500, 0.01), (250, 0.1)}
    assert max(share for _, share in points) == 0.1, "a single class is not half of a week"


def test_scores_are_compared_for_both_kinds_of_ensemble() -> None:
    rows = run("score")
    assert set(zip(rows["ensemble"], rows["method"], strict=True)) == {
        ("ERD", "erd"), ("ERD", "erd-entropy"), ("vanilla", "vanilla"), ("vanilla", "vanilla-disagreement"),
    }  # fmt: skip
    assert rows.groupby("ensemble")["score"].nunique().to_dict() == {"ERD": 7, "vanilla": 7}
    of_erd = rows[rows["ensemble"] == "ERD"].set_index("score")["auroc"]
    assert of_erd["tv"] != of_erd["entropy of the mean"]


def test_stopping_goes_beyond_the_usual_epochs_and_is_compared_with_what_v_chooses() -> None:
    rows = run("stopping")
    assert list(rows["epoch"]) == [1, 2, 4, "best on V"]
    assert list(table("stopping")[0]) == ["scenario", "method", "epoch", "runs", "AUROC", "TNR@95"]
    assert rows["auroc"].nunique() > 1


def test_rates_and_minibatches_lie_around_the_scenarios_own() -> None:
    cells = sweeps.plan("lr-batch", seeds=1).cells
    assert {(cell.place.settings.finetune.lr, cell.place.settings.finetune.batch_size) for cell in cells} >= {
        (1e-3, 32), (1e-4, 8), (1e-2, 128),
    }  # fmt: skip
    assert len({cell.place.run.root for cell in cells}) == 1, "one classifier for all"
    assert len({cell.place.record(cell.method) for cell in cells}) == 25


def test_every_net_has_a_classifier_and_a_schedule_of_its_own() -> None:
    places = {dict(cell.at)["net"]: cell.place for cell in sweeps.plan("nets", seeds=1).cells}
    assert places["resnet20"].settings.finetune.optimizer == "sgd"
    assert places["resnet20"].run.root != places["mlp"].run.root


def test_the_command_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--sweep", "labels", "--seeds", "1", "--json", *(w for text in TINY for w in ("--set", text))]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(first["rows"]) == 10, "all pairs of five labels"
    assert [Path(name).suffix for name in first["files"]] == [".json", ".md", ".png"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "0 cells to do, 10 are done already" in told.err
    assert json.loads(told.out.splitlines()[-1])["rows"] == first["rows"]


def test_what_is_no_sweep_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="unknown sweep 'member': did you mean"):
        sweeps.plan("member")
    assert main(["bench", "--sweep", "members", "--method", "erd", "--method", "mcd"]) == 2
    assert "a sweep varies one method; give --method once" in capsys.readouterr().err


def test_where_every_point_failed_a_page_is_left_alone(tmp_path: Path) -> None:
    failed = Row(scenario="digits-near", method="erd", setting="", seed=0, evaluated_on="batch", error="no luck")
    assert sweeps.into(tmp_path / "page.md", "nets", "nets", [failed]) == []
    assert not (tmp_path / "page.md").exists()
