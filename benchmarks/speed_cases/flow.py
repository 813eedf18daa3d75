"""(h) `erd run` with Prefect, MLflow and DVC, against the bare stages: benchmarks/overhead.py as a case."""

import json
import subprocess
import sys
from pathlib import Path

from measuring import Asked, Case, Figure, Figures, Goal

PROGRAM = Path(__file__).resolve().parents[1] / "overhead.py"


def measure(asked: Asked) -> Figures:
    repeat, less = (asked.repeat, []) if asked.full else (1, ["--quick"])
    command = [sys.executable, str(PROGRAM), "--json", "--repetitions", str(repeat), *less]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])["rows"][0]
    # Without `make up` there is a temporary server; the slower of the two counts.
    servers = [found[way] for way in ("temporary server", "running server") if way in found]
    extra = max(servers, key=lambda way: way["overhead_seconds"])
    ratios = [1 + extra[name] / found["bare_seconds"] for name in ("overhead_seconds", "from", "to")]
    return {"h.flow": Figure(ratios, extra["overhead_seconds"], found, repetitions=repeat)}


CASE = Case(
    "h",
    "`erd run` with Prefect, MLflow and DVC, and the bare stages (benchmarks/overhead.py)",
    {"h.flow": Goal("the flow's own time over the bare stages", 15, unit=" s", tolerance=0.3)},
    measure,
)
