"""Is more work done than before? Counted, not timed: the same numbers on any machine, busy or not.

    python benchmarks/work.py --check                # more than in benchmarks/work.json? a sentence each, and exit 1
    python benchmarks/work.py --keep                 # a new baseline: more work was meant, or less is done now
    python benchmarks/work.py --only encode --json

The paths of a weekly run that take the longest, in a small one: benchmarks/counting.py says what is counted and what
that does not see, docs/speed.md what the paths are.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
from counting import counted
from random_runs import finetuned, random_run, scored, settings_of, untrained, without_members
from small_week import SmallWeek

from erd.base import files
from erd.statistics.disagreement import disagreement

BASELINE = Path(__file__).resolve().parent / "work.json"
Counts = dict[str, dict[str, int]]  # path → kind → how many


class Kind(NamedTuple):
    words: str
    tolerance: float  # as a share: what another version of torch, NumPy or Pillow may change, and a line more of ours


KINDS = {
    "operations": Kind("operations of torch", 0.02),
    "flops": Kind("floating-point operations", 0.01),
    "moved": Kind("bytes read and written by torch", 0.02),
    "lines": Kind("lines of Python", 0.03),
    "taken": Kind("bytes of new memory", 0.05),
    "decoded": Kind("pixels decoded and resized", 0.01),
    "hashed": Kind("files hashed", 0.0),
}
PATHS = {
    "take in": "a week's image files taken in",
    "encode": "a week's images encoded, where the labelled ones and the week before were already",
    "train on features": "members fine-tuned on features",
    "train on images": "members fine-tuned on images, the MLP",
    "score": "what a batch's members say, and the disagreement of 5 and of 20 members on 5,000 images",
    "groups": "the same with candidate classes, neighbours and the alarm's random batches",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PATHS, help="repeatable; default all")
    parser.add_argument("--check", action="store_true", help="compare with the baseline; exit 1 if more is done")
    parser.add_argument("--keep", action="store_true", help="write what was counted into the baseline")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="erd-work-") as scratch:
        works = prepared(Path(scratch))
        found = {name: count(works[name]) for name in PATHS if name in (asked.only or PATHS)}
    report: dict[str, Any] = {"versions": versions(), "counts": found}
    baseline = files.load_json(BASELINE) if BASELINE.exists() else {}
    if asked.check:
        report |= compared(found, baseline)
    if asked.keep:
        files.save_json(BASELINE, {"versions": versions(), "counts": baseline.get("counts", {}) | found})
    if not asked.json:
        print("\n".join(said(report) if asked.check else table(found)))
    print(json.dumps(report))
    return 1 if report.get("worse") else 0


def prepared(place: Path) -> dict[str, Callable[[], object]]:
    """The work of each path, which can be done again and again; in the order of PATHS."""
    week = SmallWeek(place / "week")
    settings = settings_of("fmnist-near", ["finetune.members=3", "finetune.epochs=1", "run.runner=serial",
                                           "run.device=cpu"])  # fmt: skip
    run = random_run(place / "run", train=1_000, val=200, batch=600, calibration=200)
    untrained(settings, run, with_members=True)
    softmax = [torch.rand(members, 5_000, 10).softmax(-1) for members in (5, 20)]

    def train() -> None:
        without_members(run)
        finetuned(settings, run)

    def score() -> None:
        run.record("score").unlink(missing_ok=True)
        scored(settings, run)
        for members in softmax:
            disagreement(members)

    work = (week.ingest, week.encode, week.finetune, train, score, week.score)
    return dict(zip(PATHS, work, strict=True))


def count(work: Callable[[], object]) -> dict[str, int]:
    """At the second time: the first one imports, and fills caches that last as long as the process."""
    work()
    return counted(work)


def versions() -> dict[str, str]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, "torch": torch.__version__, "numpy": np.__version__, "pillow": PIL.__version__}


# The guard ------------------------------------------------------------------------------------------------------------


def compared(found: Counts, baseline: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is more, and what is less, than the baseline by more than its tolerance, in words."""
    report: dict[str, list[str]] = {"worse": [], "better": [], "new": [], "notes": []}
    for name, counts in found.items():
        if (before := baseline.get("counts", {}).get(name)) is None:
            report["new"].append(f"{name}: no baseline yet, --keep writes it")
            continue
        for kind, (words, tolerance) in KINDS.items():
            was, now = before.get(kind, 0), counts.get(kind, 0)
            numbers = f"{was:,} in the baseline, {now:,} now"
            if now > was * (1 + tolerance):
                share = f"{now / was - 1:.1%} more" if was else "there are"
                report["worse"].append(f"{name}: {share} {words} ({numbers}; {tolerance:.0%} is allowed)")
            elif now < was * (1 - tolerance):
                report["better"].append(f"{name}: {1 - now / was:.1%} fewer {words} ({numbers})")
    here, there = versions(), baseline.get("versions", {})
    if (report["worse"] or report["better"]) and here != there:
        report["notes"].append(
            f"The baseline was counted with {listed(there)}, this with {listed(here)}: where that is why, --keep."
        )
    return report


def listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def said(report: Mapping[str, list[str]]) -> list[str]:
    found = [f"{how}: {line}" for how in ("worse", "better", "new") for line in report[how]]
    if report["better"]:
        found.append("With --keep it stays so: what is less now may come back unseen.")
    return [*found, *report["notes"]] or ["No more work is done than in the baseline."]


def table(found: Counts) -> list[str]:
    """Markdown."""
    rows = [[name, *(f"{counts.get(kind, 0):,}" for kind in KINDS)] for name, counts in found.items()]
    return ["| " + " | ".join(row) + " |" for row in (["path", *KINDS], ["---"] * (1 + len(KINDS)), *rows)]


if __name__ == "__main__":
    sys.exit(main())
