"""Detection quality over seeds: the weekly flow for scenarios × seeds, and one table of means and spreads.

prefect deployment run 'benchmark/benchmark' -p 'scenarios=["digits-near", "mnist-near"]' -p seeds=5

A seed is a new split, new label draws and new weights. An interrupted benchmark goes on where it was when it is run
again with the same parameters: finished stages of a run folder are reused.
"""

import statistics
from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact

from flows.weekly import weekly

FIGURES = ("auroc", "tnr95")


@flow(name="benchmark", flow_run_name="{seeds} seeds")
def benchmark(
    scenarios: list[str] | None = None,
    seeds: int = 3,
    data: str | None = None,
    overrides: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Scenarios (the bundled one unless said) with seeds 0, 1, … each; `data` and `overrides` as for `weekly`."""
    rows: list[dict[str, Any]] = []
    for scenario in scenarios or ["digits-near"]:
        name = f"benchmark-{scenario}"
        # An experiment and a model of its own: no seed of a benchmark shall become the champion that serves.
        own = [f"track.experiment={name}", f"registry.model={name}", *(overrides or [])]
        found = [
            weekly(batch=f"{name}-{seed}", scenario=scenario, data=data, overrides=[*own, f"seed={seed}"])
            for seed in range(seeds)
        ]
        rows.append({"scenario": scenario, "seeds": seeds} | {name: _spread(found, name) for name in FIGURES})
    create_table_artifact(rows, key="benchmark", description="mean ± standard deviation over seeds")
    return rows


def _spread(found: list[dict[str, Any]], figure: str) -> str:
    values = [metrics[figure] for metrics in found if metrics[figure] is not None]
    if not values:
        return "–"
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.4f}"
