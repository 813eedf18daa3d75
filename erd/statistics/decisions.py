"""From a batch's scores to what a user acts on: p-values, flags, the alarm, the novel share, bounds at every cut.

`flags`, `novelty_test` and `novel_share` beside this file have the statistics; here the settings choose among them, and
what the numbers assume is said in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ks_2samp

from erd.base.seeds import derive
from erd.settings.schema import Settings
from erd.statistics import flags, novelty_test
from erd.statistics.novel_share import Share, novel_share
from erd.statistics.verdict import Verdict

# Folds make e-values at this part of the rate: then e-BH keeps all of them unless one finds far more than the others.
FOLD_RATE = 0.75
DRIFT = 0.001  # p-value below which calibration and validation images are said to differ
FLAGGABLE = (
    0.02  # share of the batch below which it should be possible to flag; else more calibration images are asked for
)
PROMISING = ("mixed", "crossfit")  # modes in which the stated rates hold for the batch


class Compared(NamedTuple):
    """Rows of the batch, their scores, and known images' scores by the same members: one set, or one a fold."""

    rows: np.ndarray
    scores: np.ndarray
    reference: np.ndarray
    learned: np.ndarray | None = None  # scores of the rest of the batch, that was learned where these were not


@dataclass(frozen=True)
class Decision:
    p_value: np.ndarray  # one entry an image of the batch, here and below
    flagged: np.ndarray
    wrong_at_most: np.ndarray  # of the image and all with lower p-values, so many are known; holds at all cuts at once
    verdict: Verdict
    warnings: list[str]


class Tested(NamedTuple):
    """p-values of 'nothing is novel' that are not by these scores; None where there are none."""

    p: float | None = None  # of this batch
    weeks_p: float | None = None  # of this and earlier ones together
    weeks: int = 1  # so many


BY_SCORES = Tested()


def decide(
    sets: Sequence[Compared],
    settings: Settings,
    level: float,
    tested: Tested = BY_SCORES,
    listed: np.ndarray | None = None,
) -> Decision:
    """All of it at once. The alarm rings at p-values up to `level`, which the ledger of looks gives. `listed` are the
    scores by which people see the images, the highest first, where these are not the ones that are compared."""
    detect, images = settings.detect, sum(len(compared.rows) for compared in sets)
    p, flagged = np.ones(images), np.zeros(images, bool)
    for compared in sets:
        p[compared.rows] = flags.p_values(compared.scores, compared.reference)
    if detect.rule == "fdr" and len(sets) > 1:
        evidence = np.zeros(images)
        for compared in sets:
            evidence[compared.rows] = flags.e_values(
                compared.scores, compared.reference, FOLD_RATE * detect.fdr, compared.learned, detect.adaptive
            )
        flagged = flags.e_benjamini_hochberg(evidence, detect.fdr)
    else:
        for compared in sets:
            flagged[compared.rows] = flag(compared.scores, compared.reference, settings)
    wrong = _wrong_at_most(sets, p, detect.confidence)
    p_alarm = tested.p
    if p_alarm is None:
        p_alarm = min(1.0, len(sets) * min(_alarm(compared, settings) for compared in sets))
    rings = p_alarm <= level
    over_weeks = tested.weeks_p is not None and tested.weeks_p <= level
    share = _share(sets, images, detect.confidence) if rings else None  # else noise with a number
    verdict = Verdict(
        promised=detect.calibration in PROMISING,
        flagged=int(flagged.sum()),
        wrong_flags_at_most=int(wrong[flagged].max(initial=0)),
        fdr_target=detect.fdr if detect.rule == "fdr" else None,
        fpr_target=detect.fpr if detect.rule == "fpr" else None,
        catch_target=detect.catch if detect.rule == "catch" else None,
        alarm=rings,
        alarm_p=p_alarm,
        alarm_level=level,
        novel_share=share and share.bbe,
        novel_share_storey=share and share.storey,
        novel_share_low=share and share.low,
        novel_share_high=share and share.high,
        novel_at_least=share and share.novel,
        **_second_tier(sets, p, wrong, settings, listed),
        weeks=tested.weeks,
        weeks_p=tested.weeks_p,
        weeks_alarm=over_weeks,
    )
    return Decision(p, flagged, wrong, verdict, _too_few(sets, settings))


def flag(scores: np.ndarray, reference: np.ndarray, settings: Settings) -> np.ndarray:
    """Which images the rule of the settings picks, all of them compared with the same known images."""
    detect = settings.detect
    if detect.rule == "fdr":
        return flags.discoveries(scores, reference, detect.fdr, detect.adaptive)
    if detect.rule == "fpr":
        return scores > flags.threshold(reference, detect.fpr)
    if not len(reference):
        return np.zeros(len(scores), bool)
    return scores > flags.catching_threshold(scores, reference, detect.novel_at_most, 1 - detect.catch)


