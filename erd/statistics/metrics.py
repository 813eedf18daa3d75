"""How well scores separate novel from known, and classes from each other. Novel is the positive class."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

# Columns of a table of scores that are evaluated beside the score.
COMPARED = ("disagreement", "neighbours", "entropy", "max_softmax")


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


@dataclass(frozen=True)
class Detection:
    """How well a scored set with truth came out; all None without truth."""

    auroc: float | None = None
    tnr95: float | None = None
    aupr: float | None = None
    realised_fpr: float | None = None  # of the known images, the share that is flagged
    realised_fdr: float | None = None  # of the flagged images, the share that is known
    power: float | None = None  # of the novel images, the share that is flagged
    disagreement_auroc: float | None = None  # ERD's own score, where the score joins it with others
    disagreement_tnr95: float | None = None
    disagreement_aupr: float | None = None
    neighbours_auroc: float | None = None  # the neighbours in the batch alone, where there is an encoder
    neighbours_tnr95: float | None = None
    neighbours_aupr: float | None = None
    entropy_auroc: float | None = None  # of the same members, by the entropy of their mean
    entropy_tnr95: float | None = None
    entropy_aupr: float | None = None
    max_softmax_auroc: float | None = None  # of the classifier alone
    max_softmax_tnr95: float | None = None
    max_softmax_aupr: float | None = None

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Detection":
        """From columns score, flagged, truth and those of COMPARED that there are."""
        if "truth" not in table or table.empty:
            return cls()
        novel = (table["truth"] == "novel").to_numpy()
        flagged = table["flagged"].to_numpy()
        figures = detection_metrics(table["score"].to_numpy(), novel)
        figures["realised_fpr"] = float(flagged[~novel].mean()) if (~novel).any() else None
        figures["realised_fdr"] = float((~novel)[flagged].mean()) if flagged.any() else 0.0
        figures["power"] = float(flagged[novel].mean()) if novel.any() else None
        for compared in [name for name in COMPARED if name in table]:
            other = detection_metrics(table[compared].to_numpy(), novel)
            figures |= {f"{compared}_{name}": value for name, value in other.items()}
        return cls(**figures)
