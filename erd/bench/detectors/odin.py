"""ODIN: a hot softmax after a small step of the image towards the class it is taken for; known images gain more by it.

Score: 1 − max_y softmax(f(x̂)/T)_y with x̂ = x − ε sign(∇_x −log max_y softmax(f(x)/T)_y), ε in units of pixel values
0..1. The paper picks T and ε on novel images. Here V alone decides, as in Generalized ODIN (Hsu et al., CVPR 2020): of
its grid (and 0) ε is the one with which V's images are surest. T stays at ODIN's 1000: scores at different T do not
compare. The images V of an MLP grow surer with every step, so there the rule takes the largest of the grid.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.layers import BATCH, descend
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.training.batches import Mixture, in_order

TEMPERATURE = 1000.0
STEPS = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)


@method(
    "odin",
    paper="Liang et al., ICLR 2018; ε from V as Hsu et al., CVPR 2020",
    formula="1 − max_y softmax(f(x̂)/T)_y,  x̂ = x + ε sign(∇_x log max_y softmax(f(x)/T)_y)",
    setting="unsupervised",
    sees=("val", "classifier"),
)
def fit(given: Given) -> Detector:
    step = min(STEPS, key=lambda step: score(given, given.val.images, step).mean().item())
    return Detector(partial(score, given, step=step))


def score(given: Given, images: Rows, step: float) -> Tensor:
    given.classifier.eval()
    batches = in_order(Mixture(images, device=given.device), BATCH)
    return torch.cat([uncertainty(given.classifier, batch.float(), step) for batch in batches])


def uncertainty(model: Classifier, images: Tensor, step: float) -> Tensor:
    def loss(images: Tensor) -> Tensor:
        logits = model(images) / TEMPERATURE
        return F.cross_entropy(logits, logits.argmax(1), reduction="none")

    moved = descend(loss, images, step, model.unit) if step else images
    with torch.inference_mode():
        # At this temperature the classes' probabilities differ in the third digit: float32 would blur them.
        return 1 - (model(moved).double() / TEMPERATURE).softmax(1).amax(1).cpu()
