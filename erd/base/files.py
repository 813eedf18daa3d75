"""Files that are whole or not there: every output is written beside its place and moved in when complete."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import safetensors
import safetensors.torch
from torch import Tensor

from erd.base.errors import RunError, UserError, is_out_of_memory, why

log = logging.getLogger("erd")
CURE, FIRST = "delete it and run again", "run the stage that writes it first"
Kinds = Mapping[str, type]
ANYTHING: Kinds = {}
WORDS = {dict: "object", list: "list", str: "text", float: "number", int: "whole number", bool: "yes or no"}
IS_COLUMN_OF: dict[type, Callable[[pd.Series], bool]] = {
    str: pd.api.types.is_string_dtype,
    float: lambda column: pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column),
    bool: pd.api.types.is_bool_dtype,
}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to the yielded path; it becomes `path` at the end, and vanishes if anything goes wrong."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.touch()
        rights = draft.stat().st_mode  # as a new file has them here: safetensors writes for its owner alone
        yield draft
        draft.chmod(rights)
        os.replace(draft, path)
    except OSError as error:
        if error.errno is None:  # not the file system's word
            raise
        raise RunError(f"cannot write {path}: {os.strerror(error.errno).lower()}; check space and rights") from error
    except safetensors.SafetensorError as error:  # its word for a full disk
        raise RunError(f"cannot write {path}: {error}; check space and rights") from error
    finally:
        with suppress(OSError):
            draft.unlink()


def drop_drafts(folder: Path) -> None:
    """Remove what writers left that were killed while they wrote."""
    for draft in folder.rglob(".*.part"):
        number = draft.name.split(".")[-2]
        if number.isdecimal() and not _lives(int(number)):
            with suppress(OSError):
                draft.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # another user's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def save_json(path: Path, value: Any) -> None:
    with replacing(path) as draft:
        draft.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------------- to read
#
# A file may be cut off, overwritten, or of another version. Every read goes through `understood`, and so does what is
# made of the content where that may go wrong: then there is one sentence, which names the file.


@contextmanager
def understood(path: Path, cure: str = CURE) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{path} is missing; {FIRST if cure == CURE else cure}") from error
    except Exception as error:  # pyarrow, safetensors and torch have many kinds
        if is_out_of_memory(error):
            raise
        raise RunError(f"{path} cannot be read ({_what(error)}); {cure}") from error


def load_json(path: Path, kind: type[Any] = dict, needed: Kinds = ANYTHING) -> Any:
    """What the file holds, an object or a list; `needed` are values that an object must have."""
    with understood(path):
        return _checked(_json(path), kind, needed)


def load_json_if_whole(path: Path, kind: type[Any] = dict) -> Any | None:
    """None where it is not there, or cut off by a crash: such a record is no record, and a word is said of it."""
    try:
        return load_json(path, kind)
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        log.warning("note: %s is passed over: %s", path, why(error.__cause__ or error))
        return None


def load_table(path: Path, needed: Kinds = ANYTHING, cure: str = CURE) -> pd.DataFrame:
    """`needed` are columns, and what they hold: str, float or bool. One that holds nothing may be of any kind."""
    with understood(path, cure):
        table = pd.read_parquet(path)
        for name, kind in needed.items():
            if name not in table:
                raise ValueError(f"it has no column {name}")
            if len(table) and (table[name].isna().any() or not IS_COLUMN_OF[kind](table[name])):
                raise ValueError(f"its column {name} is no {WORDS[kind]} in all rows")
        return table


def load_tensors(path: Path, *needed: str, cure: str = CURE) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, memory-mapped, of which some must be there, and the facts."""
    with understood(path, cure), safetensors.safe_open(path, framework="pt") as file:
        facts = _checked(json.loads((file.metadata() or {}).get("erd", "{}")), dict)
        names = file.keys()
        if missing := [name for name in needed if name not in names]:
            raise ValueError(f"it has no {missing[0]}")
        return {name: file.get_tensor(name) for name in names}, facts


def load_facts(path: Path, needed: Kinds = ANYTHING) -> dict[str, Any]:
    """The facts alone; the tensors are mapped, not read."""
    with understood(path):
        return _checked(load_tensors(path)[1], dict, needed)


def _json(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    found = json.loads(text)
    if "\\ud" in text:  # half a character can be escaped in JSON, and then be written nowhere
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _checked(found: Any, kind: type[Any], needed: Kinds = ANYTHING) -> Any:
    if not isinstance(found, kind):
        raise TypeError(f"it holds no {WORDS[kind]}")
    for name, of in needed.items():
        if name not in found:
            raise ValueError(f"it does not say {name}")
        if not isinstance(found[name], (int, float) if of is float else of):
            raise TypeError(f"its {name} is no {WORDS[of]}")
    return found


def _what(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else why(error)


# ---------------------------------------------------------------------------------------------------- to write


def save_table(path: Path, table: pd.DataFrame) -> None:
    with replacing(path) as draft:
        table.to_parquet(draft, index=False)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """safetensors with `facts` as its header; one header key only, since safetensors keeps several in random order."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        safetensors.torch.save_file(whole, draft, metadata={"erd": json.dumps(facts)})


def copy(source: Path, target: Path) -> None:
    with replacing(target) as draft:
        shutil.copyfile(source, draft)


def sha256(path: Path) -> str:
    with understood(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """A hash of settings and hashes: the same for the same meaning."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
