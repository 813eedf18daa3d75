"""The remembering alarm over years: does it ring for a steady 2%, and how often for nothing?

    python benchmarks/years.py --data DIR --json
    python benchmarks/years.py --data DIR --set-name mnist --years 200 --stories 20 --keep DIR

A year is 52 weeks of known images against the labelled ones of its own, with the level that the ledger gives a weekly
run; each week is tested alone and with the three before it, as the score stage does it. Told: how many years without
novelty have a false alarm, with the usual mix of classes and with one class five times as frequent and another a fifth
as frequent, others every week; and of stories in which a new class is 2% of the batch from week 3 on, how many weeks it
takes until the alarm rings. The directions of comparison are found once a year, from all of its images; a test ends as
soon as it cannot ring any more. Nothing is trained. The limit of a story is the test of ranks, weeks together, on the
score of rare.py that is told which other images are novel.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import rare
import torch
from scipy.stats import binom
from torch import Tensor

from erd.data.sources import load
from erd.nets import encoders
from erd.runs import alarm_ledger
from erd.settings.schema import Alarm
from erd.statistics import novelty_test, scan
from erd.statistics.candidates import Known, Space

WINDOW = 4  # weeks, the default of data.window
WEEKS = 52
QUIET = 2  # weeks before the new class comes
SHARE = 0.02
LEVEL = alarm_ledger.level(Alarm(), tests=2)
DRAWS = max(scan.DRAWS, round(1 / LEVEL))
NO_RING = 2  # random batches as strong as the real one after which p is above the level for certain
MOST_OF_A_CLASS = 2_500  # images that are encoded
FIRST_SEED = 9_000


class Sizes(NamedTuple):
    labelled: int
    a_week: int  # in stories
    weeks: int  # of a story
    years: tuple[int, int] | None  # labelled and a week, in years without novelty; None where images are too few


SETS = {
    "mnist": Sizes(5_000, 1_000, 8, (2_500, 120)),
    "fashion_mnist": Sizes(5_000, 1_000, 8, (2_500, 120)),
    "waste": Sizes(1_000, 180, 5, None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-name", action="append", choices=SETS, help="repeatable; default all")
    parser.add_argument("--years", type=int, default=200)
    parser.add_argument("--stories", type=int, default=20)
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"), required="ERD_DATA" not in os.environ)
    parser.add_argument("--keep", metavar="DIR", help="features are kept there")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    rows = []
    with TemporaryDirectory() as scratch:
        place = Path(arguments.keep or scratch).resolve()
        for name in arguments.set_name or SETS:
            kept = encoded(name, Path(arguments.data).resolve(), place)
            jobs = [Job(kept, name, "story", seed) for seed in range(arguments.stories)]
            if SETS[name].years:
                jobs += [Job(kept, name, kind, seed) for kind in ("quiet", "mix") for seed in range(arguments.years)]
            rows.append({"set": name} | told(lived(jobs, arguments.json)))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"level": LEVEL, "rows": rows}))


class Job(NamedTuple):
    kept: Path
    name: str
    kind: str  # story, quiet, mix
    seed: int


class Year(NamedTuple):
    kind: str
    rang: int | None  # the first week in which the alarm rang
    together: bool  # by the weeks together, where that week alone did not
    limit: int | None = None  # the first week in which it would ring if the score were told the truth


def lived(jobs: list[Job], quiet: bool) -> list[Year]:
    years = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for done in as_completed([pool.submit(live, job) for job in jobs]):
            years.append(done.result())
            if not quiet:
                print(f"{len(years)}/{len(jobs)} {years[-1]}", file=sys.stderr, flush=True)
    return years


def encoded(name: str, data: Path, place: Path) -> Path:
    kept = place / f"{name}.npz"
    if not kept.exists():
        source = load("folder", None, path=data / "waste", largest=224) if name == "waste" else load(name, data)
        rng, labels = np.random.default_rng(0), np.asarray(source.train.labels)
        rows = np.concatenate(
            [rng.permutation(np.flatnonzero(labels == label))[:MOST_OF_A_CLASS] for label in np.unique(labels)]
        )
        parts = [np.asarray(source.train.images[part]) for part in np.array_split(np.sort(rows), len(rows) // 512)]
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            features = np.concatenate(list(pool.map(features_of, parts)))
        place.mkdir(parents=True, exist_ok=True)
        np.savez(kept, f=features, y=labels[np.sort(rows)])
    return kept


def features_of(images: np.ndarray) -> np.ndarray:
    return encoders.load().features(torch.from_numpy(images)).half().numpy()


def live(job: Job) -> Year:
    with np.load(job.kept, allow_pickle=False) as kept:
        features, labels = torch.from_numpy(kept["f"]).float(), kept["y"]
    sizes, rng = SETS[job.name], np.random.default_rng(FIRST_SEED + job.seed)
    classes = np.unique(labels)
    new = classes[job.seed % len(classes)] if job.kind == "story" else None
    known, novel = (rng.permutation(np.flatnonzero(which)) for which in (labels != new, labels == new))
    count, a_week = sizes.years if sizes.years and job.kind != "story" else sizes[:2]
    labelled, stream = np.split(known, [count])
    held_out, train = np.split(labelled, [2 * count // 5])
    if job.kind == "story":
        weeks = _story(stream, novel, sizes)
    else:
        weeks = [_week(stream, labels, a_week, job.kind == "mix", rng) for _ in range(WEEKS)]
    kinds = torch.from_numpy(labels[train])
    space = Space.of(features[train], kinds, [features[held_out], features[np.unique(np.concatenate(weeks))]])
    seen, reference = space(features), space(features[held_out])
    side = Known.of(seen[train], kinds)
    limit = None
    if job.kind == "story":
        told, rung = torch.from_numpy(labels == new), range(len(weeks))
        limit = next((number for number in rung if _limit_rings(seen, told, side, held_out, _lately(weeks, number),
                      job.seed)), None)  # fmt: skip
    for number, alone in enumerate(weeks):
        if _rings(seen[alone], reference, side, job.seed):
            return Year(job.kind, number, together=False, limit=limit)
        if number and _rings(seen[_lately(weeks, number)], reference, side, job.seed):
            return Year(job.kind, number, together=True, limit=limit)
    return Year(job.kind, None, together=False, limit=limit)


def _lately(weeks: list[np.ndarray], number: int) -> np.ndarray:
    return np.concatenate(weeks[max(0, number - WINDOW + 1) : number + 1])


def _limit_rings(seen: Tensor, told: Tensor, known: Known, held_out: np.ndarray, batch: np.ndarray, seed: int) -> bool:
    if not told[batch].any():
        return False
    both = np.concatenate([batch, held_out])
    scores = rare.told_the_truth(seen[both].float(), told[both], known.centres)  # nothing that is held out is novel
    return novelty_test.alarm(scores[: len(batch)], scores[len(batch) :], seed) <= LEVEL


def _rings(batch: Tensor, reference: Tensor, known: Known, seed: int) -> bool:
    return scan.group_test(batch, reference, known, seed, DRAWS, enough=NO_RING) <= LEVEL


def _story(stream: np.ndarray, novel: np.ndarray, sizes: Sizes) -> list[np.ndarray]:
    weeks = []
    for number in range(sizes.weeks):
        count = round(SHARE * sizes.a_week) if number >= QUIET else 0
        known, stream = np.split(stream, [sizes.a_week - count])
        come, novel = np.split(novel, [count])
        weeks.append(np.concatenate([known, come]))
    return weeks


def _week(stream: np.ndarray, labels: np.ndarray, size: int, mixed: bool, rng: np.random.Generator) -> np.ndarray:
    """Drawn from all that is not labelled: an image may come again in another week, as the law of images would have
    it."""
    weight = np.ones(len(stream))
    if mixed:
        often, rarely = rng.choice(np.unique(labels), 2, replace=False)
        weight[labels[stream] == often], weight[labels[stream] == rarely] = 5, 1 / 5
    return rng.choice(stream, size, replace=False, p=weight / weight.sum())


def told(years: list[Year]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("quiet", "mix"):
        if lived_through := [year for year in years if year.kind == kind]:
            false = sum(year.rang is not None for year in lived_through)
            found[kind] = {
                "years": len(lived_through),
                "false_alarms": false,
                "share": round(false / len(lived_through), 4),
                # Of years that keep the rate exactly, at most 2.5% have more.
                "most_by_chance": int(binom.ppf(0.975, len(lived_through), Alarm().rate)),
            }
    if stories := [year for year in years if year.kind == "story"]:
        after, limits = (
            [None if week is None else week - QUIET + 1 for week in weeks]
            for weeks in ([year.rang for year in stories], [year.limit for year in stories])
        )
        found["stories"] = {
            "stories": len(stories),
            "false_alarms": sum(weeks is not None and weeks <= 0 for weeks in after),
            "within_3_weeks": within_3(after),
            "weeks_until_the_alarm": sorted(after, key=lambda weeks: 99 if weeks is None else weeks),
            "by_weeks_together": sum(year.together for year in stories),
            "limit_within_3_weeks": within_3(limits),
            "limit_weeks": sorted(limits, key=lambda weeks: 99 if weeks is None else weeks),
        }
    return found


def within_3(weeks: list[int | None]) -> float:
    return round(sum(week is not None and 0 < week <= 3 for week in weeks) / len(weeks), 4)


if __name__ == "__main__":
    main()
