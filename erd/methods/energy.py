"""The free energy of an image under the classifier; unlike the softmax it keeps how large the logits are.

The paper's score without its fine-tuning on outliers, at its temperature of 1. Their confidence is the negative energy;
here the energy itself, so that larger is more novel.
"""

from erd.methods import Data, Detector, method


@method(
    "energy",
    paper="Liu et al., NeurIPS 2020",
    formula="−log Σ_y exp f(x)_y",
    setting="unsupervised",
    sees=("classifier",),
)
def fit(data: Data) -> Detector:
    return Detector(lambda images: -data.outputs(data.classifier, images).logsumexp(1))
