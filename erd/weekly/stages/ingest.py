"""ingest: images → S, V, C (labeled), U (batch), T (holdout). Always done anew: its inputs are the user's own files."""

from pathlib import Path

from erd.base.errors import UserError
from erd.data import collect, packed
from erd.nets import encoders, registry, weights_file
from erd.runs import alarm_ledger, configure
from erd.runs.folder import RunDir
from erd.runs.stage_records import Done
from erd.settings.schema import Settings
from erd.training import devices
from erd.training.members import draw_labels
from erd.weekly import sealed
from erd.weekly.stages.base import Stage, one


def ingest(settings: Settings, run: RunDir) -> Done:
    """Read the scenario's images, or the inbox, and pack them."""
    # What cannot work stops before anything is written.
    sealed.check(settings, run)
    _check_folder(settings, run)
    devices.device(settings.run)
    weights = weights_file(settings.model.weights)
    net = settings.model.net or ""
    if looking := settings.encoder or (net.removeprefix(registry.PREFIX) if registry.get(net).pretrained else None):
        asked = settings.model.input_size
        encoders.check(looking, weights=weights, size=asked, download=settings.data.download)
    alarm_ledger.level(settings.alarm)
    collected = collect.collect(settings)
    draw_labels(settings.finetune, collected.classes, settings.seed)
    configure.keep(settings, run)
    return Done("ingest", (*collect.write(collected, run), run.settings))


def _check_folder(settings: Settings, run: RunDir) -> None:
    """A folder holds one batch: results of two would be mixed, and shown as those of one."""
    if not run.settings.exists():
        return
    there, wanted = configure.read(run).data, settings.data
    places = [Path(data.inbox).resolve() if data.inbox else None for data in (there, wanted)]
    if there.scenario != wanted.scenario or places[0] != places[1]:
        what = f"{there.scenario}{f' with the inbox {there.inbox}' if there.inbox else ''}"
        raise UserError(
            f"{run.root} holds another batch, of {what}: give this one another name with --batch, or move the old one "
            "away with --replace"
        )


def _writes(run: RunDir) -> list[Path]:
    sets = [run.labeled, run.batch, run.holdout]
    return [*(path for data in sets for path in (data, packed.manifest(data))), run.ingested, run.quarantine,
            run.settings]  # fmt: skip


STAGE = Stage(
    "ingest",
    "images → S, V, C (labeled), U (batch), T (holdout); settings.json. Own images: add their folders as deps",
    # All of them: settings.json says what the whole run was made with.
    ("seed", "data", "model", "pretrain", "finetune", "score", "detect", "alarm", "review", "track", "registry"),
    lambda run: [],
    _writes,
    one(ingest),
)
