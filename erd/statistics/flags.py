"""From scores to flags: Algorithm 2 with its threshold t₀ set by an error rate, and what holds at any other cut.

The reference scores are those of known images nobody trained on with their true label: C, or V in `paper` mode. A score
counts against the image at ties: p_j = (1 + #{i: s_i ≥ s_j}) / (n + 1).

Every promise here needs one thing only: that the scores of the batch's known images are exchangeable with the reference
scores, whatever those of the novel images are. All orders of the two together are then equally likely, so how many
known images are above the reference's 1st, 2nd, … highest score has a law that depends on their numbers alone.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import xlogy

ROUNDING = 1e-12  # relative; p-values that equal a limit on paper must not miss it by their last bits


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


# The false discovery rate: of the flagged images, which share is known after all?


def discoveries(scores: np.ndarray, reference: np.ndarray, fdr: float, adaptive: bool = False) -> np.ndarray:
    """Flags of which on average at most the share `fdr` is wrong (Bates et al. 2023; Marandon et al. 2024).

    `adaptive` divides `fdr` by an estimate of the known share: more flags where much is novel, with the same promise.
    """
    p = p_values(scores, reference)
    return benjamini_hochberg(p, fdr / known_share(p, len(reference)) if adaptive else fdr)


def benjamini_hochberg(p: np.ndarray, fdr: float) -> np.ndarray:
    """Flags the k smallest p-values, k the largest number for which the k-th is at most fdr·k / m."""
    ranked = np.sort(p)
    passing = np.flatnonzero(ranked * len(p) <= fdr * (1 + ROUNDING) * np.arange(1, len(p) + 1))
    return p <= (ranked[passing[-1]] if len(passing) else -math.inf)


def known_share(p: np.ndarray, references: int) -> float:
    """Storey's estimate of the share of known images, (1 + #{p ≥ λ}) / (m (1 − λ)), a little too high; may exceed 1.

    λ is the p-value next to one half that n reference images can give, K / (n + 1). Counting p ≥ λ and not p > λ is
    what proves adaptive Benjamini–Hochberg: with a known image's own score set highest, the m₀ − 1 others are
    counted with probability B ~ Beta(n + 2 − K, K), and E[1 / (1 + Binomial(m₀ − 1, B))] ≤ E[1 / (m₀ B)]
    = 1 / (m₀ (1 − λ)). With p > λ that proof fails, by a factor of (n + 1 − K) / (n − K).
    """
    if not len(p) or not references:
        return 1.0
    cut = _half(references)
    return float((1 + (p >= cut).sum()) / (len(p) * (1 - cut)))


def _half(references: int) -> float:
    return math.ceil((references + 1) / 2) / (references + 1)


def images_needed_fdr(batch: int, fdr: float, flags: int = 1) -> int:
    """How many reference images it takes at least to flag `flags` of `batch` images: n + 1 ≥ m / (fdr · flags)."""
    return max(math.ceil(batch / (fdr * flags) * (1 - ROUNDING)) - 1, 0)


def flags_needed(batch: int, references: int, fdr: float) -> int:
    """The same inequality the other way: fewer images than this are never flagged. More than `batch`: none ever is."""
    return max(math.ceil(batch / (fdr * (references + 1)) * (1 - ROUNDING)), 1)


def e_values(
    scores: np.ndarray,
    reference: np.ndarray,
    fdr: float,
    others: np.ndarray | None = None,
    adaptive: bool = False,
) -> np.ndarray:
    """Evidence that can be averaged over seeds and joined over folds: E[e] ≤ 1 for every known image, in whatever way
    they depend on each other (Bashari et al. 2023; Lee, Popov & Ren 2025, full-conformal e-values).

    `others` are further images of the batch, scored by the same function; only the choice of the cut looks at them, so
    that they may have been learned from. Going up from the lowest score of all, T is the first that would do as the cut
    of Benjamini–Hochberg for the whole batch. Images at or above it get (n + 1) / (1 + #{i: s_i ≥ T}), the rest 0.

    Proof. Let j be a known image, B the bag of the n reference scores and s_j, and b(t) = #{v ∈ B: v ≥ t}. Let T_j be
    the lowest t with m b(t) ≤ fdr (n + 1) (1 + #{batch without j ≥ t}): a function of the bag and of the rest of the
    batch. Given those, s_j is each element of the bag with the same probability, so that
    E[1{s_j ≥ T_j} (n + 1) / b(T_j)] = b(T_j) / (n + 1) · (n + 1) / b(T_j) = 1 (or 0 where no t will do). That is what
    j gets here where s_j ≥ T_j: at any t ≤ s_j, b(t) is 1 + #{i: s_i ≥ t}, and the condition is that of T.

    `adaptive` divides them by the known share π of `scores`, and asks for the cut of π m instead of m images; images in
    the lower half get nothing. E[e] is then 1 / π at most, so that the sum over the known ones is still no more than
    there are images, which is all that e-BH needs. Proof: of j above, π looks at the bag and the others alone (as s_j
    counts only where it is in the lower half), so E[e_j] ≤ E[1 / π] by the same lines, and that is at most
    m / m₀ by those of `known_share`.

    (The lowest flagged score as T would be a look ahead, at which kind of image comes next; the sum over known images
    is then half as large again.) By itself e-BH at the same `fdr` gives the flags of Benjamini–Hochberg; of e-values
    that are averaged or joined, each is better made at a lower rate than the final one.
    """
    batch = scores if others is None else np.concatenate([scores, others])
    if not len(batch):
        return np.zeros(0)
    cuts = np.unique(np.concatenate([batch, reference]))
    above, known = (len(kind) - np.searchsorted(np.sort(kind), cuts, side="left") for kind in (batch, reference))
    counted, share = np.ones(len(scores), bool), 1.0
    if adaptive:
        p = p_values(scores, reference)
        counted, share = p < _half(len(reference)), known_share(p, len(reference))
    does = share * (known + 1) * len(batch) <= fdr * (1 + ROUNDING) * above * (len(reference) + 1)
    if not does.any():
        return np.zeros(len(scores))
    first = int(does.argmax())
    return (counted & (scores >= cuts[first])) * ((len(reference) + 1) / (known[first] + 1) / share)


def e_benjamini_hochberg(e: np.ndarray, fdr: float) -> np.ndarray:
    """e-BH (Wang & Ramdas 2022): false discovery rate ≤ `fdr` if E[Σ over known] ≤ m, however the e-values depend."""
    with np.errstate(divide="ignore"):
        return benjamini_hochberg(1 / e, fdr)


# Catching nearly all novel images, given that they are at most a certain share.


def catching_threshold(
    scores: np.ndarray, reference: np.ndarray, share: float, miss: float, confidence: float | None = None
) -> float:
    """The highest threshold with at most `miss` of the novel images at or below it, if at most `share` is novel.

    Liu et al. 2018: F_batch = (1 − α) F_known + α F_novel, solved for F_novel with α = `share` at the empirical
    distributions and made monotone by isotonic regression, which never moves it further from the truth. If fewer are
    novel than `share`, F_novel comes out too high, so the threshold too low, as long as known images score lower.

    That is an estimate: too high in about half of all batches, by as much as the samples are small. With `confidence`
    the threshold comes from a bound: it leaves at most miss·share·m novel images, with that confidence, and nothing is
    asked of the novel scores. −∞, which flags everything, where nothing less keeps the promise.
    """
    cuts = np.unique(np.concatenate([scores, reference]))
    below = np.searchsorted(np.sort(scores), cuts, side="right")
    reference_below = np.searchsorted(np.sort(reference), cuts, side="right")
    if confidence is None:
        mixed, known = below / len(scores), reference_below / len(reference)
        missed = isotonic_regression((mixed - (1 - share) * known) / share).x
        kept = cuts[missed <= miss]
    else:
        # Known images at or below a cut are at least all known ones but those that can be above it. Every image that is
        # left at a cut is also left at a higher one, so the bounds at higher cuts hold too.
        least_known = math.ceil((1 - share) * len(scores) * (1 - ROUNDING))
        limit = _surprise_limit(len(reference), least_known, confidence)
        above = _most_above(len(reference), least_known, limit, len(reference) - reference_below)
        missed = np.minimum.accumulate((below - (least_known - above))[::-1])[::-1]
        kept = cuts[missed <= miss * share * len(scores)]
    return float(kept[-1]) if len(kept) else -math.inf


# Any cut a reviewer picks, also after having seen the images.


class CutBounds(NamedTuple):
    """What holds at all cuts at once, with the confidence asked for; entry k − 1 is about the k highest scores."""

    false: np.ndarray  # at most so many of the k are known images
    proportion: np.ndarray  # false / k
    novel: int  # so many of the whole batch are novel at least


def false_discovery_bounds(scores: np.ndarray, reference: np.ndarray, confidence: float = 0.9) -> CutBounds:
    """How many of the k highest-scoring images can be known ones, for every k simultaneously.

    As in Gazin, Blanchard & Roquain 2024, the bound is a band around the counts of known images above the highest
    reference scores. The shape of theirs is Dvoretzky–Kiefer–Wolfowitz, equally wide everywhere and so useless for the
    first hundred images; ours is as wide as the likelihood ratio makes it (Berk–Jones), and its size is a simulated
    quantile of the known law. The number of known images starts as the whole batch; the bound itself then shows that it
    is smaller, and the band for fewer is narrower: no confidence is lost, since only the band at the true number has to
    hold and it is within all that are used on the way.
    """
    batch, references = len(scores), len(reference)
    taken = np.arange(1, batch + 1)
    if not batch or not references:
        return CutBounds(taken, np.ones(batch), 0)
    # Bands for tenths of the batch. One limit for all, the largest: then a band for more images contains one for fewer.
    tenths = sorted({math.ceil(batch * tenth / 10) for tenth in range(1, 11)})
    limit = max(_surprise_limit(references, known, confidence) for known in tenths)
    reference_above = references - np.searchsorted(np.sort(reference), np.sort(scores)[::-1], side="left")
    known, before = batch, batch + 1
    while known < before:
        false = np.minimum(_most_above(references, known, limit, reference_above), taken)
        false = taken + np.minimum.accumulate(false - taken)  # one more image is at most one more false one
        before, known = known, min(tenth for tenth in tenths if tenth >= false[-1])
    return CutBounds(false, false / taken, batch - int(false[-1]))


SIMULATED = 1_999


@functools.lru_cache(maxsize=256)
def _surprise_limit(references: int, known: int, confidence: float) -> float:
    """A limit that the surprise at no cut exceeds, with this confidence, where all `known` images are known.

    A simulated quantile: the real batch is one more draw, so the limit holds with probability ⌈confidence (B + 1)⌉ /
    (B + 1) over the draws of both. The seed is fixed, so that the same numbers of images always get the same limit.
    """
    cuts = _cuts(references)
    rng = np.random.default_rng(0)
    # The reference's highest scores are order statistics of uniforms: sums of exponentials, here of many at a time.
    gaps = rng.standard_gamma(np.diff(cuts, prepend=-1, append=references), (SIMULATED, len(cuts) + 1))
    counts = rng.multinomial(known, gaps / gaps.sum(1, keepdims=True))
    above = counts[:, :-1].cumsum(1)
    surprises = np.sort(_surprise(cuts, above, references, known).max(1))
    rank = math.ceil(confidence * (SIMULATED + 1) * (1 - ROUNDING))
    return float(surprises[rank - 1]) if rank <= SIMULATED else math.inf


def _most_above(references: int, known: int, limit: float, reference_above: np.ndarray) -> np.ndarray:
    """How many of `known` images can have at most so many reference scores at or above theirs, within the limit."""
    cuts = _cuts(references)
    low, high = np.zeros(len(cuts), dtype=np.int64), np.full(len(cuts), known)
    while (low < high).any():  # the surprise grows with the number: bisection
        middle = (low + high + 1) // 2
        fits = _surprise(cuts, middle, references, known) <= limit + 1e-9
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    # Between two cuts the bound of the next holds, after the last there is none.
    return np.append(low, known)[np.searchsorted(cuts, reference_above)]


def _surprise(reference_above: np.ndarray, above: np.ndarray, references: int, known: int) -> np.ndarray:
    """Log likelihood ratio against 'known images are above as often as reference images'; 0 if they are not more often.

    It grows with the number above, and falls as `known` grows: of more images the same number is less surprising.
    """
    top, total = reference_above + above, references + known
    bottom = total - top
    cells = ((above, top, known), (reference_above, top, references),
             (known - above, bottom, known), (references - reference_above, bottom, references))  # fmt: skip
    # A row that is empty has 0 in it: any number will do as its size.
    ratio = sum(xlogy(cell, cell * (total / (np.maximum(row, 1) * column))) for cell, row, column in cells)
    return np.where(above * references > reference_above * known, ratio, 0.0)


@functools.lru_cache(maxsize=256)
def _cuts(references: int) -> np.ndarray:
    """Numbers of reference scores above the cuts that the band looks at: each of the first twenty, then 5% apart."""
    cuts = [0]
    while (following := max(cuts[-1] + 1, int(cuts[-1] * 1.05))) < references:
        cuts.append(following)
    return np.array(cuts)


# What to look at, whether or not it can be flagged.


def novel_at_least(chosen: np.ndarray, p: np.ndarray, wrong_at_most: np.ndarray) -> int:
    """How many of some images, chosen in whatever way, are novel at least, by the bounds at all cuts.

    The known ones among them are no more than those down to a cut, and all of them that are below it; any cut will do.
    A cut is a p-value, and down to it are all images that share it: the bound is that of the last one.
    """
    mine = p[chosen]
    if not len(mine):
        return 0
    order = np.argsort(p, kind="stable")
    down_to = np.maximum.accumulate(wrong_at_most[order])[np.searchsorted(p[order], mine, side="right") - 1]
    wrong, below = down_to, len(mine) - np.searchsorted(np.sort(mine), mine, side="right")
    return len(mine) - min(len(mine), int((wrong + below).min()))


def novel_expected(p: np.ndarray, count: int, known: float) -> float:
    """How many of the `count` images with the lowest p-values are expected to be novel: of m known ones m·t have a
    p-value up to t. `known` is the share of known images, or 1, which expects too few novel ones."""
    if not count:
        return 0.0
    cut = np.sort(p)[count - 1]
    return max(0.0, count - min(known, 1.0) * len(p) * float(cut))


def last_good(p: np.ndarray, rate: float = 0.5) -> int:
    """How many images, most novel first, until one is as likely known as novel: the support line of Soloff, Xiang &
    Fithian 2022, whose last image is known with a probability of at most about `rate` (boundary FDR)."""
    if not len(p):
        return 0
    line = rate * np.arange(1, len(p) + 1) / len(p) - np.sort(p)
    return int(line.argmax()) + 1 if line.max() > 0 else 0
