"""`erd status`: what is scheduled, what runs, what waits for people, how the last batches went, and the disk.

It only looks; what cannot be read is passed over here and told by `erd doctor`.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from erd.base import files, locks
from erd.base.errors import UserError
from erd.data import library, packed
from erd.integrations import prefect_server
from erd.reporting import wording
from erd.runs import results, stage_records
from erd.runs.answers import Answers, agreed
from erd.runs.folder import BENCH, RUNS, RunDir
from erd.runs.results import Metrics

LAST = 5  # batches whose headline is told
# What a run at work tells of in which files, the latest stage first.
TOLD = {"finetune": "members/.*.progress.json", "pretrain": ".*.progress.json", "encode": "features/.*.progress.json"}
# Places by what is in them; of folders within each other each counts what the others do not.
PLACES = {"runs": (RUNS,), "library": (library.PLACE,), "features": (library.PLACE / "features", RUNS / ".features"),
          "mlflow": (Path("mlflow.db"), Path("mlruns")), "dvc": (Path(".dvc/cache"),)}  # fmt: skip


def look() -> dict[str, Any]:
    folders = run_folders()
    server = prefect_server.ask()
    scored = sorted(((at, run, metrics) for run in folders if (found := _scored(run)) for at, metrics in [found]),
                    key=lambda row: row[0])  # fmt: skip
    people = [(run, metrics) for _, run, metrics in scored if metrics.on_batch.auroc is None]  # else a trial
    return {
        "server": server.address if server else None,
        "scheduled": [asdict(one) for one in server.deployments if one.schedules or one.next] if server else [],
        "flow_runs": [asdict(one) for one in server.runs] if server else [],
        "running": [{"batch": run.batch_name, **_at_work(run)} for run in folders if locks.is_held(run.root)],
        "benches": _benches(),
        "to_review": [row for run, metrics in people if (row := _to_review(run, metrics))],
        "to_incorporate": to_incorporate([run for run, _ in people]),
        "last": [
            {"batch": run.batch_name, "at": at, "headline": wording.headline(metrics, wording.noticed(run))}
            for at, run, metrics in reversed(scored[-LAST:])
        ],
        "disk": _disk(),
    }


def run_folders() -> list[RunDir]:
    return [RunDir(path) for path in sorted(RUNS.glob("*")) if path.is_dir() and not path.name.startswith(".")]


def _scored(run: RunDir) -> tuple[str, Metrics] | None:
    """When a batch was scored, and what came out; None where it was not, or it cannot be read."""
    with suppress(UserError):
        record = stage_records.read(run, "score")
        return (record.finished, Metrics.read(run)) if record and run.metrics.exists() else None
    return None


def _at_work(run: RunDir) -> dict[str, Any]:
    """Which stage, and how far it is, where that is told."""
    for stage, pattern in TOLD.items():
        told = [at for path in run.root.glob(pattern) if (at := files.load_json_if_whole(path))]
        if told:
            return {"stage": stage, "done": sum(at["epoch"] for at in told), "of": sum(at["epochs"] for at in told)}
    return {"stage": None, "done": None, "of": None}


def _benches() -> list[dict[str, Any]]:
    """Folders in which an `erd bench` of this machine is at work, and the detectors that it has under way."""
    return [
        {"place": place.relative_to(BENCH).as_posix(),
         "methods": sorted(path.name[1:].removesuffix(".progress.json")
                           for path in place.glob("results/.*.progress.json"))}
        for place in sorted(BENCH.glob("**/seed*")) if place.is_dir() and locks.is_held(place)
    ]  # fmt: skip


def _to_review(run: RunDir, metrics: Metrics) -> dict[str, Any] | None:
    """A batch with flagged images that nobody has answered; or with something new and nobody has answered anything."""
    with suppress(UserError):
        answered = {answer.image for answer in Answers(run.answers).current()}
        scores = results.scores(run)
        open_ones = int((~scores.loc[scores["flagged"], "id"].isin(answered)).sum())
        look_at = 0 if answered or not metrics.verdict.worth_looking else metrics.verdict.look_at
        if open_ones or look_at:
            return {"batch": run.batch_name, "flagged": metrics.verdict.flagged, "unanswered": open_ones,
                    "look_at": look_at, "command": f"erd review --batch {run.batch_name}"}  # fmt: skip
    return None


def to_incorporate(runs: list[RunDir]) -> list[dict[str, Any]]:
    """Batches with images that were given a class, and are not in the library with it."""
    try:
        table = library.table_of(library.PLACE)
    except UserError:
        return []
    labels = dict(zip(table["id"], table["label"], strict=True))
    found = []
    for run in runs:
        with suppress(UserError):
            settled, _ = agreed(Answers(run.answers).current())
            named = {image: answer.label for image, answer in settled.items() if answer.label}
            rows = packed.table(run.batch)
            hashes = dict(zip(rows["id"], rows["sha256"], strict=True)) if "sha256" in rows else {}
            others = set(table["sha256"][table["batch"] != run.batch_name])  # no image enters twice
            missing = sum(
                labels.get(f"{run.batch_name}/{image}") != label and hashes.get(image) not in others
                for image, label in named.items()
            )
            if missing:
                command = f"erd incorporate --batch {run.batch_name}"
                found.append({"batch": run.batch_name, "images": missing, "command": command})
    return found


def _disk() -> dict[str, int]:
    """Bytes of each kind, and what is free."""
    every = [place for places in PLACES.values() for place in places]
    used = {name: sum(_bytes(place, [other for other in every if other != place]) for place in places)
            for name, places in PLACES.items()}  # fmt: skip
    return used | {"free": shutil.disk_usage(Path.cwd()).free}


def _bytes(place: Path, others: list[Path]) -> int:
    if place.is_file():
        return place.stat().st_size
    total = 0
    for folder, below, names in os.walk(place):
        below[:] = [name for name in below if Path(folder, name) not in others]
        for name in names:
            with suppress(OSError):  # gone since
                total += Path(folder, name).lstat().st_size
    return total
