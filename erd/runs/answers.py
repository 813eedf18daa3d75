"""What reviewers said, one JSON object a line in runs/<batch>/review/answers.jsonl.

The file only grows: an answer that is changed or taken back is a further line. A line is on disk before `add` returns,
and several processes may write at once. A crash in the middle of a write leaves a last line without its end, which
nobody was told was saved: it is passed over on reading and cleared away by the next write.

`Answers` remembers what it has read, so that an answer takes no longer with ten thousand before it than with none. The
file is read again only where something else has changed it.
"""

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from erd.base.errors import HALF_LETTER, RunError, UserError, why
from erd.base.locks import held
from erd.base.seeds import derive


@dataclass(frozen=True)
class Kind:
    """A kind of answer. A new one is a line of KINDS and a key in the page (erd/review/page_answers.js)."""

    name: str
    about: str
    choice: str | None = None  # as a choice in Label Studio; None: the label itself is the choice
    judged: bool = True  # it says whether the image is novel
    labelled: bool = False  # it names a class, and the image can be learned


KINDS = {
    kind.name: kind
    for kind in (
        Kind("class", "a class, known or new", labelled=True),
        Kind("not-novel", "some known class, not said which", "not novel"),
        Kind("bad", "of no use", "bad image", judged=False),
    )
}
LISTS = ("flagged", "audit")
LONGEST = 100  # characters of a name: it has to fit a button
_NO_FILE = "0"  # as a version


@dataclass(frozen=True)
class Answer:
    image: str  # id of the batch's image
    kind: str  # of KINDS
    label: str | None  # for kind "class": a known class or a new one
    reviewer: str
    list: str  # "flagged" or "audit": which list it was given on
    at: str  # ISO time, UTC

    def __post_init__(self) -> None:
        _check_texts(self)
        if self.kind not in KINDS or self.list not in LISTS:
            said = f"'{self.kind[:LONGEST]}' on '{self.list[:LONGEST]}'"
            raise UserError(f"an answer is of kind {', '.join(KINDS)} and on list {' or '.join(LISTS)}, not {said}")
        if KINDS[self.kind].labelled != bool(self.label):
            said = f"'{self.kind}' with the class '{(self.label or '')[:LONGEST]}'"
            raise UserError(f"an answer names a class if it is of kind 'class', and only then, not {said}")
        for name in (self.reviewer, self.label or "-"):
            if not 0 < len(name) <= LONGEST or not name.isprintable() or name != " ".join(name.split()):
                raise UserError(f"'{name[:LONGEST]}' is no name: 1 to {LONGEST} characters on one line")

    @property
    def said(self) -> tuple[str, str | None]:
        return self.kind, self.label

    @property
    def slot(self) -> tuple[str, str, str]:
        """A later answer to the same slot replaces this one."""
        return self.reviewer, self.image, self.list


def tidy(name: str) -> str:
    """A name as it is kept: one line, single spaces, nothing invisible."""
    return re.sub(r"\s+", " ", "".join(c for c in name if c.isprintable() or c.isspace())).strip()[:LONGEST]


@dataclass(frozen=True)
class Undo:
    """The reviewer's last answer to the image on the list is taken back."""

    undo: str  # id of the image
    reviewer: str
    list: str
    at: str

    def __post_init__(self) -> None:
        _check_texts(self)

    @property
    def slot(self) -> tuple[str, str, str]:
        return self.reviewer, self.undo, self.list


def _check_texts(event: Answer | Undo) -> None:
    """A file may hold anything in their place."""
    for name, value in vars(event).items():
        if name == "label" and value is None:
            continue
        if not isinstance(value, str) or HALF_LETTER.search(value):
            raise UserError(f"its {name} is no text")


def now() -> str:
    return datetime.now(UTC).isoformat()


class _Heard:
    """What the events so far come to."""

    def __init__(self, events: Iterable[Answer | Undo] = ()) -> None:
        self.given: list[Answer] = []  # and not taken back, also where replaced; in the order they were given
        self.last: dict[tuple[str, str, str], str] = {}  # slot → time of its last event
        self._standing: dict[tuple[str, str, str], Answer] | None = {}
        self.take(events)

    def take(self, events: Iterable[Answer | Undo]) -> None:
        for event in events:
            self.last[event.slot] = event.at
            if isinstance(event, Answer):
                self.given.append(event)
                if self._standing is not None:
                    self._standing.pop(event.slot, None)
                    self._standing[event.slot] = event
                continue
            place = next((i for i in reversed(range(len(self.given))) if self.given[i].slot == event.slot), None)
            if place is not None:
                del self.given[place]
                self._standing = None  # an earlier answer stands again, where it was

    @property
    def standing(self) -> dict[tuple[str, str, str], Answer]:
        """Slot → its last answer, in the order they were given."""
        if self._standing is None:
            self._standing = {}
            for answer in self.given:
                self._standing.pop(answer.slot, None)
                self._standing[answer.slot] = answer
        return self._standing


