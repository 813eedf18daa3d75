"""What the random audit of a batch has found so far."""

from erd.runs import results
from erd.runs.answers import KINDS, Answers, agreed, audited
from erd.runs.folder import RunDir
from erd.runs.results import Ingested
from erd.statistics.audit import NOTHING, Audit, estimate


def heard(run: RunDir) -> Audit:
    """By the classes that the batch's own classifier knew; `NOTHING` where nobody has audited."""
    answers = Answers(run.answers).current()
    drawn = audited(answers)
    if not drawn:
        return NOTHING
    images = set(results.scores(run)["id"])
    known = {None, *Ingested.read(run).classes}  # None: some known class, not said which
    settled, disputed = agreed(answers)
    novel = [
        answer.label not in known
        for image, answer in settled.items()
        if image in drawn & images and KINDS[answer.kind].judged
    ]
    unsure = len(drawn & images & set(disputed))
    return estimate(sum(novel), len(novel) - sum(novel), len(images), unsure)
