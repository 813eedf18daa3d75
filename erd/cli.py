"""The command line. Heavy imports happen inside the commands, so that `erd --help` answers at once.

--json prints one JSON object as the last line of stdout; everything else goes to stderr. Exit 0 good, 1 failed run,
2 wrong usage.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erd import __version__, cli_bench
from erd.errors import UserError

if TYPE_CHECKING:
    from erd.params import Settings
    from erd.rundir import RunDir

log = logging.getLogger("erd")
SHOWN = {"ERD": "", "entropy of the mean": "entropy_", "max softmax, classifier alone": "max_softmax_"}
PREFECT = ("prefect", "APILogWorker", "EventsWorker")  # its loggers
STAGES = ("ingest", "pretrain", "finetune", "score", "evaluate")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    _log_to_stderr()
    try:
        result = arguments.command(arguments)
    except UserError as error:
        print(f"erd: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("erd: stopped; run the same command again to go on where it was", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(result))
    return 0


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The weekly flow on one batch."""
    from erd.rundir import RunDir
    from flows import local

    started = time.monotonic()
    folder = RunDir.of(_settings(arguments))  # what is wrong with the settings is said before anything starts
    metrics = local.weekly(**_asked(arguments) | {"batch": folder.batch_name, "replace": arguments.replace})
    if not arguments.json:
        _summary(metrics, folder)
    return {
        "batch": metrics["batch"],
        "scenario": metrics["scenario"],
        "auroc": metrics["auroc"],
        "tnr95": metrics["tnr95"],
        "holdout_auroc": metrics["holdout_auroc"],
        "holdout_tnr95": metrics["holdout_tnr95"],
        "max_softmax_auroc": metrics["max_softmax_auroc"],
        "flagged": metrics["flagged"],
        "fdr_target": metrics["fdr_target"],
        "fpr_target": metrics["fpr_target"],
        "alarm": metrics["alarm"],
        "alarm_p": metrics["alarm_p"],
        "novel_share": metrics["novel_share"],
        "val_accuracy": metrics["val_accuracy"],
        "run_dir": metrics["run_dir"],
        "mlflow_run_id": metrics["mlflow_run_id"],
        "model_version": metrics["model_version"],
        "seconds": round(time.monotonic() - started, 1),
    }


def stage(arguments: argparse.Namespace) -> dict[str, Any]:
    """One stage on the files of the stages before it."""
    from erd import stages
    from erd.ensemble import find_label
    from erd.errors import UserError
    from erd.locks import locked
    from erd.rundir import RunDir

    settings = _settings(arguments)
    folder = RunDir.of(settings)
    name = arguments.name
    if arguments.label is not None and name != "finetune":
        raise UserError(f"--label is for the stage finetune, not for {name}")
    if name == "finetune" and arguments.label is not None:
        # No lock: several labels may be fine-tuned at once, each writes files of its own.
        drawn = stages.member_labels(settings, folder)
        label = find_label(arguments.label, stages.known_classes(folder))
        done = [stages.finetune_here(settings, folder, label, drawn.index(label) if label in drawn else 0)]
    else:
        with locked(folder.root):
            function = stages.finetune_all if name == "finetune" else getattr(stages, name)
            result = function(settings, folder)
            done = result if isinstance(result, list) else [result]
    written = [path.as_posix() for item in done for path in item.outputs]
    if not arguments.json:
        print("\n".join(written))
    return {"stage": name, "files": written}


def sync(arguments: argparse.Namespace) -> dict[str, Any]:
    """Send to MLflow what a run could not send, and register its model."""
    from erd import params, registry, tracking
    from erd.errors import RunError, UserError
    from erd.rundir import RunDir

    folder = RunDir(Path(arguments.run_dir))
    settings = params.read(folder.settings)
    if (record := tracking.read(folder)) is None:
        raise UserError(f"{folder.root} was never tracked: it has no {folder.tracked.name}")
    if not tracking.sync(folder):
        raise RunError(f"not all of {folder.root} could be sent to {tracking.location()}; try again when it answers")
    record = tracking.read(folder) or record
    if folder.retrospect.exists():
        tracking.send_review(folder)
    version = None
    if record.status == "FINISHED":
        registered = registry.register(settings, folder)
        version = registered.version
        log.info("model %s version %s: %s", registered.model, version, registered.reason)
    if not arguments.json:
        print(f"all of {folder.root} is in MLflow at {tracking.location()}, run {record.run_id}, {record.status}")
    return {"run_dir": folder.root.as_posix(), "mlflow_run_id": record.run_id, "model_version": version}


