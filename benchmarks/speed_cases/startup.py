"""(i) `erd --help` and `import erd` in a new process, against a Python that does nothing."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from measuring import Asked, Case, Figure, Figures, Goal, in_turn, medians, over, timed

import erd

COMMANDS = {
    "nothing": ["-c", "pass"],
    "help": ["-m", "erd.cli", "--help"],
    "import": ["-c", "import erd"],
}


def measure(asked: Asked) -> Figures:
    ways = {name: partial(started, arguments) for name, arguments in COMMANDS.items()}
    times = in_turn(ways, 2 * asked.repeat, quietly=True)
    seconds = medians(times)
    return {
        f"i.{name}": Figure(over(times, name, "nothing"), seconds[name], {"seconds": seconds})
        for name in ("help", "import")
    }


def started(arguments: list[str]) -> float:
    environment = os.environ | {"PYTHONPATH": str(Path(erd.__file__).resolve().parents[1])}
    command = [sys.executable, *arguments]
    return timed(lambda: subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True))


CASE = Case(
    "i",
    "`erd --help` and `import erd` in a new process, and a Python that does nothing",
    {
        "i.help": Goal("`erd --help`", 0.5, unit=" s", tolerance=0.3),
        "i.import": Goal("`import erd`", 0.5, unit=" s", tolerance=0.3),
    },
    measure,
)
