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
WEAK = 0.8  # a classifier that is right on fewer validation images does not know its own classes well


def title(metrics: Metrics, look_alikes: int = 0) -> str:
    """What a person wants to know first, in one sentence and nothing beside it: the report's first line. `look_alikes`:
    images of the strongest candidate for a new class, where those are shown and some are novel for sure."""
    verdict, batch = metrics.verdict, metrics.batch
    if verdict.bulk_moved:
        return f"Batch {batch} as a whole has changed: nearly all of its images look different from the labelled ones."
    if verdict.flagged:
        return f"{_flagged(metrics)}."
    sure = "is" if verdict.alarm else "is probably" if verdict.rings or verdict.look_at_least else "may be"
    if look_alikes:
        many = f"{look_alikes:,} of {metrics.images:,} images look alike, and unlike anything labelled"
        return f"Something in batch {batch} {sure} new: {many}."
    if rich(metrics):
        return f"Something in batch {batch} {sure} new: {_expected(metrics)}."
    if verdict.alarm:
        share = "" if verdict.novel_share is None else f", about {percent(verdict.novel_share)} of its images"
        return f"Something in batch {batch} is new{share}, and none stands out: look at {_first(metrics)}."
    if verdict.weeks_alarm:
        return (
            f"Something has been new in the weeks up to batch {batch}, though this one does not show it alone: look at "
            f"{_first(metrics)}."
        )
    if verdict.unusual:
        return f"Something in batch {batch} may be new: look at {_first(metrics)}."
    return f"No sign of a new class in batch {batch}."


def headline(metrics: Metrics, noticed: str = "") -> str:
    """The title, with what it promises; `noticed` (see below) follows where nothing is new."""
    if metrics.verdict.flagged and not metrics.verdict.bulk_moved:
        return flags(metrics)
    return f"{title(metrics)} {noticed if quiet(metrics) else ''}".rstrip()


def quiet(metrics: Metrics) -> bool:
    """Whether there is no sign of anything new."""
    return not (metrics.verdict.worth_looking or metrics.verdict.bulk_moved or rich(metrics))


def flags(metrics: Metrics) -> str:
    """The first tier, in one sentence; nothing where it is empty."""
    return f"{_flagged(metrics)}{promise(metrics)}." if metrics.verdict.flagged else ""


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


def promised(metrics: Metrics) -> str:
    """The same as a sentence of its own, for below the title."""
    if metrics.verdict.bulk_moved:  # the title says nothing of flags
        return flags(metrics)
    rate = promise(metrics).removeprefix("; ")
    return sentence(rate) if rate else ""


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


def alarm(metrics: Metrics, numbers: bool = True) -> str:
    """Whether there is anything at all, in one sentence; `numbers`: with its p-value."""
    verdict = metrics.verdict
    p, rings = f"p = {verdict.alarm_p:.2g}", f"it rings at {verdict.alarm_level:.2g}"
    short, long = (f" ({p})", f" ({p}; {rings})") if numbers else ("", "")
    if verdict.alarm and verdict.bulk_moved:
        return f"Alarm: this batch does not look like known images{short}, which need not be a new class."
    if verdict.alarm:
        return f"Alarm: something in this batch is novel{short}{_share(verdict)}."
    if verdict.weeks_alarm:
        return f"Alarm: this batch alone would not ring it{short}, together with those before it does."
    if verdict.unusual:
        rare = f"by chance only {chance(verdict.by_chance)} is as unusual"
        return f"No alarm yet, but a sign: of weeks without anything new {rare}{long}."
    if rich(metrics) or verdict.flagged:
        return f"No alarm: as a whole the batch does not differ enough from known images{long}."
    return f"No alarm: as a whole the batch does not look different from known images{short}."


def findings(metrics: Metrics, numbers: bool = True) -> list[str]:
    """What else may lie behind it, a sentence each: all images have moved, classes are mixed anew, weeks add up, the
    classifier is weak; `numbers`: with p-values."""
    verdict = metrics.verdict
    found = [sentence(text) for text in (verdict.bulk_moved, verdict.mix_changed) if text]
    if metrics.val_accuracy < WEAK:
        found.append(
            f"The classifier is right on only {metrics.val_accuracy:.0%} of the images whose class is known, so what "
            "it says of new ones is worth little: it needs more labelled images, larger ones, or a pretrained net."
        )
    if verdict.weeks_p is None:
        return found
    together, what = f"The last {verdict.weeks} batches together", "changed" if verdict.bulk_moved else "new"
    p = f" (p = {verdict.weeks_p:.2g}, the alarm rings at {verdict.alarm_level:.2g})" if numbers else ""
    if verdict.weeks_alarm and (numbers or not verdict.alarm):  # else the alarm has said it
        found.append(f"{together} say that something is {what}{p}.")
    elif verdict.weeks_p**2 <= verdict.alarm_level and not verdict.rings:  # half the way, in powers of ten
        found.append(f"{together} are less quiet than chance would have them{p}.")
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
        f"A class like those you know would have been noticed from about {percent(noticed_from)} of the batch on; "
        "below that it can be there unseen."
    )


