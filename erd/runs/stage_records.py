"""What a stage did: a key of all that went in, and the hashes of what came out.

A stage whose code, inputs, settings and outputs are unchanged is not run again: all of them are checked, so that
changed code, a deleted or an altered file make it run.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from erd.base import code_digest, files
from erd.base.errors import RunError, UserError
from erd.base.records import Moment, made
from erd.runs.folder import RunDir


@dataclass(frozen=True)
class Done:
    """What a stage left behind."""

    stage: str
    outputs: tuple[Path, ...]
    reused: bool = False


@dataclass(frozen=True)
class StageRecord:
    key: str
    outputs: dict[str, str]  # path in the run folder → hash
    started: Moment
    finished: Moment


def read(run: RunDir, stage: str) -> StageRecord | None:
    """None where it was never done, or its record is cut off or of another version."""
    found = files.load_json_if_whole(run.record(stage))
    with suppress(UserError):
        return None if found is None else made(StageRecord, found, run.record(stage))
    return None


def verify(run: RunDir, *paths: Path) -> None:
    """Refuse a file that is no longer as its stage wrote it, by its hash; one that no record names passes."""
    written: dict[str, str] = {}
    for path in run.root.glob("stages/*.json"):
        if (found := read(run, path.stem)) and isinstance(found.outputs, dict):
            written |= found.outputs
    for path in paths:
        name = path.relative_to(run.root).as_posix()
        if name in written and path.exists() and files.sha256(path) != written[name]:
            raise RunError(f"{path} is not as the run wrote it: its hash is another; run the batch again")


def seconds_before(run: RunDir, stage: str) -> float | None:
    """How long a stage took in the latest other run of the workspace; None where there is none."""
    others = (read(RunDir(path), stage) for path in run.root.parent.glob("*") if path != run.root)
    last = max((found for found in others if found), key=lambda found: found.finished, default=None)
    if last is None:
        return None
    return (datetime.fromisoformat(last.finished) - datetime.fromisoformat(last.started)).total_seconds()


def once(
    run: RunDir,
    stage: str,
    code: Sequence[str],
    chosen: Mapping[str, Any],
    inputs: Sequence[Path],
    outputs: Sequence[Path],
    work: Callable[[str], None],
    shared: bool = False,
) -> Done:
    """Do the work unless its record says that the same was done already and the outputs are still the same.

    `code` are the modules that do it, `chosen` the settings that decide what it does. `shared`: or unless another run
    in the workspace did it. Week after week has the same classifier until its images change.
    """
    if absent := [path for path in inputs if not path.exists()]:
        raise UserError(f"{absent[0]} is missing; run the stage that writes it first")
    key = files.digest([stage, chosen, code_digest.of(*code), [files.sha256(path) for path in inputs]])
    before = read(run, stage)
    if before is not None and before.key == key and before.outputs == _hashes(run, outputs):
        return Done(stage, tuple(outputs), reused=True)
    run.record(stage).unlink(missing_ok=True)
    if shared and _taken_over(run, stage, key, outputs):
        return Done(stage, tuple(outputs), reused=True)
    started, clock = datetime.now(UTC), time.monotonic()
    work(key)
    finished = started + timedelta(seconds=time.monotonic() - clock)  # the clock may be set meanwhile
    record = StageRecord(key, _hashes(run, outputs), started.isoformat(), finished.isoformat())
    files.save_json(run.record(stage), asdict(record))
    return Done(stage, tuple(outputs))


def _hashes(run: RunDir, outputs: Sequence[Path]) -> dict[str, str]:
    return {path.relative_to(run.root).as_posix(): files.sha256(path) for path in outputs if path.exists()}


def _taken_over(run: RunDir, stage: str, key: str, outputs: Sequence[Path]) -> bool:
    """Whether another run of the workspace had the same code, inputs and settings; then its files are copied here."""
    names = [path.relative_to(run.root).as_posix() for path in outputs]
    for other in sorted(run.root.parent.glob("*")):
        found = None if other == run.root else read(RunDir(other), stage)
        if found is None or found.key != key:
            continue
        with suppress(OSError, RunError):  # it may be at work there, or gone
            for name in names:
                files.copy(other / name, run.root / name)
            if found.outputs == _hashes(run, outputs):
                files.save_json(run.record(stage), asdict(found))
                return True
    return False
