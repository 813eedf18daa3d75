"""benchmarks/evolution.py: the scores after every epoch, on the bundled digits."""

import json
from pathlib import Path

import evolution
import pytest
from PIL import Image


def test_scores_of_novel_images_rise_above_those_of_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--set", "pretrain.epochs=15", "--set", "finetune.epochs=4", "--output", "found.png", "--json"]
    assert evolution.main(words) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["epoch"] for row in found["epochs"]] == [1, 2, 3, 4]
    assert all(row["novel"][2] > row["known"][2] for row in found["epochs"]), "medians"
    assert len({row["auroc"] for row in found["epochs"]}) > 1, "it goes on learning"
    assert found["final"]["erd"]["auroc"] > 0.9
    assert set(found["final"]) == {"erd", "mcd"}
    with Image.open("found.png") as image:
        assert min(image.size) > 600
