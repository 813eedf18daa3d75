"""A small world for methods: digits 0–4 known, 5–9 novel, an mlp trained in a second, and a bench that tells little.

def test_it(given_to, auroc):
    detector = get("max-softmax").fit(given_to("max-softmax"))
    assert auroc(detector) > 0.8
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

from erd import nets
from erd.bench.detectors import Detector, Given, Labeled, get
from erd.data.packed import Rows
from erd.nets import encoders
from erd.runs.configure import resolve
from erd.settings.schema import Settings, load
from erd.statistics import metrics
from erd.training.batches import Mixture
from erd.training.loop import Examples, Recipe, fit

CLASSES = ["0", "1", "2", "3", "4"]
EPOCHS = 20
TRAIN, VAL, BATCH, HOLDOUT = slice(0, 450), slice(450, 550), slice(550, 720), slice(720, 890)  # of the known images
NOVEL_BATCH, NOVEL_HOLDOUT = slice(0, 170), slice(170, 340)
TOLD = 50  # how many of the batch's novel images an oracle is told of


class World:
    """Everything there is; `seen` says what of it a method may get."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        bunch = load_digits()
        order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
        images = torch.from_numpy(bunch.images * (255 / 16)).round().to(torch.uint8)[order]
        labels = torch.from_numpy(bunch.target).to(torch.int64)[order]
        known, novel, truth = images[labels < 5], images[labels >= 5], labels[labels < 5]
        shuffle = torch.randperm(64, generator=torch.Generator().manual_seed(1))
        self.settings = settings()
        self.train = Labeled(Rows(known[TRAIN]), truth[TRAIN])
        self.val = Labeled(Rows(known[VAL]), truth[VAL])
        self.holdout_known, self.holdout_novel = Rows(known[HOLDOUT]), Rows(novel[NOVEL_HOLDOUT])
        # The batch begins with its known images, which no method is told.
        self.batch = Rows(torch.cat([known[BATCH], novel[NOVEL_BATCH]]))
        self.novel = Rows(self.batch.images, 170 + torch.arange(TOLD))
        self.outliers = Rows(known[TRAIN].flatten(1)[:, shuffle].view(-1, 8, 8))  # digits whose pixels changed places
        self.classifier = self.trained()
        self.pretrained = encoders.load(size=encoders.SMALLEST)  # its own 224 pixels would take a minute

    def features(self, rows: Rows) -> torch.Tensor:
        """What an encoder makes of the digits."""
        return self.pretrained.features(rows.take(torch.arange(len(rows))))

    def trained(self) -> nets.Classifier:
        pixels = self.train.images.images.double() / 255
        made_of: dict[str, Any] = {"channels": 1, "image_size": 8, "classes": len(CLASSES), "seed": 0}
        model = nets.build("mlp", **made_of, mean=[pixels.mean().item()], std=[pixels.std().item()])
        sets = [Examples(Mixture(part.images), part.labels) for part in (self.train, self.val)]
        result = fit(model, sets[0], sets[1], Recipe.of(self.settings.pretrain), torch.Generator().manual_seed(0))
        model.load_state_dict(result.snapshots[-1])
        return model.eval()

    def copy(self) -> nets.Classifier:
        """A classifier of one's own: a method may train it."""
        model = nets.build(**self.classifier.made_of, seed=0)  # type: ignore[arg-type]
        model.load_state_dict(self.classifier.state_dict())
        return model.eval()


def settings(*overrides: str) -> Settings:
    """digits-near with fewer epochs; `overrides` as on the command line."""
    epochs = [f"pretrain.epochs={EPOCHS}", "finetune.epochs=10", "detect.calibration=paper"]
    return resolve(load(None, [*epochs, *overrides]))


@pytest.fixture(scope="session")
def world() -> World:
    return World()


@pytest.fixture(scope="session")
def given_to(world: World) -> Callable[..., Given]:
    """`given_to(name, novel=…, encoder=…, overrides=["seed=1"])`: exactly what the method's record declares."""

    def build(name: str, *, overrides: tuple[str, ...] | list[str] = (), **changes: Any) -> Given:
        everything: dict[str, Any] = {
            what: getattr(world, what) for what in ("train", "val", "batch", "outliers", "novel")
        }
        everything |= {"classifier": world.copy(), "novel_share": 0.5, "encoder": world.features, **changes}
        seen = {what: everything[what] for what in get(name).sees}
        return Given(get(name), settings(*overrides), CLASSES, torch.device("cpu"), everything["classifier"], seen)

    return build


@pytest.fixture(scope="session")
def auroc(world: World) -> Callable[[Detector], float]:
    """How well a detector tells holdout images apart, that is ones it has not seen."""

    def measure(detector: Detector) -> float:
        known, novel = (detector.score(rows).numpy() for rows in (world.holdout_known, world.holdout_novel))
        return metrics.auroc(known, novel)

    return measure
