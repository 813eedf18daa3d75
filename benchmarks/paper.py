"""The paper's tables and figures, and ours beside them: all that docs/results.md, docs/sweeps.md and docs/img show.

    python benchmarks/paper.py --data DIR                # everything, a day on two cores; `make paper DATA=DIR`
    python benchmarks/paper.py --data DIR --only shift   # one piece
    python benchmarks/paper.py --list                    # the pieces, and the command of each

Each piece is a command that can be given alone. What is done already is not done again (bench/ holds it), so that a
day of computing can be had in hours, and one that was stopped goes on.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
GREY = ("fmnist-near", "mnist-near", "mnist-fmnist", "fmnist-mnist")
OURS = ("erd", "erd-avg", "erd-avg-weights", "erd-avg-ema", "erd++", "erd++-avg")
BASELINES = ("max-softmax", "knn", "mahal-u", "mcd")
SWEPT = ("fmnist-near", "mnist-near")

# On two cores ResNet20 takes a quarter of the paper's pretraining, or an hour and a half becomes a night.
COLOUR = ("pretrain.epochs=20", "pretrain.milestones=[10,14,18]")
# The same for two nets: a fifth of the images, so that ResNet20 is done within the hour.
NETS = (*COLOUR, "data.train=5000", "data.val=1000", "data.batch_known=1000", "data.batch_novel=1000",
        "data.holdout_known=1000", "data.holdout_novel=1000")  # fmt: skip


def bench(scenarios: Sequence[str], methods: Sequence[str], seeds: int, part: str, *settings: str) -> list[str]:
    """`erd bench` that puts its tables into a part of docs/results.md."""
    return ["bench", *_each("--scenario", scenarios), *_each("--method", methods), "--seeds", str(seeds),
            *_each("--set", settings), "--output", f"docs/results.md{part}"]  # fmt: skip


def sweep(name: str, seeds: int, *settings: str) -> list[str]:
    return ["bench", "--sweep", name, *_each("--scenario", SWEPT), "--seeds", str(seeds), *_each("--set", settings),
            "--output", "docs/sweeps.md"]  # fmt: skip


def drawn(name: str, *more: str) -> list[str]:
    """A script beside this one that draws docs/img/<name>.png."""
    return [f"benchmarks/{name}.py", *more, "--output", f"docs/img/{name}.png"]


def _each(word: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (word, value)]


PIECES = {
    "tables": bench(GREY, ["all"], 3, ""),
    "averages": bench([*GREY, "digits-near"], OURS, 5, "#averages"),
    "xray": bench(["xray-viral"], [*OURS[:4], *BASELINES], 5, "#xray"),
    "colour": bench(["cifar10-near"], [*OURS[:3], *BASELINES], 1, "#colour", *COLOUR, "pretrain.threads=2"),
    "shift": bench(["fmnist-c2", "fmnist-c5"], ["erd", "erd-avg", "vanilla", "mahal-u", "mcd"], 1, "#shift"),
    "members": sweep("members", 3),
    "labels": sweep("labels", 3),
    "score": sweep("score", 3),
    "stopping": sweep("stopping", 3),
    "share": sweep("share", 1),
    "lr-batch": sweep("lr-batch", 1),
    "nets": sweep("nets", 1, *NETS),
    "evolution": drawn("evolution", "--scenario", "fmnist-near"),
    "theory": drawn("theory"),
    "toy": drawn("toy"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PIECES, help="repeatable; default all")
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"), help="folder with the image sets")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    asked = parser.parse_args()
    failed = []
    for number, name in enumerate(pieces := asked.only or list(PIECES), 1):
        words = command(name, asked.data)
        print(f"{number} of {len(pieces)}, {name}: {shlex.join(words)}", flush=True)
        if not asked.list:
            started = time.monotonic()
            program = [sys.executable, *(["-m", "erd"] if words[0] == "erd" else []), *words[1:]]
            ended = subprocess.run(program, cwd=ROOT, stdout=subprocess.DEVNULL).returncode
            print(f"    {'done' if not ended else 'failed'} after {time.monotonic() - started:,.0f} s", flush=True)
            failed += [name] if ended else []
    if failed:
        print(f"failed: {', '.join(failed)}; what they said is above, the rest is done", file=sys.stderr)
    return 1 if failed else 0


def command(name: str, data: str | None) -> list[str]:
    """As a user would give it."""
    words = PIECES[name]
    needs_data = words[0] == "bench" or "--scenario" in words
    where = ["--data", str(Path(data).resolve())] if data and needs_data else []
    return [*(["erd"] if words[0] == "bench" else ["python"]), *words, *where]


if __name__ == "__main__":
    sys.exit(main())
