"""Deals the photographs of TrashNet into the folders of docs/tutorial.md: labelled ones, and four weeks as they come.
Cardboard is in no labelled folder; it comes from the second week on.

    python docs/weeks_of_waste.py DIR OUTPUT      # DIR has a folder for each class
"""

import hashlib
import random
import shutil
import sys
from pathlib import Path

NEW = "cardboard"
LABELLED, A_WEEK = 0.66, 0.075  # of all other photographs
ARRIVALS = {45: 0, 46: 12, 47: 30, 48: 30}  # week: how many of the new class come


def main(source: Path, output: Path) -> None:
    every = [path for path in sorted(source.glob("*/*")) if path.is_file()]
    random.Random(0).shuffle(every)
    known, new = ([path for path in every if (path.parent.name == NEW) is is_new] for is_new in (False, True))
    labelled, a_week = (round(share * len(known)) for share in (LABELLED, A_WEEK))
    for path in _taken(known, labelled):
        _copy(path, output / "waste-labelled" / path.parent.name / path.name)
    for week, arrivals in ARRIVALS.items():
        for path in _taken(known, a_week) + _taken(new, arrivals):
            # Names that do not tell what is to be seen.
            name = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
            _copy(path, output / f"waste-week-{week}" / f"{name}{path.suffix}")


def _taken(files: list[Path], count: int) -> list[Path]:
    """The next ones, which nobody gets again."""
    taken, files[:] = files[:count], files[count:]
    return taken


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
