"""What is decided of a batch as a whole; erd.statistics.decisions makes it."""

from dataclasses import dataclass

# p-value from which on a batch is told to be unusual, though no alarm rings: that keeps a rate over a year, this does
# not. Once in a hundred quiet weeks for each test.
NOTICED = 0.01


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
    # The second tier: the `review.budget` most novel images, whether flagged or not.
    look_at: int = 0  # so many
    look_at_novel: float | None = None  # so many of them are expected to be novel; None where nothing is promised
    look_at_least: int = 0  # so many of them are novel at least, with the confidence of the settings
    last_good: int = 0  # of the most novel images so many; the last of them is as likely novel as not (boundary FDR)
    # This and earlier batches together (`data.window`), at the same level as the alarm of this batch alone.
    weeks: int = 1  # so many
    weeks_p: float | None = None  # p-value of 'nothing is novel in all of them'; None where this is the only one
    weeks_alarm: bool = False
    # What else may look novel, in words; None where there is no sign of it.
    mix_changed: str | None = None  # known classes come in other proportions than among the labelled images
    bulk_moved: str | None = None  # nearly all images have changed a little, and not a group of them

    @property
    def rings(self) -> bool:
        """Either alarm: of this batch alone, or of all weeks together."""
        return self.alarm or self.weeks_alarm

    @property
    def by_chance(self) -> float:
        """How often known images alone are as unusual, alone or with the weeks before: the smaller of the p-values."""
        return self.alarm_p if self.weeks_p is None else min(self.alarm_p, self.weeks_p)

    @property
    def unusual(self) -> bool:
        """No alarm, and yet a sign."""
        return self.promised and not self.rings and self.by_chance <= NOTICED

    @property
    def worth_looking(self) -> bool:
        """Nobody may be told that there is nothing to do."""
        return self.rings or self.unusual or self.flagged > 0 or self.look_at_least > 0
