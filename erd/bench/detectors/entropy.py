"""How undecided the classifier is: the entropy of its softmax, between 0 and log(number of classes)."""

from erd.bench.detectors import Detector, Given, method
from erd.statistics.disagreement import entropy_of_mean


@method(
    "entropy",
    paper="Hendrycks & Gimpel, ICLR 2017, with the entropy in place of the maximum",
    formula="−Σ_y p_y log p_y,  p = softmax(f(x))",
    setting="unsupervised",
    sees=("classifier",),
)
def fit(given: Given) -> Detector:
    return Detector(lambda images: entropy_of_mean(given.softmax(given.classifier, images)[None]))
