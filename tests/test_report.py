"""The report says what to do next, by what the batch brought."""

from erd import report

QUIET = {"batch": "2026-W46", "images": 412, "flagged": 0, "alarm": False, "novel_share": None}


def test_flagged_images_are_to_be_looked_at_and_learned() -> None:
    first, second = report.advice(QUIET | {"flagged": 14, "alarm": True, "novel_share": 0.05})
    assert "flagged" in first[0]
    assert first[1] == "erd review --batch 2026-W46"
    assert second[1] == "erd incorporate --batch 2026-W46"


def test_after_an_alarm_without_flags_it_says_how_far_down_to_look() -> None:
    (first, _), _ = report.advice(QUIET | {"alarm": True, "novel_share": 0.05})
    assert "look at the 21 images with the highest scores" in first


def test_a_quiet_week_asks_for_the_audit_only() -> None:
    (first, _), _ = report.advice(QUIET)
    assert first.startswith("Nothing has to be done. The audit")
