"""Two years in one workspace: what grows from week to week, and how often does the alarm ring for nothing?

    python benchmarks/soak.py --json                          # 104 weeks in soak/; the same command again goes on
    python benchmarks/soak.py --weeks 8 --place DIR --json    # a short one
    python benchmarks/soak.py --output docs/operate.md        # and the table of that page

A week is what a user's is: images as files in an inbox, `erd run` (Prefect, MLflow, DVC) against one Prefect server
that lives through all of them, an expert who answers about flags and the audit, `erd incorporate`. All of it is done in
this one process, members too, so that what is not given back is seen in its memory. The images are the bundled digits,
each turned, shifted and dimmed by chance: as many as one likes, all by one law, and nothing is ever novel. At the end
`erd prune` clears old weeks away, and one more week is run.

After each week DIR/soak.jsonl has a line more. Told are medians of the first ten weeks and of the last ten (of a
shorter soak: a quarter of the weeks each), without the very first, in which all is loaded and the databases are made.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIRST = 800  # labelled images in the beginning
A_WEEK = 100
SIDE = 32
TEN = 10  # weeks that are compared, in the beginning and at the end
KEEP = 8  # weeks that `erd prune` leaves whole at the end
# Small, and everything that own images have by default: an encoder, cross-fitting, four weeks together.
SMALL = ("data.settle=0", "model.input_size=96", "finetune.members=3", "review.audit=2", "run.runner=serial")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=104)
    parser.add_argument("--place", metavar="DIR", default="soak", help="the workspace; default %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE", help="put the table between the marks of a page")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    place = Path(arguments.place).resolve()
    output = arguments.output and arguments.output.resolve()
    begin(place)
    from overhead import prefect_server

    with contextlib.chdir(place), prefect_server(place / "prefect") as address:
        os.environ |= {"PREFECT_API_URL": address, "PREFECT_HOME": str(place / "prefect"), "DVC_NO_ANALYTICS": "1"}
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        for number in range(len(rows(place)) + 1, arguments.weeks + 1):
            row = live(number) | measured(place)
            with (place / "soak.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            if not arguments.json:
                print(json.dumps(row), file=sys.stderr, flush=True)
        found = told(rows(place)[: arguments.weeks])
        found["pruned"] = pruned(arguments.weeks)
    if output:
        from erd.bench import page_parts

        page_parts.into(output, "soak", "\n".join(table(found)) + "\n")
    print(json.dumps(found))


def begin(place: Path) -> None:
    """A workspace with labelled images, a git and DVC repository as a clone is one; as it is where there is one."""
    if (place / "scans.done").exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    (place / ".dvc").mkdir(parents=True)
    for name in ("params.yaml", "dvc.yaml", "prefect.yaml", ".dvcignore", ".gitignore", ".dvc/config"):
        shutil.copy(ROOT / name, place / name)
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    for number, (image, digit) in enumerate(itertools.islice(drawn(0), FIRST)):
        folder = place / "scans" / f"digit {digit}"
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:05}.png")
    with contextlib.chdir(place):
        erd("ingest", "--labeled", "scans")
    (place / "scans.done").touch()


def drawn(week: int) -> Iterator[tuple[Any, int]]:
    """Pictures of digits without end, and which digit each shows; the same again for the same week."""
    import numpy as np
    from PIL import Image
    from PIL.Image import Resampling
    from sklearn.datasets import load_digits

    digits, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng([20, week])
    while True:
        which = int(rng.integers(len(labels)))
        image = Image.fromarray((digits[which].reshape(8, 8) * 255 / 16).astype(np.uint8)).resize(
            (SIDE, SIDE), Resampling.BICUBIC
        )
        moved = image.rotate(rng.normal(0, 8), Resampling.BICUBIC, translate=tuple(rng.integers(-2, 3, 2).tolist()))
        pixels = np.asarray(moved, np.float32) * rng.uniform(0.7, 1) + rng.normal(0, 6, (SIDE, SIDE))
        yield Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), int(labels[which])


def erd(*words: str) -> dict[str, Any]:
    """A command, in this process."""
    from erd.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, "--json", "--quiet"])
    if code:
        sys.exit(f"erd {' '.join(words)}: {err.getvalue()}")
    return json.loads(out.getvalue().splitlines()[-1])


def live(number: int) -> dict[str, Any]:
    """Through a week: what came out of it, and how long it took."""
    from erd.runs.answers import Answers
    from erd.runs.folder import RunDir
    from erd.runs.results import Metrics

    name = f"week-{number:03}"
    inbox, run = Path("inbox", name), RunDir(Path("runs", name))
    inbox.mkdir(parents=True, exist_ok=True)
    truth = {}
    for count, (image, digit) in enumerate(itertools.islice(drawn(number), A_WEEK)):
        image.save(inbox / f"{count:05}.png")
        truth[f"{count:05}.png"] = f"digit {digit}"
    seconds: dict[str, float | None] = {"run": None, "incorporate": None}  # None: done before a kill
    if not (run.metrics.exists() and Answers(run.answers).current()):
        settings = [word for setting in SMALL for word in ("--set", setting)]
        busy = time.process_time()
        seconds["run"] = timed("run", "--scenario", "own", "--batch", name, *settings)
        seconds["run_processor"] = round(time.process_time() - busy, 2)  # what others do on the machine is not in it
        seconds["stages"] = in_stages(run)
        answer(run, truth)
    seconds["incorporate"] = timed("incorporate", "--batch", name)
    seconds["history"], seconds["status"] = timed("history"), timed("status")
    verdict = Metrics.read(run).verdict
    return {
        "week": name,
        "alarm": bool(verdict.rings),
        "alarm_p": verdict.alarm_p,
        "weeks_p": verdict.weeks_p,
        "flagged": verdict.flagged,
        "seconds": seconds,
    }


def timed(*words: str) -> float:
    started = time.perf_counter()
    erd(*words)
    return round(time.perf_counter() - started, 2)


def in_stages(run: Any) -> float:
    """Of a run's seconds, those that its stages took; the others are Prefect's, MLflow's and DVC's."""
    from erd.base import files

    records = [files.load_json(path) for path in (run.root / "stages").glob("*.json")]
    ends = [[datetime.fromisoformat(record[end]) for end in ("started", "finished")] for record in records]
    return round(sum((last - first).total_seconds() for first, last in ends), 2)


def answer(run: Any, truth: dict[str, str]) -> None:
    """The expert, who is always right: about all that is flagged, and the audit."""
    from erd.review import queue
    from erd.runs.answers import Answer, Answers, now

    shown = queue.load(run)
    ids = shown.table["id"].to_numpy()
    lists = {"flagged": ids[shown.lists["flagged"][: shown.cut]], "audit": ids[shown.lists["audit"]]}
    Answers(run.answers).merge(
        Answer(image, "class", truth[image], "expert", which, now()) for which in lists for image in lists[which]
    )


def measured(place: Path) -> dict[str, Any]:
    """Bytes, by what they are for; rows of the databases; memory of this process and of the Prefect server."""
    import psutil  # type: ignore[import-untyped]

    from erd.integrations import status

    here = psutil.Process()
    disk = status.look()["disk"]
    disk["prefect"] = sum(path.stat().st_size for path in (place / "prefect").glob("*.db*"))
    disk["mlflow.db"] = (place / "mlflow.db").stat().st_size
    disk.pop("free")
    servers = [child for child in here.children() if "prefect" in " ".join(child.cmdline())]
    memory = {"process": here.memory_info().rss, "server": sum(child.memory_info().rss for child in servers)}
    databases = {"mlflow": place / "mlflow.db", "prefect": place / "prefect" / "prefect.db"}
    return {"pid": os.getpid(), "memory": memory, "disk": disk, "rows": {k: in_tables(v) for k, v in databases.items()}}


def in_tables(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as tables:
        names = [name for (name,) in tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return sum(tables.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names)  # noqa: S608 (its own names)


def rows(place: Path) -> list[dict[str, Any]]:
    path = place / "soak.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told(weeks: list[dict[str, Any]]) -> dict[str, Any]:
    """First and last weeks, and their ratio."""
    from scipy.stats import binom

    from erd.settings.schema import Alarm, Detect

    some = max(1, min(TEN, len(weeks) // 4))
    alone = [week for week in weeks if week["pid"] == weeks[-1]["pid"]]  # memory is a process's own
    seconds = {name: [week["seconds"].get(name) for week in weeks[1:]] for name in weeks[-1]["seconds"]}
    disk, rows = ({kind: [after[what][kind] - before[what][kind] for before, after in itertools.pairwise(weeks)]
                   for kind in weeks[-1][what]} for what in ("disk", "rows"))  # fmt: skip
    alarms, flags = sum(week["alarm"] for week in weeks), sum(week["flagged"] > 0 for week in weeks)
    rate = Alarm().rate / Alarm().looks
    return {
        "weeks": len(weeks),
        "a_week": A_WEEK,
        "compared": some,
        "seconds": {name: compared(values, some) for name, values in seconds.items()},
        "memory_mb": {
            who: compared([week["memory"][who] / 1e6 for week in alone[1:]], some) for who in weeks[-1]["memory"]
        },
        "memory_of_weeks": len(alone),
        "disk_mb_a_week": {kind: compared([size / 1e6 for size in sizes], some) for kind, sizes in disk.items()},
        "database_rows_a_week": {kind: compared(list(counts), some) for kind, counts in rows.items()},
        "disk_mb": {kind: round(size / 1e6, 2) for kind, size in weeks[-1]["disk"].items()},
        # Of soaks that keep the rates exactly, at most 2.5% have more.
        "false_alarms": {"weeks": alarms, "most_by_chance": int(binom.ppf(0.975, len(weeks), rate))},
        "false_flags": {"weeks": flags, "most_by_chance": int(binom.ppf(0.975, len(weeks), Detect().fdr))},
    }


def compared(values: list[float | None], some: int) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    if not known:
        return {"first": None, "last": None, "ratio": None}
    first, last = statistics.median(known[:some]), statistics.median(known[-some:])
    return {"first": round(first, 3), "last": round(last, 3), "ratio": round(last / first, 3) if first else None}


def table(found: dict[str, Any]) -> Iterator[str]:
    """Of docs/operate.md."""
    yield f"{found['weeks']} weeks; medians of the first {found['compared']} and of the last {found['compared']}."
    yield ""
    yield "| | first | last | ratio |"
    yield "|---|---|---|---|"
    names = {"seconds": "seconds", "memory_mb": "memory, MB", "disk_mb_a_week": "disk, MB a week",
             "database_rows_a_week": "database rows a week"}  # fmt: skip
    for key, name in names.items():
        for what, one in found[key].items():
            yield f"| {name}: {what} | {one['first']:,} | {one['last']:,} | {one['ratio']} |"
    for key, name in (("false_alarms", "an alarm"), ("false_flags", "a flag")):
        allowed = found[key]["most_by_chance"]
        yield f"| weeks with {name}, all of them false; allowed {allowed} | | {found[key]['weeks']} | |"
    freed = found["pruned"]
    yield f"| `erd prune --keep {freed['keep']}` at the end: MB free | | {freed['bytes'] / 1e6:,.0f} | |"


def pruned(weeks: int) -> dict[str, Any]:
    """What clearing old weeks away frees; and a week after it, which runs like any other."""
    found = erd("prune", "--keep", str(min(KEEP, max(1, weeks // 2))))
    after = live(weeks + 1)
    return {**found, "a_week_after": after["seconds"]["run"]}


if __name__ == "__main__":
    main()
