"""The commands `erd run`, `erd decide`, `erd stage` and `erd simulate`: batches, one after another."""

import argparse
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erd.base.errors import UserError, nearest
from erd.cli.arguments import NewCommand, asked, folder_of, print_table, settings_of, with_example, with_settings

if TYPE_CHECKING:
    from erd.runs.folder import RunDir
    from erd.runs.results import Metrics

log = logging.getLogger("erd")
SHOWN = {"score": "", "disagreement": "disagreement_", "neighbours": "neighbours_", "candidates": "candidates_",
         "entropy of the mean": "entropy_", "max softmax, classifier alone": "max_softmax_"}  # fmt: skip
# Of metrics.json and where the results are: what `erd run --json` prints.
PRINTED = ("batch", "scenario", "auroc", "tnr95", "holdout_auroc", "holdout_tnr95", "max_softmax_auroc", "flagged",
           "fdr_target", "fpr_target", "alarm", "alarm_p", "novel_share", "look_at", "look_at_novel", "look_at_least",
           "last_good", "weeks_p", "weeks_alarm", "mix_changed", "bulk_moved", "val_accuracy", "run_dir",
           "mlflow_run_id", "model_version")  # fmt: skip


def add(command: NewCommand) -> None:
    """Tell the parser of them."""
    whole = command("run", run, "run the whole chain on one batch")
    whole.add_argument("--replace", action="store_true", help="move another batch of this name to replaced/ first")
    with_settings(whole)
    rules = command("decide", decide, "apply other rules to the scores of a batch, without training")
    rules.add_argument("--batch", metavar="B", required=True, help="the batch's name; its run is in runs/B")
    rules.add_argument("--set", metavar="a.b=v", action="append", default=[], help="such as detect.fdr=0.2; repeatable")
    one = command("stage", stage, "run one stage on the files of the stages before it")
    one.add_argument("name", metavar="NAME", help="ingest, pretrain, finetune, … (erd/weekly/chain.py)")
    one.add_argument("--label", metavar="c", help="finetune: only the member with this artificial label")
    with_settings(one)
    story = command("simulate", simulate, "live through weeks in which a new class appears")
    story.add_argument("--weeks", metavar="N", type=int, default=8, help="how many (default: %(default)s)")
    with_settings(story)
    with_example(story, "erd simulate --weeks 8", "erd simulate --scenario fmnist-near --data DIR --weeks 12")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The weekly flow on one batch."""
    from flows import local

    def named() -> dict[str, Any]:
        from erd.integrations import notify
        from erd.runs.folder import RunDir
        from erd.weekly import sealed

        settings = settings_of(arguments)
        folder = RunDir.of(settings)
        sealed.check(settings, folder, replaced=arguments.replace)
        notify.addresses(settings.alarm.notify)
        return {"batch": folder.batch_name, "overrides": notify.by_variable(arguments.set, settings.alarm)}

    started = time.monotonic()
    result = local.weekly(named, **asked(arguments), replace=arguments.replace)
    if not arguments.json:
        _summary(result)
    return {name: result[name] for name in PRINTED} | {"seconds": round(time.monotonic() - started, 1)}


def decide(arguments: argparse.Namespace) -> dict[str, Any]:
    """Other flags from the scores that are there."""
    from erd.base.locks import alone_in
    from erd.reporting import wording
    from erd.weekly import decide

    folder = folder_of(arguments)
    if not arguments.set:
        raise UserError(f"which rules? `erd decide --batch {arguments.batch} --set detect.fdr=0.2`")
    if not folder.metrics.exists():
        raise UserError(f"{folder.root} holds no scored batch: `erd run --batch {arguments.batch}` makes one")
    with alone_in(folder.root):
        done = decide.decide(folder, arguments.set)
    before, now = done.before.verdict.flagged, done.now.verdict.flagged
    if not arguments.json:
        print(*wording.summary(done.now), sep="\n")
        print(f"flagged  {now:,}, before {before:,}")
        if done.back:
            print(f"back     erd decide --batch {arguments.batch} {' '.join(f'--set {text}' for text in done.back)}")
        print(f"report   {folder.report}")
    return {"batch": arguments.batch, "flagged": now, "flagged_before": before, "run_dir": folder.root.as_posix()}


def stage(arguments: argparse.Namespace) -> dict[str, Any]:
    """One stage on the files of the stages before it."""
    from erd.base.locks import alone_in
    from erd.runs import configure
    from erd.runs.folder import RunDir
    from erd.weekly import chain, sealed

    settings = settings_of(arguments)
    folder = RunDir.of(settings)
    sealed.check(settings, folder)
    name = arguments.name
    if name not in chain.BY_NAME:
        raise UserError(f"there is no stage '{name}': {nearest(name, chain.BY_NAME)}")
    if arguments.label is not None and name != "finetune":
        raise UserError(f"--label is for the stage finetune, not for {name}")
    if arguments.label is not None:
        # No lock: several labels may be fine-tuned at once, each writes files of its own.
        with configure.kept_again(settings, folder):
            done = _finetune_one(arguments.label, settings, folder)
    else:
        with alone_in(folder.root), configure.kept_again(settings, folder):
            done = chain.run(chain.BY_NAME[name], settings, folder)
    written = [path.as_posix() for item in done for path in item.outputs]
    if not arguments.json:
        print("\n".join(written))
    return {"stage": name, "files": written}


def _finetune_one(asked_label: str, settings: Any, folder: "RunDir") -> list[Any]:
    from erd.runs.results import Ingested
    from erd.training import devices
    from erd.training.members import find_label
    from erd.weekly.stages.finetune import finetune, member_labels

    drawn = member_labels(settings, folder)
    label = find_label(asked_label, Ingested.read(folder).classes)
    if label not in drawn:
        log.info("no member has the label %s (their labels are %s): nothing to train", label, drawn)
        return []
    with devices.threads(settings.run.threads):  # as many as a worker has
        return [finetune(settings, folder, [label], drawn.index(label))]


def simulate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Weeks of a stream in which a new class appears."""
    import shutil

    from erd.reporting import figures, week_figures, wording
    from erd.runs import results
    from erd.weekly import simulation

    simulation.check_weeks(arguments.weeks)
    settings = settings_of(arguments)
    year = settings.alarm.looks
    if not any(text.startswith("alarm.looks") for text in arguments.set):
        settings = settings.override({"alarm.looks": max(arguments.weeks, 1)})  # one false alarm in twenty such stories
    place = Path("simulated") / settings.scenario_name
    shutil.rmtree(place, ignore_errors=True)

    def show(week: results.Week) -> None:
        novel = f"{week.true_share:.0%} novel" if week.true_share else "nothing novel"
        rang = "ALARM" if week.alarm else "no alarm"
        flags = f"{week.flagged:,} flagged" if week.flagged else "none flagged"
        log.info("%s: %d images, %s; %s (p = %.2g), %s, accuracy %.1f%%", week.week, week.images, novel, rang,
                 week.alarm_p, flags, 100 * week.accuracy)  # fmt: skip

    told = simulation.simulate(settings, arguments.weeks, place, show)
    looks, waited, wrong = settings.alarm.looks, simulation.weeks_until_alarm(told), simulation.false_alarms(told)
    figure = figures.save(week_figures.story(told, looks), place / "story.png")
    if not arguments.json:
        print(wording.simulated(waited, wrong), wording.looks(settings.alarm.rate, looks, year), sep="\n")
        print(f"figure   {figure}")
    return {
        "scenario": settings.data.scenario,
        "figure": figure.as_posix(),
        "weeks_until_alarm": waited,
        "false_alarms": wrong,
        "alarm_looks": looks,
        "weeks": simulation.rows(told),
    }


