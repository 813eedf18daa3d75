"""The command line. Heavy imports happen inside the commands, so that `erd --help` answers at once.

--json prints one JSON object as the last line of stdout; everything else goes to stderr. Exit 0 good, 1 failed run,
2 wrong usage; erd/base/errors.py has the rule. Each file beside this one has the commands of one kind of work, and
tells the parser of them.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence

from erd.base.errors import UserError
from erd.base.version import VERSION
from erd.cli import bench, experts, labelled, machine, weekly
from erd.cli.arguments import Command, Commands

PREFECT = ("prefect", "APILogWorker", "EventsWorker")  # its loggers
log = logging.getLogger("erd")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    _log_to_stderr()
    try:
        result = arguments.command(arguments)
    except UserError as error:
        print(f"erd: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("erd: stopped; run the same command again to go on where it was", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(result))
    return 0


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="erd", description="A weekly novelty watch for image classifiers.")
    whole.add_argument("--version", action="version", version=f"erd {VERSION}")
    commands = whole.add_subparsers(required=True, metavar="command")

    def command(name: str, function: Command, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        sub.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
        return sub

    kinds: tuple[Commands, ...] = (labelled.add, weekly.add, experts.add, bench.add, machine.add)
    for add in kinds:
        add(command)
    return whole


def _log_to_stderr() -> None:
    """Our own words, and other libraries' warnings; not Prefect's, which go to its server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.name.partition(".")[0] not in PREFECT)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="%(message)s", force=True)
    log.setLevel(logging.INFO)
