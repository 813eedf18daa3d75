"""The commands `erd init` and `erd ingest`: labelled images, and the workspace around them."""

import argparse
import contextlib
import os
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erd.base.errors import UserError
from erd.cli.arguments import NewCommand, counted, print_table, settings_of, with_example, with_settings

if TYPE_CHECKING:
    from erd.data.library import TakenIn
    from erd.settings.schema import Settings


def add(command: NewCommand) -> None:
    """Tell the parser of them."""
    new = command("init", init, "make a folder a workspace for your own images, whose schedule runs them")
    new.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="the workspace (default: this folder)")
    _with_labeled(new)
    new.add_argument("--weekly", metavar="'DAY HH:MM'", help="when a run is scheduled (default: 'Mon 03:00')")
    new.add_argument("--timezone", metavar="Z", help="whose time that is, such as Europe/Zurich (default: UTC)")
    with_example(new, "erd init --labeled scans --weekly 'Mon 03:00' --timezone Europe/Zurich")
    taken = command("ingest", ingest, "take labelled images into the library of this workspace")
    _with_labeled(taken)
    taken.add_argument("--replace", action="store_true", help="also where a class loses images that it has now")
    with_settings(taken)
    with_example(taken, "erd ingest --labeled scans", "erd ingest --labeled labels.csv --set data.image_size=128")


def _with_labeled(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--labeled", "--labelled", metavar="DIR|MANIFEST", required=True,
                     help="a folder of class folders, a .csv or .parquet of files and labels, or an .npz")  # fmt: skip


def init(arguments: argparse.Namespace) -> dict[str, Any]:
    """A workspace: the library, params.yaml and the deployments for own images, an inbox."""
    from erd.runs import configure, workspace

    place, labeled = Path(arguments.folder), arguments.labeled and os.path.abspath(arguments.labeled)
    new = workspace.NewWorkspace.of(place, arguments.weekly, arguments.timezone)
    place.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(place):
        done = _taken_in(labeled, configure.settings_for(scenario=workspace.OWN), replace=False)
    new.write()
    with contextlib.chdir(place):
        result = _told(done, quiet=arguments.json)
    if not arguments.json:
        week, here = f"{date.today():%G-W%V}", place.resolve() == Path.cwd()
        print(f"\nNext: put this week's images into {place / 'inbox' / week}, and")
        print(f"  {'' if here else f'cd {place} && '}erd run --batch {week}")
    return {"workspace": place.as_posix()} | result


def ingest(arguments: argparse.Namespace) -> dict[str, Any]:
    """Labelled images into the library."""
    arguments.scenario = arguments.scenario or "own"
    done = _taken_in(arguments.labeled, settings_of(arguments), replace=arguments.replace)
    return _told(done, quiet=arguments.json)


def _taken_in(labeled: str, settings: "Settings", *, replace: bool) -> "TakenIn":
    from erd.data import library

    if not labeled or Path.cwd().is_relative_to(Path(labeled).resolve()):
        raise UserError(f"--labeled '{labeled}' is the workspace itself: name the folder that holds the class folders")

    def agreed(lost: str) -> bool:
        if replace or not sys.stdin.isatty():
            return replace
        print(f"Labelled images would be lost: {lost}. Replace them? [y/N] ", end="", file=sys.stderr, flush=True)
        return input().strip().lower() in ("y", "yes")

    data = settings.data
    assert data.largest is not None
    return library.take_in(Path(labeled), data.image_size, largest=data.largest, agreed=agreed)


def _told(done: "TakenIn", *, quiet: bool) -> dict[str, Any]:
    """What was taken in, in words and as JSON; all of it is under DVC then, where there is one."""
    from erd.integrations import dvc

    if not quiet:
        reviewed = f", {done.kept:,} of them from reviews" if done.kept else ""
        print(f"{done.images:,} labelled images{reviewed}, of {len(done.counts)} class{'es' * (len(done.counts) > 1)}")
        print_table([{"class": name, "images": f"{count:,}"} for name, count in done.counts.items()])
        print(f"kept at {done.image_size}×{done.image_size} pixels")
        if done.resized:
            print(f"{done.resized:,} images from reviews were brought to that size as they were kept: no file is left")
        if done.set_aside:
            print(f"{counted(done.set_aside, 'file')} set aside: {done.quarantine}")
    return {
        "images": done.images,
        "classes": done.classes,
        "counts": done.counts,
        "image_size": done.image_size,
        "set_aside": done.set_aside,
        "quarantine": done.quarantine.as_posix(),
        "data_hash": dvc.track_library(),
    }