def reproduce(arguments: argparse.Namespace) -> dict[str, Any]:
    """A tracked run once more, from its recorded data and settings."""
    from erd import reproduce
    from erd.errors import RunError

    done = reproduce.reproduce(arguments.run_id)
    result = {"identical": not done.differs, "differs": done.differs, "metrics": done.metrics}
    if done.differs:
        if arguments.json:
            print(json.dumps(result))
        raise RunError(f"not the same: {'; '.join(done.differs)}; what was made now is in {done.run.root}")
    if not arguments.json:
        print(f"identical: scores and metrics of {arguments.run_id}, made again in {done.run.root}")
    return result


def review(arguments: argparse.Namespace) -> dict[str, Any]:
    """The page on which experts label a batch; or its answers to a file, or from one."""
    from erd.review import exchange, queue

    folder = _folder(arguments)
    batch = queue.load(folder)
    place = {"batch": folder.batch_name, "answers": folder.answers.as_posix()}
    if arguments.take_in:
        counts = exchange.read(Path(arguments.take_in), batch)
        if not arguments.json:
            print(f"{counts['added']} answers added, {counts['there']} were there", end="")
            print(f", {counts['unknown']} are of images this batch does not have" if counts["unknown"] else "")
        return place | counts
    from erd.review import app

    if arguments.export:
        count = exchange.write(Path(arguments.export), batch, app.address(arguments.host, arguments.port))
        if not arguments.json:
            print(f"{count} answers in {arguments.export}")
        return place | {"exported": count, "file": arguments.export}
    app.serve(batch, arguments.host, arguments.port, lambda text: print(text, file=sys.stderr, flush=True))
    return place | {"given": len(batch.answers.current())}


def ingest(arguments: argparse.Namespace) -> dict[str, Any]:
    """Labelled images into the library."""
    from erd.data import library

    if not arguments.labeled or Path.cwd().is_relative_to(Path(arguments.labeled).resolve()):
        raise UserError(
            f"--labeled '{arguments.labeled}' is the workspace itself: name the folder that holds the class folders"
        )
    arguments.scenario = arguments.scenario or "own"
    size = _settings(arguments).data.image_size
    assert size is not None
    done = library.take_in(Path(arguments.labeled), size)
    if not arguments.json:
        reviewed = f", {done.kept:,} of them from reviews" if done.kept else ""
        print(f"{done.images:,} labelled images{reviewed}, of {len(done.classes)} classes: {', '.join(done.classes)}")
        if done.set_aside:
            print(f"{done.set_aside:,} files set aside: {done.quarantine}")
    return {
        "images": done.images,
        "classes": done.classes,
        "set_aside": done.set_aside,
        "quarantine": done.quarantine.as_posix(),
        "data_hash": done.data_hash,
    }


def incorporate(arguments: argparse.Namespace) -> dict[str, Any]:
    """What experts said about a batch, into the library; or out of it again."""
    from dataclasses import asdict

    from erd import history, incorporate, tracking

    folder = _folder(arguments)
    if not folder.batch.exists():
        raise UserError(f"there is no batch '{arguments.batch}' in {folder.root.parent}")
    done = incorporate.take_back(folder) if arguments.undo else incorporate.incorporate(folder)
    history.keep(folder)
    if folder.tracked.exists():
        tracking.send_review(folder)
    page = history.write(folder.root.parent)
    if not arguments.json:
        if arguments.undo:
            print(f"{done.removed:,} images of {arguments.batch} are labelled images no more")
        else:
            print(f"{done.added:,} images of {arguments.batch} are labelled images now")
        if done.new_classes:
            print(f"new: {', '.join(done.new_classes)}")
        for name, count in done.waiting.items():
            print(f"class '{name}' has {count:,} images, too few to be learned yet (data.least)")
        if done.disagreed:
            print(f"{done.disagreed:,} images left out: reviewers call them different things")
        print(f"history  {page}")
    return asdict(done)


