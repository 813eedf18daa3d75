"""A workspace for one's own images: what `erd init` writes, and the scenario that the schedule runs in it.

new = NewWorkspace.of(Path("watch"), weekly="Mon 03:00", timezone="Europe/Zurich")    # checked, nothing written
new.write()                                                                           # once the library is there
scheduled()                                   # "own" in a workspace, whatever demo params.yaml has
"""

import re
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from erd.base import files
from erd.base.errors import RunError, UserError
from erd.data import library
from erd.data.collect import library_of
from erd.settings.schema import Data, load

OWN = "own"
DEMO = Data().scenario
PARAMS, DEPLOYMENTS, INBOX = Path("params.yaml"), Path("prefect.yaml"), Path("inbox")
SHIPPED = Path(__file__).parents[2]  # the clone, with the files that a workspace begins with
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")  # in cron's order
README = """\
Each week's images go into a folder named after the week, such as inbox/2026-W46/; then `erd run --batch 2026-W46`.
"""


@dataclass(frozen=True)
class NewWorkspace:
    place: Path
    texts: dict[Path, str]

    @classmethod
    def of(cls, place: Path, weekly: str | None = None, timezone: str | None = None) -> "NewWorkspace":
        """Its files as they will be. What is in the folder already is never overwritten, but for the demo's name."""
        params, deployments = place / PARAMS, place / DEPLOYMENTS
        if library.exists(place / library.PLACE):
            raise UserError(
                f"{place / library.PLACE} has labelled images: a workspace is here already, and stays as it is; "
                "`erd ingest --labeled DIR` takes other labelled images into it"
            )
        if params.exists() and (scenario := load(params).data.scenario) != DEMO:
            raise UserError(
                f"{params} has the scenario {scenario}: a workspace is here already, and stays as it is; name another "
                "folder, or take labelled images into this one with `erd ingest --labeled DIR`"
            )
        text = _changed(_begin_with(params), {rf"^  (scenario|batch): {DEMO}": rf"  \1: {OWN:<{len(DEMO)}}"}, 2)
        settings = {}
        if weekly:
            settings[r'- cron: "[^"]*"'] = f'- cron: "{_cron(weekly)}"'
        if timezone:
            settings[r"(ERD_TIMEZONE:-)[\w/+-]+"] = rf"\g<1>{_zone(timezone)}"
        return cls(place, {params: text, deployments: _changed(_begin_with(deployments), settings)})

    def write(self) -> None:
        (self.place / INBOX).mkdir(parents=True, exist_ok=True)
        if not (readme := self.place / INBOX / "README.md").exists():
            readme.write_text(README, encoding="utf-8")
        for path, text in self.texts.items():
            with files.replacing(path) as draft:
                draft.write_text(text, encoding="utf-8")


def scheduled(params: Path | None = None) -> str:
    """The scenario of a deployment's run that names none: one's own images, once some are labelled."""
    settings = load(params or (PARAMS if PARAMS.exists() else None))
    return OWN if library.exists(library_of(settings)) else settings.data.scenario


def _begin_with(path: Path) -> tuple[Path, str]:
    """The file as it is there, else as erd comes with it."""
    source = path if path.exists() else SHIPPED / path.name
    try:
        return path, source.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{source}, which a workspace begins with, cannot be read ({error.strerror}): call `erd init` in a clone "
            "of erd, or copy the file here"
        ) from error


def _changed(begun: tuple[Path, str], changes: dict[str, str], times: int = 1) -> str:
    """With other values in its lines; comments and all else stay."""
    path, text = begun
    for pattern, value in changes.items():
        text, found = re.subn(pattern, value, text, flags=re.MULTILINE)
        if found != times:
            raise UserError(
                f"{path} is not as erd comes with it, and the lines that `erd init` changes are not found in it: "
                "move it away, or set data.scenario, the cron line and the time zone by hand"
            )
    return text


def _cron(weekly: str) -> str:
    """'Mon 03:00' → '0 3 * * 1'."""
    found = re.fullmatch(r"([a-z]{3})[a-z]* +(\d{1,2}):(\d{2})", weekly.strip().lower())
    if not found or found[1] not in DAYS or int(found[2]) > 23 or int(found[3]) > 59:
        raise UserError(f"--weekly takes a day and a time such as 'Mon 03:00', not '{weekly}'")
    return f"{int(found[3])} {int(found[2])} * * {DAYS.index(found[1])}"


def _zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(f"--timezone takes a name such as Europe/Zurich or UTC, not '{name}'") from None
