"""How well scores separate novel from known, and classes from each other. Novel is the positive class."""

import math

import numpy as np


def auroc(known: np.ndarray, novel: np.ndarray) -> float:
    """The probability that a novel image scores above a known one, ties counting half."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([known, novel]))[len(known) :]
    return float((ranks.sum() - len(novel) * (len(novel) + 1) / 2) / (len(known) * len(novel)))


def tnr_at_tpr(known: np.ndarray, novel: np.ndarray, tpr: float = 0.95) -> float:
    """TNR@95: the share of known images below the threshold that catches 95% of the novel (= 1 − FPR at 95% TPR)."""
    caught = math.ceil(tpr * len(novel) - 1e-9)
    cut = np.sort(novel)[::-1][caught - 1]
    return float((known < cut).mean())


def aupr(known: np.ndarray, novel: np.ndarray) -> float:
    """Average precision: the area under precision against recall."""
    from sklearn.metrics import average_precision_score

    truth = np.repeat([0, 1], [len(known), len(novel)])
    return float(average_precision_score(truth, np.concatenate([known, novel])))


def roc(known: np.ndarray, novel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False- and true-positive rates from the strictest threshold to the loosest."""
    from sklearn.metrics import roc_curve

    truth = np.repeat([0, 1], [len(known), len(novel)])
    false_positive, true_positive, _ = roc_curve(truth, np.concatenate([known, novel]))
    return false_positive, true_positive


def detection_metrics(scores: np.ndarray, novel: np.ndarray) -> dict[str, float | None]:
    """AUROC, TNR@95 and AUPR of `scores` where `novel` marks the truth; None where one of the two is missing."""
    if novel.all() or not novel.any():
        return {"auroc": None, "tnr95": None, "aupr": None}
    known_scores, novel_scores = scores[~novel], scores[novel]
    return {
        "auroc": auroc(known_scores, novel_scores),
        "tnr95": tnr_at_tpr(known_scores, novel_scores),
        "aupr": aupr(known_scores, novel_scores),
    }
