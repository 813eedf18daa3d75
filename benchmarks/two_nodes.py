"""Members on two Ray nodes of one core each, against as many members in two processes: time, and the same bytes.

    python benchmarks/two_nodes.py --json                                      # the bundled digits
    python benchmarks/two_nodes.py --scenario fmnist-near --data DIR --json    # the goal is for this one

Both ways fine-tune and score from the same classifier, in turn, on this machine; what they start (workers, the driver)
they start anew each time, the cluster once. A ratio is Ray's seconds over those of the processes.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from measuring import in_turn, medians, over, rounded
from random_runs import finetuned_and_scored, settings_of

from erd.base import files
from erd.runs.folder import RunDir
from erd.weekly import chain

GOAL = 1.15
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="digits-near")
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"), help="folder with the scenario's images")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args(argv)
    data = str(Path(asked.data).resolve()) if asked.data else None
    settings = settings_of(asked.scenario, [f"finetune.members={asked.members}", "run.device=cpu"], data)
    with tempfile.TemporaryDirectory(prefix="erd-nodes-") as place, chdir(place), two_nodes() as address:
        ways = {
            "process": settings.override({"run.runner": "process", "run.workers": 2}),
            "ray": settings.override({"run.runner": "ray", "run.ray_address": address}),
        }
        runs = {way: RunDir(Path(way) / "runs" / asked.scenario) for way in ways}
        for stage in chain.CHAIN[: chain.CHAIN.index(chain.BY_NAME["finetune"])]:
            chain.run(stage, ways["process"], runs["process"])
        shutil.copytree(runs["process"].root, runs["ray"].root)
        times = in_turn(
            {way: partial(finetuned_and_scored, ways[way], runs[way]) for way in ways}, asked.repeat, asked.json
        )
        equal = results(runs["process"]) == results(runs["ray"])
    ratios = [rounded(ratio) for ratio in over(times, "ray", "process")]
    report = {
        "scenario": asked.scenario,
        "members": asked.members,
        "seconds": medians(times),
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "goal": GOAL,
        "same_bytes": equal,
    }
    if not asked.json:
        print(f"{report['ratio']:.2f} × the time of two processes (goal: at most {GOAL}); same bytes: {equal}")
    print(json.dumps(report))
    return 0 if equal else 1


def results(run: RunDir) -> dict[str, str]:
    """What was made, by its hash."""
    return {path.name: files.sha256(path) for path in [*run.members.glob("[0-9]*.safetensors"), run.scores]}


@contextmanager
def two_nodes() -> Iterator[str]:
    """A cluster on this machine; its address."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    from ray.cluster_utils import Cluster

    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets need a short path
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False, "temp_dir": place})
    try:
        cluster.add_node(**NODE)
        yield cluster.address
    finally:
        cluster.shutdown()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
