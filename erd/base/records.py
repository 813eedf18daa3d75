"""Small JSON files as typed records: what a file holds is checked once, where it is read.

record = made(StageRecord, files.load_json(path), path)          # a sentence that names the file where it is no such
"""

import functools
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, TypeAdapter, ValidationError

from erd.base.errors import RunError

T = TypeVar("T")


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time has a zone")
    return text


Moment = Annotated[str, AfterValidator(_moment)]  # ISO, with its zone


def made(kind: type[T], found: Any, where: object) -> T:
    """A record of that kind from JSON, with what it does not know left out; a sentence where something is missing."""
    known = {item.name for item in fields(kind)} if isinstance(found, Mapping) else set()  # type: ignore[arg-type]
    try:
        return _checker(cast(Any, kind)).validate_python({name: found[name] for name in known if name in found})
    except ValidationError as error:
        what = error.errors()[0]
        name = ".".join(map(str, what["loc"])) or "all of it"
        raise RunError(
            f"{where} is damaged or of another version ({name}: {what['msg'].lower()}); delete it and run again"
        ) from error


@functools.cache
def _checker(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
