"""Addresses of servers and databases as they may be shown and kept: without the user and the password in them.

bare("http://me:word@host:5000")                    # http://host:5000
plain, headers = for_request(url)                   # for urllib, which knows no user in an address
"""

import base64
import re
from urllib.parse import unquote, urlsplit

# Up to the last @ before the path; in a database's address the password may hold a slash.
_WEB = re.compile(r"\b(https?://)[^\s/?#]*@")
_OTHER = re.compile(r"\b((?!sqlite|https?:)[a-z][a-z0-9+.-]*://)(?:[^\s:/?#]*:[^\s@]*|[^\s/?#]*)@", re.IGNORECASE)
_QUERY = re.compile(r"([?&](?:password|passwd|pwd|token|user)=)[^&\s'\"]*", re.IGNORECASE)


def bare(text: str) -> str:
    """A sentence or an address, all addresses in it without what is secret."""
    return _QUERY.sub(r"\1…", _OTHER.sub(r"\1", _WEB.sub(r"\1", text)))


def for_request(address: str) -> tuple[str, dict[str, str]]:
    """The address without its user, and the header that says who asks."""
    place = urlsplit(address)
    if not place.username:
        return address, {}
    word = f"{unquote(place.username)}:{unquote(place.password or '')}"
    return bare(address), {"Authorization": f"Basic {base64.b64encode(word.encode()).decode()}"}
