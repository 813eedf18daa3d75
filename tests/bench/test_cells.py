"""A cell: what its method gets to see, and what is no score."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from small_bench import brightness, run

from erd.base import files
from erd.bench.detectors import SEES, Detector, Given
from erd.data import packed
from erd.data.packed import PARTS, Rows
from erd.runs.folder import RunDir


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench folder in which the classifier is trained once for several tests."""
    return tmp_path_factory.mktemp("shared") / "bench"


@pytest.mark.parametrize("what", SEES)
def test_a_method_that_reads_what_it_does_not_declare_is_a_failed_row(
    what: str, enter: Callable[..., None], shared: Path
) -> None:
    def peek(given: Given) -> Detector:
        getattr(given, what)
        return Detector(brightness)

    enter("peeking", peek, *(name for name in SEES if name not in (what, "outliers")))
    enter("honest", lambda given: Detector(brightness))
    peeking, honest = run("peeking", "honest", root=shared)
    assert peeking.error == (
        f"method 'peeking' reads `{what}`, which its record does not declare; "
        "add it to `sees`, and the table will say so"
    )
    assert peeking.auroc is None
    assert honest.error is None
    assert honest.auroc is not None


def test_a_method_gets_what_it_declares_and_no_hint_of_the_rest(enter: Callable[..., None], shared: Path) -> None:
    seen: list[Given] = []

    def look(given: Given) -> Detector:
        seen.append(given)
        return Detector(brightness)

    enter("nothing", look)
    enter("everything", look, *SEES)
    assert not any(row.error for row in run("nothing", "everything", root=shared))
    nothing, everything = seen
    assert not set(SEES) & set(vars(nothing))
    assert not any(isinstance(value, Rows | torch.Tensor | torch.nn.Module) for value in vars(nothing).values())
    assert nothing.settings.data.batch_novel is None, "with it the novel share could be had"
    assert len(nothing.classes) == 5

    folder = RunDir(shared / "digits-near" / "seed0")
    labeled = packed.read(folder.labeled)
    assert labeled.part is not None
    for part, given in (("train", everything.train), ("val", everything.val)):
        of_part = labeled.part == PARTS.index(part)
        assert (given.images.images == labeled.images[of_part]).all(), "and of no other part"
        assert (given.labels == labeled.labels_of(part)).all()
    batch, truth = packed.read(folder.batch).images, pd.read_parquet(packed.manifest(folder.batch))["truth"]
    assert (everything.batch.images == batch).all()
    assert everything.novel_share == (truth == "novel").mean() == 0.5

    def as_set(images: torch.Tensor) -> set[bytes]:
        return {image.numpy().tobytes() for image in images}

    told = everything.novel.take(torch.arange(len(everything.novel)))
    assert as_set(told) < as_set(batch[torch.tensor((truth == "novel").tolist())]), "truly novel ones …"
    assert len(told) == 90, "… and half of them"
    assert len(everything.outliers) <= 541
    assert everything.outliers.images.shape[1:] == (8, 8)
    assert not everything.classifier.training


def test_methods_cannot_disturb_each_other(enter: Callable[..., None], shared: Path) -> None:
    def spoil(given: Given) -> Detector:
        for tensor in given.classifier.state_dict().values():
            tensor.zero_()
        given.train.images.images.zero_()
        return Detector(brightness)

    enter("spoiling", spoil, "classifier", "train")
    before = files.sha256(shared / "digits-near/seed0/pretrained.safetensors") if shared.exists() else None
    alone = run("max-softmax", root=Path("alone"))
    after = run("spoiling", "max-softmax", root=shared)[1]
    assert after.auroc == alone[0].auroc
    assert before in (None, files.sha256(shared / "digits-near/seed0/pretrained.safetensors"))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (lambda images: torch.full((len(images),), float("nan")), "gives 360 of 360 images a score that is no number"),
        (lambda images: torch.zeros(len(images), 2), r"gives scores of shape \(360, 2\) for 360 images"),
        (lambda images: 1 / 0, "fails with ZeroDivisionError: division by zero; the traceback is in"),
    ],
)
def test_scores_that_are_none_are_a_failed_row(
    scores: Any, words: str, enter: Callable[..., None], shared: Path
) -> None:
    enter("broken", lambda given: Detector(scores))
    [row] = run("broken", root=shared)
    assert row.error is not None
    assert re.search(words, row.error)
    if "traceback" in words:
        assert "1 / 0" in Path(row.error.rpartition(" ")[2]).read_text()
