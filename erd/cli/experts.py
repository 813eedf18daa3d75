"""The commands `erd review`, `erd incorporate`, `erd sensitivity`, `erd history`: what experts say, and hindsight."""

import argparse
import sys
from pathlib import Path
from typing import Any

from erd.base.errors import UserError
from erd.cli.arguments import NewCommand, counted, folder_of, port, print_table, short, with_example

# Columns of the printed history.
COLUMNS = ("batch", "images", "alarm_p", "flagged", "flags_reviewed", "flag_precision", "looked_at", "looked_novel",
           "audit_recall", "noticed_from", "accuracy")  # fmt: skip


def add(command: NewCommand) -> None:
    """Tell the parser of them."""
    look = command("review", review, "a page on which experts look at the most novel images of a batch and label them")
    look.add_argument("--batch", metavar="B", required=True, help="the batch's name; its run is in runs/B")
    look.add_argument(
        "--host", metavar="H", default="127.0.0.1", help="beyond this machine it takes a token (default: %(default)s)"
    )
    look.add_argument(
        "--port", metavar="P", type=port, default=8600, help="0 = any that is free (default: %(default)s)"
    )
    files = look.add_mutually_exclusive_group()
    files.add_argument("--export", metavar="FILE", help="write the answers to a .csv, or a .json for Label Studio")
    files.add_argument("--import", metavar="FILE", dest="take_in", help="take in the answers of such a file")
    learned = command("incorporate", incorporate, "add what experts said about a batch to the labelled images")
    learned.add_argument("--batch", metavar="B", required=True, help="the batch's name; its answers are in runs/B")
    learned.add_argument("--undo", action="store_true", help="take the batch's images back out; the answers stay")
    with_example(learned, "erd incorporate --batch 2026-W46", "erd incorporate --batch 2026-W46 --undo")
    would = command("sensitivity", sensitivity, "from which share of a batch on would a new class have been noticed?")
    would.add_argument("--batch", metavar="B", required=True, help="the batch's name; its run is in runs/B")
    command("history", history, "a page of all batches: alarms, flags, what experts said of them, accuracy")


def review(arguments: argparse.Namespace) -> dict[str, Any]:
    """The page on which experts label a batch; or its answers to a file, or from one."""
    from erd.integrations import audit_alarm
    from erd.review import exchange, queue

    folder = folder_of(arguments)
    batch = queue.load(folder)
    place = {"batch": folder.batch_name, "answers": folder.answers.as_posix()}
    if arguments.take_in:
        counts = exchange.read(Path(arguments.take_in), batch)
        audit_alarm.sound(folder)
        if not arguments.json:
            print(f"{counted(counts['added'], 'answer')} added, {counts['there']} there before", end="")
            print(f", {counts['unknown']} are of images this batch does not have" if counts["unknown"] else "")
        return place | counts
    from erd.review import app

    if arguments.export:
        count = exchange.write(Path(arguments.export), batch, app.address(arguments.host, arguments.port))
        if not arguments.json:
            print(f"{counted(count, 'answer')} in {arguments.export}")
        return place | {"exported": count, "file": arguments.export}
    app.serve(batch, arguments.host, arguments.port, lambda text: print(text, file=sys.stderr, flush=True))
    audit_alarm.sound(folder)
    return place | {"given": len(batch.answers.current())}


def incorporate(arguments: argparse.Namespace) -> dict[str, Any]:
    """What experts said about a batch, into the library; or out of it again."""
    from dataclasses import asdict

    from erd.data import library
    from erd.integrations import audit_alarm, dvc, mlflow_runs, mlflow_year
    from erd.reporting import history
    from erd.runs import configure
    from erd.weekly import incorporate

    folder = folder_of(arguments)
    if not folder.batch.exists():
        raise UserError(f"there is no batch '{arguments.batch}' in {folder.root.parent}")
    library.read()
    # First what the answers alone say: where a file of the run is damaged, the library is still as it was.
    if folder.answers.exists():
        audit_alarm.sound(folder)
        history.keep(folder)
    done = incorporate.take_back(folder) if arguments.undo else incorporate.incorporate(folder)
    data_hash = dvc.track_library()
    if folder.tracked.exists() and mlflow_runs.send_review(folder):
        mlflow_year.send(folder.root.parent, configure.read(folder).stream)
    page = history.write(folder.root.parent)
    if not arguments.json:
        if arguments.undo:
            print(f"{done.removed:,} images of {arguments.batch} are labelled images no more")
        else:
            print(f"{done.added:,} images of {arguments.batch} are labelled images now")
        if done.new_classes:
            print(f"new: {', '.join(done.new_classes)}")
        for name, count in done.waiting.items():
            print(library.waits(name, count, done.needs[name]))
        if done.disagreed:
            print(f"{counted(done.disagreed, 'image')} left out: reviewers do not agree on a class")
        print(f"history  {page}")
    return asdict(done) | {"data_hash": data_hash}


def sensitivity(arguments: argparse.Namespace) -> dict[str, Any]:
    """Known classes played as new, one after the other; the batch's report and the history then tell it."""
    from dataclasses import asdict

    from erd.integrations import mlflow_runs
    from erd.reporting import history, report, wording
    from erd.runs import configure
    from erd.weekly import sensitivity as asked

    run = folder_of(arguments)
    if not run.decision.exists():
        raise UserError(f"{run.root} holds no scored batch: `erd run --batch {arguments.batch}` makes one")
    found = asked.measure(configure.read(run), run)
    if run.metrics.exists():
        report.write(run)
        history.write(run.root.parent)
    if run.tracked.exists():
        mlflow_runs.send_sensitivity(run)
    if not arguments.json:
        for one in found.classes:
            print(f"{one.name}: {'at no share' if one.noticed_from is None else f'from {one.noticed_from:.0%} on'}")
        print(wording.sensitivity(found.noticed_from))
    return asdict(found)


def history(arguments: argparse.Namespace) -> dict[str, Any]:
    """All batches of the workspace, looked back on."""
    from erd.reporting import history

    page = history.write()
    weeks = history.weeks()
    if not arguments.json:
        if weeks:
            print_table([{name: short(week.get(name)) for name in COLUMNS} for week in weeks])
        print(f"history  {page}")
    return {"history": page.as_posix(), "weeks": weeks}