def drift(clean: np.ndarray, validation: np.ndarray) -> str | None:
    """A warning where known images that were dealt at random do not score alike: then nor will this week's."""
    if not len(clean) or not len(validation) or (p := ks_2samp(clean, validation).pvalue) >= DRIFT:
        return None
    return (
        f"calibration images do not score like validation images (p = {p:.1g}): the labelled images are not of one "
        "kind, so error rates may not hold; look whether they come from different times or devices"
    )


def assumptions(settings: Settings) -> list[str]:
    """What the stated rates rest on, for people who did not read the papers."""
    detect = settings.detect
    if detect.calibration == "paper":
        return ["The threshold comes from validation images, as in the paper. The members were trained on the batch "
                "and not on them, so more known ones are flagged than the rate says: there is no promise."]  # fmt: skip
    if detect.calibration == "holdout":
        return ["Calibration images were kept out of training. The rates hold for new images that the registered model "
                "scores; for the images of this batch, which the members were trained on, more are wrong."]  # fmt: skip
    words = [
        "The rates hold if this week's known images look like the labelled ones: same classes, same devices, same kind "
        "of patients. A new scanner looks novel too; that may be worth knowing, but it is no new class.",
        "They hold on average over weeks. In one week there can be more wrong flags, up to the bound given.",
    ]
    if detect.rule == "catch":
        words.append(f"That {detect.catch:.0%} of the novel images are flagged is an estimate, and rests on at most "
                     f"{detect.novel_at_most:.0%} of the batch being novel.")  # fmt: skip
    return words


def _second_tier(
    sets: Sequence[Compared], p: np.ndarray, wrong: np.ndarray, settings: Settings, listed: np.ndarray | None
) -> dict[str, Any]:
    """The `review.budget` most novel images: what can be said of them without a flag. The bound is for images that were
    chosen in whatever way."""
    count = min(settings.review.budget, len(p))
    if settings.detect.calibration not in PROMISING:
        return {"look_at": count}
    scores = np.empty(len(p)) if listed is None else listed
    for compared in sets if listed is None else ():
        scores[compared.rows] = compared.scores
    first = np.argsort(-scores, kind="stable")[:count]
    references = min(len(compared.reference) for compared in sets)
    at_least = flags.novel_at_least(first, p, wrong)
    expected = flags.novel_expected(p, count, flags.known_share(p, references))
    return {
        "look_at": count,
        "look_at_novel": max(expected, float(at_least)),
        "look_at_least": at_least,
        "last_good": flags.last_good(p),
    }


def _alarm(compared: Compared, settings: Settings) -> float:
    return novelty_test.alarm(compared.scores, compared.reference, derive(settings.seed, "alarm"))


def _wrong_at_most(sets: Sequence[Compared], p: np.ndarray, confidence: float) -> np.ndarray:
    """Each fold's bound has its part of the doubt, so all hold together and can be added."""
    part = 1 - (1 - confidence) / len(sets)
    total = np.zeros(len(p), dtype=np.int64)
    for compared in sets:
        bounds = flags.false_discovery_bounds(compared.scores, compared.reference, part)
        false = np.concatenate([[0], bounds.false])
        if len(sets) == 1:
            above = len(p) - np.searchsorted(np.sort(compared.scores), compared.scores, side="left")
            total[compared.rows] = false[above]
        else:  # scores of other members do not compare; p-values do
            total += false[np.searchsorted(np.sort(p[compared.rows]), p, side="right")]
    return total


def _share(sets: Sequence[Compared], images: int, confidence: float) -> Share:
    found = [
        (
            len(compared.rows) / images,
            novel_share(compared.scores, compared.reference, 1 - (1 - confidence) / len(sets)),
        )
        for compared in sets
    ]
    storey, bbe, low, high = (sum(weight * share[field] for weight, share in found) for field in range(4))
    return Share(storey, bbe, low, high, sum(share.novel for _, share in found))


def _too_few(sets: Sequence[Compared], settings: Settings) -> list[str]:
    detect = settings.detect
    references = min(len(compared.reference) for compared in sets)
    images = len(sets[0].rows) + (0 if sets[0].learned is None else len(sets[0].learned))
    if detect.rule == "fpr" and references < (needed := flags.images_needed(detect.fpr)):
        return [
            f"nothing can be flagged: a false-positive rate of {detect.fpr:g} takes at least {needed} calibration "
            f"images to compare with and there are {references}; add labelled images or raise detect.fpr"
        ]
    few = max(1, int(FLAGGABLE * images))
    rate = detect.fdr * (FOLD_RATE if len(sets) > 1 else 1)
    if detect.rule == "fdr" and (least := flags.flags_needed(images, references, rate)) > few:
        needed = flags.images_needed_fdr(images, rate, few)
        what = (
            f"fewer than {least:,} of {images:,} images cannot be flagged"
            if least <= images
            else "nothing can be flagged"
        )
        return [
            f"{what} at a false discovery rate of {detect.fdr:g} with {references:,} calibration images to compare "
            f"with; to flag as few as {few:,} takes {needed:,}: add labelled images, or set detect.rule=fpr"
        ]
    return []
