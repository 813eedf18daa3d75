"""Small runs on the bundled digits, stage by stage, as the command line does them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from erd.integrations import dvc
from erd.integrations.mlflow_runs import Tracker
from erd.runs import alarm_ledger, configure
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.runs.stage_records import Done
from erd.settings import schema
from erd.settings.schema import Settings
from erd.weekly import chain

SMALL = ("finetune.members=3", "pretrain.epochs=5", "finetune.epochs=4", "run.runner=serial")


def small(*more: str) -> Settings:
    return configure.resolve(schema.load(None, [*SMALL, *more]))


def do(settings: Settings, run: RunDir, *stages: str) -> list[Done]:
    """The stages by name; all of them where none is named."""
    names = stages or tuple(chain.BY_NAME)
    return [done for name in names for done in chain.run(chain.BY_NAME[name], settings, run)]


class Tracked(NamedTuple):
    run: RunDir
    tracker: Tracker
    run_id: str  # in MLflow
    hashes: dict[str, str]


@contextmanager
def tracked(settings: Settings) -> Iterator[Tracked]:
    """What the flow does, without Prefect. In the block is what it does before the run ends in MLflow."""
    run = RunDir.of(settings)
    tracker = Tracker(run)
    run_id = tracker.begin(settings)
    assert run_id is not None
    for stage in chain.CHAIN:
        chain.run(stage, settings, run)
    found = Metrics.read(run).verdict
    alarm_ledger.enter(run.alarms, settings.stream, run.batch_name, found.alarm_p, found.alarm_level, found.weeks_p)
    hashes = dvc.save(settings, run)
    yield Tracked(run, tracker, run_id, hashes)
    assert tracker.end("FINISHED", hashes=hashes)


def whole(root: Path, *more: str) -> RunDir:
    """A finished run in `root`."""
    run = RunDir(root)
    do(small(*more), run)
    return run
