"""The looks taken at a stream of batches, week by week, and at which p-value the alarm of each rings.

Every look gets the same level, rate / looks. Then in any `looks` looks in a row, so in every year of weekly ones
whenever it is counted from, the probability of a false alarm is at most `rate`, for ever: nothing is used up, and no
week is harder than another. The plain division (Bonferroni) holds however the weeks depend on each other, and they do:
they share calibration images. Šidák's 2% larger levels are for independent looks only.

Where earlier batches are remembered (`data.window`) there are two tests a look, of this batch alone and of the last
batches together, and each has half of the level. A rare class that no week shows is found by the second. Weeks that are
tested together share images from look to look, which the plain division allows for.

A batch keeps the level of its first look, and every verdict on it is by that level, also when the settings have changed
since: a rerun is no new look. (Rerunning with other seeds until it rings would be one, which no ledger can see.)

What experts find in the random audit of a batch is evidence of another kind (erd/statistics/audit.py). It rings too,
and costs the levels nothing: they bound alarms by chance, and an expert's word is none.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from erd.base import files
from erd.base.errors import RunError, UserError, why
from erd.base.locks import held
from erd.base.records import made
from erd.settings.schema import Alarm
from erd.statistics.audit import Audit
from erd.statistics.novelty_test import DRAWS

Streams = dict[str, dict[str, dict[str, Any]]]  # stream → batch → level, p, rang, weeks_p, audit


@dataclass(frozen=True)
class Entry:
    """What the ledger has of a batch."""

    level: float
    rang: bool
    p: float | None = None
    weeks_p: float | None = None
    audit: Audit | None = None


class Look(NamedTuple):
    rang: bool
    first: bool  # it did not ring before for this batch; with an audit: not by an audit


def level(alarm: Alarm, tests: int = 1) -> float:
    """The p-value at which the alarm of a new batch rings, where a look has so many tests."""
    rate, looks = alarm.rate / tests, alarm.looks
    if rate / looks < 1 / (DRAWS + 1):
        raise UserError(
            f"with a false-alarm rate of {alarm.rate} over {looks} looks the alarm could never ring: its smallest "
            f"p-value is {1 / (DRAWS + 1)}; set alarm.rate to {tests * looks / (DRAWS + 1):.2g} or more"
        )
    return rate / looks


def level_of(ledger: Path, stream: str, batch: str, alarm: Alarm, tests: int = 1) -> float:
    """The p-value at which the alarm of this batch rings: that of its first look, if there was one."""
    entry = _read(ledger).get(stream, {}).get(batch)
    return level(alarm, tests) if entry is None else entry["level"]


def before(ledger: Path, stream: str, batch: str) -> list[str]:
    """The batches of the stream that were looked at before this one, the earliest first."""
    names = list(_read(ledger).get(stream, {}))
    return names[: names.index(batch)] if batch in names else names


def enter(
    ledger: Path, stream: str, batch: str, p: float, at: float, weeks_p: float | None = None, audit: Audit | None = None
) -> Look:
    """Enter a look, by a level that `level_of` gave; one that was entered before takes the new p-values. `weeks_p` is
    that of the last batches together. `audit` is what experts found since; without it what they found before stays."""
    with held(ledger.with_name(f".{ledger.name}.lock")):  # the ledger itself is replaced when written
        streams = _read(ledger)
        entries = streams.setdefault(stream, {})
        known = entries.get(batch, {"level": at, "rang": False})
        before = Audit(**known["audit"]) if "audit" in known else None
        found = before if audit is None else audit
        by_audit = found is not None and found.rings
        rings = by_audit or min(p, 1.0 if weeks_p is None else weeks_p) <= known["level"]
        entries[batch] = {"level": known["level"], "p": p, "rang": rings}
        if weeks_p is not None:
            entries[batch]["weeks_p"] = weeks_p
        if found is not None and found.images:
            entries[batch]["audit"] = asdict(found)
        files.save_json(ledger, streams)
    if audit is not None:
        return Look(rings, by_audit and not (before is not None and before.rings))
    return Look(rings, rings and not known["rang"])


def _read(ledger: Path) -> Streams:
    """A ledger that cannot be read is an error and not an empty one: it would forget levels that were spent."""
    if not ledger.exists():
        return {}
    try:
        found = files.load_json(ledger)
        for entry in (entry for stream in found.values() for entry in stream.values()):
            made(Entry, entry, ledger)
        return found
    except (RunError, AttributeError) as error:
        raise RunError(
            f"{ledger} cannot be read ({why(error.__cause__ or error)}); restore it, or delete it to begin a new one"
        ) from error
