"""Novelty detectors compared: scenarios × methods × seeds, a task each, and one table of means and spreads.

prefect deployment run 'benchmark/benchmark' -p 'scenarios=["mnist-near"]' -p 'methods=["erd", "binary"]' -p seeds=5

The same engine and the same folder as `erd bench`: what either has done the other does not do again, and an
interrupted benchmark goes on where it was.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from erd.base.errors import RunError
from erd.bench import plan as plans
from erd.bench import run, tables
from erd.bench.plan import Asked
from erd.bench.rows import Row
from erd.training import runners
from flows.logs import told_to_prefect
from flows.tasks import worth_another_try

log = logging.getLogger("erd")


@flow(name="benchmark", flow_run_name="{seeds} seeds", task_runner=ThreadPoolTaskRunner(max_workers=64))  # type: ignore[arg-type]
def benchmark(
    scenarios: list[str] | None = None,
    methods: list[str] | None = None,
    seeds: int = 3,
    data: str | None = None,
    overrides: list[str] | None = None,
) -> list[Row]:
    """Scenarios (the bundled one unless said) × methods (all) × seeds 0, 1, …; a row for each, as `erd bench` has."""
    asked = Asked(data=data, overrides=tuple(overrides or ()))
    plan = plans.of(scenarios or [], methods or [], seeds, asked)
    with told_to_prefect():
        with runners.of(plan.settings.run, len(plan.cells)) as runner:
            rows = run.every_cell(plan, _as_tasks(runner))
        tables.write(rows, plan.root)
    _show(rows, plan.root)
    if failed := [row for row in rows if row.error]:
        raise RunError(f"{len(failed)} of {len(rows)} cells failed, such as {failed[0].method}: {failed[0].error}")
    return rows


def _as_tasks(runner: runners.Runner) -> run.Each:
    """Each job as a task, which waits in a thread for the runner that does the work."""

    @task(
        task_run_name="{name}",
        cache_policy=NO_CACHE,
        retries=runners.TRIES - 1,
        retry_condition_fn=worth_another_try,
    )
    def job(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return runner.submit(function, *arguments).result()

    def each(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        named = job.with_options(name=function.__name__)
        futures = {
            named.submit(arguments[0].name, function, arguments): number for number, arguments in enumerate(jobs)
        }
        for future in as_completed(list(futures)):
            yield futures[future], future.result(raise_on_failure=False)

    return each


def _show(rows: list[Row], folder: Path) -> None:
    """In Prefect's UI: a line a method, and the page."""
    lines: list[dict[str, Any]] = [
        {
            "scenario": table.scenario,
            "setting": setting,
            "method": line.method,
            **{heading: str(line.figures.get(key) or "–") for key, (heading, _) in tables.COLUMNS.items()},
            "paper": line.paper,
            "seconds": line.seconds and round(line.seconds, 1),
        }
        for table in tables.tables(rows)
        for setting, group in table.groups.items()
        for line in group
    ]
    create_table_artifact(lines, key="benchmark", description="mean ± standard deviation over seeds")
    create_markdown_artifact(tables.markdown(rows), key="benchmark-page", description=f"also in {folder}")
