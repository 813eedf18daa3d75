"""What a batch brought, in sentences: for the report, the command line, MLflow, Prefect and notifications alike.

There are two tiers: images that are flagged at a stated error rate, and the most novel ones, flagged or not, with how
many of them are expected to be novel. Where little is novel nothing can be flagged, so an empty first tier says nothing
yet: the headline then leads with what the second one, or the alarm, knows.
"""

import math

from erd.runs.folder import RunDir
from erd.runs.results import Metrics, Sensitivity
from erd.statistics.verdict import Verdict

# Of the most novel images: from here on an estimate is no chance. In quiet weeks of 400 images with as many calibration
# images it is reached once in fifty, and half of it once in five.
RICH = 0.4


def headline(metrics: Metrics, noticed: str = "") -> str:
    """What a person wants to know first, in one sentence; `noticed` (see below) follows where nothing is new."""
    verdict, batch = metrics.verdict, metrics.batch
    if verdict.bulk_moved:
        return f"Batch {batch} as a whole has changed: nearly all of its images look different from the labelled ones."
    if verdict.flagged:
        return flags(metrics)
    if rich(metrics):
        sure = "is" if verdict.alarm else "is probably" if verdict.rings or verdict.look_at_least else "may be"
        return f"Something in batch {batch} {sure} new: {_expected(metrics)}."
    if verdict.alarm:
        share = "" if verdict.novel_share is None else f", about {_percent(verdict.novel_share)} of its images"
        return f"Something in batch {batch} is new{share}, and none stands out: look at {_first(metrics)}."
    if verdict.weeks_alarm:
        return (
            f"Something has been new in the weeks up to batch {batch}, though this one does not show it alone: look at "
            f"{_first(metrics)}."
        )
    return f"No sign of a new class in batch {batch}. {noticed}".rstrip()


def flags(metrics: Metrics) -> str:
    """The first tier, in one sentence; nothing where it is empty."""
    few = metrics.verdict.flagged
    if not few:
        return ""
    looks = "look" if few > 1 else "looks"
    text = f"{few:,} of {metrics.images:,} images of batch {metrics.batch} {looks} like something the classifier has"
    return f"{text} never seen{promise(metrics)}."


def promise(metrics: Metrics) -> str:
    """The stated error rate, as the end of a sentence about flags."""
    verdict = metrics.verdict
    if not verdict.flagged:
        return ""
    if not verdict.promised or verdict.bulk_moved:  # known images that have all moved are not those the rate is about
        return "; how many of these are false alarms is not known"
    if verdict.fdr_target is not None:
        return f"; at most about {_one_in(verdict.fdr_target)} of these is expected to be a false alarm"
    if verdict.fpr_target is not None:
        return f"; about {_one_in(verdict.fpr_target)} of the images it does know is flagged wrongly"
    return f"; about {verdict.catch_target:.0%} of the novel images are meant to be among them"


def rich(metrics: Metrics) -> bool:
    """Whether enough of the most novel images are novel to say so first."""
    verdict = metrics.verdict
    if verdict.bulk_moved or not verdict.look_at:
        return False
    enough = 0.5 if verdict.alarm or verdict.flagged else max(1.0, RICH * verdict.look_at)
    return verdict.look_at_least > 0 or (verdict.look_at_novel or 0.0) >= enough


def last_good(metrics: Metrics) -> int:
    """After how many images a list gets its line; 0: nowhere, as in a quiet week it would be drawn by chance."""
    return metrics.verdict.last_good if rich(metrics) else 0


def worth_a_look(metrics: Metrics, confidence: float | None = None) -> str:
    """The second tier: how many of the most novel images are expected to be novel, and how far down that goes on."""
    verdict = metrics.verdict
    if not verdict.look_at:
        return ""
    listed = _listed(metrics)
    if verdict.bulk_moved:
        return (
            f"{_capital(listed)} are worth a look; how many of them are novel cannot be told while nearly all look so."
        )
    if rich(metrics):
        sure = f" ({confidence:.0%} confidence)" if confidence and verdict.look_at_least else ""
        return f"{_capital(_expected(metrics))}{sure}. {_last_good(metrics)}".rstrip()
    if verdict.look_at_novel is None or (verdict.rings and verdict.look_at_novel < 0.5):
        return f"{_capital(listed)} are worth a look; how many of them are novel is not known."
    first = f"the first {verdict.last_good:,}" if verdict.last_good > 1 else "the first ones"
    if few := round(verdict.look_at_novel):
        return f"Of {listed} about {few:,} may really be novel, which can also be chance: look at {first}."
    return f"Of {listed} none is expected to be novel; a look at {first} tells whether that is so."


def beyond_headline(metrics: Metrics, confidence: float | None = None) -> str:
    """The second tier without what the headline says of it already."""
    told = rich(metrics) and not metrics.verdict.flagged
    return _last_good(metrics) if told else worth_a_look(metrics, confidence)


def alarm(metrics: Metrics) -> str:
    """Whether there is anything at all, in one sentence."""
    verdict = metrics.verdict
    p = f"p = {verdict.alarm_p:.2g}"
    if verdict.alarm and verdict.bulk_moved:
        return f"Alarm: this batch does not look like known images ({p}), which need not be a new class."
    if verdict.alarm:
        return f"Alarm: something in this batch is novel ({p}){_share(verdict)}."
    if verdict.weeks_alarm:
        return f"Alarm: this batch alone would not ring it ({p}), together with those before it does."
    if rich(metrics) or verdict.flagged:
        rings = f"it rings at {verdict.alarm_level:.2g}"
        return f"No alarm: as a whole the batch does not differ enough from known images ({p}; {rings})."
    return f"No alarm: as a whole the batch does not look different from known images ({p})."


