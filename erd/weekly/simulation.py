"""The story in weeks: known classes only, then a new class appears, grows, is flagged, labelled by an expert who knows
the truth, incorporated, and known.

Everything is done as users do it: images lie in an inbox as files, the stages run, answers are given through the
review's own file, `incorporate` adds them. Only the truth is kept apart, here.
"""

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from PIL import Image

from erd.base import progress
from erd.base.errors import UserError
from erd.base.seeds import derive
from erd.data import collect, library
from erd.data.library import Library
from erd.data.sources import Images
from erd.runs import alarm_ledger, results
from erd.runs.answers import Answer, Answers, audit_rows, now
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Ingested, Week
from erd.settings import families
from erd.settings.scenarios import SIZES
from erd.settings.schema import Settings
from erd.statistics.verdict import Verdict
from erd.weekly import chain, incorporate

QUIET = 2 / 8  # of the weeks have nothing new
GROWTH = (0.04, 0.1, 0.2, 0.3)  # share of the new class in the weeks after; it stays at the last
LABELED = 0.6  # of the known images are labelled when the story begins, the others come in week by week
MOST_WEEKS = 1040  # twenty years
LEAST = 20  # known images a week: with fewer the alarm has nothing to go by


def simulate(
    settings: Settings, weeks: int, workspace: Path, on_week: Callable[[Week], None] = lambda week: None
) -> list[Week]:
    """Live through the weeks in an empty `workspace`, on the images of the settings' scenario."""
    check_weeks(weeks)
    images, names, new = _images(settings)
    rng = np.random.default_rng(derive(settings.seed, "simulation"))
    shares = _shares(weeks)
    known, novel = (rng.permutation(np.flatnonzero(which)) for which in (images.labels != new, images.labels == new))
    first, stream = np.split(known, [int(LABELED * len(known))])
    a_week = min([len(stream) // weeks, *_affordable(shares, len(novel))])
    if a_week < LEAST:
        raise UserError(f"{settings.data.scenario} has too few images for {weeks} weeks: ask for fewer")
    place = workspace / "library"
    library.save(_labeled(images.take(first), names), place)
    told: list[Week] = []
    for number, share in progress.each(list(enumerate(shares, start=1)), "simulate", unit="week"):
        arrivals, stream = np.split(stream, [a_week])
        appearing, novel = np.split(novel, [round(a_week * share / (1 - share))])
        week = f"week-{number:02}"
        inbox = workspace / "inbox" / week
        truth = _fill(inbox, images, names, rng.permutation(np.concatenate([arrivals, appearing])))
        labeled = len(library.read(place))
        weekly = _weekly(settings, place, inbox, week)
        run = RunDir.of(weekly, workspace)
        for stage in chain.up_to("score"):  # nobody looks at the figures of each week
            chain.run(stage, weekly, run)
        verdict = Decided.read(run).verdict
        alarm_ledger.enter(run.alarms, weekly.stream, week, verdict.alarm_p, verdict.alarm_level, verdict.weeks_p)
        told.append(_told(run, week, truth, names[new], verdict, labeled))
        on_week(told[-1])
        _answer(run, truth, verdict, weekly)
        incorporate.incorporate(run, place)
    return told


def check_weeks(weeks: int) -> None:
    if not 2 <= weeks <= MOST_WEEKS:
        raise UserError(f"--weeks is {weeks}; a story takes two or more, and {MOST_WEEKS:,} at most")


def _images(settings: Settings) -> tuple[Images, tuple[str, ...], int]:
    """All images of the scenario, the names of the classes, and the number of the one that is new. One of its novel
    classes, drawn by the seed; the others are known."""
    scenario = families.get(settings.data.scenario)
    if scenario.shift:
        raise UserError(f"{scenario.name} has no new class, only corrupted images: simulate another scenario")
    known_source, novel_source = collect.load_sources(settings, scenario)
    if known_source is not novel_source:
        raise UserError(f"{scenario.name} has known and novel images from different sets: simulate another scenario")
    known, novel = collect.known_and_novel(settings, scenario, known_source, novel_source)
    if not novel:
        raise UserError(f"{scenario.name} has no novel class to appear: set data.novel")
    images, _ = collect.join(known_source, sorted({*known, *novel}))
    return images, known_source.classes, int(np.random.default_rng(derive(settings.seed, "new")).choice(novel))


def _shares(weeks: int) -> list[float]:
    quiet = round(QUIET * weeks)
    growing = [GROWTH[min(week, len(GROWTH) - 1)] for week in range(weeks - quiet)]
    return [0.0] * quiet + growing


def _affordable(shares: list[float], novel: int) -> list[int]:
    """The known images a week may have so that the new class lasts to the end."""
    need = sum(share / (1 - share) for share in shares)
    return [int(novel / need)] if need else []


def _labeled(images: Images, names: tuple[str, ...]) -> Library:
    columns = {
        "id": images.ids,
        "sha256": images.ids,  # nothing in the inbox is ever one of these
        "label": np.array(names)[images.labels],
        "group": images.groups,
    }
    return Library(images.images, library.table(columns, len(images)))


def _fill(inbox: Path, images: Images, names: tuple[str, ...], rows: np.ndarray) -> dict[str, str]:
    """Write the week's images as files with numbers for names; the truth by file."""
    shutil.rmtree(inbox, ignore_errors=True)
    inbox.mkdir(parents=True)
    truth = {}
    for number, row in enumerate(rows):
        name = f"{number:05}.png"
        Image.fromarray(images.images[row]).save(inbox / name)
        truth[name] = names[images.labels[row]]
    return truth


def _weekly(settings: Settings, place: Path, inbox: Path, week: str) -> Settings:
    """The scenario's net and training, on the user's own images, dealt as those are."""
    return settings.override(
        {f"data.{size}": None for size in SIZES}
        | {
            "data.scenario": "own",
            "data.source": "library",
            "data.path": str(place),
            "data.inbox": str(inbox),
            "data.batch": week,
            "pretrain.balance": True,  # as for one's own images
            "data.settle": 0,  # nobody else writes there
        }
    )


def _told(run: RunDir, week: str, truth: dict[str, str], new: str, verdict: Verdict, labeled: int) -> Week:
    scores = results.scores(run)
    learned = set(Ingested.read(run).classes)
    true = scores["id"].map(truth)
    novel, right = ~true.isin(learned), true == scores["predicted"]
    flagged, of_new = scores["flagged"], true == new
    return Week(
        week=week,
        images=len(scores),
        true_share=float(novel.mean()),
        alarm_p=verdict.alarm_p,
        alarm=verdict.rings,
        alarm_level=verdict.alarm_level,
        weeks_p=verdict.weeks_p,
        flagged=int(flagged.sum()),
        precision=float(novel[flagged].mean()) if flagged.any() else None,
        recall=float(flagged[novel].mean()) if novel.any() else None,
        accuracy=float(right.mean()),
        new_class_share=float(of_new.mean()),
        new_class_accuracy=float(right[of_new].mean()) if new in learned and of_new.any() else None,
        labeled=labeled,
    )


def _answer(run: RunDir, truth: dict[str, str], verdict: Verdict, settings: Settings) -> None:
    """The expert, who is always right: looks at all that is flagged, at the audit, and after an alarm also down the
    list as far as the estimated share of novel images goes."""
    scores = results.scores(run).sort_values("score", ascending=False, kind="stable")
    look = max(verdict.flagged, int(np.ceil((verdict.novel_share or 0) * len(scores))))
    audit = (
        scores["id"].sort_index().iloc[audit_rows(len(scores), settings.review.audit, settings.seed, run.batch_name)]
    )
    Answers(run.answers).merge(
        Answer(image=image, kind="class", label=truth[image], reviewer="expert", list=which, at=now())
        for which, ids in (("flagged", scores["id"].head(look)), ("audit", audit))
        for image in ids
    )


def weeks_until_alarm(told: Sequence[Week], share: float = 0.0) -> int | None:
    """Weeks from the one in which the new class comes, or first has that share of the images, to the first alarm that
    it can have rung; 0 is the same week. None where no alarm followed, or there was never so much of it."""
    come = [number for number, week in enumerate(told) if week.new_class_share > 0]
    reached = [number for number in come if told[number].new_class_share >= share]
    rang = [number for number, week in enumerate(told) if week.alarm and come and number >= come[0]]
    return max(0, rang[0] - reached[0]) if rang and reached else None


def false_alarms(told: Sequence[Week]) -> int:
    """Alarms before there was anything to ring for."""
    before = itertools.takewhile(lambda week: not week.new_class_share, told)
    return sum(week.alarm for week in before)


def rows(told: list[Week]) -> list[dict[str, object]]:
    return [asdict(week) for week in told]
