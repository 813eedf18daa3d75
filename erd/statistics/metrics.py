"""How well scores separate novel from known, and classes from each other. Novel is the positive class."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

# Columns of a table of scores that are evaluated beside the score.
COMPARED = ("disagreement", "neighbours", "candidates", "entropy", "max_softmax")
MOST_LOOKS = 50  # nobody looks at more at a time, however many are novel


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


def found_after(scores: np.ndarray, novel: np.ndarray) -> np.ndarray:
    """The share of the novel images found after 1, 2, … all looks, the highest scores first.

    Images with equal scores come in random order, and this is what is found on average over all such orders: so the
    order of the images changes nothing.
    """
    return _found(scores, novel) / novel.sum()


def _found(scores: np.ndarray, novel: np.ndarray) -> np.ndarray:
    """How many that are."""
    known_above, novel_above = roc_counts(scores[~novel], scores[novel])
    return np.interp(np.arange(1, len(scores) + 1), known_above + novel_above, novel_above)


def first_looks(scores: np.ndarray, novel: np.ndarray) -> dict[str, float | None]:
    """What somebody finds who looks at the highest scores only, which is what counts where few images are novel.

    The share of novel ones among the first 20 and 50 images, and among the first as many as there are novel ones, 50
    at most; and the share of all novel ones that is found after 20, 50 and 100. None where one of the two is missing.
    """
    if novel.all() or not novel.any():
        return dict.fromkeys(("p20", "p50", "first", "found_20", "found_50", "found_100"))
    found, there = _found(scores, novel), int(novel.sum())

    def after(looks: int) -> float:
        return float(found[min(looks, len(found)) - 1])

    def precision(looks: int) -> float:
        return after(looks) / min(looks, len(found))

    return {
        "p20": precision(20),
        "p50": precision(50),
        "first": precision(min(there, MOST_LOOKS)),
        "found_20": after(20) / there,
        "found_50": after(50) / there,
        "found_100": after(100) / there,
    }


@dataclass(frozen=True)
class Detection:
    """How well a scored set with truth came out; all None without truth."""

    auroc: float | None = None
    tnr95: float | None = None
    aupr: float | None = None
    p20: float | None = None  # of the 20 highest scores, the share that is novel
    p50: float | None = None
    first: float | None = None  # of as many of the highest scores as there are novel images, but at most 50
    found_20: float | None = None  # of the novel images, the share among the 20 highest scores
    found_50: float | None = None
    found_100: float | None = None
    realised_fpr: float | None = None  # of the known images, the share that is flagged
    realised_fdr: float | None = None  # of the flagged images, the share that is known
    power: float | None = None  # of the novel images, the share that is flagged
    disagreement_auroc: float | None = None  # ERD's own score, where the score joins it with others
    disagreement_tnr95: float | None = None
    disagreement_aupr: float | None = None
    disagreement_p50: float | None = None
    disagreement_first: float | None = None
    neighbours_auroc: float | None = None  # the neighbours in the batch alone, where there is an encoder
    neighbours_tnr95: float | None = None
    neighbours_aupr: float | None = None
    neighbours_p50: float | None = None
    neighbours_first: float | None = None
    candidates_auroc: float | None = None  # the candidate classes alone, where there is an encoder
    candidates_tnr95: float | None = None
    candidates_aupr: float | None = None
    candidates_p50: float | None = None
    candidates_first: float | None = None
    entropy_auroc: float | None = None  # of the same members, by the entropy of their mean
    entropy_tnr95: float | None = None
    entropy_aupr: float | None = None
    entropy_p50: float | None = None
    entropy_first: float | None = None
    max_softmax_auroc: float | None = None  # of the classifier alone
    max_softmax_tnr95: float | None = None
    max_softmax_aupr: float | None = None
    max_softmax_p50: float | None = None
    max_softmax_first: float | None = None

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Detection":
        """From columns score, flagged, truth and those of COMPARED that there are."""
        if "truth" not in table or table.empty:
            return cls()
        novel = (table["truth"] == "novel").to_numpy()
        flagged = table["flagged"].to_numpy()
        score = table["score"].to_numpy()
        figures = detection_metrics(score, novel) | first_looks(score, novel)
        figures["realised_fpr"] = float(flagged[~novel].mean()) if (~novel).any() else None
        figures["realised_fdr"] = float((~novel)[flagged].mean()) if flagged.any() else 0.0
        figures["power"] = float(flagged[novel].mean()) if novel.any() else None
        for compared in [name for name in COMPARED if name in table]:
            values = table[compared].to_numpy()
            looks = first_looks(values, novel)
            other = detection_metrics(values, novel) | {name: looks[name] for name in ("p50", "first")}
            figures |= {f"{compared}_{name}": value for name, value in other.items()}
        return cls(**figures)
