"""What a user would pick instead, beside ours: the same images, the same features, the same cores, in one run.

    python benchmarks/peers.py --data DIR --json
    python benchmarks/peers.py --data DIR --keep DIR --output docs/peers.md     # hours; a second call goes on
    python benchmarks/peers.py --data DIR --set-name waste --share 10 --repetitions 1 --method erd --method sklearn-lof

Needs `pip install -c constraints.txt -e '.[peers]'`; peers whose package is not there are left out with a word. Each
repetition is a new split (and where one class is new, the next one), on seeds that nothing was chosen on. Ours is what
a weekly run does with its defaults; a peer is a function of benchmarks/peers_cases, which gets the encoder's features
of all labelled images and of the batch, and never the truth. Each runs in a process of its own on one core. Batches
without novelty (share 0) are looked at by those that flag or ring. docs/peers.md says what is compared, and has the
tables.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import peers_cases
import peers_page
import rare
import torch
from peer import OURS, Array, Found

from erd.base import files
from erd.base.processes import cores, end_with
from erd.bench import page_parts
from erd.data import packed
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.settings.schema import Settings
from erd.statistics import metrics
from erd.weekly import chain


class Kind(NamedTuple):
    """Which images: a scenario, with {} for the class that is new this time."""

    scenario: str
    batch: int  # images
    new: Sequence[str | int] = ()  # classes, one after the other; () where the scenario says it
    more: tuple[str, ...] = ()


SMALLER = ("data.train=4500", "data.val=500")  # as the scenarios of one new class
SETS = {
    "waste": Kind("own", rare.WASTE_BATCH, rare.WASTE),
    "cifar10-one": Kind("cifar10-one-{}-encoded", 1_000, rare.SETS["cifar10"]),
    "cifar10-near": Kind("cifar10-near-1k-encoded", 1_000, more=SMALLER),
    "xray-viral": Kind("xray-viral-encoded", 500),
    "fmnist-one": Kind("fmnist-one-{}-encoded", 1_000, rare.SETS["fmnist"]),
    "fmnist-near": Kind("fmnist-near-1k-encoded", 1_000, more=SMALLER),
    "digits": Kind("digits-one-{}", 300, range(10)),  # on pixels, bundled: to try it
}
SHARES = (50, 10, 3)  # percent
QUIET = 2  # times as many batches without novelty, since a rate is asked for
FIRST_SEED = rare.FIRST_SEED
STOPPED = tuple(-number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
LONGEST = 3_600  # seconds that anybody gets for a batch
METHODS = (OURS, *peers_cases.found())
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name in SETS if name != "digits"]
    parser.add_argument("--set-name", action="append", choices=SETS, help="repeatable; default all but digits")
    parser.add_argument("--share", action="append", type=int, help=f"percent; repeatable; default {SHARES} and 0")
    parser.add_argument("--repetitions", type=int, default=5, help="default 5, and 10 of batches without novelty")
    parser.add_argument("--method", action="append", choices=METHODS, help="repeatable; default all")
    parser.add_argument("--data", default=os.environ.get("ERD_DATA", "."), help="folder of the sets")
    parser.add_argument("--keep", metavar="DIR", help="results and features are kept there; a second call goes on")
    parser.add_argument("--output", type=Path, metavar="FILE", help="put the tables between the marks of a page")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args(argv)
    if asked.output:
        page_parts.check(asked.output, "peers")
    methods, absent = there(asked.method or METHODS)
    for line in absent:
        print(line, file=sys.stderr)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(asked.keep or scratch).resolve()
        tasks = [
            Task(place, name, seed, shares, methods, Path(asked.data).resolve())
            for name in asked.set_name or usual
            for seed, shares in seeds(asked.share or (*SHARES, 0), asked.repetitions)
        ]
        for found in done(tasks):
            rows += found
            if not asked.json:
                print(f"{len(rows)} results", file=sys.stderr, flush=True)
    summary = peers_page.summarised(rows)
    if asked.output:
        page_parts.into(asked.output, "peers", peers_page.text(rows, absent))
    if not asked.json:
        print(peers_page.text(rows, absent))
    print(json.dumps({"rows": summary, "absent": absent}))


def there(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Whom we can ask, and a sentence on each whom we cannot."""
    known = peers_cases.found()
    absent = [name for name in names if name != OURS and not known[name].installed]
    words = [f"{name} is left out: {known[name].package} is not installed" for name in absent]
    return [name for name in names if name not in absent], words


def seeds(shares: Sequence[int], repetitions: int) -> list[tuple[int, tuple[int, ...]]]:
    """The shares of each seed; one after another, so that the features of its images are made once."""
    found = []
    for number in range(repetitions * (QUIET if 0 in shares else 1)):
        mine = tuple(share for share in shares if share == 0 or number < repetitions)
        found.append((FIRST_SEED + number, mine))
    return found


class Task(NamedTuple):
    """What one process does one after another."""

    place: Path
    name: str
    seed: int
    shares: tuple[int, ...]
    methods: list[str]
    data: Path


def done(tasks: Sequence[Task]) -> Any:
    spawning = get_context("spawn")
    free: SimpleQueue[int] = spawning.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(cores()):
        free.put(core)
    with ProcessPoolExecutor(cores(), spawning, alone_on_a_core, (free,)) as pool:
        for future in as_completed([pool.submit(measured, task) for task in tasks]):
            yield future.result()


