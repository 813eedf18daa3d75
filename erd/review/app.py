"""The page's server: what a browser may ask for, and who may ask.

Answers change only by POST, from the page itself: a foreign site that makes a reviewer's browser post is refused, and
so is a foreign name that was pointed at this machine (DNS rebinding). Beyond this machine a token is needed. What is
shown is named by its row in the batch, never by a path.
"""

import hmac
import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from erd.base.errors import RunError, UserError
from erd.review import exchange
from erd.review.neighbours import Neighbours
from erd.review.pictures import Pictures
from erd.review.queue import Queue
from erd.runs.answers import Answer, agreed, now, tidy

log = logging.getLogger("erd")
HERE = Path(__file__).parent
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
LARGEST_IMPORT = 50_000_000  # bytes
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
# Two steps and no redirect: a link in a message comes from another site, and a strict cookie is not sent along then.
WELCOME = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>Review</title>'


class AnswerGiven(BaseModel):
    batch: str  # its key
    list: str
    row: int
    kind: str
    label: str | None = None
    reviewer: str


class Back(BaseModel):
    batch: str
    reviewer: str


def make(queue: Queue, port: int, token: str | None = None, *, loopback: bool = True) -> FastAPI:
    """The application. `loopback`: it is reached by this machine's own names only."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    pictures, neighbours = Pictures(queue), Neighbours(queue)
    app.state.neighbours = neighbours
    ids = queue.table["id"].tolist()
    places = {
        name: {ids[row]: place for place, row in reversed([*enumerate(rows)])} for name, rows in queue.lists.items()
    }

    @app.middleware("http")
    async def guard(request: Request, handle: Callable[[Request], Awaitable[Response]]) -> Response:
        refused = _refusal(request, port, token, loopback)
        response = refused or await handle(request)
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    @app.exception_handler(UserError)
    async def in_words(request: Request, error: UserError) -> Response:
        return JSONResponse({"detail": str(error)}, 500 if isinstance(error, RunError) else 422)

    @app.get("/")
    def page() -> Response:
        return FileResponse(HERE / "page.html")

    @app.get("/page.css")
    def style() -> Response:
        return FileResponse(HERE / "page.css")

    @app.get("/page.js")
    def script() -> Response:
        return FileResponse(HERE / "page.js", media_type="text/javascript")

    @app.get("/page_answers.js")
    def answers_script() -> Response:
        return FileResponse(HERE / "page_answers.js", media_type="text/javascript")

    @app.get("/favicon.ico")
    def icon() -> Response:
        return Response(status_code=204)

    @app.get("/api/batch")
    def batch() -> dict[str, Any]:
        return queue.facts()

    @app.get("/api/list/{name}")
    def listed(
        name: str, start: Annotated[int, Query(ge=0)] = 0, count: Annotated[int, Query(ge=1, le=500)] = 200
    ) -> list[dict[str, Any]]:
        if name not in queue.lists:
            raise HTTPException(404)
        return queue.items(name, start, count)

    def of_this(batch: str) -> None:
        """A page that was left open may be of the batch that was served here before."""
        if batch != queue.key:
            raise HTTPException(409, "this page is of another batch or an earlier run; reload it")

    @app.get("/api/state")
    def state(batch: str, since: str = "") -> dict[str, Any]:
        """All answers, by their place on the lists; only the version where it is still the one the page has."""
        of_this(batch)
        version = queue.answers.version()
        if since == version:
            return {"version": version}
        current = queue.answers.current()
        shown = [a for a in current if a.image in places[a.list]]
        return {
            "version": version,
            "new": _new_classes(queue, current),
            "answers": [
                {"list": a.list, "place": places[a.list][a.image], "kind": a.kind, "label": a.label,
                 "reviewer": a.reviewer, "at": a.at}
                for a in shown
            ],
            "disputed": [
                {"list": name, "place": places[name][image]}
                for name in queue.lists
                for image in agreed(a for a in shown if a.list == name)[1]
            ],
        }  # fmt: skip

    @app.post("/api/answer")
    def answer(given: AnswerGiven) -> dict[str, Any]:
        of_this(given.batch)
        name, row = given.list, given.row
        if name not in queue.lists or not 0 <= row < len(ids) or ids[row] not in places[name]:
            raise HTTPException(404, "there is no such image on this list")
        label = tidy(given.label) if given.label else None
        if label:  # "Cat" is the cat that everybody has on a button
            names = [*queue.known, *_new_classes(queue, queue.answers.current())]
            label = next((n for n in names if n.casefold() == label.casefold()), label)
        queue.answers.add(Answer(ids[row], given.kind, label, tidy(given.reviewer), name, now()))
        return {"saved": True, "label": label}

    @app.post("/api/undo")
    def undo(back: Back) -> dict[str, Any]:
        of_this(back.batch)
        gone = queue.answers.undo(tidy(back.reviewer))
        return {"undone": gone and {"list": gone.list, "place": places[gone.list].get(gone.image)}}

    @app.get("/api/neighbours/{row:int}")
    def alike(row: int) -> dict[str, Any]:
        _check(row < len(ids))
        return {"neighbours": neighbours.of(row)}

    @app.get("/image/{row:int}/thumb.png")
    def thumb(row: int) -> Response:
        _check(row < len(ids))
        return _picture(pictures.small(row))

    @app.get("/image/{row:int}/large.png")
    def large(row: int) -> Response:
        _check(row < len(ids))
        return _picture(pictures.large(row))

    @app.get("/train/{row:int}.png")
    def trained(row: int) -> Response:
        _check(row < len(pictures.trained) and bool(pictures.trained[row]))
        return _picture(pictures.train(row))

    @app.get("/export/answers.csv")
    def to_csv() -> Response:
        return _download(exchange.to_csv(queue), f"{queue.run.batch_name}.csv", "text/csv")

    @app.get("/export/label-studio.json")
    def to_label_studio(request: Request) -> Response:
        tasks = JSONResponse(exchange.to_label_studio(queue, f"http://{request.headers['host']}")).body
        return _download(bytes(tasks), f"{queue.run.batch_name}.json", "application/json")

    @app.post("/import/{ending}")
    async def take_in(ending: str, request: Request) -> dict[str, int]:
        """The file is the body as it is: no form, nothing to unpack."""
        content = bytearray()
        async for piece in request.stream():
            content += piece
            if len(content) > LARGEST_IMPORT:
                raise HTTPException(413, f"the file is larger than {LARGEST_IMPORT // 1_000_000} MB")
        try:
            return await run_in_threadpool(exchange.take_in, bytes(content), f".{ending}", queue)
        except UserError as error:
            raise HTTPException(422, str(error)) from error

    return app


def serve(queue: Queue, host: str, port: int, announce: Callable[[str], None] = print) -> None:
    """Until Ctrl-C."""
    loopback = is_loopback(host)
    token = os.environ.get("ERD_REVIEW_TOKEN") or (None if loopback else secrets.token_urlsafe(24))
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UserError(f"cannot listen at {host}, port {port}: {why.lower()}; try another --port") from error
    port = listening.getsockname()[1]
    app = make(queue, port, token, loopback=loopback)
    app.state.neighbours.start()
    entry = f"/?token={token}" if token else "/"
    announce(f"review of batch {queue.run.batch_name}: {address(host, port)}{entry}\nCtrl-C ends it; answers are kept")
    # No access log: it would hold the token.
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(host: str, port: int) -> str:
    """Where a browser finds it; all interfaces at once have no address, the machine's name does."""
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _refusal(request: Request, port: int, token: str | None, loopback: bool) -> Response | None:
    """Why a request is not served, if it is not."""
    host = request.headers.get("host", "")
    if loopback and host not in {f"{name}:{port}" for name in LOOPBACK} and not (port == 80 and host in LOOPBACK):
        return PlainTextResponse("this page is served to this machine only", 421)
    if request.method not in ("GET", "HEAD"):
        origin = request.headers.get("origin")
        own = urlsplit(origin).netloc == host if origin else request.headers.get("sec-fetch-site") == "same-origin"
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


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _new_classes(queue: Queue, current: list[Answer]) -> list[str]:
    """Classes that reviewers made up, the first first."""
    named = dict.fromkeys(a.label for a in sorted(current, key=lambda a: a.at) if a.label is not None)
    return [name for name in named if name not in queue.known]


def _check(there: bool) -> None:
    if not there:
        raise HTTPException(404, "there is no such image in this batch")


def _picture(png: bytes) -> Response:
    return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=600"})


def _download(content: bytes | str, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
