"""The commands `erd bench` and `erd methods`. Heavy imports happen inside, as in `erd.cli`."""

import argparse
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from erd.errors import RunError, UserError

log = logging.getLogger("erd")


def add(
    command: Callable[[str, Any, str], argparse.ArgumentParser], with_data: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Tell the parser of `erd.cli` about them."""
    many = command("bench", bench, "compare novelty detectors: scenarios × methods × seeds")
    many.add_argument(
        "--scenario",
        metavar="S",
        action="append",
        default=[],
        help="repeatable (default: digits-near); `erd scenarios`",
    )
    many.add_argument(
        "--method", metavar="M", action="append", default=[], help="repeatable (default: all); `erd methods`"
    )
    many.add_argument(
        "--sweep",
        metavar="NAME",
        help="vary one thing instead: members, labels, share, nets, lr-batch, score, stopping",
    )
    many.add_argument("--seeds", metavar="N", type=int, default=3, help="the seeds 0 to N - 1 (default: %(default)s)")
    with_data(many)
    many.add_argument("--set", metavar="a.b=v", action="append", default=[], help="override a setting; repeatable")
    many.add_argument("--runner", metavar="R", help="process or serial")
    many.add_argument("--params", metavar="FILE", help="settings file (default: params.yaml here, if there is one)")
    many.add_argument("--folder", metavar="DIR", default="bench", help="where results are kept (default: %(default)s)")
    many.add_argument(
        "--output",
        metavar="FILE.md[#PART]",
        help="put the tables into this page too, between <!-- PART:begin --> and <!-- PART:end -->; PART is `bench`, "
        "or the name of the sweep, unless said otherwise",
    )
    command("methods", methods, "list the novelty detectors, and what each may see")


def bench(arguments: argparse.Namespace) -> dict[str, Any]:
    """All cells that are not done yet, in parallel; then the tables."""
    from erd import bench, leaderboard, pages
    from erd.compute import Workers

    if arguments.sweep:
        return sweep(arguments)

    plan = bench.plan(
        arguments.scenario,
        arguments.method,
        arguments.seeds,
        data=arguments.data,
        overrides=arguments.set,
        runner=arguments.runner,
        file=Path(arguments.params) if arguments.params else None,
        root=Path(arguments.folder),
    )
    output = pages.place(arguments.output, "bench") if arguments.output else None
    if output:
        pages.check(*output)
    with Workers(plan.settings.run, len(plan.cells)) as workers:
        rows = bench.run(plan, bench.side_by_side(workers))
    written = leaderboard.write(rows, plan.root)
    if output:
        pages.into(*output, leaderboard.markdown(rows, brief=output[1] != "bench"))
        written.append(output[0])
    if plan.skipped:
        log.info("left out, for want of weights (--set bench.weights=FILE): %s", ", ".join(plan.skipped))
    if not arguments.json:
        print(leaderboard.markdown(rows))
        print("\n".join(f"table    {path}" for path in written))
    result = {"rows": rows, "files": [path.as_posix() for path in written]}
    if failed := [row for row in rows if row["error"]]:
        if arguments.json:
            print(json.dumps(result))
        first = f"{failed[0]['scenario']}, {failed[0]['method']}: {failed[0]['error']}"
        raise RunError(f"{len(failed)} of {len(rows)} cells failed, such as {first}; the others are in {written[1]}")
    return result


def sweep(arguments: argparse.Namespace) -> dict[str, Any]:
    """One thing varied: a table and a figure."""
    from erd import bench, pages, sweeps
    from erd.compute import Workers

    if len(arguments.method) > 1:
        raise UserError("a sweep varies one method; give --method once")
    plan = sweeps.plan(
        arguments.sweep,
        arguments.scenario,
        arguments.seeds,
        method=arguments.method[0] if arguments.method else sweeps.ERD,
        data=arguments.data,
        overrides=arguments.set,
        runner=arguments.runner,
        file=Path(arguments.params) if arguments.params else None,
        root=Path(arguments.folder),
    )
    output = pages.place(arguments.output, arguments.sweep) if arguments.output else None
    if output:
        pages.check(*output)
    with Workers(plan.settings.run, len(plan.cells)) as workers:
        rows = bench.run(plan, bench.side_by_side(workers))
    written = sweeps.write(arguments.sweep, rows, plan.root)
    if output:
        written += sweeps.into(*output, arguments.sweep, rows)
    if not arguments.json:
        print(written[1].read_text(encoding="utf-8"))
        print("\n".join(f"{path.suffix[1:]:<8} {path}" for path in written))
    result = {"rows": rows, "files": [path.as_posix() for path in written]}
    if failed := [row for row in rows if row["error"]]:
        if arguments.json:
            print(json.dumps(result))
        first = f"{failed[0]['scenario']}, {failed[0]['method']}: {failed[0]['error']}"
        raise RunError(f"{len(failed)} of {len(rows)} points failed, such as {first}; the others are in {written[1]}")
    return result


def methods(arguments: argparse.Namespace) -> dict[str, Any]:
    """The table of detectors."""
    from erd.methods import table

    rows = [
        {"name": m.name, "setting": m.setting, "sees": list(m.sees), "formula": m.formula, "paper": m.paper}
        for m in table().values()
    ]
    if not arguments.json:
        for setting in dict.fromkeys(row["setting"] for row in rows):
            print(f"{setting}")
            for row in rows:
                if row["setting"] == setting:
                    print(
                        f"  {row['name']:<22} {row['formula']}\n{'':24} {row['paper']}; sees {', '.join(row['sees'])}"
                    )
    return {"methods": rows}
