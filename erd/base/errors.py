"""What a user did or has that cannot work, said in one sentence that tells what to do.

The exit code says where the cure is. 2 (UserError): in the call. The command, an option or a setting has to be another
one, names something that is not there, or another command comes first. 1 (RunError): elsewhere. The call may stay as it
is; images or files are bad, a disk is full, a server or another run is in the way, or the training itself failed.
"""

import difflib
import re
from collections.abc import Iterable

from erd.base.addresses import bare

HALF_LETTER = re.compile("[\ud800-\udfff]")  # JSON and YAML can say it, and no file can keep it


class UserError(Exception):
    """Call it otherwise: the command line prints the sentence and exits with 2."""

    exit_code = 2


class RunError(UserError):
    """The call was right and cannot be done as things are: exits with 1."""

    exit_code = 1


class WorkerDied(RunError):
    """A process was killed from outside: the same work may succeed in a new one."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` where something known is close to `word`, else what is known."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known are {', '.join(known[:12])}{', …' if len(known) > 12 else ''}"


def shortened(text: str, most: int = 600) -> str:
    """On one line, and its middle left out where it is endless: what is wrong stands first, what to do last."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= most else f"{line[: most - 200]} … {line[-190:]}"


def is_out_of_memory(error: BaseException) -> bool:
    """In Python's words, or in torch's for a processor or a GPU."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in ("allocate memory", "out of memory"))
    )


def why(error: BaseException) -> str:
    """A library's own reason, on one line, not too long for a sentence, and without anybody's password."""
    text = bare(" ".join(str(error).split()))
    return (text[:157] + "…" if len(text) > 158 else text) or type(error).__name__
