"""Every method there is, on the bundled digits: it works, it tells novel from known, and it plays by the rules.

And on features: where a scenario has an encoder, methods see what it makes of images in place of pixels.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import small_bench
import torch

from erd.bench import cells, detectors, plan
from erd.bench.plan import Asked, Place
from erd.data import packed
from erd.data.packed import Rows
from erd.statistics import metrics
from erd.training import devices

METHODS = list(detectors.table().values())
FLOORS = {  # AUROC that a method clearly exceeds, where it is not 0.8
    "erd": 0.95,
    "erd++": 0.95,
    "erd-avg": 0.95,
    "erd-avg-weights": 0.95,
    "erd-avg-ema": 0.95,
    "erd++-avg": 0.95,
    "oe": 0.85,
    "dpn": 0.85,
    "nnpu": 0.9,
    "nnpu-bbe": 0.9,
    "mcd": 0.9,
    "mahal-u": 0.9,
    "u-lac": 0.85,
    "woods": 0.9,
    "sal": 0.9,
    "detectron": 0.95,
    "divdis": 0.85,
    "erd-joined": 0.95,
    "lod": 0.93,
    "pulse": 0.9,
    "neighbours": 0.92,
    "oodd": 0.85,
    "s-against-u": 0.88,
    # ImageNet's features of digits that are enlarged eight times tell novel ones apart when they are compared with the
    # batch (above), and by the distance to S alone only just.
    "encoder-mahalanobis": 0.65,
    "encoder-rmd": 0.7,
}
ON_FEATURES = ("max-softmax", "knn", "mahalanobis", "gram", "odin", "binary", "mcd", "oe", "autoencoder", "erd-avg",
               "erd-joined", "neighbours", "lod", "pulse", "oodd", "s-against-u")  # fmt: skip
SMALL_PICTURES = "model.input_size=64"  # digits enlarged to the encoder's own 224 pixels would take a minute
FEW = torch.tensor([300, 7, 41, 12, 199, 100, 5])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """digits-near as the bench deals it, with its classifier and its outliers."""
    asked = Asked(root=tmp_path_factory.mktemp("bench"), overrides=(SMALL_PICTURES,))
    with devices.threads(1):
        yield small_bench.ready(plan.place("digits-near", 0, asked))


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same images, of which nets see the features of the bundled encoder."""
    overrides = (SMALL_PICTURES, "pretrain.epochs=5", "finetune.epochs=3", "finetune.members=2", "run.runner=serial")
    asked = Asked(root=tmp_path_factory.mktemp("encoded"), overrides=overrides)
    with devices.threads(1):
        yield small_bench.ready(plan.place("digits-near-encoded", 0, asked))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_finds_what_is_novel_and_keeps_to_the_rules(method: detectors.Method, place: Place) -> None:
    ours, theirs = torch.get_rng_state(), str(np.random.get_state())
    detector = method.fit(cells.hand_out(method, place, torch.device("cpu")))
    batch, holdout = packed.read(place.run.batch).images, packed.read(place.run.holdout).images
    scores = {"batch": detector.score(Rows(batch)), "holdout": detector.score(Rows(holdout))}
    assert (torch.get_rng_state() == ours).all(), "all that is random comes from given.generator"
    assert str(np.random.get_state()) == theirs
    found = {}
    for name, file in (("batch", place.run.batch), ("holdout", place.run.holdout)):
        assert scores[name].shape == (360,)
        assert scores[name].isfinite().all()
        novel = (pd.read_parquet(packed.manifest(file))["truth"] == "novel").to_numpy()
        found[name] = metrics.auroc(scores[name].numpy()[~novel], scores[name].numpy()[novel])
    assert max(found.values()) > FLOORS.get(method.name, 0.8), found

    few = detector.score(Rows(batch, FEW))
    spread = scores["batch"].std()
    assert torch.allclose(few, scores["batch"][FEW], atol=1e-4 * spread.item()), "an image's neighbours change nothing"
    assert detector.batch_p is None or 0 < detector.batch_p <= 1


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_method_works_on_features(name: str, encoded: Place) -> None:
    method = detectors.get(name)
    detector = method.fit(cells.hand_out(method, encoded, torch.device("cpu")))
    for path in (encoded.run.batch, encoded.run.holdout):
        seen = packed.read(encoded.run.seen(path, encoded.settings)).images
        assert seen.shape == (360, 1, 1, 1432)
        scores = detector.score(Rows(seen))
        assert scores.shape == (360,)
        assert scores.isfinite().all()
        assert scores.unique().numel() > 100, "and each image has a score of its own"


def test_no_method_is_without_a_test_here() -> None:
    """A new file is tested without a word to anybody."""
    files = {path.stem for path in Path(detectors.__file__).parent.glob("[a-z]*.py")}
    assert files == {method.module.rpartition(".")[2] for method in detectors.table().values()}
