"""What a batch brought, in sentences: for the report, the command line, MLflow, Prefect and notifications alike."""

import math

from erd.runs.results import Metrics


def headline(metrics: Metrics) -> str:
    """What a person wants to know first, in one sentence."""
    few = "No image" if not metrics.verdict.flagged else f"{metrics.verdict.flagged:,} of {metrics.images:,} images"
    looks = "look" if metrics.verdict.flagged > 1 else "looks"
    text = f"{few} of batch {metrics.batch} {looks} like something the classifier has never seen"
    return f"{text}{promise(metrics)}."


def promise(metrics: Metrics) -> str:
    """The stated error rate, as the end of a sentence about flags."""
    if not metrics.verdict.flagged:
        return ""
    if not metrics.verdict.promised:
        return "; how many of these are false alarms is not known"
    if metrics.verdict.fdr_target is not None:
        return f"; at most about {_one_in(metrics.verdict.fdr_target)} of these is expected to be a false alarm"
    if metrics.verdict.fpr_target is not None:
        return f"; about {_one_in(metrics.verdict.fpr_target)} of the images it does know is flagged wrongly"
    return f"; about {metrics.verdict.catch_target:.0%} of the novel images are meant to be among them"


def alarm(metrics: Metrics) -> str:
    """Whether there is anything at all, in one sentence."""
    p = f"p = {metrics.verdict.alarm_p:.2g}"
    verdict = metrics.verdict
    if not verdict.alarm:
        return f"No alarm: as a whole the batch does not look different from known images ({p})."
    return (
        f"Alarm: something in this batch is novel ({p}): about {verdict.novel_share:.0%} of the images, "
        f"{verdict.novel_share_low:.0%} to {verdict.novel_share_high:.0%}, and at least {verdict.novel_at_least:,}."
    )


def advice(metrics: Metrics) -> list[tuple[str, str]]:
    """What to do next, in the order of doing it: a sentence, and the command."""
    review = f"erd review --batch {metrics.batch}"
    if metrics.verdict.flagged:
        first = "Look at the flagged images and say what they are:"
    elif metrics.verdict.alarm:
        some = math.ceil((metrics.verdict.novel_share or 0) * metrics.images)
        first = (
            f"Something is novel, but no single image can be flagged at this error rate: look at the {some:,} images "
            "with the highest scores:"
        )
    else:
        first = "Nothing has to be done. The audit, some random images of the batch, keeps the calibration fresh:"
    return [(first, review), ("Let the classifier learn what was said:", f"erd incorporate --batch {metrics.batch}")]


def _one_in(rate: float) -> str:
    return f"1 in {1 / rate:.0f}"
