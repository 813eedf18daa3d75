"""What a classifier gives away on its own: the probability of the class it chooses."""

from erd.methods import Data, Detector, method


@method(
    "max-softmax",
    paper="Hendrycks & Gimpel, ICLR 2017",
    formula="1 − max_y softmax(f(x))_y",
    setting="unsupervised",
    sees=("classifier",),
)
def fit(data: Data) -> Detector:
    return Detector(lambda images: 1 - data.softmax(data.classifier, images).amax(1))
