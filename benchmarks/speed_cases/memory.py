"""(f) Memory to score a batch of 1,000,000 images of 28×28, and to fine-tune on it with one worker and with two."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from measuring import Asked, Case, Figure, Figures, Goal, say
from random_runs import finetuned, random_run, scored, settings_of, untrained, without_members

SHARES = Path("/proc/self/smaps_rollup")  # there where the system says how much memory processes share


def measure(asked: Asked, members: int = 5) -> Figures:
    images = 1_000_000 if asked.full else 300_000
    if not SHARES.exists():
        say("    this needs Linux, which says how much memory processes share: left out")
        return {}
    overrides = [f"finetune.members={members}", "finetune.epochs=1", "model.net=mlp"]
    settings = settings_of("fmnist-near", overrides)
    run = random_run(asked.place / "run", train=5_000, val=1_000, batch=images, calibration=2_500, classes=10)
    untrained(settings, run, with_members=True)
    size = run.batch.stat().st_size
    repetitions = min(asked.repeat, 2) if asked.full else 1  # memory hardly varies, and time does not matter
    resident: list[float] = []
    for _ in range(repetitions):
        run.record("score").unlink(missing_ok=True)
        resident.append(peak(scored, settings, run)["resident"])
    shared: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repetitions):
        for workers, found in shared.items():
            without_members(run)
            chosen = settings.override({"run.workers": workers, "finetune.members": 2})
            found.append(peak(finetuned, chosen, run)["shared"])
    # Two workers that map the same file have it in memory once. Their resident sizes count it twice, so that for them
    # the proportional size (PSS) is summed up, in which each has half of it. For one process the resident size is the
    # larger one, and counts pages of the file that the system could take back at any time.
    extra = [(two - one) / size for one, two in zip(shared[1], shared[2], strict=True)]
    return {
        "f.score": Figure(
            [value / size for value in resident], max(resident) / 1e9, {"images_gigabytes": round(size / 1e9, 3)}
        ),
        "f.workers": Figure(
            [two / one for one, two in zip(shared[1], shared[2], strict=True)],
            max(extra),
            {"gigabytes": {f"{n} workers": round(max(found) / 1e9, 3) for n, found in shared.items()}},
        ),
    }


def peak(work: Callable[..., object], *arguments: Any) -> dict[str, float]:
    """Bytes at the highest point of a process of its own: resident, and with all that it starts, shared pages once."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_tell_peak, args=(there, work, arguments))
    process.start()
    there.close()
    highest = 0
    while not here.poll(0.2):  # not more often: to ask takes time from the one who is asked
        highest = max(highest, _proportional(process.pid or 0))
    resident = here.recv()
    process.join()
    return {"resident": resident, "shared": highest}


def _tell_peak(there: Connection, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    work(*arguments)
    # Not getrusage: its maximum begins with the size of the process that started this one.
    status = Path("/proc/self/status").read_text()
    there.send(1024 * int(status.split("VmHWM:")[1].split()[0]))


def _proportional(pid: int) -> int:
    total = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # ended in between
            continue
    return total


CASE = Case(
    "f",
    "memory to score a batch of 1,000,000 images of 28×28, and to fine-tune on it with one worker and with two",
    {
        "f.score": Goal("peak memory of scoring 1,000,000 images", 1.5, unit=" GB", worse="larger"),
        "f.workers": Goal("copies of the images that a second worker takes", 1, unit=" copies", worse="larger"),
    },
    measure,
)
