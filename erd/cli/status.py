"""The command `erd status`: a workspace at a glance."""

import argparse
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from erd.cli.arguments import NewCommand, counted, size


def add(command: NewCommand) -> None:
    """Tell the parser of it."""
    command("status", status, "what is scheduled, what runs, what waits for people, disk")


def status(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is going on in the workspace."""
    from erd.integrations import status

    found = status.look()
    if not arguments.json:
        print("\n\n".join("\n".join(block) for block in _blocks(found)))
    return found


def _blocks(found: dict[str, Any]) -> Iterator[list[str]]:
    at = f" (Prefect at {found['server'].removesuffix('/api')})" if found["server"] else ""
    none = "  no Prefect server answers; `make up` starts one"
    if found["server"]:
        none = "  nothing from this folder; `prefect deploy --all` makes its schedule known"
    yield ["scheduled" + at, *(_scheduled(found["scheduled"]) or [none])]
    running = [f"  {one['batch']:<12} {_stage(one)}" for one in found["running"]]
    running += [f"  {'bench':<12} {one['place']}: {', '.join(one['methods']) or 'at work'}" for one in found["benches"]]
    running += [f"  {one['name']:<12} {one['deployment']}: {one['state'].lower()} since {_time(one['since'])}"
                for one in found["flow_runs"]]  # fmt: skip
    yield ["running", *(running or ["  nothing"])]
    waiting = [f"  {one['batch']:<12} {_unanswered(one):<44} {one['command']}" for one in found["to_review"]]
    yield ["waits for review", *(waiting or ["  nothing"])]
    said = [f"  {one['batch']:<12} {counted(one['images'], 'labelled image'):<44} {one['command']}"
            for one in found["to_incorporate"]]  # fmt: skip
    yield ["reviewed, not incorporated", *(said or ["  nothing"])]
    last = [_wrapped(f"  {one['batch']:<12} {_time(one['at'])}: {one['headline']}") for one in found["last"]]
    yield ["last batches", *(last or ["  none yet"])]
    disk = found["disk"]
    used = ", ".join(f"{name} {size(disk[name])}" for name in disk if name != "free" and disk[name])
    yield ["disk", f"  {used or 'nothing used'}; {size(disk['free'])} free"]


def _scheduled(deployments: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for one in deployments:
        when = f"{_time(one['next'], one['timezone'])} {one['timezone'] or ''}".rstrip() if one["next"] else "no time"
        worker = "" if one["worker"] else "; no worker is there to take it"
        lines.append(f"  {one['name']:<12} {when}{worker}")
    return lines


def _stage(one: dict[str, Any]) -> str:
    if one["stage"] is None:
        return "at work"
    unit = "images" if one["stage"] == "encode" else "epochs"
    return f"{one['stage']}, {one['done']:,.0f} of {one['of']:,.0f} {unit}" if one["of"] else one["stage"]


def _unanswered(one: dict[str, Any]) -> str:
    if one["unanswered"]:
        return f"{one['unanswered']:,} of {counted(one['flagged'], 'flagged image')} unanswered"
    return f"nobody has looked at the {one['look_at']:,} most novel"


def _wrapped(text: str) -> str:
    """On lines of the terminal, the further ones under the words of the first."""
    width = min(shutil.get_terminal_size().columns, 120)
    return textwrap.fill(text, width, subsequent_indent=" " * 15)


def _time(text: str, timezone: str | None = None) -> str:
    """Where we are, or in that time zone."""
    return f"{datetime.fromisoformat(text).astimezone(ZoneInfo(timezone) if timezone else None):%a %Y-%m-%d %H:%M}"
