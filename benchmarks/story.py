"""The story of `erd simulate` over seeds, and whether it goes as it should.

    python benchmarks/story.py --weeks 8 --seeds 5 --json
    python benchmarks/story.py --scenario xray-viral --data DIR --seeds 1 --json

A seed draws the new class, the images of each week and the weights. Wanted: no alarm before the new class comes; an
alarm within two weeks of its reaching 10%; of all flags at most `detect.fdr` wrong; and the new class recognised in
nine of ten images in the last week.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from erd.runs.configure import settings_for
from erd.runs.results import Week
from erd.weekly.simulation import false_alarms, rows, simulate, weeks_until_alarm

NOTICED = 0.0999  # the new class "has reached 10%", in whole images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="digits-near")
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--data", help="folder with the image sets")
    parser.add_argument("--set", action="append", default=[], help="override a setting; repeatable")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    told = {}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        asked = [f"seed={seed}", f"alarm.looks={arguments.weeks}", *arguments.set]
        settings = settings_for(scenario=arguments.scenario, data=arguments.data, overrides=asked)
        with TemporaryDirectory() as workspace:
            told[seed] = simulate(settings, arguments.weeks, Path(workspace), lambda week: show(week, arguments.json))
    print(json.dumps({"scenario": arguments.scenario, "q": settings.detect.fdr} | judged(told)))


def show(week: Week, quiet: bool) -> None:
    if not quiet:
        print(week, file=sys.stderr, flush=True)


def judged(told: dict[int, list[Week]]) -> dict[str, Any]:
    stories = {seed: one(weeks) for seed, weeks in told.items()}
    flags = sum(week.flagged for weeks in told.values() for week in weeks)
    wrong = sum(story["wrong_flags"] for story in stories.values())
    return {
        "false_alarms": sum(story["alarms_before"] for story in stories.values()),
        "weeks_until_alarm": [story["weeks_until_alarm"] for story in stories.values()],
        "alarm_weeks_after_10_percent": [story["weeks_to_alarm"] for story in stories.values()],
        "flags": flags,
        "precision": round(1 - wrong / flags, 4) if flags else None,
        "new_class_accuracy": [story["new_class_accuracy"] for story in stories.values()],
        "seeds": stories,
        "weeks": {seed: rows(weeks) for seed, weeks in told.items()},
    }


def one(weeks: list[Week]) -> dict[str, Any]:
    last = weeks[-1].new_class_accuracy
    return {
        "alarms_before": false_alarms(weeks),
        "weeks_until_alarm": weeks_until_alarm(weeks),
        "weeks_to_alarm": weeks_until_alarm(weeks, NOTICED),
        "flags": sum(week.flagged for week in weeks),
        "wrong_flags": sum(round(week.flagged * (1 - week.precision)) for week in weeks if week.precision is not None),
        "new_class_accuracy": last if last is None else round(last, 3),
    }


if __name__ == "__main__":
    main()
