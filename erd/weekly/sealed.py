"""A batch that experts have judged stays as they saw it: a run would train with its own answers, and change what the
answers are compared with. So does one that was pruned: the weeks it was looked at with may be gone as well."""

from erd.base.errors import UserError
from erd.data import collect, library
from erd.runs import pruned
from erd.runs.answers import Answers
from erd.runs.folder import RunDir
from erd.settings.schema import Settings


def check(settings: Settings, run: RunDir, *, replaced: bool = False) -> None:
    """One sentence where the batch may not be run; `replaced`: what is there would be moved away first."""
    name, place = run.batch_name, collect.library_of(settings)
    in_library = own_images(settings) and library.exists(place)
    if in_library and (library.table_of(place)["batch"] == name).any():
        raise UserError(
            f"images of {name} are among the labelled ones, so a run would learn its own answers: `erd decide --batch "
            f"{name} --set detect.fdr=0.2` applies other rules to its scores; to run it anew take them out first with "
            f"`erd incorporate --batch {name} --undo`"
        )
    if not replaced and run.answers.exists() and Answers(run.answers).current():
        raise UserError(
            f"{name} has been reviewed, and a run would rewrite what was judged: `erd decide --batch {name} --set "
            f"detect.fdr=0.2` applies other rules to its scores, `erd run --batch {name} --replace` begins anew and "
            "moves the old run and its answers away"
        )
    if not replaced:
        pruned.check(run)


def own_images(settings: Settings) -> bool:
    """Whether the labelled images are those of the library, which grows by reviews."""
    return settings.data.scenario == "own" and settings.data.source in (None, "library")
