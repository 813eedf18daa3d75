"""Patients stay unnamed: a salted pseudonym in place of who they are, also where a file's path tells it.

known = Pseudonyms()
known.of(patient)                                    # the same sixteen characters every week, in this workspace
known.instead("Doe Jane/scan 1.dcm", patient)        # "3f0c…/scan 1.dcm"
"""

import hmac
import os
import re
import secrets
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from erd.base.errors import RunError
from erd.data.decode import NOBODY, Patient

SALT = Path(".erd") / "salt"  # who has it can test a guess, so it stays out of git and logs
LEAST = 3  # letters or digits: what is shorter stands in any path by chance


class Pseudonyms:
    """The salt is read, or made, when the first is asked for: where there is no patient there is none."""

    def __init__(self) -> None:
        self._salt = b""

    def of(self, patient: Patient) -> str:
        self._salt = self._salt or _salt()
        return hmac.new(self._salt, (patient.id or patient.name).encode(), "sha256").hexdigest()[:16]

    def instead(self, path: str, patient: Patient, ours: int = 0) -> str:
        """The path with a pseudonym in place of each part that tells who the patient is; the first `ours` parts are
        names of our own."""
        if patient == NOBODY:
            return path
        parts = path.split("/")
        for place in telling(path, patient):
            if place >= ours:
                parts[place] = self.of(patient)
        return "/".join(parts)


def telling(path: str, patient: Patient) -> set[int]:
    """Which parts of a path, counted from 0, have the patient's number or name in them, in any case and punctuation."""
    text = "/".join(_plain(part).replace("/", " ") for part in path.split("/"))
    found: set[int] = set()
    for pattern in _patterns(patient):
        for match in re.finditer(pattern, text):  # a name may go over two folders: Doe/Jane
            found.update(range(text.count("/", 0, match.start()), text.count("/", 0, match.end()) + 1))
    return found


def _patterns(patient: Patient) -> Iterator[str]:
    """The number; surname and first name in both orders; and each word of the name by itself."""
    if number := _spelled(patient.id):
        # Digits within a longer number are another number; but zeros before them are often only there to fill up.
        yield rf"(?<!\d)0*{number}(?!\d)" if not re.search(r"[^\W\d_]", patient.id) else number
    for spelling in patient.name.split("="):  # in Latin letters, in others, as it sounds
        parts = [part for part in spelling.split("^")[:3] if part.strip()]  # surname, first and second name; no titles
        if len(parts) > 1:
            yield from filter(None, (_spelled(parts[0] + parts[1]), _spelled(parts[1] + parts[0])))
        for word in re.split(r"[\W_]+", " ".join(parts)):
            if spelled := _spelled(word):
                yield rf"(?<![^\W\d_]){spelled}(?![^\W\d_])"  # no letter before or after: Ann is not in annual


def _spelled(text: str) -> str:
    """A pattern for the text's letters and digits with anything else between them; "" where they are too few."""
    letters = [letter for letter in _plain(text) if letter.isalnum()]
    return r"[\W_]*".join(map(re.escape, letters)) if len(letters) >= LEAST else ""


def _plain(text: str) -> str:
    """Small letters without accents."""
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def _salt() -> bytes:
    """Made once for a workspace, so that a patient has the same pseudonym every week."""
    try:
        if not SALT.exists():
            SALT.parent.mkdir(exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=SALT.parent)  # mode 600
            with os.fdopen(handle, "wb") as stream:
                stream.write(secrets.token_bytes(16))
            with suppress(FileExistsError):  # another run was first: its salt counts
                os.link(draft, SALT)
            os.unlink(draft)
        salt = SALT.read_bytes()
    except OSError as error:
        raise RunError(f"{SALT} cannot be made or read ({error.strerror}): check the folder's permissions") from error
    if len(salt) != 16:
        raise RunError(f"{SALT} is damaged: put back a copy, or delete it and patients get new pseudonyms")
    return salt