def _summary(result: dict[str, Any]) -> None:
    from erd.integrations import mlflow_runs
    from erd.reporting import wording
    from erd.runs.folder import RunDir
    from erd.runs.results import Metrics

    metrics, folder = Metrics.of(result), RunDir(Path(result["run_dir"]))
    print("", *wording.summary(metrics, wording.noticed(folder)), "", sep="\n")
    if rows := _quality(metrics):
        print_table(rows)
    found = metrics.on_batch
    flagged = metrics.verdict.flagged > 0  # without any there is nothing to say of them
    if found.p50 is not None and metrics.images >= 50:
        print(f"\nof the 50 images with the highest scores {found.p50:.0%} are novel")
    if found.power is not None and flagged:
        print(f"of the novel images {found.power:.1%} are flagged")
    if found.realised_fpr is not None and flagged:
        print(f"of the known images {found.realised_fpr:.1%} are flagged, wrongly")
    if found.realised_fdr is not None and flagged:
        print(f"of the flagged images {found.realised_fdr:.1%} are known")
    print(f"accuracy of the classifier on known classes (validation): {metrics.val_accuracy:.3f}")
    for warning in metrics.warnings:
        print(f"note: {warning}")
    print(f"\nreport   {folder.report}")
    if address := mlflow_runs.overview(folder):
        print(f"mlflow   {address}")
    print(f"scores   {folder.scores}")
    print(f"metrics  {folder.metrics}")
    for path in sorted(folder.figures.glob("*.png")):
        print(f"figure   {path}")


def _quality(metrics: "Metrics") -> list[dict[str, str]]:
    """A row for each score, where there is truth to compare with."""
    return [
        {"on the": place, "score": name}
        | {figure: f"{getattr(found, f'{key}{figure}'):.3f}" for figure in ("auroc", "tnr95", "aupr", "p50", "first")}
        for place, found in (("batch", metrics.on_batch), ("holdout", metrics.on_holdout))
        if found.auroc is not None
        for name, key in SHOWN.items()
        if getattr(found, f"{key}auroc") is not None
    ]
