"""From scores to flags: Algorithm 2 with its threshold t₀ set by a false-positive rate.

The reference scores are those of known images nobody trained on with their true label: C, or V in `paper` mode. A score
counts against the image at ties: p_j = (1 + #{i: s_i ≥ s_j}) / (n + 1).
"""

import math

import numpy as np


def p_values(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """How unusual each score is among the reference scores of known images; valid where the two are exchangeable."""
    ranked = np.sort(reference)
    at_least = len(ranked) - np.searchsorted(ranked, scores, side="left")
    return (1 + at_least) / (len(ranked) + 1)


def threshold(reference: np.ndarray, fpr: float) -> float:
    """t₀: flagging scores above it flags a known image with probability at most `fpr`; the same as p-value ≤ fpr.

    Infinite where there are fewer than 1/fpr − 1 reference images: no flag could keep the promise.
    """
    possible = np.arange(1, len(reference) + 2) / (len(reference) + 1)  # p-values, computed as above
    allowed = int((possible <= fpr).sum())
    return float(np.sort(reference)[-allowed]) if allowed else math.inf


def images_needed(fpr: float) -> int:
    """How many reference images a false-positive rate takes at least."""
    return math.ceil(1 / fpr - 1e-9) - 1
