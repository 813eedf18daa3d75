"""Files that are whole or not there: every output is written beside its place and moved in when complete."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import safetensors
import safetensors.torch
from torch import Tensor

from erd.base.errors import RunError, why

log = logging.getLogger("erd")


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


def save_json(path: Path, value: Any) -> None:
    with replacing(path) as draft:
        draft.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path} is missing; run the stage that writes it first") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({why(error)}); delete it and run again") from error


def load_json_if_whole(path: Path) -> Any | None:
    """None where it is not there, or cut off by a crash: such a record is no record, and a word is said of it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        log.warning("note: %s is passed over: %s", path, why(error))
        return None


def load_table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        raise RunError(f"{path} is missing; run the stage that writes it first") from None
    except Exception as error:  # pyarrow has many kinds
        raise RunError(f"{path} cannot be read ({why(error)}); delete it and run again") from error


def save_table(path: Path, table: pd.DataFrame) -> None:
    with replacing(path) as draft:
        table.to_parquet(draft, index=False)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """safetensors with `facts` as its header; one header key only, since safetensors keeps several in random order."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        safetensors.torch.save_file(whole, draft, metadata={"erd": json.dumps(facts)})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, memory-mapped, and the facts."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, json.loads(header.get("erd", "{}"))
    except FileNotFoundError:
        raise RunError(f"{path} is missing; run the stage that writes it first") from None
    except (OSError, safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise RunError(f"{path} cannot be read ({error}); delete it and run again") from error


def load_facts(path: Path) -> dict[str, Any]:
    """The facts alone; the tensors are mapped, not read."""
    return load_tensors(path)[1]


def copy(source: Path, target: Path) -> None:
    with replacing(target) as draft:
        shutil.copyfile(source, draft)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """A hash of settings and hashes: the same for the same meaning."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