def findings(metrics: Metrics) -> list[str]:
    """What else may lie behind it, a sentence each: all images have moved, classes are mixed anew, weeks add up."""
    verdict = metrics.verdict
    found = [_sentence(text) for text in (verdict.bulk_moved, verdict.mix_changed) if text]
    if verdict.weeks_p is None:
        return found
    together, what = f"The last {verdict.weeks} batches together", "changed" if verdict.bulk_moved else "new"
    numbers = f"p = {verdict.weeks_p:.2g}, the alarm rings at {verdict.alarm_level:.2g}"
    if verdict.weeks_alarm:
        found.append(f"{together} say that something is {what} ({numbers}).")
    elif verdict.weeks_p**2 <= verdict.alarm_level and not verdict.alarm:  # half the way, in powers of ten
        found.append(f"{together} are less quiet than chance would have them ({numbers}).")
    return found


def group(images: int, at_least: int, like: str = "") -> str:
    """A candidate for a new class; `like` is the known class that it comes nearest to."""
    nearest = f", nearest to “{like}”" if like else ""
    sure = f"at least {at_least:,} of them novel" if at_least else "none of them is novel for sure"
    return f"{images:,} look-alikes, unlike anything labelled{nearest}; {sure}"


def noticed(run: RunDir) -> str:
    """What is known of a run's sensitivity, in one sentence; nothing where nobody has asked."""
    found = Sensitivity.read(run)
    return "" if found is None else sensitivity(found.noticed_from)


def sensitivity(noticed_from: float | None) -> str:
    """What a quiet week is worth: the share of the batch from which a new class would have been noticed; None: no
    share that was tried."""
    if noticed_from is None:
        return "Even a tenth of the batch of a class like those you know would not have been noticed."
    return (
        f"A class like those you know would have been noticed from about {_percent(noticed_from)} of the batch on; "
        "below that it can be there unseen."
    )


def advice(metrics: Metrics) -> list[tuple[str, str]]:
    """What to do next, in the order of doing it: a sentence, and the command."""
    verdict = metrics.verdict
    if verdict.bulk_moved:
        first = "Look at the first images, and at some random ones, the audit: has a device changed, or its settings?"
    elif verdict.flagged:
        further = ", then go on down the list" if verdict.last_good > verdict.flagged else ""
        first = f"Look at the flagged images and say what they are{further}:"
    elif verdict.worth_looking or rich(metrics):
        first = f"Look at {_first(metrics)} and say what they are:"
    else:
        first = f"Look at {_first(metrics)}, and at some random ones, the audit: they show what no test can rule out:"
    learn = "Let the classifier learn what was said:"
    return [(first, f"erd review --batch {metrics.batch}"), (learn, f"erd incorporate --batch {metrics.batch}")]


def summary(metrics: Metrics, noticed: str = "") -> list[str]:
    """All of it without pictures, each thing once: for a terminal or a message."""
    said = [headline(metrics, noticed), alarm(metrics)]
    if metrics.verdict.bulk_moved:
        said.append(flags(metrics))
    return [sentence for sentence in (*said, beyond_headline(metrics), *findings(metrics)) if sentence]


def subject(metrics: Metrics) -> str:
    """Of a message about an alarm."""
    if metrics.verdict.bulk_moved:
        return f"Batch {metrics.batch} has changed as a whole"
    return f"Something new in batch {metrics.batch}"


def _listed(metrics: Metrics) -> str:
    count = metrics.verdict.look_at
    return f"all {count:,} images" if count >= metrics.images else f"the {count:,} images that look most novel"


def _first(metrics: Metrics) -> str:
    """How far down to look."""
    verdict = metrics.verdict
    count = verdict.look_at or math.ceil((verdict.novel_share or 0) * metrics.images)
    return f"the {count:,} images that look most novel" if count else "the images that look most novel"


def _expected(metrics: Metrics) -> str:
    verdict = metrics.verdict
    text, least = f"of {_listed(metrics)}", f"at least {verdict.look_at_least:,}"
    novel = " novel" if verdict.look_at >= metrics.images else ""  # else the list is named by that word
    if verdict.look_at_novel is None:
        return f"{text} {least} are{novel}"
    about = max(round(verdict.look_at_novel), verdict.look_at_least)
    many = "nearly all are" if about >= verdict.look_at else f"about {about:,} {'is' if about == 1 else 'are'}"
    return f"{text} {many} expected to be{novel}" + (f", {least}" if verdict.look_at_least else "")


def _last_good(metrics: Metrics) -> str:
    verdict = metrics.verdict
    if not verdict.last_good:
        return ""
    if verdict.last_good >= metrics.images:
        return "Each of them is at least as likely novel as not."
    down = f"Down to image {verdict.last_good:,} of the list"
    return f"{down} each is at least as likely novel as not; below it most are known."


def _share(verdict: Verdict) -> str:
    if verdict.novel_share is None or verdict.novel_share_low is None or verdict.novel_share_high is None:
        return ""
    between = f"{_percent(verdict.novel_share_low)} to {_percent(verdict.novel_share_high)}"
    least = f", and at least {verdict.novel_at_least:,}" if verdict.novel_at_least else ""
    return f": about {_percent(verdict.novel_share)} of the images, {between}{least}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if 0 < share < 0.0095 else f"{share:.0%}"


def _sentence(text: str) -> str:
    return _capital(text.strip().rstrip(".")) + "."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _one_in(rate: float) -> str:
    return f"1 in {1 / rate:.0f}"


def nothing_arrived(batch: str, inbox: str) -> str:
    """Of a scheduled week without images."""
    return f"Nothing arrived for {batch}: {inbox} has no images. When they are there, run batch {batch} again."
