"""The commands `erd sync`, `erd reproduce`, `erd backup`, `erd restore`, `erd scenarios` and `erd doctor`: records,
tables, and this machine."""

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from erd.base.errors import RunError, UserError
from erd.cli.arguments import NewCommand, print_table, with_data

log = logging.getLogger("erd")


def add(command: NewCommand) -> None:
    """Tell the parser of them."""
    late = command("sync", sync, "send to MLflow what a run could not send while the server was away")
    late.add_argument("run_dir", metavar="RUN_DIR", help="such as runs/2026-W46")
    again = command("reproduce", reproduce, "make a tracked run again from its recorded data, and compare")
    again.add_argument("run_id", metavar="RUN_ID", help="of MLflow; `erd run --json` prints it")
    saved = command("backup", backup, "the whole workspace in one file, also while it is in use")
    saved.add_argument("file", metavar="FILE", help="such as /mnt/backup/2026-W46.tar; .tar.gz is packed")
    back = command("restore", restore, "a workspace back from such a file, also elsewhere")
    back.add_argument("file", metavar="FILE", help="that `erd backup` made")
    back.add_argument("folder", metavar="DIR", help="a new or empty one")
    command("scenarios", scenarios, "list the scenarios: which images, which of them are novel")
    with_data(command("doctor", doctor, "find what is wrong here, and how to put it right"))


def sync(arguments: argparse.Namespace) -> dict[str, Any]:
    """Send to MLflow what a run could not send, and register its model."""
    from erd.base import progress
    from erd.integrations import mlflow_client, mlflow_record, mlflow_runs, mlflow_year, registry
    from erd.runs import configure
    from erd.runs.folder import RunDir

    folder = RunDir(Path(arguments.run_dir))
    settings = configure.read(folder)
    if (record := mlflow_record.read(folder)) is None:
        raise UserError(f"{folder.root} was never tracked: it has no {folder.tracked.name}")
    where = mlflow_client.shown()
    with progress.watched({}, "sync"):
        sent = mlflow_runs.sync(folder)
    if not sent:
        raise RunError(f"not all of {folder.root} could be sent to {where}; try again when it answers")
    record = mlflow_record.read(folder) or record
    if folder.retrospect.exists():
        mlflow_runs.send_review(folder)
    if folder.sensitivity.exists():
        mlflow_runs.send_sensitivity(folder)
    mlflow_year.send(folder.root.parent, settings.stream)
    version = None
    if record.status == "FINISHED":
        registered = registry.register(settings, folder)
        version = registered.version
        log.info("model %s version %s: %s", registered.model, version, registered.reason)
    if not arguments.json:
        print(f"all of {folder.root} is in MLflow at {where}, run {record.run_id}, {record.status}")
    return {"run_dir": folder.root.as_posix(), "mlflow_run_id": record.run_id, "model_version": version}


def reproduce(arguments: argparse.Namespace) -> dict[str, Any]:
    """A tracked run once more, from its recorded data and settings."""
    from erd.integrations import reproduce

    done = reproduce.reproduce(arguments.run_id)
    result = {"identical": not done.differs, "differs": done.differs, "metrics": done.metrics}
    if done.differs:
        if arguments.json:
            print(json.dumps(result))
        raise RunError(f"not the same: {'; '.join(done.differs)}; what was made now is in {done.run.root}")
    if not arguments.json:
        print(f"identical: scores and metrics of {arguments.run_id}, made again in {done.run.root}")
    return result


def backup(arguments: argparse.Namespace) -> dict[str, Any]:
    """Databases, labelled images, DVC's cache, runs, answers, the ledger: all that is in the workspace."""
    from erd.integrations import backup

    saved = backup.save(Path(arguments.file))
    for note in saved.notes:
        log.warning("note: %s", note)
    if not arguments.json:
        print(f"{len(saved.files):,} files, {saved.size / 1e6:,.1f} MB, in {arguments.file}")
    return {"file": arguments.file, "files": len(saved.files), "bytes": saved.size, "notes": saved.notes}


def restore(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `erd backup` saved, in another folder."""
    from erd.integrations import backup

    done = backup.restore(Path(arguments.file), Path(arguments.folder))
    for note in done.notes:
        log.warning("note: %s", note)
    if not arguments.json:
        print(f"{done.files:,} files, each as it was saved, in {done.place}; `make up` there deploys its schedule")
    return {"folder": str(done.place), "files": done.files, "notes": done.notes}


def scenarios(arguments: argparse.Namespace) -> dict[str, Any]:
    """The table of scenarios."""
    from dataclasses import asdict

    from erd.settings.families import FAMILIES, GROUPS
    from erd.settings.scenarios import SCENARIOS

    rows = [asdict(row) for row in SCENARIOS.values()]
    families = [
        {"pattern": family.pattern, "about": family.about, "example": family.example, "names": len(family.scenarios)}
        for family in FAMILIES
    ]
    if not arguments.json:
        shown = [
            {
                "scenario": row["name"],
                "known": f"{row['known_source']} {_ranges(row['known'])}",
                "novel": f"{row['novel_source']} {_ranges(row['novel'])}",
                "net": row["net"],
                "members": row["members"],
                "train": row["train"],
                "batch": f"{row['batch_known']} + {row['batch_novel']}" if row["train"] else None,
            }
            for row in rows
        ]
        print_table(shown)
        print("\nby a pattern (docs/scenarios.md); `erd bench` also takes whole groups such as fmnist-c5 or medical")
        print_table(families)
    return {"scenarios": rows, "families": families, "groups": GROUPS}


def doctor(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is installed, which devices there are, what is wrong."""
    from erd.integrations import doctor

    found = doctor.examine(Path(arguments.data) if arguments.data else None)
    if not arguments.json:
        for key, value in found.items():
            if key not in ("notes", "problems"):
                listing = [f"{k} {v}" for k, v in value.items()] if isinstance(value, dict) else value
                print(f"{key:<18} {', '.join(listing) if isinstance(listing, list) else listing}")
        print("", *(f"note: {note}" for note in found["notes"]), sep="\n")
        print("\n".join(f"problem: {problem}" for problem in found["problems"]) or "no problems found")
    return found


def _ranges(numbers: Sequence[int] | None) -> str:
    if numbers is None:
        return "all"
    if list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 2:
        return f"{numbers[0]}–{numbers[-1]}"
    return ",".join(map(str, numbers))
