"""The schema of params.yaml: every knob, its type and its default.

    settings = load(Path("params.yaml"), ["finetune.epochs=3"])

A value of `null` means "as the scenario says" (see `erd.runs.configure.resolve`). An unknown key or a wrong type is one
sentence that names the key and the nearest known one.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from erd.base.errors import HALF_LETTER, UserError, nearest

MANY = 10**9  # more images, epochs or weeks than anybody has; numpy and torch take no number of any size
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=0, le=MANY)]
Positive = Annotated[int, Field(ge=1, le=MANY)]
Pixels = Annotated[int, Field(ge=8, le=4096)]  # a side
Processes = Annotated[int, Field(ge=1, le=1024)]  # or threads
Rate = Annotated[float, Field(gt=0)]
NO_ENCODER = "none"  # `model.encoder` for nets that see the images themselves, where the scenario has one


LONGEST = 200_000  # characters of a settings file; ours has 9,000
ALIASES = 20  # *name in a file: a few more, each of several others, can stand for more values than fit into memory


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-3 as a string; people who write learning rates mean a number."""

    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > ALIASES:
                raise yaml.YAMLError(f"more than {ALIASES} aliases")
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)$"), list("-+0123456789.")
)


class Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Data(Block):
    scenario: str = "digits-near"
    batch: Annotated[str, Field(pattern=r"^[\w][\w.-]*$", max_length=100)] | None = None
    inbox: str | None = None
    settle: Count = 60
    source: str | None = None
    path: str | None = None
    known: list[str | int] | None = None
    novel: list[str | int] | None = None
    least: Positive = 30
    window: Positive = 4
    root: str | None = None
    download: bool = False
    image_size: Pixels | None = None
    largest: Pixels | None = None
    train: Count | None = None
    val: Count | None = None
    calibration: Count | None = None
    batch_known: Count | None = None
    batch_novel: Count | None = None
    holdout_known: Count | None = None
    holdout_novel: Count | None = None


class Model(Block):
    encoder: str | None = None  # a name of timm; "none" for no encoder
    input_size: Annotated[int, Field(ge=32, le=4096)] | None = None
    net: str | None = None
    weights: str | None = None


class Training(Block):
    """What pretraining and fine-tuning have in common."""

    epochs: Positive | None = None
    batch_size: Positive | None = None
    optimizer: Literal["adam", "sgd"] | None = None
    lr: Rate | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    milestones: list[Positive] | None = None
    gamma: Rate | None = None
    augment: bool | None = None
    monitor: Literal["accuracy", "loss"] = "accuracy"
    patience: Count | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    graphs: bool = False


class Pretrain(Training):
    balance: bool | None = None
    threads: Processes | None = None


class Finetune(Training):
    members: Annotated[int, Field(ge=-MANY, le=MANY)] | None = None
    labels: list[str | int] | None = None
    init: Literal["pretrained", "random"] = "pretrained"
    keep: Literal["best", "last", "softmax-average", "weight-average", "ema"] | None = None
    ema_steps: Positive = 300


class Score(Block):
    distance: str = "tv"  # a name of erd.statistics.disagreement.DISTANCES
    join: Literal["none", "neighbours"] | None = None


class Detect(Block):
    calibration: Literal["mixed", "crossfit", "holdout", "paper"] | None = None
    folds: Annotated[int, Field(ge=2, le=1000)] | None = None
    rule: Literal["fdr", "fpr", "catch"] = "fdr"
    fdr: Share = 0.05
    adaptive: bool = True
    fpr: Share = 0.05
    catch: Share = 0.9
    novel_at_most: Share = 0.5
    confidence: Share = 0.9


class Alarm(Block):
    rate: Share = 0.05
    looks: Positive = 52
    notify: str | list[str] | None = None


class Review(Block):
    budget: Count = 50
    audit: Count = 30


class Track(Block):
    experiment: str | None = None


class Registry(Block):
    model: str | None = None
    accuracy_drop: Annotated[float, Field(ge=0, le=1)] = 0.01
    auroc_drop: Annotated[float, Field(ge=0, le=1)] = 0.02


class Bench(Block):
    outliers: str | None = None


class Run(Block):
    runner: str = "process"  # a module of erd.training.runners
    workers: Processes | None = None
    threads: Processes = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    ray_address: str | None = None
    ray_cpus: Rate | None = None
    ray_gpus: Annotated[float, Field(ge=0)] | None = None


# Settings that say how and where, not what: with others the results are the same bytes. For `model_dump(exclude=…)`.
HERE: dict[str, Any] = {
    "data": {"root", "download", "settle"},
    "run": {"runner", "workers", "device", "ray_address", "ray_cpus", "ray_gpus"},
    "bench": True,
    "alarm": {"notify"},
}


