"""pruned.json of a run folder: what `erd prune` cleared away there. What the run found out, and its images, stay.

check(run)       # one sentence, where something needs what is gone
words(run)       # for the pages of the run; "" where it is whole
"""

from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from erd.base import files
from erd.base.errors import UserError
from erd.base.records import Moment, made
from erd.runs.folder import RunDir


@dataclass(frozen=True)
class Pruned:
    at: Moment  # of the last time
    files: dict[str, int]  # path in the run folder → bytes


def read(run: RunDir) -> Pruned | None:
    """None where nothing was cleared away. A record that is cut off is one of files that nobody knows."""
    if not run.pruned.exists():
        return None
    with suppress(UserError):
        return made(Pruned, files.load_json_if_whole(run.pruned), run.pruned)
    return Pruned(datetime.fromtimestamp(run.pruned.stat().st_mtime, UTC).isoformat(), {})


def note(run: RunDir, gone: dict[str, int]) -> None:
    """Before they go: who is killed in between has said so."""
    before = read(run)
    known = before.files if before else {}
    files.save_json(run.pruned, asdict(Pruned(datetime.now(UTC).isoformat(), known | gone)))


def words(run: RunDir) -> str:
    found = read(run)
    if found is None:
        return ""
    return (
        f"The nets and features of {run.batch_name} were cleared away on {datetime.fromisoformat(found.at):%-d %B %Y} "
        "(`erd prune`). Its images, scores, figures and answers are all here."
    )


def check(run: RunDir) -> None:
    if (found := read(run)) is None:
        return
    tracked = (files.load_json_if_whole(run.tracked) or {}).get("run_id")
    again = f"; `erd reproduce {tracked}` makes them again beside it" if tracked else ""
    raise UserError(
        f"the nets and features of {run.batch_name} were cleared away by `erd prune` on {found.at[:10]}, and this "
        f"needs them{again}"
    )
