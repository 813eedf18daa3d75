"""A weekly novelty watch for image classifiers, built on ensembles with regularized disagreement (ERD)."""

__version__ = "0.1.0"
