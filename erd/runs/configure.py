"""What a run is done with: params.yaml, then what was said, then the scenario's row, then the recipe of the net.

    settings = settings_for(batch="2026-W46", overrides=["finetune.epochs=3"])

Here, above nets, runners and distances, a setting that names one of them is checked, before anything starts.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from erd.base import files
from erd.base.errors import UserError
from erd.nets import registry
from erd.runs.folder import RunDir
from erd.settings.families import get
from erd.settings.scenarios import SIZES
from erd.settings.schema import HERE, Settings, load, of_json
from erd.statistics.disagreement import check_distance
from erd.training import runners


def resolve(settings: Settings) -> Settings:
    """The settings with every `null` decided, as far as that is possible before the images are seen.

    What the user set stays; then comes the scenario's row; then the recipe of the net.
    """
    scenario = get(settings.data.scenario)
    net = settings.model.net or scenario.net
    recipes = registry.get(net).recipes
    runners.check(settings.run)
    check_distance(settings.score.distance)
    same_net = net == scenario.net
    decided: dict[str, Any] = {"model.net": net, "finetune.members": scenario.members,
                               "data.image_size": scenario.image_size}  # fmt: skip
    decided |= {f"data.{size}": getattr(scenario, size) for size in SIZES}
    for block in ("pretrain", "finetune"):
        schedule = "pretrain" if settings.finetune.init == "random" else block
        for name, value in getattr(recipes, schedule).items():
            decided[f"{block}.{name}"] = value
            if same_net and f"{schedule}.{name}" in scenario.settings:
                decided[f"{block}.{name}"] = scenario.settings[f"{schedule}.{name}"]
            if schedule != block:  # ERD++ follows the pretraining schedule as the user set it
                asked = getattr(settings.pretrain, name)
                decided[f"{block}.{name}"] = asked if asked is not None else decided[f"{block}.{name}"]
    average = "softmax-average" if recipes.small else "weight-average"
    # ERD++ begins with random weights, whose first epochs are worth nothing: no average over all of them.
    from_scratch = settings.finetune.init == "random"
    decided["finetune.keep"] = "best" if from_scratch and average == "weight-average" else average
    if settings.finetune.labels is not None:
        decided["finetune.members"] = len(settings.finetune.labels)
    if settings.detect.calibration == "paper":
        decided["data.calibration"] = 0  # the paper has none: its threshold comes from V
    weekly = scenario.name == "own" and settings.data.source in (None, "library")
    if weekly and settings.data.batch and not settings.data.novel:  # with novel classes it is a trial
        decided["data.inbox"] = f"inbox/{settings.data.batch}"
    decided["pretrain.balance"] = scenario.name == "own"  # public sets have as many of each
    decided["pretrain.threads"] = recipes.threads
    asked = settings.model_dump()
    open_ones = {}
    for key, value in decided.items():
        block, _, name = key.partition(".")
        if asked[block][name] is None:
            open_ones[key] = value
    return settings.override(open_ones)


def settings_for(
    *,
    params: Path | None = None,
    overrides: Iterable[str] = (),
    scenario: str | None = None,
    batch: str | None = None,
    inbox: str | None = None,
    data: str | None = None,
    runner: str | None = None,
) -> Settings:
    """What a command or a flow runs with: params.yaml of the workspace, then what was said, all decided."""
    path = params or (Path("params.yaml") if Path("params.yaml").exists() else None)
    said = {
        "data.scenario": scenario,
        "data.batch": batch,
        "data.inbox": inbox,
        "data.root": data,
        "run.runner": runner,
    }
    settings = load(path, overrides)
    return resolve(settings.override({k: v for k, v in said.items() if v is not None}, "the command line"))


def keep(settings: Settings, run: RunDir) -> None:
    """Write settings.json: all decided, and nothing of this machine."""
    files.save_json(run.settings, _kept(settings))


def keep_again(settings: Settings, run: RunDir) -> None:
    """The same, where a stage is done with other settings than those before it."""
    if run.settings.exists() and files.load_json_if_whole(run.settings) != _kept(settings):
        keep(settings, run)


def read(run: RunDir) -> Settings:
    """What was decided for a run."""
    if not run.settings.exists():
        raise UserError(f"{run.settings} is missing: the folder holds no run")
    return of_json(files.load_json(run.settings), str(run.settings))


def _kept(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(exclude=HERE)
