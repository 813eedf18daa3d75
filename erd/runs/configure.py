"""What a run is done with: params.yaml, then what was said, then the scenario's row, then the recipe of the net.

    settings = settings_for(batch="2026-W46", overrides=["finetune.epochs=3"])

Here, above nets, runners and distances, a setting that names one of them is checked, before anything starts.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from erd.base import files
from erd.base.errors import UserError
from erd.nets import encoders, registry
from erd.runs.folder import RunDir
from erd.settings.families import get
from erd.settings.scenarios import OWN_NET, OWN_SETTINGS, SIZES, Scenario
from erd.settings.schema import HERE, NO_ENCODER, Settings, load, of_json
from erd.statistics.disagreement import check_distance
from erd.training import runners

FOLDS = 4  # of the batch where there is an encoder: a new class keeps three quarters of its images in each fit
HEAD = "head"  # the net on an encoder's features, where none is named
WITHOUT_ENCODER = 32  # pixels of images from files, where no encoder wants more


def resolve(settings: Settings) -> Settings:
    """The settings with every `null` decided, as far as that is possible before the images are seen.

    What the user set stays; then comes the scenario's row; then the recipe of the net.
    """
    scenario = get(settings.data.scenario)
    encoder, net = _encoder_and_net(settings, scenario)
    recipes = registry.get(net).recipes
    runners.check(settings.run)
    check_distance(settings.score.distance)
    own_settings = scenario.settings if net == scenario.net else {}
    if scenario.name == "own" and net == OWN_NET:
        own_settings = OWN_SETTINGS
    decided: dict[str, Any] = {
        "model.encoder": encoder or NO_ENCODER,
        "model.net": net,
        "finetune.members": scenario.members,
        "score.join": "neighbours" if encoder else "none",
        "detect.calibration": "mixed",
        "detect.folds": FOLDS if encoder else 2,
        "data.image_size": scenario.image_size,
        "data.largest": _largest(settings, encoder, net),
    }
    decided |= {f"data.{size}": getattr(scenario, size) for size in SIZES}
    for block in ("pretrain", "finetune"):
        schedule = "pretrain" if settings.finetune.init == "random" else block
        for name, value in getattr(recipes, schedule).items():
            decided[f"{block}.{name}"] = value
            if f"{schedule}.{name}" in own_settings:
                decided[f"{block}.{name}"] = own_settings[f"{schedule}.{name}"]
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
    named = settings.data.batch not in (None, settings.scenario_name)
    if weekly and named and not settings.data.novel:  # with novel classes it is a trial
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


def _largest(settings: Settings, encoder: str | None, net: str) -> int:
    """As large as the net wants them that looks at the images."""
    if encoder and settings.model.input_size:
        return settings.model.input_size
    looking = encoder or (net.removeprefix(registry.PREFIX) if registry.get(net).pretrained else None)
    return encoders.own_size(looking) if looking else WITHOUT_ENCODER


def _encoder_and_net(settings: Settings, scenario: Scenario) -> tuple[str | None, str]:
    """A net that sees images needs no encoder, a head needs one: who names one of the two has chosen both."""
    asked, net = settings.model.encoder, settings.model.net
    if asked is None and net is None:
        net = scenario.net if scenario.encoder is None else None
        asked = scenario.encoder
    on_features = net is not None and registry.get(net).on_features
    if asked in (None, NO_ENCODER):
        encoder = encoders.DEFAULT if on_features and asked is None else None
    else:
        encoders.check_name(asked)
        encoder = asked
    if net is None:
        net = HEAD if encoder else scenario.net if scenario.encoder is None else OWN_NET
    elif bool(encoder) != on_features:
        one = "head" if encoder else "resnet20"
        what = f"sees features, and there is no encoder: set model.encoder={encoders.DEFAULT}"
        if encoder:
            what = f"sees images, and model.encoder={encoder} makes features of them: set model.encoder=none"
        raise UserError(f"the net '{net}' {what}, or model.net={one}")
    if settings.score.join == "neighbours" and not encoder:
        raise UserError("score.join=neighbours needs the features of an encoder: set model.encoder, or score.join=none")
    return encoder, net


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
    settings = load(path, overrides).override({k: v for k, v in said.items() if v is not None}, "the command line")
    _check_inbox(settings)
    return resolve(settings)


def _check_inbox(settings: Settings) -> None:
    """A scenario with images of its own must not be run under the name of a week whose images are waiting."""
    data = settings.data
    waiting = f"inbox/{data.batch}" if data.batch and Path("inbox", data.batch).exists() else None
    if (inbox := data.inbox or waiting) and data.scenario != "own":
        raise UserError(
            f"{inbox} is an inbox for your own images, and the scenario {data.scenario} brings images of its own: set "
            "the scenario to own, or begin with `erd init --labeled DIR`"
        )


def keep(settings: Settings, run: RunDir) -> None:
    """Write settings.json: all decided, and nothing of this machine."""
    files.save_json(run.settings, _kept(settings))


@contextmanager
def kept_again(settings: Settings, run: RunDir) -> Iterator[None]:
    """The same, while a stage is done with other settings than those before it; the old ones stay where it fails."""
    before = run.settings.read_bytes() if run.settings.is_file() else None
    if before is None or files.load_json_if_whole(run.settings) == _kept(settings):
        yield
        return
    keep(settings, run)
    try:
        yield
    except BaseException:
        with files.replacing(run.settings) as draft:
            draft.write_bytes(before)
        raise


def read(run: RunDir) -> Settings:
    """What was decided for a run."""
    if not run.settings.exists():
        raise UserError(f"{run.settings} is missing: the folder holds no run")
    return of_json(files.load_json(run.settings), str(run.settings))


def _kept(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(exclude=HERE)
