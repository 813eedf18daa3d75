"""Small runs on the bundled digits, stage by stage, as the command line does them."""

from pathlib import Path

from erd.runs import configure
from erd.runs.folder import RunDir
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


def whole(root: Path, *more: str) -> RunDir:
    """A finished run in `root`."""
    run = RunDir(root)
    do(small(*more), run)
    return run
