"""Who may ask the page's server, and how much they may send.

Answers change only by POST, from the page itself: a foreign site that makes a reviewer's browser post is refused, and
so is a foreign name that was pointed at this machine (DNS rebinding). Beyond this machine a token is needed. A body
that is larger than its place can need is not taken into memory.
"""

import hmac
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
IMPORTS = "/import/"
LARGEST_IMPORT, LARGEST = 50_000_000, 2_000_000  # bytes; the latter is an answer to a group of 200,000 images
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
# Two steps and no redirect: a link in a message comes from another site, and a strict cookie is not sent along then.
WELCOME = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>Review</title>'


class Guard:
    """Around the application: every request and every response passes here."""

    def __init__(self, app: ASGIApp, port: int, token: str | None, loopback: bool) -> None:
        self.app, self.port, self.token, self.loopback = app, port, token, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        request = Request(scope)
        limit = LARGEST_IMPORT if request.url.path.startswith(IMPORTS) else LARGEST
        answer = _refusal(request, self.port, self.token, self.loopback) or _too_large(request, limit)
        await (answer or self.app)(scope, _counted(receive, limit), with_headers)


def _counted(receive: Receive, limit: int) -> Receive:
    """A body need not say how large it is, or say so truly."""
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, _larger_than(limit))
        return message

    return counted


def _too_large(request: Request, limit: int) -> Response | None:
    said = request.headers.get("content-length", "")
    if said.isascii() and said.isdigit() and (len(said) > 15 or int(said) > limit):
        return JSONResponse({"detail": _larger_than(limit)}, 413)
    return None


def _larger_than(limit: int) -> str:
    return f"what was sent is larger than {limit // 1_000_000} MB, and nothing of it was taken; send less at once"


def _refusal(request: Request, port: int, token: str | None, loopback: bool) -> Response | None:
    """Why a request is not served, if it is not."""
    host = request.headers.get("host", "")
    if loopback and host not in {f"{name}:{port}" for name in LOOPBACK} and not (port == 80 and host in LOOPBACK):
        return PlainTextResponse("this page is served to this machine only", 421)
    if request.method not in ("GET", "HEAD"):
        origin = request.headers.get("origin")
        own = _place(origin) == host != "" if origin else request.headers.get("sec-fetch-site") == "same-origin"
        if not own:
            return PlainTextResponse("not from this page", 403)
    if token is None:
        return None
    cookie = f"erd_review_{port}"  # browsers keep one jar for all ports of a machine
    if request.url.path == "/" and _same(request.query_params.get("token", ""), token):
        welcome = HTMLResponse(WELCOME)
        welcome.set_cookie(cookie, token, httponly=True, samesite="strict")
        return welcome
    if not _same(request.cookies.get(cookie, ""), token):
        return PlainTextResponse("open the link that `erd review` printed: it holds the token this page needs", 401)
    return None


def _place(origin: str) -> str | None:
    """Host and port of an origin; None where it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # http://[::1
        return None


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