def history(arguments: argparse.Namespace) -> dict[str, Any]:
    """All batches of the workspace, looked back on."""
    from erd import history

    page = history.write()
    weeks = history.weeks()
    if not arguments.json:
        shown = (
            "batch",
            "images",
            "alarm_p",
            "flagged",
            "flags_reviewed",
            "flag_precision",
            "audit_recall",
            "accuracy",
        )
        if weeks:
            _table([{name: _short(week.get(name)) for name in shown} for week in weeks])
        print(f"history  {page}")
    return {"history": page.as_posix(), "weeks": weeks}


def simulate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Weeks of a stream in which a new class appears."""
    import shutil

    from erd import figures, simulation

    settings = _settings(arguments)
    if not any(text.startswith("alarm.looks") for text in arguments.set):
        settings = settings.override({"alarm.looks": max(arguments.weeks, 1)})  # one false alarm in twenty such stories
    place = Path("simulated") / settings.scenario_name
    shutil.rmtree(place, ignore_errors=True)

    def show(week: simulation.Week) -> None:
        novel = f"{week.true_share:.0%} novel" if week.true_share else "nothing novel"
        rang = "ALARM" if week.alarm else "no alarm"
        log.info("%s: %d images, %s; %s (p = %.2g), %d flagged, accuracy %.1f%%", week.week, week.images, novel, rang,
                 week.alarm_p, week.flagged, 100 * week.accuracy)  # fmt: skip

    told = simulation.simulate(settings, arguments.weeks, place, show)
    figure = figures.save(figures.story(told, settings.alarm.rate / settings.alarm.looks), place / "story.png")
    if not arguments.json:
        print(f"figure   {figure}")
    return {"scenario": settings.data.scenario, "figure": figure.as_posix(), "weeks": simulation.rows(told)}


def scenarios(arguments: argparse.Namespace) -> dict[str, Any]:
    """The table of scenarios."""
    from dataclasses import asdict

    from erd.scenarios import FAMILIES, GROUPS, SCENARIOS

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
        _table(shown)
        print("\nby a pattern (docs/scenarios.md); `erd bench` also takes whole groups such as fmnist-c5 or medical")
        _table(families)
    return {"scenarios": rows, "families": families, "groups": GROUPS}


def doctor(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is installed, which devices there are, what is wrong."""
    from erd import doctor

    found = doctor.examine(Path(arguments.data) if arguments.data else None)
    if not arguments.json:
        for key, value in found.items():
            if key != "problems":
                listing = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
                print(f"{key:<18} {listing}")
        print("\n".join(f"problem: {problem}" for problem in found["problems"]) or "no problems found")
    return found


def _log_to_stderr() -> None:
    """Our own words, and other libraries' warnings; not Prefect's, which go to its server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.name.partition(".")[0] not in PREFECT)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="%(message)s", force=True)
    log.setLevel(logging.INFO)


def _settings(arguments: argparse.Namespace) -> "Settings":
    from erd.scenarios import settings_for

    asked = _asked(arguments)
    return settings_for(**asked | {"params": Path(asked["params"]) if asked["params"] else None})


def _folder(arguments: argparse.Namespace) -> "RunDir":
    """Of the batch that --batch names, checked like the setting."""
    from erd.params import Settings
    from erd.rundir import RunDir

    return RunDir.of(Settings().override({"data.batch": arguments.batch}, "--batch"))


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says of the settings, by the names that `settings_for` and the weekly flow have for it."""
    names = ("scenario", "batch", "inbox", "data", "runner", "params")
    return {name: getattr(arguments, name) for name in names} | {"overrides": arguments.set}


def _summary(metrics: dict[str, Any], folder: "RunDir") -> None:
    from erd import report

    print(f"\n{report.headline(metrics)}\n{report.alarm(metrics)}\n")
    rows = []
    for place, prefix in (("batch", ""), ("holdout", "holdout_")):
        if metrics[f"{prefix}auroc"] is None:
            continue
        for name, key in SHOWN.items():
            figures = {n: f"{metrics[f'{prefix}{key}{n}']:.3f}" for n in ("auroc", "tnr95", "aupr")}
            rows.append({"on the": place, "score": name} | figures)
    if rows:
        _table(rows)
    if metrics["power"] is not None:
        print(f"\nof the novel images {metrics['power']:.1%} are flagged")
    if metrics["realised_fpr"] is not None:
        print(f"of the known images {metrics['realised_fpr']:.1%} are flagged, wrongly")
    if metrics["realised_fdr"] is not None:
        print(f"of the flagged images {metrics['realised_fdr']:.1%} are known")
    print(f"accuracy of the classifier on known classes (validation): {metrics['val_accuracy']:.3f}")
    for warning in metrics["warnings"]:
        print(f"note: {warning}")
    print(f"\nreport   {folder.report}")
    print(f"scores   {folder.scores}")
    print(f"metrics  {folder.metrics}")
    for path in sorted(folder.figures.glob("*.png")):
        print(f"figure   {path}")


