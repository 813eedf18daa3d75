"""What can be wrong with a workspace, for `erd doctor`: each check yields sentences that name the trouble and the cure.

    problems()       # what stops or spoils a run
    notes()          # what works, and should be known

A new check is a function and a line of CHECKS. They only look; what a run would stop with is said in the run's words.
"""

import functools
import itertools
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from zoneinfo import ZoneInfo

from erd.base.errors import UserError
from erd.data import collect, library, packed
from erd.data.dealing import own_sizes
from erd.integrations import dvc, prefect_server, status
from erd.nets import encoders, weights_file
from erd.runs import alarm_ledger, configure, results, stage_records
from erd.runs.answers import Answers
from erd.runs.folder import RUNS, RunDir
from erd.runs.results import Decided, Ingested, Metrics
from erd.settings.scenarios import hidden
from erd.settings.schema import Settings
from erd.statistics.decisions import FOLD_RATE
from erd.training import devices, runners

TENTH = 0.1  # share of a batch that should be possible to flag
TOLD = 3  # of the same kind of trouble; then how many more there are
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)  # an earlier clock is wrong
PORTS = {"Prefect": ("PREFECT_PORT", prefect_server.PORT, "/api/health"), "MLflow": ("MLFLOW_PORT", "5000", "/health")}


def problems() -> list[str]:
    """Each once."""
    found = [sentence for check in CHECKS for sentence in _sentences(check)]
    try:
        settings = configure.settings_for()
    except UserError as error:
        return [*found, str(error)]
    found += [sentence for check in CHECKS_OF_SETTINGS for sentence in _sentences(functools.partial(check, settings))]
    return list(dict.fromkeys(found))


def notes() -> list[str]:
    return _sentences(_one_disk)


def _sentences(check: Callable[[], Iterator[str]]) -> list[str]:
    """Also where the check itself meets the trouble."""
    found: list[str] = []
    try:
        found.extend(check())
    except UserError as error:
        found.append(str(error))
    return found


# -------------------------------------------------------------------------------------------------------- what is asked


def _device(settings: Settings) -> Iterator[str]:
    """A GPU that is asked for and is not there."""
    devices.device(settings.run)
    yield from ()


def _runner(settings: Settings) -> Iterator[str]:
    """A cluster that does not answer, or a node of it that cannot do what this machine does."""
    _ = runners.of(settings.run, jobs=1).count
    yield from ()


def _weights(settings: Settings) -> Iterator[str]:
    """A file of weights that is not there."""
    weights, size = weights_file(settings.model.weights), settings.model.input_size
    if settings.encoder:
        encoders.check(settings.encoder, weights=weights, size=size, download=settings.data.download)
    yield from ()


# ----------------------------------------------------------------------------------------------------------- the images


def _from_library(settings: Settings) -> bool:
    return settings.data.scenario == "own" and settings.data.source in (None, "library")


def _labelled(settings: Settings) -> Iterator[str]:
    """No library, or one that cannot be read; too few images of a class, or to compare a batch with."""
    place = collect.library_of(settings)
    if not _from_library(settings) and not library.exists(place):
        return
    whole = library.read(place)
    if not _from_library(settings):  # how a demo compares says nothing of them
        return
    yield from _few(
        f"class '{name}' has {count} labelled images, fewer than {settings.data.least} (data.least): it is not learned "
        "yet, and its images count as new; label more of them"
        for name, count in library.waiting(whole.table, settings.data.least).items()
    )
    rate = settings.detect.fdr * (FOLD_RATE if settings.detect.calibration == "crossfit" else 1)
    compared = _compared(settings, len(whole))
    share = 1 / (rate * (compared + 1))  # see `flags.flags_needed`
    if settings.detect.rule == "fdr" and share > TENTH:
        needed = next(n for n in itertools.count(len(whole), 10) if rate * (_compared(settings, n) + 1) >= 1 / TENTH)
        less = f"a new class of less than about {share:.0%} of a batch cannot" if share < 1 else "nothing can"
        yield (
            f"{len(whole):,} labelled images leave {compared:,} to compare a batch with: {less} be flagged at "
            f"detect.fdr={settings.detect.fdr:g}; for a tenth of a batch have {needed:,}, until then go by the images "
            "that are worth a look"
        )


def _compared(settings: Settings, labeled: int) -> int:
    """How many of the labelled images the batch is compared with."""
    encoded = settings.encoder is not None
    size = own_sizes(labeled, 0, 0, inbox=True, encoded=encoded)["calibration"]
    return size if settings.detect.calibration == "crossfit" else hidden(size, encoded=encoded)


def _same_size(settings: Settings) -> Iterator[str]:
    """Images of the library and of a batch that cannot be put together."""
    place = collect.library_of(settings)
    if not library.exists(place):
        return
    side, asked = library.read(place).images.shape[1], settings.data.image_size
    if _from_library(settings) and asked not in (None, side):
        yield (
            f"the labelled images in {place} are {side} pixels wide and data.image_size is {asked}: take them in again "
            "with `erd ingest --labeled DIR`, or set data.image_size back"
        )
    waiting = {one["batch"] for one in status.to_incorporate(status.run_folders())}
    for run in map(RunDir, (RUNS / name for name in sorted(waiting))):
        if (other := packed.read(run.batch).images.shape[1]) != side:
            yield (
                f"the images of {run.root} are {other} pixels wide and those in {place} {side}: what was said of them "
                f"cannot be incorporated; run the batch again with `erd run --batch {run.batch_name}`"
            )