class Answers:
    """The answers in a file; it need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # of what is remembered; who also holds the file took that first
        self._heard, self._whole, self._version = _Heard(), 0, _NO_FILE

    def add(self, *answers: Answer) -> None:
        """On disk when it returns, all or none. What the reviewer has said already is not written twice: a page may ask
        again. Answers given at once, to a whole group, have the same time: that makes them one to `undo`."""
        with self._writing() as (heard, write):
            standing = heard.standing
            write([a for a in answers if a.slot not in standing or standing[a.slot].said != a.said])

    def undo(self, reviewer: str, list: str | None = None) -> "tuple[Answer, ...]":
        """Take back the reviewer's last answer (on a list), to a whole group if it was given to one: what they said of
        the images before stands again."""
        with self._writing() as (heard, write):
            own = [a for a in heard.given if a.reviewer == reviewer and list in (None, a.list)]
            last = [(a.at, a.list, a.said) for a in own[-1:]]
            gone = tuple(a for a in own if (a.at, a.list, a.said) in last)
            at = now()
            write([Undo(answer.image, reviewer, answer.list, at) for answer in gone])
            return gone

    def merge(self, answers: Iterable[Answer]) -> int:
        """Add answers from elsewhere, all or none; those that were taken in before, or that the reviewer has since
        replaced or taken back, change nothing. Returns how many were added."""
        with self._writing() as (heard, write):
            last = dict(heard.last)
            standing = {slot: known.said for slot, known in heard.standing.items()}
            new = []
            for answer in sorted(answers, key=lambda a: a.at):
                if answer.at > last.get(answer.slot, "") and standing.get(answer.slot) != answer.said:
                    new.append(answer)
                    last[answer.slot], standing[answer.slot] = answer.at, answer.said
            write(new)
            return len(new)

    def current(self) -> "list[Answer]":
        """The last answer of each reviewer to each image on each list, in the order they were given."""
        with self._lock:
            self._read()
            return [*self._heard.standing.values()]

    def version(self) -> str:
        """Changes whenever the file does."""
        try:
            return _version(self.path.stat())
        except FileNotFoundError:
            return _NO_FILE
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror}; check its rights") from error

    def _read(self) -> None:
        """Unless the file is still the one that was read, or written, last."""
        version = self.version()  # before its content: what is added meanwhile is read the next time
        if version == self._version:
            return
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror}; check its rights") from error
        events, whole = _events(content, self.path)
        self._heard, self._whole, self._version = _Heard(events), whole, version

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Hold the file alone: what it says, and a function that appends lines."""
        try:
            fresh = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with held(self.path), self._lock:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
                try:
                    self._read()

                    def write(added: Sequence[Answer | Undo]) -> None:
                        text = "".join(json.dumps(asdict(event), ensure_ascii=False) + "\n" for event in added).encode()
                        rest = memoryview(text)
                        os.truncate(handle, self._whole)
                        try:
                            while rest:
                                rest = rest[os.write(handle, rest) :]
                            os.fsync(handle)
                        except OSError:  # a full disk: take back what could be mistaken for an answer
                            os.truncate(handle, self._whole)
                            raise
                        self._heard.take(added)
                        self._whole += len(text)
                        self._version = _version(os.fstat(handle))

                    yield self._heard, write
                finally:
                    os.close(handle)
            if fresh:  # the file's name must be on disk too
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}; check space and rights") from error


def agreed(answers: Iterable[Answer]) -> tuple[dict[str, Answer], list[str]]:
    """Per image the one answer all its reviewers agree on; and the ids of images on which they do not.

    Of a reviewer who met an image on both lists the later answer counts.
    """
    latest: dict[str, dict[str, Answer]] = {}
    for answer in sorted(answers, key=lambda a: a.at):
        latest.setdefault(answer.image, {})[answer.reviewer] = answer
    one = {image: [*said.values()] for image, said in latest.items()}
    disputed = [image for image, said in one.items() if len({answer.said for answer in said}) > 1]
    return {image: said[-1] for image, said in one.items() if image not in set(disputed)}, disputed


def audited(answers: Iterable[Answer]) -> set[str]:
    """Ids of images that were answered about in the audit."""
    return {answer.image for answer in answers if answer.list == "audit"}


def _events(content: bytes, path: Path) -> tuple[list[Answer | Undo], int]:
    """What the lines that are whole say, and where they end."""
    whole = content.rfind(b"\n") + 1
    events: list[Answer | Undo] = []
    for number, line in enumerate(content[:whole].splitlines(), start=1):
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise UserError("no object with its fields")
            events.append(Undo(**fields) if "undo" in fields else Answer(**fields))
        except (ValueError, TypeError, RecursionError, UserError) as error:
            raise RunError(f"line {number} of {path} is no answer ({why(error)}); correct or delete it") from error
    return events, whole


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def audit_rows(batch_size: int, audit: int, seed: int, batch_name: str) -> np.ndarray:
    """A uniform sample of the batch's rows, in random order; a larger one begins with the smaller one."""
    return np.random.default_rng(derive(seed, "audit", batch_name)).permutation(batch_size)[:audit]
