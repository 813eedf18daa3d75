"""The commands `erd bench` and `erd methods`. Heavy imports happen inside, as in `erd.cli`."""

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erd.base.errors import RunError, UserError
from erd.cli.arguments import NewCommand, with_data, with_overrides

if TYPE_CHECKING:
    from erd.bench.plan import Asked, Plan

log = logging.getLogger("erd")


def add(command: NewCommand) -> None:
    """Tell the parser of them."""
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
    with_overrides(many)
    many.add_argument("--folder", metavar="DIR", default="bench", help="where results are kept (default: %(default)s)")
    many.add_argument(
        "--output",
        metavar="FILE.md[#PART]",
        help="put the tables into this page too, between <!-- PART:begin --> and <!-- PART:end -->; PART is `bench`, "
        "or the name of the sweep, unless said otherwise",
    )
    command("methods", methods, "list the novelty detectors, and what each may see")


def bench(arguments: argparse.Namespace) -> dict[str, Any]:
    """All cells that are not done yet, in parallel; then the tables, or table and figure of a sweep."""
    from functools import partial

    from erd.bench import page_parts, run, sweeps, tables
    from erd.bench.plan import Asked
    from erd.training import runners

    asked = Asked(
        data=arguments.data,
        overrides=tuple(arguments.set),
        runner=arguments.runner,
        params=Path(arguments.params) if arguments.params else None,
        root=Path(arguments.folder),
    )
    sweep = arguments.sweep
    plan = planned(arguments, asked)
    page, part = page_parts.named(arguments.output, sweep or "bench") if arguments.output else (None, "")
    if page:
        page_parts.check(page, part)
    with runners.of(plan.settings.run, len(plan.cells)) as runner:
        rows = run.every_cell(plan, partial(runners.each, runner))
    written = sweeps.write(sweep, rows, plan.root) if sweep else tables.write(rows, plan.root)
    text = written[1]
    if page:
        written += sweeps.into(page, part, sweep, rows) if sweep else tables.into(page, part, rows)
    if not arguments.json:
        print(text.read_text(encoding="utf-8"))
        print("\n".join(f"{path.suffix[1:]:<8} {path}" for path in written))
    result = {"rows": [row.as_json() for row in rows], "files": [path.as_posix() for path in written]}
    if failed := [row for row in rows if row.error]:
        if arguments.json:
            print(json.dumps(result))
        first = f"{failed[0].scenario}, {failed[0].method}: {failed[0].error}"
        what = "points" if sweep else "cells"
        raise RunError(f"{len(failed)} of {len(rows)} {what} failed, such as {first}; the others are in {text}")
    return result


def planned(arguments: argparse.Namespace, asked: "Asked") -> "Plan":
    """What there is to do; whatever is wrong with the call is said here."""
    from erd.bench import plan, sweeps

    if not arguments.sweep:
        return plan.of(arguments.scenario, arguments.method, arguments.seeds, asked)
    if len(arguments.method) > 1:
        raise UserError("a sweep varies one method; give --method once")
    method = arguments.method[0] if arguments.method else sweeps.ERD
    return sweeps.plan(arguments.sweep, arguments.scenario, arguments.seeds, asked, method=method)


def methods(arguments: argparse.Namespace) -> dict[str, Any]:
    """The table of detectors."""
    from erd.bench.detectors import table

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
