"""Which code makes a result: the module that does it, and all of ours that it imports, without comments and docstrings.

    of("erd.weekly.stages.score", "erd.nets.mlp")        # module → digest of its code; changes when any of it does

A result that was made by other code is not a result of this code: stages, cells of the bench and recorded fits keep
such digests in their keys. What is found by its name at run time, such as a net, is no import: it has to be named.
"""

import ast
import functools
import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

from erd.base.files import digest

# Modules that change no result: files, sentences, locks; and settings, whose values are in the keys already.
PLUMBING = (
    "erd",  # the public names
    "erd.base.errors",
    "erd.base.files",
    "erd.base.locks",
    "erd.base.processes",
    "erd.base.progress",
    "erd.base.records",
    "erd.base.version",
    "erd.base.code_digest",
    "erd.runs.stage_records",
    "erd.settings.schema",
)


@functools.cache
def of(*modules: str) -> dict[str, str]:
    """By module, in the order of their names."""
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found or name in PLUMBING:
            continue
        if (spec := _find(name)) is None or not spec.origin:
            continue
        imported, code = _read(Path(spec.origin))
        waiting += imported
        found[name] = code
    return dict(sorted(found.items()))


@functools.cache
def _read(file: Path) -> tuple[list[str], str]:
    """What of ours a module imports, and a digest of what it does."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names if alias.name.startswith("erd.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "erd":
            imported += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return imported, digest(ast.dump(tree))


def _find(name: str) -> ModuleSpec | None:
    """None for what is a function or a class in a module."""
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return None
