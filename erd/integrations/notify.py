"""A message to people by apprise: mail, chat, webhooks; `alarm.notify` says where.

    urls = addresses(settings.alarm.notify)
    send(urls, "Something new in batch 2026-W46", text)

The flow asks for the addresses before its first stage too: what is no address stops a run before it starts.
"""

import logging
import os
from typing import TYPE_CHECKING

from erd.base.errors import UserError

if TYPE_CHECKING:
    from apprise import Apprise

log = logging.getLogger("erd")


def addresses(notify: str | list[str] | None) -> list[str]:
    """The apprise URLs of the setting. $NAME is a variable of the environment, for what is secret."""
    found = []
    for entry in [notify] if isinstance(notify, str) else notify or []:
        url = os.environ.get(entry[1:], "") if entry.startswith("$") else entry
        if not url:
            raise UserError(f"alarm.notify is {entry} but there is no such variable; set it, or name an apprise URL")
        if not _apprise().add(url):
            raise UserError(f"alarm.notify: {entry} is no apprise URL; they look like mailto://… or slack://…")
        found.append(url)
    return found


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
