"""What can happen to a file: cut off, overwritten, emptied, swapped for something else, or right in form and wrong in
what it says."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors
import safetensors.numpy
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

TEXTS = ("", "null", "[]", "{}", "3", '"text"', "[1, 2", "\x00\x01", "NaN", "[" * 100_000, "9" * 5000, '{"a": {}}',
         "\n", "<html></html>", "[null]", "[[]]", "{}\n{}\n")  # fmt: skip
VALUES: tuple[Any, ...] = (None, [], {}, "text", "", -1, 0, 10**30, 1e308, float("nan"), True, "\ud800", "a\x00b",
                           "x" * 100_000, [[]], {"a": 1}, "../..", [1, "two"])  # fmt: skip
Damage = Callable[[Path], None]


@st.composite
def damages(draw: DrawFn, name: str) -> tuple[str, Damage]:
    """In words, and what does it to a file of that name."""
    kinds = [_text, _cut, _bytes, _away]
    shaped = {".json": _json, ".jsonl": _lines, ".parquet": _table, ".safetensors": _tensors, ".npz": _arrays}
    if kind := shaped.get(Path(name).suffix):
        kinds += [kind] * 4
    return draw(st.sampled_from(kinds))(draw)


def _text(draw: DrawFn) -> tuple[str, Damage]:
    text = draw(st.sampled_from(TEXTS))
    return f"holds {text[:20]!r}", lambda path: _write(path, text.encode())


def _cut(draw: DrawFn) -> tuple[str, Damage]:
    share = draw(st.floats(0, 0.99))
    return f"cut at {share:.2f}", lambda path: _write(path, path.read_bytes()[: int(share * path.stat().st_size)])


def _bytes(draw: DrawFn) -> tuple[str, Damage]:
    share, other = draw(st.floats(0, 1)), draw(st.binary(min_size=1, max_size=40))

    def overwrite(path: Path) -> None:
        content = bytearray(path.read_bytes())
        at = int(share * len(content))
        content[at : at + len(other)] = other
        _write(path, bytes(content))

    return f"{other.hex()} at {share:.2f}", overwrite


def _away(draw: DrawFn) -> tuple[str, Damage]:
    def folder(path: Path) -> None:
        path.unlink()
        path.mkdir()

    ways: list[tuple[str, Damage]] = [("is gone", lambda path: path.unlink()), ("is a folder", folder)]
    return draw(st.sampled_from(ways))


def _json(draw: DrawFn) -> tuple[str, Damage]:
    number, value = draw(st.integers(0, 10**6)), draw(st.sampled_from((*VALUES, ...)))
    return f"value {number} is {str(value)[:20]!r}", lambda path: _write(
        path, json.dumps(_changed(json.loads(path.read_text()), number, value)).encode()
    )


def _lines(draw: DrawFn) -> tuple[str, Damage]:
    line, number, value = draw(st.integers(0, 1000)), draw(st.integers(0, 5)), draw(st.sampled_from((*VALUES, ...)))

    def change(path: Path) -> None:
        lines = path.read_text().splitlines()
        lines[line % len(lines)] = json.dumps(_changed(json.loads(lines[line % len(lines)]), number, value))
        _write(path, "".join(f"{text}\n" for text in lines).encode())

    return f"value {number} of line {line} is {str(value)[:20]!r}", change


def _table(draw: DrawFn) -> tuple[str, Damage]:
    number, what = draw(st.integers(0, 20)), draw(st.sampled_from(["gone", "text", "empty", "half", "twice", "number"]))

    def change(path: Path) -> None:
        table = pd.read_parquet(path)
        column = table.columns[number % len(table.columns)]
        changes: dict[str, Callable[[], pd.DataFrame]] = {
            "gone": lambda: table.drop(columns=column),
            "text": lambda: table.assign(**{column: "text"}),
            "number": lambda: table.assign(**{column: 1.5}),
            "empty": lambda: table.assign(**{column: None}),
            "half": lambda: table[: len(table) // 2],
            "twice": lambda: pd.concat([table, table]),
        }
        path.unlink()
        changes[what]().to_parquet(path, index=False)

    return f"column {number}: {what}", change


def _tensors(draw: DrawFn) -> tuple[str, Damage]:
    number = draw(st.integers(0, 20))
    what = draw(st.sampled_from(["gone", "half", "flat", "facts", "facts", "no facts"]))
    value = draw(st.sampled_from((*VALUES, ...)))

    def change(path: Path) -> None:
        with safetensors.safe_open(path, framework="np") as file:
            said = json.loads((file.metadata() or {}).get("erd", "{}"))
        tensors = safetensors.numpy.load_file(path)
        name = sorted(tensors)[number % len(tensors)] if tensors else ""
        if what == "facts":
            said = _changed(said, number, value)
        elif tensors:
            flat = tensors[name].reshape(-1)
            half = tensors[name][: len(tensors[name]) // 2] if tensors[name].ndim else flat
            tensors |= {"half": {name: half}, "flat": {name: flat}}.get(what, {})
            if what == "gone":
                del tensors[name]
        facts = {} if what == "no facts" else {"metadata": {"erd": json.dumps(said)}}
        path.unlink()
        safetensors.numpy.save_file({key: np.ascontiguousarray(one) for key, one in tensors.items()}, path, **facts)

    return f"tensor or fact {number}: {what} {str(value)[:20]!r}", change


def _arrays(draw: DrawFn) -> tuple[str, Damage]:
    made: dict[str, Callable[[Any], Any]] = {
        "labels that are no text": lambda y: np.array(["\ud800"] * len(y)),
        "labels of nothing": lambda y: np.array([""] * len(y)),
        "labels with NUL": lambda y: np.array(["a\x00b"] * len(y)),
        "numbers": lambda y: np.full(len(y), 1e300),
        "no number": lambda y: np.full(len(y), np.nan),
        "objects": lambda y: np.array([{}] * len(y), dtype=object),
        "long": lambda y: np.array(["x" * 100_000] * len(y)),
    }
    what, number = draw(st.sampled_from(sorted(made))), draw(st.integers(0, 3))

    def change(path: Path) -> None:
        with np.load(path) as archive:
            arrays = dict(archive)
        name = sorted(arrays)[number % len(arrays)]
        path.unlink()
        np.savez(path, **arrays | {name: made[what](arrays[name])})

    return f"array {number}: {what}", change


def _write(path: Path, content: bytes) -> None:
    path.unlink()  # it may be a hard link
    path.write_bytes(content)


def _changed(whole: Any, number: int, value: Any) -> Any:
    """With another value in one of its places; `...` takes it away."""
    places = list(_places(whole))
    if not places:
        return value if value is not ... else None
    holder, key = places[number % len(places)]
    if value is ...:
        del holder[key]
    else:
        holder[key] = value
    return whole


def _places(whole: Any) -> Iterator[tuple[Any, Any]]:
    items = list(whole.items() if isinstance(whole, dict) else enumerate(whole) if isinstance(whole, list) else ())
    for key, value in items:
        yield whole, key
        yield from _places(value)