class Settings(Block):
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    data: Data = Data()
    model: Model = Model()
    pretrain: Pretrain = Pretrain()
    finetune: Finetune = Finetune()
    score: Score = Score()
    detect: Detect = Detect()
    alarm: Alarm = Alarm()
    review: Review = Review()
    track: Track = Track()
    registry: Registry = Registry()
    bench: Bench = Bench()
    run: Run = Run()

    @property
    def encoder(self) -> str | None:
        """The frozen net whose features the nets see in place of images; None where they see the images."""
        return None if self.model.encoder in (None, NO_ENCODER) else self.model.encoder

    @property
    def stream(self) -> str:
        """What batches belong together, week after week: an experiment of MLflow, a ledger of alarms."""
        return self.track.experiment or self.data.scenario

    @property
    def scenario_name(self) -> str:
        """What a batch without a name is called: as its scenario, and the seed where it is not the default."""
        return self.data.scenario + (f"-seed{self.seed}" if self.seed else "")

    def override(self, values: dict[str, Any], where: str = "settings") -> "Settings":
        """A copy with `values` such as {"finetune.epochs": 3}, checked like a file."""
        raw = self.model_dump()
        if self.data.batch == self.scenario_name:
            raw["data"]["batch"] = None  # a name that says no more than null goes with the scenario and the seed
        for key, value in values.items():
            block, _, leaf = key.rpartition(".")
            target = raw.get(block) if block else raw
            if not isinstance(target, dict):
                raise UserError(f"unknown setting '{key}' in {where}: {nearest(key, keys())}")
            target[leaf] = value
        return _validate(raw, where)


def load(path: Path | None = None, overrides: Iterable[str] = ()) -> Settings:
    """The settings of `path` (defaults where it is None or says nothing), then each `a.b=value` in `overrides`."""
    raw: dict[str, Any] = {}
    if path is not None:
        try:
            loaded = _parsed(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read the settings file {path}: {error.strerror}") from error
        except NOT_YAML as error:
            where = getattr(error, "problem_mark", None)
            line = f" at line {where.line + 1}" if where else ""
            raise UserError(f"{path} is not valid YAML{line}; correct it or start again from params.yaml") from error
        if not isinstance(loaded, dict | None):
            raise UserError(f"{path} must hold blocks such as 'finetune:' with keys below, not {loaded!r}")
        # A block whose keys are all commented out means the defaults.
        raw = {key: {} if value is None else value for key, value in (loaded or {}).items()}
    return overridden(_validate(raw, str(path)), overrides)


def overridden(settings: Settings, overrides: Iterable[str]) -> Settings:
    """The settings with each `a.b=value`, as `--set` takes them."""
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, such as finetune.epochs=3{_not(text, text)}")
        try:
            settings = settings.override({key.strip(): _parsed(value)}, "--set")
        except NOT_YAML as error:
            said = f"'{value}'" if _not(key, value) else "this"
            raise UserError(f"--set {key.strip()}: {said} is not a value YAML can read") from error
    return settings


# Beside what is no YAML: numbers of thousands of digits, days that no month has, a thousand brackets in each other.
NOT_YAML = (yaml.YAMLError, ValueError, OverflowError, RecursionError)


def _parsed(text: str) -> Any:
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"longer than {LONGEST:,} characters")
    return yaml.load(text, _Loader)


def of_json(found: Any, where: str) -> Settings:
    """What a settings.json holds, checked like a file of a user's."""
    if not isinstance(found, dict):
        raise UserError(f"{where} holds no settings; run the batch again")
    return _validate(found, where)


def keys(block: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """All settings, dotted: seed, data.scenario, …"""
    for name, field in block.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _validate(raw: dict[str, Any], where: str) -> Settings:
    _check_texts(raw, where)
    try:
        return Settings.model_validate(raw)
    except ValidationError as failure:
        error = failure.errors()[0]
        known = set(keys())
        blocks = {key.partition(".")[0] for key in known if "." in key}
        # pydantic's path goes on into list items and members of a union; the key ends before that
        parts = [str(part) for part in error["loc"]]
        key = ".".join(parts[:2]) if parts[0] in blocks else parts[0]
        if error["type"] in ("extra_forbidden", "invalid_key"):
            raise UserError(f"unknown setting '{key}' in {where}: {nearest(key, known | blocks)}") from None
        value: Any = raw
        for part in key.split("."):
            value = value[part]
        if key in blocks:
            raise UserError(f"'{key}' in {where} is a block with keys below it{_not(key, value)}") from None
        hint = error["msg"].partition("should ")[2]  # after "Input" or "String"
        raise UserError(f"setting '{key}' in {where} should {hint}{_not(key, value)}") from None


def _not(key: str, value: Any) -> str:
    """What was said instead. Never of the alarm: the addresses of people hold passwords."""
    return "" if key.strip().startswith("alarm") else f", not {value!r}"


def _check_texts(raw: dict[str, Any], where: str) -> None:
    """A zero or half a character in a name: no file can be called so, and no table can hold it."""
    for block, values in raw.items():
        for leaf, value in values.items() if isinstance(values, dict) else [("", values)]:
            for text in (block, leaf, *(value if isinstance(value, list) else [value])):
                if isinstance(text, str) and ("\0" in text or HALF_LETTER.search(text)):
                    key = f"{block}.{leaf}" if leaf else block
                    said = f": {value!a}" if _not(key, value) else ""
                    raise UserError(f"setting {key!a} in {where} has a character that no name can have{said}")
