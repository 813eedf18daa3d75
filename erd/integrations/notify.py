"""A message to people by apprise: mail, chat, webhooks; `alarm.notify` says where.

    urls = addresses(settings.alarm.notify)
    send(urls, "Something new in batch 2026-W46", text)

The flow asks for the addresses before its first stage too: what is no address stops a run before it starts.
"""

import json
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from erd.base.errors import UserError
from erd.settings.schema import Alarm

if TYPE_CHECKING:
    from apprise import Apprise

log = logging.getLogger("erd")


def addresses(notify: str | list[str] | None) -> list[str]:
    """The apprise URLs of the setting. $NAME is a variable of the environment, for what is secret."""
    found = []
    for entry in _entries(notify):
        url = os.environ.get(entry[1:], "") if entry.startswith("$") else entry
        if not url:
            raise UserError(f"alarm.notify is {entry} but there is no such variable; set it, or name an apprise URL")
        if not _apprise().add(url):
            named = entry if entry.startswith("$") else "an address in it"  # what is meant as one may hold a password
            raise UserError(f"alarm.notify: {named} is no apprise URL; they look like mailto://… or slack://…")
        found.append(url)
    return found


def by_variable(overrides: Sequence[str], alarm: Alarm) -> list[str]:
    """The overrides of a flow in this process, with variables of its environment in place of addresses: Prefect's
    server keeps what a flow is given, for everybody to read."""
    others = [text for text in overrides if text.strip().partition("=")[0].partition(".")[0].strip() != "alarm"]
    if len(others) == len(overrides):
        return others
    names = []
    for number, entry in enumerate(_entries(alarm.notify)):
        if not entry.startswith("$"):
            os.environ[f"ERD_NOTIFY_{number}"] = entry
        names.append(entry if entry.startswith("$") else f"$ERD_NOTIFY_{number}")
    said = alarm.model_dump() | {"notify": names or None}
    return [*others, *(f"alarm.{name}={json.dumps(value)}" for name, value in said.items())]


def _entries(notify: str | list[str] | None) -> list[str]:
    return [notify] if isinstance(notify, str) else notify or []


def send(urls: list[str], title: str, text: str) -> bool:
    """Whether it went out to all. Nothing that goes wrong here ends a run."""
    if not urls:
        return True
    messenger = _apprise()
    for url in urls:
        messenger.add(url)
    sent = bool(messenger.notify(title=title, body=text))
    if not sent:
        log.warning("the notification of alarm.notify could not be sent to all of its addresses")
    return sent


def _apprise() -> "Apprise":
    import apprise  # slow

    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its words hold the URL, and that the password
    return apprise.Apprise()