# ---------------------------------------------------------------------------------------------------------- the records


def _records() -> Iterator[str]:
    """Results, answers and the ledger of alarms that cannot be read."""
    yield from _sentences(lambda: iter(alarm_ledger.before(RUNS / "alarms.json", "", "")[:0]))
    yield from _few(text for run in status.run_folders() for text in _sentences(functools.partial(_read, run)))


def _read(run: RunDir) -> Iterator[str]:
    if run.settings.exists():
        configure.read(run)
    if run.ingested.exists():
        Ingested.read(run)
    if run.metrics.exists():
        Metrics.read(run)
    if run.decision.exists():
        Decided.read(run)
    if run.scores.exists():
        results.scores(run)
    Answers(run.answers).current()
    yield from ()


# --------------------------------------------------------------------------------------------------- servers and clocks


def _clock() -> Iterator[str]:
    """A clock that is wrong, or a time zone that nobody knows: weeks would get wrong names."""
    zone = os.environ.get("ERD_TIMEZONE") or "UTC"
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        yield f"ERD_TIMEZONE is '{zone}', which is no time zone: set it to one such as Europe/Zurich, or unset it"
    now = datetime.now(UTC)
    records = (stage_records.read(RunDir(path), "score") for path in RUNS.glob("*"))
    last = max((datetime.fromisoformat(record.finished) for record in records if record), default=EARLIEST)
    if last > now + timedelta(hours=1) or now < EARLIEST:
        then = f", and results in {RUNS} are of {last:%Y-%m-%d %H:%M}" if last > EARLIEST else ""
        yield f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC{then}: set the clock, weeks are named after it"


def _ports() -> Iterator[str]:
    """Ports that `make up` wants and another program has."""
    for name, (variable, usual, health) in PORTS.items():
        asked = os.environ.get(variable) or usual
        if not (asked.isascii() and asked.isdigit() and 0 < int(asked[:6]) < 1 << 16):
            yield f"{variable} is '{asked}', and a port is a number from 1 to 65535: correct it or unset it"
            continue
        port = int(asked)
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)):
                continue
        try:
            with urlopen(f"http://127.0.0.1:{port}{health}", timeout=2) as answer:
                ours = answer.read(20).strip() in (b"true", b"OK")
        except (URLError, OSError, ValueError):
            ours = False
        if not ours:
            yield (
                f"port {port}, which `make up` wants for {name}, is taken by another program: choose another one with "
                f"`make up {variable}={port + 1}`"
            )


def _schedule(settings: Settings) -> Iterator[str]:
    """A Prefect server that runs nothing of this folder, or a demo, or has nobody to do it."""
    server = prefect_server.ask()
    if server is None or not (prefect_server.named() or server.deployments):
        return  # that a named one does not answer is told with the other servers
    weekly = next((one for one in server.deployments if one.name == "weekly"), None)
    where = server.address.removesuffix("/api")
    if weekly is None or not weekly.schedules:
        of = f" (it has one of {server.elsewhere[0]})" if weekly is None and server.elsewhere else ""
        yield f"Prefect at {where} has no schedule for this folder{of}: `prefect deploy --all` here makes it known"
        return
    if not weekly.worker:
        yield f"nobody takes the runs that Prefect at {where} schedules: `prefect worker start --pool local`"
    scenario = weekly.parameters.get("scenario") or settings.data.scenario
    if scenario != "own" and not library.exists(collect.library_of(settings)):
        yield (
            f"the schedule runs the demo {scenario} every week, not your images: take some in with `erd ingest "
            "--labeled DIR` and set data.scenario: own in params.yaml"
        )
    zone = os.environ.get("ERD_TIMEZONE")
    if zone and weekly.timezone not in (None, zone):
        yield f"the schedule goes by {weekly.timezone} and ERD_TIMEZONE is {zone}: `prefect deploy --all` takes it over"


def _remote() -> Iterator[str]:
    """A remote of DVC that is a folder, and is not there."""
    there = dvc.remote()
    if there is not None and "://" not in there.url and not Path(there.url).is_dir():
        yield f"DVC's remote {there.url} is not there: mount it, or `dvc remote modify {there.name} url PLACE`"


def _one_disk() -> Iterator[str]:
    if dvc.is_repo() and dvc.remote() is None:
        yield "the data are on this disk alone: `dvc remote add -d storage PLACE` names a second place"


def _few(found: Iterable[str]) -> list[str]:
    every = list(found)
    more = [f"and {len(every) - TOLD} more of that kind"] if len(every) > TOLD else []
    return [*every[:TOLD], *more]


CHECKS: tuple[Callable[[], Iterator[str]], ...] = (_records, _clock, _ports, _remote)
CHECKS_OF_SETTINGS: tuple[Callable[[Settings], Iterator[str]], ...] = (_device, _runner, _weights, _labelled,
                                                                      _same_size, _schedule)  # fmt: skip
