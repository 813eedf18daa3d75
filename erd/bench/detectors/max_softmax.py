"""What a classifier gives away on its own: the probability of the class it chooses."""

from erd.bench.detectors import Detector, Given, method


@method(
    "max-softmax",
    paper="Hendrycks & Gimpel, ICLR 2017",
    formula="1 − max_y softmax(f(x))_y",
    setting="unsupervised",
    sees=("classifier",),
)
def fit(given: Given) -> Detector:
    return Detector(lambda images: 1 - given.softmax(given.classifier, images).amax(1))
