"""How well scores separate novel from known, and classes from each other. Novel is the positive class."""

import math

import numpy as np


def roc_counts(known: np.ndarray, novel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many known and how many novel images score at least t, for t from above all scores down to the least."""
    scores = np.concatenate([known, novel])
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.diff(scores[order]) != 0, True)  # equal scores are one step
    is_novel = (order >= len(known))[None]
    known_above, novel_above = np.cumsum(np.concatenate([~is_novel, is_novel]), axis=1)[:, ends]
    return np.insert(known_above, 0, 0), np.insert(novel_above, 0, 0)


def auroc(known: np.ndarray, novel: np.ndarray) -> float:
    """The probability that a novel image scores above a known one, ties counting half."""
    false, true = roc_counts(known, novel)
    return float((np.diff(false) * (true[1:] + true[:-1])).sum() / (2 * len(known) * len(novel)))


def tnr_at_tpr(known: np.ndarray, novel: np.ndarray, tpr: float = 0.95) -> float:
    """TNR@95: the share of known images below the threshold that catches 95% of the novel (= 1 − FPR at 95% TPR)."""
    caught = math.ceil(tpr * len(novel) - 1e-9)
    cut = np.sort(novel)[::-1][caught - 1]
    return float((known < cut).mean())


def aupr(known: np.ndarray, novel: np.ndarray) -> float:
    """Average precision: the area under precision against recall."""
    false, true = roc_counts(known, novel)
    return float((np.diff(true) * (true[1:] / (true[1:] + false[1:]))).sum() / len(novel))


def roc(known: np.ndarray, novel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False- and true-positive rates from the strictest threshold to the loosest, without points on straight lines."""
    false, true = roc_counts(known, novel)
    bends = np.abs(np.diff(false, 2)) + np.abs(np.diff(true, 2)) > 0
    kept = np.concatenate([[True], bends, [True]])
    return false[kept] / len(known), true[kept] / len(novel)


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
