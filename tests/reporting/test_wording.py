"""What is said of a batch: headline, promise, and what to do next."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from erd.reporting import wording
from erd.runs.results import Metrics
from erd.statistics.metrics import Detection
from erd.statistics.verdict import Verdict

VERDICT = Verdict(promised=True, flagged=0, wrong_flags_at_most=0, fdr_target=0.05, fpr_target=None, catch_target=None,
                  alarm=False, alarm_p=0.4, alarm_level=0.001, novel_share=None, novel_share_storey=None,
                  novel_share_low=None, novel_share_high=None, novel_at_least=None)  # fmt: skip


RICH = {"look_at": 50, "look_at_novel": 30.7, "look_at_least": 22, "last_good": 38}
QUIET = {"look_at": 50, "look_at_novel": 0.3}
MOVED = "nearly all images look different from the labelled ones, as with a new scanner"


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
    (first, command), _ = wording.advice(ringing())
    assert first.startswith("Look at the 21 images that look most novel"), "5% of 412"
    assert command == "erd review --batch 2026-W46"
    (first, _), _ = wording.advice(ringing(**RICH))
    assert first.startswith("Look at the 50 images that look most novel")


def test_a_quiet_week_asks_for_a_look_and_the_audit_all_the_same() -> None:
    for quiet in (week(), week(look_at=50, look_at_novel=0.3)):
        (first, _), _ = wording.advice(quiet)
        assert first.startswith("Look at the")
        assert "the audit" in first


def test_flags_that_end_before_the_good_images_do_ask_to_go_on() -> None:
    assert "go on down the list" in wording.advice(ringing(flagged=14, **RICH))[0][0]
    assert "go on down the list" not in wording.advice(ringing(flagged=40, **RICH))[0][0]


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
    assert "about 5% of the images (1% to 9%), at least 4 of them." in said
    assert wording.alarm(week()).startswith("No alarm")


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (ringing(**RICH), "is new: of the 50 images that look most novel about 31 are expected to be, at least 22."),
        (week(**RICH), "is probably new: of the 50 images that look most novel about 31 are"),
        (week(**RICH | {"look_at_least": 0}), "may be new: of the 50 images that look most novel about 31 are"),
        (ringing(**RICH | {"look_at_novel": 49.9}), "of the 50 images that look most novel nearly all are expected"),
        (
            ringing(**RICH | {"look_at": 412}),
            "is new: of all 412 images about 31 are expected to be novel, at least 22",
        ),
        (ringing(**QUIET), "is new, about 5% of its images, and none stands out: look at the 50 images"),
        (week(weeks_alarm=True, **QUIET), "has been new in the weeks up to batch 2026-W46, though this one does not"),
    ],
)
def test_without_flags_the_headline_leads_with_what_is_known(metrics: Metrics, words: str) -> None:
    said = wording.headline(metrics)
    assert said.startswith("Something ")
    assert words in said
    assert "No sign" not in " ".join(wording.summary(metrics))


def test_only_a_week_without_any_sign_is_called_so_and_with_what_could_have_been_missed() -> None:
    noticed = wording.sensitivity(0.04)
    assert noticed.startswith("A class like those you know would have been noticed from about 4% of the batch on;")
    assert wording.headline(week(**QUIET)) == "No sign of a new class in batch 2026-W46."
    assert wording.headline(week(**QUIET), noticed) == f"No sign of a new class in batch 2026-W46. {noticed}"
    assert noticed not in wording.headline(ringing(**RICH), noticed)
    assert "Even a tenth of the batch" in wording.sensitivity(None)
    assert "about 0.4% of the batch" in wording.sensitivity(0.004)


@pytest.mark.parametrize(
    "verdict", [{}, QUIET, RICH, {"promised": False, "look_at": 50}, {"bulk_moved": MOVED} | QUIET]
)
@pytest.mark.parametrize("of", [week, ringing])
def test_nobody_is_told_that_nothing_is_flagged_or_to_be_done(of: Callable[..., Metrics], verdict: dict) -> None:
    metrics = of(**verdict)
    said = " ".join([*wording.summary(metrics), *(" ".join(step) for step in wording.advice(metrics))])
    assert "Nothing" not in said
    assert "No image" not in said
    assert "flagged" not in said
    assert "None" not in said, "no field left empty in the middle of a sentence"


def test_the_second_tier_says_how_many_and_how_far_down() -> None:
    said = wording.worth_a_look(ringing(flagged=14, **RICH), confidence=0.9)
    assert said.startswith("Of the 50 images that look most novel about 31 are expected to be, at least 22 (90% ")
    assert said.endswith(
        "Down to image 38 of the list each is at least as likely novel as not; below it most are known."
    )
    assert "none is expected to be novel" in wording.worth_a_look(week(**QUIET))
    assert "about 3 may really be novel, which can also be chance" in wording.worth_a_look(
        week(look_at=50, look_at_novel=3.2)
    )
    assert "how many of them are novel is not known" in wording.worth_a_look(week(look_at=50, promised=False))
    assert wording.worth_a_look(week()) == "", "a run of an earlier version, or a budget of none"


def test_where_nearly_all_images_have_moved_it_is_not_called_novel() -> None:
    metrics = ringing(flagged=300, bulk_moved=MOVED, **RICH)
    assert wording.headline(metrics).startswith("Batch 2026-W46 as a whole has changed: nearly all of its images")
    assert wording.subject(metrics) == "Batch 2026-W46 has changed as a whole"
    assert wording.findings(metrics) == [f"{MOVED.capitalize()}."]
    said = " ".join(wording.summary(metrics))
    assert "how many of these are false alarms is not known" in said, "the rate is of images that have not moved"
    assert "expected to be" not in said
    assert "need not be a new class" in said


def test_what_else_was_found_is_said_in_sentences() -> None:
    mix = "the mix of known classes has changed: more cats"
    assert wording.findings(week(mix_changed=mix)) == ["The mix of known classes has changed: more cats."]
    assert wording.findings(week(weeks=4, weeks_p=0.3)) == []
    [gathering] = wording.findings(week(weeks=4, weeks_p=0.02))
    assert gathering.startswith("The last 4 batches together are less quiet than chance would have them (p = 0.02, ")
    [rang] = wording.findings(week(weeks=4, weeks_p=0.0002, weeks_alarm=True))
    assert rang == "The last 4 batches together say that something is new (p = 0.0002, the alarm rings at 0.001)."
    assert "together with those before it does" in wording.alarm(week(weeks_alarm=True))


def test_a_candidate_class_is_said_with_how_much_of_it_is_sure() -> None:
    assert wording.group(23, 17) == "23 look-alikes, unlike anything labelled; at least 17 of them novel"
    assert wording.group(23, 17, "cat").startswith("23 look-alikes, unlike anything labelled, nearest to “cat”; ")
    assert wording.group(5, 0).endswith("; none of them is novel for sure")


@pytest.mark.parametrize("verdict", [RICH, QUIET, {"flagged": 14} | RICH, {"bulk_moved": MOVED, "flagged": 300}])
@pytest.mark.parametrize("weeks", [{}, {"weeks": 4, "weeks_p": 0.0002, "weeks_alarm": True}, {"weeks_p": 0.02}])
@pytest.mark.parametrize("of", [week, ringing])
def test_the_same_is_said_without_p_values(of: Callable[..., Metrics], weeks: dict, verdict: dict) -> None:
    metrics = of(**verdict, **weeks)
    said = [wording.title(metrics), wording.alarm(metrics, numbers=False), *wording.findings(metrics, numbers=False)]
    assert "p = " not in " ".join(said)
    assert "(" not in wording.alarm(week(**verdict, **weeks), numbers=False)
    assert "p = " in wording.alarm(metrics)


def test_the_title_leads_with_look_alikes_unless_images_are_flagged() -> None:
    said = "Something in batch 2026-W46 is new: 13 of 412 images look alike, and unlike anything labelled."
    assert wording.title(ringing(**RICH), look_alikes=13) == said
    assert "is probably new: 13 of 412" in wording.title(week(**RICH), look_alikes=13)
    assert wording.title(ringing(flagged=14, **RICH), look_alikes=13).startswith("14 of 412 images of batch 2026-W46")
    (first, _), _ = wording.advice(ringing(flagged=14, **RICH), look_alikes=13)
    assert first.startswith("Look at the 13 look-alikes, then at the flagged images and say what they are")


def test_a_promise_below_the_title_is_a_sentence_of_its_own() -> None:
    assert wording.promised(ringing(flagged=14)) == "At most about 1 in 20 of these is expected to be a false alarm."
    assert wording.promised(week()) == ""
    assert wording.promised(ringing(flagged=300, bulk_moved=MOVED)).startswith("300 of 412 images of batch")


def test_a_classifier_that_is_often_wrong_draws_a_warning() -> None:
    weak = replace(week(**QUIET), val_accuracy=0.64)
    [said] = wording.findings(weak)
    assert said.startswith("The classifier is right on only 64% of the images whose class is known")
    assert said in wording.summary(weak)
    assert wording.findings(replace(weak, val_accuracy=0.81)) == []


def test_a_bound_that_is_all_that_is_expected_is_said_once() -> None:
    said = wording.title(ringing(**RICH | {"look_at_novel": 3.2, "look_at_least": 3}))
    assert said.endswith("of the 50 images that look most novel at least 3 are expected to be.")


def test_probabilities_are_said_for_people() -> None:
    assert [wording.chance(p) for p in (0.53, 0.1, 0.02, 0.0004)] == ["53%", "10%", "1 in 50", "1 in 2,500"]


def test_a_story_says_when_the_alarm_rang_and_what_its_rate_is_for() -> None:
    assert wording.simulated(0, 0) == "The alarm rang in the week the new class came; no false alarms before."
    assert wording.simulated(1, 1) == "The alarm rang 1 week after the new class had come; 1 false alarm before."
    assert wording.simulated(3, 2).startswith("The alarm rang 3 weeks after")
    assert wording.simulated(None, 0).startswith("No alarm rang after the new class had come")
    said = wording.looks(0.05, 8, 52)
    assert "is for 8 weeks here; in weekly runs it is for 52, and their alarm takes 6.5 times the evidence" in said
    assert wording.looks(0.05, 52, 52).endswith("as in weekly runs.")


@pytest.mark.parametrize("metrics", [ringing(**RICH), ringing(flagged=14, **RICH), week(**QUIET)])
def test_a_summary_says_how_many_once(metrics: Metrics) -> None:
    assert " ".join(wording.summary(metrics)).lower().count("of the 50 images that look most novel") == 1


def test_a_batch_that_chance_seldom_makes_is_not_called_quiet_though_no_alarm_rings() -> None:
    for unusual in (week(alarm_p=0.004), week(alarm_p=0.4, weeks=4, weeks_p=0.005)):
        assert not wording.quiet(unusual)
        assert "may be new: look at" in wording.title(unusual)
        assert "No alarm yet" in wording.alarm(unusual)
    assert wording.quiet(week(alarm_p=0.02))
    assert wording.title(week(alarm_p=0.02)).startswith("No sign of a new class")
