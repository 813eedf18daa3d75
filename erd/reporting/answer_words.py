"""What experts' answers brought, in sentences: the news of the audit, what the classifier learned and did not learn."""

from erd.reporting import wording
from erd.runs.results import ClassAccuracy, Metrics, Refused
from erd.statistics.audit import Audit


def audit(found: Audit, which: str = "this week", *, past: bool = False) -> str:
    """What experts found in the random audit, in one sentence; nothing where nobody has looked. `past`: by now the
    class may be known."""
    if not found.images:
        return ""
    if not found.rings:
        return (
            f"Among {found.images:,} random images of {which} experts found none of a class you do not know: at most "
            f"{wording.percent(found.high)} of it can be of one."
        )
    about, between = (
        wording.percent(found.share),
        f"{wording.percent(found.low).rstrip('%')} to {wording.percent(found.high)}",
    )
    seen = f"experts found {found.novel:,} such among {found.images:,} random images"
    unknown = "was of a class you did not know" if past else "is of a class you do not know"
    return f"About {about} of {which} {unknown} ({between}): {seen}."


def audit_alarm(metrics: Metrics) -> str:
    """What the scores had to say, after the audit's news."""
    verdict = metrics.verdict
    if verdict.rings:
        return wording.alarm(metrics)
    return f"Alarm by the audit: the scores alone would not have rung it (p = {verdict.alarm_p:.2g})."


def audit_message(metrics: Metrics, found: Audit) -> tuple[str, str]:
    """Subject and text of a message about it."""
    learn = f"Let the classifier learn what was said: erd incorporate --batch {metrics.batch}"
    text = "\n".join([audit(found, f"batch {metrics.batch}"), audit_alarm(metrics), learn])
    return f"Experts found something new in batch {metrics.batch}", text


def learned(found: ClassAccuracy) -> list[str]:
    """How the classifier does beside the one before it, over all and class by class."""
    if found.before is None or found.accuracy is None or found.accuracy_before is None:
        return []
    said = [
        f"classifier: right on {found.accuracy:.1%} of {found.images:,} images nobody trained on, the one of "
        f"{found.before} on {found.accuracy_before:.1%}"
    ]
    for row in found.classes:
        before = "new" if row.before is None else f"{row.before:.1%}"
        now = "–" if row.now is None else f"{row.now:.1%}"
        said.append(f"  {row.name}: {before} → {now} ({row.images:,} images)")
    return said


def unlearned(found: ClassAccuracy | None) -> list[tuple[str, str]]:
    """What was not learned because it made the classifier worse, a sentence each and the command that takes it back."""
    if found is None:
        return []
    said = [refused(one) for one in found.refused]
    if found.worse and found.accuracy is not None and found.accuracy_before is not None:
        text = (
            f"The classifier has become worse: it is right on {found.accuracy:.1%}, the one of {found.before} on "
            f"{found.accuracy_before:.1%} of the same images, and no review since explains it. Look at the labelled "
            "images and the settings; what changed since is in"
        )
        said.append((text, "erd history"))
    return said


def refused(one: Refused) -> tuple[str, str]:
    """A class, or a batch's answers, that the classifier is without; and the command that takes it back."""
    back = f"erd incorporate --batch {one.reviews[-1] if one.reviews else 'B'} --undo"
    hurt = ""
    if one.fell is not None and one.fell.before is not None and one.fell.now is not None:
        hurt = f"{one.fell.name} falls from {one.fell.before:.1%} to {one.fell.now:.1%} right"
    if one.needs is None:
        worse = f"What was said about {one.what} made the classifier worse ({hurt}), so it was not learned"
        return f"{worse}. Correct the answers and incorporate them again, or take them back:", back
    own = f"{one.what} itself is right on {one.right or 0:.1%} of its images"
    if one.right is None:
        own = "no image of it is left to try it on"
    why = f"Learned now it would make the classifier worse: {hurt}, and {own}" if hurt else f"Not learned yet: {own}"
    waits = f"{one.what} waits: {one.images:,} images, needs about {one.needs:,}"
    return f"{waits}. {why}. Until then its images count as novel. If they were named wrongly, take that back:", back
