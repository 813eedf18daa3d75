"""The free energy of an image under the classifier; unlike the softmax it keeps how large the logits are.

The paper's score without its fine-tuning on outliers, at its temperature of 1. Their confidence is the negative energy;
here the energy itself, so that larger is more novel.
"""

from erd.bench.detectors import Detector, Given, method


@method(
    "energy",
    paper="Liu et al., NeurIPS 2020",
    formula="−log Σ_y exp f(x)_y",
    setting="unsupervised",
    sees=("classifier",),
)
def fit(given: Given) -> Detector:
    return Detector(lambda images: -given.outputs(given.classifier, images).logsumexp(1))
