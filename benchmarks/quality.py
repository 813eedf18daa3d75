"""Detection quality over seeds: each scenario run as a user would, mean and spread.

    python benchmarks/quality.py --scenario fmnist-near --seeds 3 --data DIR --json
    python benchmarks/quality.py --scenario digits-near --seeds 5 --set finetune.keep=best

A seed is a new split, new label draws and new weights. Runs go to a temporary folder, or to --keep DIR, where an
interrupted benchmark goes on.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from erd.runs.folder import RunDir
from erd.runs.results import Metrics

FIGURES = ("auroc", "tnr95", "holdout_auroc", "holdout_tnr95", "max_softmax_auroc", "entropy_auroc", "realised_fpr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", help="repeatable; default digits-near")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"))
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--keep", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Path(arguments.keep or scratch)
        workspace.mkdir(parents=True, exist_ok=True)
        for scenario in arguments.scenario or ["digits-near"]:
            runs = [one(scenario, seed, arguments, workspace) for seed in range(arguments.seeds)]
            row: dict[str, object] = {"scenario": scenario, "seeds": arguments.seeds, "set": arguments.set}
            for figure in FIGURES:
                values = [run[figure] for run in runs if run[figure] is not None]
                if values:
                    spread = statistics.stdev(values) if len(values) > 1 else 0.0
                    row[figure] = {"mean": round(statistics.mean(values), 4), "std": round(spread, 4)}
            row["seconds"] = round(statistics.mean(run["seconds"] for run in runs), 1)
            rows.append(row)
            if not arguments.json:
                print(json.dumps(row), flush=True)
    print(json.dumps({"rows": rows}))


def one(scenario: str, seed: int, arguments: argparse.Namespace, workspace: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "erd.cli", "run", "--scenario", scenario, "--set", f"seed={seed}", "--json"]
    command += [part for setting in arguments.set for part in ("--set", setting)]
    if arguments.data:
        command += ["--data", str(Path(arguments.data).resolve())]
    done = subprocess.run(command, cwd=workspace, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    result = json.loads(done.stdout.splitlines()[-1])
    metrics = Metrics.read(RunDir(workspace / result["run_dir"]))
    return metrics.flat() | {"seconds": result["seconds"]}


if __name__ == "__main__":
    main()
