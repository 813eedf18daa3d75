"""There is one verdict on a batch's alarm, the ledger's: by the level of its first look, whatever is set since."""

from pathlib import Path

import chains

from erd.runs import alarm_ledger
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Metrics


def test_a_rerun_with_other_looks_says_what_the_ledger_says(tmp_path: Path) -> None:
    run = chains.whole(tmp_path / "runs" / "2026-W46", "alarm.looks=1", "finetune.epochs=8")
    first = Decided.read(run).verdict
    assert first.alarm, "otherwise the test shows nothing"
    assert alarm_ledger.enter(run.alarms, "digits-near", run.batch_name, first.alarm_p, first.alarm_level).rang

    # Today's level is below the smallest p-value there can be but one: by it the alarm would not ring.
    later = chains.small("alarm.rate=0.00005", "alarm.looks=1", "finetune.epochs=8")
    assert alarm_ledger.level(later.alarm) <= first.alarm_p
    chains.do(later.override({"alarm.rate": 0.00005}), run, "score", "evaluate")
    again = Metrics.read(run).verdict
    assert (again.alarm, again.alarm_level) == (True, first.alarm_level)
    assert again.novel_share is not None, "and all that goes with it"
    look = alarm_ledger.enter(run.alarms, "digits-near", run.batch_name, again.alarm_p, again.alarm_level)
    assert look.rang == again.alarm


def test_a_batch_without_a_look_is_judged_by_the_settings(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "2026-W46")
    settings = chains.small("alarm.looks=10")
    chains.do(settings, run, "ingest", "pretrain", "finetune", "score")
    assert Decided.read(run).verdict.alarm_level == 0.005