def advice(metrics: Metrics, look_alikes: int = 0) -> list[tuple[str, str]]:
    """What to do next, in the order of doing it: a sentence, and the command; `look_alikes` as
    above."""
    verdict = metrics.verdict
    group = f"the {look_alikes:,} look-alikes, then at " if look_alikes else ""
    if verdict.bulk_moved:
        first = "Look at the first images, and at some random ones, the audit: has a device changed, or its settings?"
    elif verdict.flagged:
        further = ", then go on down the list" if verdict.last_good > verdict.flagged else ""
        first = f"Look at {group}the flagged images and say what they are{further}:"
    elif verdict.worth_looking or rich(metrics):
        first = f"Look at {group}{_first(metrics)} and say what they are:"
    else:
        first = f"Look at {_first(metrics)}, and at some random ones, the audit: they show what no test can rule out:"
    learn = "Let the classifier learn what was said:"
    return [(first, f"erd review --batch {metrics.batch}"), (learn, f"erd incorporate --batch {metrics.batch}")]


def unasked(metrics: Metrics) -> tuple[str, str]:
    """A further thing to do, after a quiet week of which nobody knows yet what it is worth."""
    return "Ask how much of a new class would have been noticed:", f"erd sensitivity --batch {metrics.batch}"


def summary(metrics: Metrics, noticed: str = "") -> list[str]:
    """All of it without pictures, each thing once: for a terminal or a message."""
    said = [headline(metrics, noticed), alarm(metrics)]
    if metrics.verdict.bulk_moved:
        said.append(flags(metrics))
    return [text for text in (*said, beyond_headline(metrics), *findings(metrics)) if text]


def subject(metrics: Metrics) -> str:
    """Of a message about an alarm."""
    if metrics.verdict.bulk_moved:
        return f"Batch {metrics.batch} has changed as a whole"
    return f"Something new in batch {metrics.batch}"


def simulated(weeks_until_alarm: int | None, false_alarms: int) -> str:
    """How the alarm did in a story of which the truth is known."""
    when = {None: "No alarm rang after the new class had come", 0: "The alarm rang in the week the new class came",
            1: "The alarm rang 1 week after the new class had come"}  # fmt: skip
    said = when.get(weeks_until_alarm, f"The alarm rang {weeks_until_alarm} weeks after the new class had come")
    return f"{said}; {false_alarms or 'no'} false alarm{'' if false_alarms == 1 else 's'} before."


def looks(rate: float, weeks: int, usual: int) -> str:
    """What a simulated alarm keeps its rate over, beside what a run's own does."""
    said = f"Its rate of false alarms, {rate:.0%}, is for {weeks} weeks here"
    if weeks == usual:
        return f"{said}, as in weekly runs."
    return f"{said}; in weekly runs it is for {usual}, and their alarm takes {usual / weeks:.2g} times the evidence."


def percent(share: float) -> str:
    return f"{share:.1%}" if 0 < share < 0.0095 else f"{share:.0%}"


def chance(p: float) -> str:
    """A p-value for people: 34%, or 1 in 2,500."""
    return f"{p:.0%}" if p >= 0.1 else f"1 in {1 / p:,.0f}"


def sentence(text: str) -> str:
    """With a capital at its beginning and a full stop at its end."""
    return _capital(text.strip().rstrip(".")) + "."


def _flagged(metrics: Metrics) -> str:
    looks = "look" if metrics.verdict.flagged > 1 else "looks"
    few = f"{metrics.verdict.flagged:,} of {metrics.images:,} images"
    return f"{few} of batch {metrics.batch} {looks} like something the classifier has never seen"


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
    if about == verdict.look_at_least < verdict.look_at:
        return f"{text} {least} are expected to be{novel}"
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
    between = f"{percent(verdict.novel_share_low)} to {percent(verdict.novel_share_high)}"
    least = f", at least {verdict.novel_at_least:,} of them" if verdict.novel_at_least else ""
    return f", about {percent(verdict.novel_share)} of the images ({between}){least}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _one_in(rate: float) -> str:
    return f"1 in {1 / rate:.0f}"


def nothing_arrived(batch: str, inbox: str) -> str:
    """Of a scheduled week without images."""
    return f"Nothing arrived for {batch}: {inbox} has no images. When they are there, run batch {batch} again."