def alone_on_a_core(free: "SimpleQueue[int]") -> None:
    """This process and all that it starts: some peers take all cores they see."""
    end_with(os.getppid())
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {free.get()})


def measured(task: Task) -> list[dict[str, Any]]:
    rows = []
    for share in task.shares:
        cell = f"{task.name}-{share}-{task.seed}"
        kept = {name: task.place / f"{cell}-{name}.json" for name in task.methods if share or decides(name)}
        open_ones = [name for name, path in kept.items() if not path.exists()]
        if open_ones:
            run, given = RunDir(task.place / "runs" / cell), task.place / "given" / cell
            settings = settings_of(task.name, share, task.seed, task.data)
            novel = prepared(settings, run, given)
            for name in open_ones:
                about = {"set": task.name, "share": share, "seed": task.seed, "method": name}
                files.save_json(kept[name], about | asked_alone(name, given, novel))
            shutil.rmtree(run.root)
            shutil.rmtree(given)
        rows += [files.load_json(path) for path in kept.values()]
    return rows


def decides(name: str) -> bool:
    return name == OURS or peers_cases.found()[name].decides


def settings_of(name: str, share: int, seed: int, data: Path) -> Settings:
    kind = SETS[name]
    new = kind.new[seed % len(kind.new)] if kind.new else ""
    novel = round(kind.batch * share / 100)
    said = [f"seed={seed}", "data.holdout_known=0", "data.holdout_novel=0", f"data.batch_novel={novel}",
            f"data.batch_known={kind.batch - novel}", *kind.more]  # fmt: skip
    if kind.scenario == "own":
        said += ["data.source=folder", f"data.path={data / name}", f"data.novel=[{new}]"]
    return settings_for(scenario=kind.scenario.format(new), data=str(data), runner="serial", overrides=said)


def prepared(settings: Settings, run: RunDir, given: Path) -> Array:
    """Images dealt and encoded, as ours and peers get them; what is novel."""
    for stage in chain.up_to("encode"):
        chain.run(stage, settings, run)
    labeled, batch = (packed.read(run.seen(path, settings)) for path in (run.labeled, run.batch))
    assert labeled.labels is not None
    order = torch.from_numpy(np.random.default_rng(settings.seed).permutation(len(labeled)))
    given.mkdir(parents=True, exist_ok=True)
    np.save(given / "x.npy", labeled.rows().take(order).flatten(1).float().numpy())
    np.save(given / "y.npy", labeled.labels[order].numpy())
    np.save(given / "u.npy", batch.rows().every().flatten(1).float().numpy())
    (given / "settings.json").write_text(settings.model_dump_json(), encoding="utf-8")
    (given / "run.txt").write_text(str(run.root), encoding="utf-8")
    truth = packed.truth_of(run.batch)
    assert truth is not None
    return truth == "novel"


def asked_alone(name: str, given: Path, novel: Array) -> dict[str, Any]:
    """In a process of its own: what was found, the seconds from features on disk to an answer on disk, and memory."""
    for left in ("found.npz", "peak.txt"):
        (given / left).unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).with_name("peer_alone.py")), name, str(given)]
    started = time.perf_counter()
    try:
        subprocess.run(command, env=os.environ | ONE_THREAD, check=True, capture_output=True, text=True,
                       timeout=LONGEST)  # fmt: skip
        seconds = time.perf_counter() - started
        with np.load(given / "found.npz", allow_pickle=False) as kept:
            found = Found(**{part: kept[part] for part in kept.files})
        row = figures(found, novel)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {LONGEST // 60} minutes"}
    except (subprocess.CalledProcessError, ValueError) as error:
        if getattr(error, "returncode", 0) in STOPPED:
            raise  # somebody ended it: that is not kept as an answer, and the next call asks again
        said = getattr(error, "stderr", None) or str(error)
        return {"failed": said.strip().splitlines()[-1][:300]}
    peak = given / "peak.txt"
    kilobytes = int(peak.read_text()) if peak.exists() else None
    return row | {"seconds": round(seconds, 2), "megabytes": kilobytes and round(kilobytes / 1024)}


def figures(found: Found, novel: Array) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if found.scores is not None:
        if not np.isfinite(found.scores).all():
            raise ValueError("scores that are no numbers")
        if novel.any():
            scores = np.asarray(found.scores, float)
            row["auroc"] = metrics.auroc(scores[~novel], scores[novel])
            row["p50"] = metrics.first_looks(scores, novel)["p50"]
    if found.flags is not None:
        flags = np.asarray(found.flags, bool)
        row |= {
            "fdp": float((~novel)[flags].mean()) if flags.any() else 0.0,
            "power": float(flags[novel].mean()) if novel.any() else None,
            "known_flagged": float(flags[~novel].mean()),
            "any_flag": bool(flags.any()),
        }
    if found.p is not None:
        row["rings"] = bool(found.p <= peers_page.LEVEL)
        if found.level is not None:
            row["rings_weekly"] = bool(found.p <= found.level)
    return row


if __name__ == "__main__":
    main()