def _table(rows: Sequence[dict[str, Any]]) -> None:
    """Rows as aligned text."""
    lines = [list(rows[0])] + [["–" if value is None else str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _short(value: Any) -> Any:
    return f"{value:.3g}" if isinstance(value, float) else value


def _ranges(numbers: Sequence[int] | None) -> str:
    if numbers is None:
        return "all"
    if list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 2:
        return f"{numbers[0]}–{numbers[-1]}"
    return ",".join(map(str, numbers))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="erd", description="A weekly novelty watch for image classifiers.")
    parser.add_argument("--version", action="version", version=f"erd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        sub.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
        return sub

    def with_data(sub: argparse.ArgumentParser) -> None:
        folder = os.environ.get("ERD_DATA")
        sub.add_argument("--data", metavar="DIR", default=folder, help="folder with the image sets (or ERD_DATA)")

    def with_settings(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--scenario", metavar="S", help="a row of `erd scenarios` (default: params.yaml's)")
        sub.add_argument("--batch", metavar="B", help="the batch's name, e.g. 2026-W46; results go to runs/B")
        sub.add_argument("--inbox", metavar="DIR", help="the batch: folder, manifest or .npz of unlabelled images")
        with_data(sub)
        sub.add_argument("--set", metavar="a.b=v", action="append", default=[], help="override a setting; repeatable")
        sub.add_argument("--runner", metavar="R", help="process or serial")
        sub.add_argument("--params", metavar="FILE", help="settings file (default: params.yaml here, if there is one)")

    whole = command("run", run, "run the whole chain on one batch")
    whole.add_argument("--replace", action="store_true", help="move another batch of this name to replaced/")
    with_settings(whole)
    one = command("stage", stage, "run one stage on the files of the stages before it")
    one.add_argument("name", choices=STAGES)
    one.add_argument("--label", metavar="c", help="finetune: only the member with this artificial label")
    with_settings(one)
    look = command("review", review, "a page on which experts look at a batch's flagged images and label them")
    look.add_argument("--batch", metavar="B", required=True, help="the batch's name; its run is in runs/B")
    look.add_argument(
        "--host", metavar="H", default="127.0.0.1", help="beyond this machine it takes a token (default: %(default)s)"
    )
    look.add_argument("--port", metavar="P", type=int, default=8600, help="0 = any that is free (default: %(default)s)")
    files = look.add_mutually_exclusive_group()
    files.add_argument("--export", metavar="FILE", help="write the answers to a .csv, or a .json for Label Studio")
    files.add_argument("--import", metavar="FILE", dest="take_in", help="take in the answers of such a file")
    taken = command("ingest", ingest, "take labelled images into the library of this workspace")
    taken.add_argument(
        "--labeled", metavar="DIR|MANIFEST", required=True, help="class folders, a .csv or .parquet, .npz"
    )
    with_settings(taken)
    learned = command("incorporate", incorporate, "add what experts said about a batch to the labelled images")
    learned.add_argument("--batch", metavar="B", required=True)
    learned.add_argument("--undo", action="store_true", help="take the batch's images back out")
    command("history", history, "a page of all batches: alarms, flags, what experts said of them, accuracy")
    story = command("simulate", simulate, "live through weeks in which a new class appears")
    story.add_argument("--weeks", metavar="N", type=int, default=8)
    with_settings(story)
    late = command("sync", sync, "send to MLflow what a run could not send while the server was away")
    late.add_argument("run_dir", metavar="RUN_DIR", help="such as runs/2026-W46")
    again = command("reproduce", reproduce, "make a tracked run again from its recorded data, and compare")
    again.add_argument("run_id", metavar="RUN_ID", help="of MLflow; `erd run --json` prints it")
    cli_bench.add(command, with_data)
    command("scenarios", scenarios, "list the scenarios")
    with_data(command("doctor", doctor, "tell what is installed and what is wrong"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
