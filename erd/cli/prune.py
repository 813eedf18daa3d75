"""The command `erd prune`: disk space back from old runs."""

import argparse
from typing import Any

from erd.cli.arguments import NewCommand, size, with_example


def add(command: NewCommand) -> None:
    """Tell the parser of it."""
    old = command("prune", prune, "clear nets and features of old runs away; what they found out stays")
    old.add_argument("--keep", metavar="N", type=int, required=True, help="the last N batches stay whole")
    old.add_argument("--cache", action="store_true", help="out of DVC's cache too: they cannot be reproduced then")
    old.add_argument("--dry-run", action="store_true", help="only say what would be cleared away")
    with_example(old, "erd prune --keep 8 --dry-run", "erd prune --keep 8")


def prune(arguments: argparse.Namespace) -> dict[str, Any]:
    from erd.integrations import prune

    done = prune.prune(arguments.keep, cache=arguments.cache, dry_run=arguments.dry_run)
    total = sum(done.freed.values())
    if not arguments.json:
        would = "would be" if arguments.dry_run else "are"
        count = f" of {len(done.batches):,} batch{'es' * (len(done.batches) != 1)}" if done.batches else ""
        print(f"{size(total)}{count} {would} free" if total else "nothing to clear away")
        for kind, freed in done.freed.most_common():
            print(f"  {size(freed):>7}  {kind}")
        for batch, why in done.stays.items():
            print(f"{batch} stays as it is: {why}")
    return {
        "keep": arguments.keep,
        "dry_run": arguments.dry_run,
        "batches": done.batches,
        "bytes": total,
        "freed": dict(done.freed.most_common()),
        "stays": done.stays,
    }
