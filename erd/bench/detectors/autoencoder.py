"""How badly an image is drawn from memory: the error of an autoencoder that has learned to copy the images of S.

Dense layers with a bottleneck of 32 numbers, the same for every kind and size of image; the labels are not used, V
decides which epoch is kept. Score: the mean squared error over the image's normalised pixels.
"""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from erd.bench.detectors import Detector, Given, method
from erd.nets import Classifier

HIDDEN = (256, 32, 256)


@method(
    "autoencoder",
    paper="Hinton & Salakhutdinov, Science 2006; as a detector Sakurada & Yairi, MLSDA 2014",
    formula="‖x − d(e(x))‖² / pixels",
    setting="unsupervised",
    sees=("train", "val"),
)
def fit(given: Given) -> Detector:
    # Adam for every net: the steps that suit a residual net with batch norm would blow this one up.
    recipe = replace(
        given.pretraining, optimizer="adam", lr=1e-3, weight_decay=0.0, milestones=[], augment=False, keep="best"
    )
    val = given.val.images

    def watch(model: Classifier) -> tuple[float, float]:
        error = given.outputs(model, val).square().mean().item()
        return error, -error

    known = given.examples((given.train.images, given.train.labels))
    model = given.fit(build(given), known, recipe, loss=lambda residuals, *_: residuals.square().mean(), watch=watch)
    return Detector(lambda images: given.outputs(model, images).square().mean(1))


class Residuals(nn.Module):
    """x − d(e(x)), flat: what the training loop and the score both start from."""

    def __init__(self, pixels: int, generator: torch.Generator) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((pixels, *HIDDEN, pixels)):
            # Drawn from our generator, so not from torch's global one.
            layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.ReLU()]
        self.copy = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return flat - self.copy(flat)


def build(given: Given) -> Classifier:
    like = given.net()  # for the size of the images, and what they are normalised with
    channels, size = int(like.made_of["channels"]), int(like.made_of["image_size"])
    model = Classifier(Residuals(channels * size**2, given.generator("weights")), channels, like.unit)
    model.normalise(like.mean.cpu(), like.std.cpu())
    return model.to(given.device)
