"""What makes the house livable, and cannot be seen by running it: names that stay at home, files one can read.

The order of imports is checked by import-linter (`make lint`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from erd.base.version import VERSION

ROOT = Path(__file__).parents[1]
CODE = sorted(path for folder in ("erd", "flows", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
LONGEST = 400  # lines


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _borrowed(tree: ast.Module) -> Iterator[str]:
    """Private names of other modules of ours that a module uses."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("erd", "flows"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names if _private(alias.name))
            modules |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and _private(node.attr):
            yield from [f"{node.value.id}.{node.attr}"] * (node.value.id in modules)


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_uses_a_private_name_of_another_and_none_is_too_long(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not list(_borrowed(ast.parse(text)))
    assert len(text.splitlines()) <= LONGEST


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_state_of_a_module_changes_behind_a_callers_back(path: Path) -> None:
    """`global` is how that is done; caches of pure functions are none."""
    changed = [
        node.names for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Global)
    ]
    assert not changed


def test_the_version_is_said_once() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
