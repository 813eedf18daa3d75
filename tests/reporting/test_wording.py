"""What is said of a batch: headline, promise, and what to do next."""

from dataclasses import replace

import pytest

from erd.reporting import wording
from erd.runs.results import Metrics
from erd.statistics.metrics import Detection
from erd.statistics.verdict import Verdict

VERDICT = Verdict(promised=True, flagged=0, wrong_flags_at_most=0, fdr_target=0.05, fpr_target=None, catch_target=None,
                  alarm=False, alarm_p=0.4, alarm_level=0.001, novel_share=None, novel_share_storey=None,
                  novel_share_low=None, novel_share_high=None, novel_at_least=None)  # fmt: skip


def week(**verdict: object) -> Metrics:
    return Metrics("2026-W46", "own", Detection(), Detection(), 412, replace(VERDICT, **verdict), None, 0.9, 3, {})  # type: ignore[arg-type]


def ringing(**verdict: object) -> Metrics:
    share = {"novel_share": 0.05, "novel_share_low": 0.01, "novel_share_high": 0.09, "novel_at_least": 4}
    return week(alarm=True, alarm_p=0.0001, **share, **verdict)


def test_flagged_images_are_to_be_looked_at_and_learned() -> None:
    first, second = wording.advice(ringing(flagged=14))
    assert "flagged" in first[0]
    assert first[1] == "erd review --batch 2026-W46"
    assert second[1] == "erd incorporate --batch 2026-W46"


def test_after_an_alarm_without_flags_it_says_how_far_down_to_look() -> None:
    (first, _), _ = wording.advice(ringing())
    assert "look at the 21 images with the highest scores" in first


def test_a_quiet_week_asks_for_the_audit_only() -> None:
    (first, _), _ = wording.advice(week())
    assert first.startswith("Nothing has to be done. The audit")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ({"fdr_target": 0.05}, "at most about 1 in 20 of these is expected to be a false alarm"),
        ({"fdr_target": None, "fpr_target": 0.1}, "about 1 in 10 of the images it does know is flagged wrongly"),
        ({"fdr_target": None, "catch_target": 0.9}, "about 90% of the novel images are meant to be among them"),
        ({"promised": False}, "how many of these are false alarms is not known"),
    ],
)
def test_the_headline_promises_what_the_rule_does(verdict: dict, words: str) -> None:
    assert words in wording.headline(week(flagged=14, **verdict))
    assert words not in wording.headline(week(**verdict)), "nothing is flagged"


def test_the_alarm_says_how_much() -> None:
    said = wording.alarm(ringing())
    assert "about 5% of the images, 1% to 9%, and at least 4" in said
    assert wording.alarm(week()).startswith("No alarm")
