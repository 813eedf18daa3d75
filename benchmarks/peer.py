"""What a peer is: a detector that a user would pick instead, in the lines that this user would write.

    def isolation_forest(x: Array, y: Array, u: Array) -> Found:
        from sklearn.ensemble import IsolationForest
        model = IsolationForest(random_state=0).fit(x)
        return Found(-model.score_samples(u), model.predict(u) == -1)

    PEERS = (Peer("sklearn-iforest", "scikit-learn", "sklearn", isolation_forest, ("scores", "flags")),)

x are the encoder's features of all labelled images of a run in random order, y their classes, u the features of the
batch. A peer splits x as its authors do, and may learn from u. Imports are inside: they are lines that a user writes,
and a peer whose package is not installed stands in the list all the same.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Gives = Literal["scores", "flags", "p"]
OURS = "erd"  # its name among the peers
OUR_LINES = ("erd init --labeled scans", "erd run --batch 2026-W46")  # that a user writes, once and each week


class Found(NamedTuple):
    """Of the batch; None where a peer does not say it."""

    scores: Array | None = None  # the larger, the more novel
    flags: Array | None = None  # by the peer's own threshold
    p: float | None = None  # of 'the batch is like the labelled images'
    level: float | None = None  # at which it rings by itself, where that is not 5%


class Promise(NamedTuple):
    """At most the share `rate` of what: of the `flagged` images are known, of the `known` ones are flagged, of the
    `batches` without novelty ring."""

    of: Literal["flagged", "known", "batches"]
    rate: float

    def __str__(self) -> str:
        words = {"flagged": "of the flagged are known", "known": "of known images are flagged",
                 "batches": "of batches without novelty ring"}  # fmt: skip
        return f"{self.rate:.0%} {words[self.of]}"


@dataclass(frozen=True)
class Peer:
    name: str  # in the tables, and for --method
    package: str  # as the registry has it
    module: str  # that has to be there
    find: Callable[[Array, Array, Array], Found]
    gives: tuple[Gives, ...]
    promise: Promise | None = None
    helpers: tuple[Callable[..., Any], ...] = ()  # that `find` calls, and the user writes too

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None

    @property
    def lines(self) -> int:
        return sum(lines_of(function) for function in (self.find, *self.helpers))

    @property
    def decides(self) -> bool:
        """Whether it says anything of a batch in which nothing is novel."""
        return "flags" in self.gives or "p" in self.gives


def lines_of(function: Callable[..., Any]) -> int:
    """The lines of a function's body that hold code."""
    source = textwrap.dedent(inspect.getsource(function))
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    first = tree.body[1 if ast.get_docstring(tree) else 0].lineno
    lines = source.splitlines()[first - 1 :]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)
