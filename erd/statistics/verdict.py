"""What is decided of a batch as a whole; erd.statistics.decisions makes it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What there is one of for the batch."""

    promised: bool  # the stated rates hold for it
    flagged: int
    wrong_flags_at_most: int  # with the confidence of the settings
    fdr_target: float | None  # of these three the one that decides what is flagged
    fpr_target: float | None
    catch_target: float | None
    alarm: bool
    alarm_p: float
    alarm_level: float
    novel_share: float | None  # here and below: None where the alarm does not ring
    novel_share_storey: float | None
    novel_share_low: float | None
    novel_share_high: float | None
    novel_at_least: int | None
