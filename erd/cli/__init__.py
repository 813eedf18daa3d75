"""The command line. Heavy imports happen inside the commands, so that `erd --help` answers at once.

--json prints one JSON object as the last line of stdout; everything else goes to stderr. Exit 0 good, 1 failed run,
2 wrong usage; erd/base/errors.py has the rule. Each file beside this one has the commands of one kind of work, and
tells the parser of them.
"""

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from erd.base import endings
from erd.base.errors import UserError, is_out_of_memory, shortened, why
from erd.base.version import VERSION
from erd.cli import bench, completion, experts, labelled, machine, prune, status, weekly
from erd.cli.arguments import Command, Commands

PREFECT = ("prefect", "APILogWorker", "EventsWorker")  # its loggers
# How `erd --help` lists the commands: in the order of use. What is not here comes last.
TASKS = {
    "every week": ("init", "ingest", "run", "status", "history"),
    "experts": ("review", "incorporate", "decide", "sensitivity"),
    "benchmark": ("bench", "methods", "scenarios", "simulate"),
    "machine": ("doctor", "stage", "sync", "reproduce", "prune", "backup", "restore", "completion"),
}
EXAMPLE = """\
an example, own images from files to a learned new class:
  erd ingest --labeled scans                    scans/ has a folder for each class
  erd run --scenario own --batch 2026-W46       what in inbox/2026-W46 is new?
  erd review --batch 2026-W46                   experts look and label
  erd incorporate --batch 2026-W46              the classifier learns it with the next run

`erd COMMAND --help` tells the options of one."""
SHOW_ALL = "ERD_TRACEBACK"
LONGEST = 2000  # characters of a logged message: some list files
NO_MEMORY = (
    "there is not enough memory: smaller images (data.image_size, data.largest), a smaller batch_size or fewer at once "
    "(run.workers) take less"
)
log = logging.getLogger("erd")


def command() -> None:
    """`erd` itself: the whole of a process."""
    # Where a run has to end hard, Python's own tracker clears up after its pools; that need not be the last word.
    quiet = [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker"]
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, quiet))
    code = main()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is done or said, and it is ending
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    _log_to_stderr(quiet=arguments.quiet)
    try:
        with endings.terminable(), _without_bars() if arguments.quiet else contextlib.nullcontext():
            result = arguments.command(arguments)
    except UserError as error:
        print(f"erd: {shortened(str(error))}", file=sys.stderr)
        return error.exit_code
    except endings.Stopped:
        return 1
    except KeyboardInterrupt:
        print(f"erd: stopped; {endings.AGAIN}", file=sys.stderr)
        return 1
    except Exception as error:
        if os.environ.get(SHOW_ALL):
            raise
        print(f"erd: {shortened(_unforeseen(error))}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(result))
    return 0


def _unforeseen(error: Exception) -> str:
    """What nobody has thought of, said as briefly as what somebody has."""
    if is_out_of_memory(error):
        return NO_MEMORY
    if isinstance(error, OSError) and error.errno and error.filename is not None:
        return f"{os.strerror(error.errno).lower()}: {str(error.filename)!a}; check path, space and rights"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"this is a fault of erd: {type(error).__name__} in {Path(place.filename).name}, line {place.lineno} "
        f"({why(error)}); `erd doctor` finds damaged files, and {SHOW_ALL}=1 before the command shows all for a report"
    )


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(shortened(message))


def parser() -> argparse.ArgumentParser:
    whole = Parser(
        prog="erd",
        usage="erd COMMAND [options]",
        description="A weekly novelty watch for image classifiers.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"erd {VERSION}")
    quiet = {"action": "store_true", "help": "only results and errors"}
    whole.add_argument("--quiet", **quiet)  # type: ignore[arg-type]
    commands = whole.add_subparsers(required=True, metavar="command", help=argparse.SUPPRESS, prog="erd")
    about: dict[str, str] = {}

    def command(name: str, function: Command, text: str) -> argparse.ArgumentParser:
        about[name] = text
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        sub.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
        sub.add_argument("--quiet", **quiet, default=argparse.SUPPRESS)  # type: ignore[arg-type]  # or before its name
        return sub

    kinds: tuple[Commands, ...] = (
        labelled.add, weekly.add, experts.add, bench.add, machine.add, status.add, prune.add, completion.add,
    )  # fmt: skip
    for add in kinds:
        add(command)
    whole.epilog = f"{_by_task(about)}\n\n{EXAMPLE}"
    return whole


def _by_task(about: Mapping[str, str]) -> str:
    """The commands, with what they do, as blocks of lines."""
    listed = {name for names in TASKS.values() for name in names}
    tasks = TASKS | {"more": tuple(name for name in about if name not in listed)}
    blocks = ([task, *(f"  {name:<12} {about[name]}" for name in names if name in about)]
              for task, names in tasks.items())  # fmt: skip
    return "\n\n".join("\n".join(block) for block in blocks if len(block) > 1)


def _log_to_stderr(*, quiet: bool) -> None:
    """Our own words, and other libraries' warnings; not Prefect's, which go to its server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.name.partition(".")[0] not in PREFECT)
    if quiet:
        handler.addFilter(_is_trouble)
    handler.addFilter(_is_short)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="%(message)s", force=True)
    log.setLevel(logging.INFO)


def _is_short(record: logging.LogRecord) -> bool:
    """It is afterwards: a message that repeats what it was given does so in part."""
    if len(text := record.getMessage()) > LONGEST:
        record.msg, record.args = shortened(text, LONGEST), ()
    return True


def _is_trouble(record: logging.LogRecord) -> bool:
    """An error, or what went wrong where a run goes on: a warning of ours that is no note (the results have those)."""
    ours = record.name == log.name and record.levelno == logging.WARNING
    return record.levelno >= logging.ERROR or (ours and not record.getMessage().startswith("note: "))


def _without_bars() -> contextlib.AbstractContextManager[None]:
    from erd.base import progress  # imports torch

    return progress.hidden()
