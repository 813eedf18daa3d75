"""The page's server: what a browser may ask for.

Who may ask is in `guard`. What is shown is named by its row in the batch, never by a path.
"""

import functools
import ipaddress
import logging
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from erd.base.errors import RunError, UserError
from erd.review import exchange
from erd.review.features import Features
from erd.review.guard import Guard
from erd.review.neighbours import Neighbours
from erd.review.overview import Overview
from erd.review.pictures import Pictures
from erd.review.queue import Queue
from erd.runs.answers import Answer, agreed, now, tidy

log = logging.getLogger("erd")
HERE = Path(__file__).parent
PAGE = {path.name: path for path in HERE.glob("page*")}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


class AnswerGiven(BaseModel):
    batch: str  # its key
    list: str
    rows: Annotated[tuple[int, ...], Field(min_length=1)]  # more than one: a group, answered at once
    kind: str
    label: str | None = None
    reviewer: str


class Back(BaseModel):
    batch: str
    reviewer: str


def make(
    queue: Queue, port: int, token: str | None = None, *, loopback: bool = True, home: str | None = None
) -> FastAPI:
    """The application. `loopback`: it is reached by this machine's own names only. `home`: the page's address, in what
    is exported; never the one that a request names."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    pictures, features = Pictures(queue), Features(queue)
    neighbours, overview = Neighbours(features), Overview(features)
    app.state.queue, app.state.prepare = queue, functools.partial(_prepare, neighbours, overview)
    ids = queue.table["id"].tolist()
    rows = {image: row for row, image in reversed([*enumerate(ids)])}
    places = queue.places

    app.add_middleware(Guard, port=port, token=token, loopback=loopback)

    @app.exception_handler(UserError)
    async def in_words(request: Request, error: UserError) -> Response:
        return _trouble(str(error), 500 if isinstance(error, RunError) else 422)

    @app.exception_handler(RequestValidationError)
    async def not_as_sent(request: Request, error: RequestValidationError) -> Response:
        """FastAPI's own answer repeats what was sent, and fails where that is no JSON (NaN)."""
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return _trouble(f"this is not what the page sends ({place}: {first['msg'].lower()}); reload it", 422)

    @app.get("/")
    def page() -> Response:
        return FileResponse(PAGE["page.html"])

    @app.get("/favicon.ico")
    def icon() -> Response:
        return Response(status_code=204)

    @app.get("/{name}")
    def part(name: str) -> Response:
        if name not in PAGE:
            raise HTTPException(404)
        return FileResponse(PAGE[name], media_type=TYPES[PAGE[name].suffix])

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

    @app.get("/api/groups")
    def groups() -> list[dict[str, Any]]:
        return [{"said": said, "images": queue.images(members)} for said, members in queue.groups]

    @app.get("/api/useful")
    def useful() -> dict[str, Any]:
        """Null while they are not found yet: ask again."""
        return {"useful": overview.found and queue.images(overview.found.useful), "failed": overview.failed}

    @app.get("/api/map")
    def whole() -> dict[str, Any]:
        """The same; what is told of each image is in the order of rows."""
        tiers = {"flagged": queue.table["flagged"].tolist(), "look": queue.lists["flagged"][: queue.shown].tolist()}
        tiers |= {"groups": [members for _, members in queue.groups]}
        return {"map": overview.found and asdict(overview.found) | tiers, "failed": overview.failed}

    @app.get("/api/image/{row:int}")
    def one(row: int) -> dict[str, Any]:
        _check(row < len(ids))
        return queue.images([row])[0]

    def of_this(batch: str) -> None:
        """A page that was left open may be of the batch that was served here before."""
        if batch != queue.key:
            raise HTTPException(409, "this page is of another batch or an earlier run; reload it")

    @app.get("/api/state")
    def state(batch: str, since: str = "") -> Response:
        """All answers, by their place on the lists; only the version where it is still the one the page has."""
        of_this(batch)
        version = queue.answers.version()
        if since == version:
            return JSONResponse({"version": version})
        current = queue.answers.current()
        shown = [a for a in current if rows.get(a.image) in places[a.list]]
        found = {
            "version": version,
            "new": _new_classes(queue, current),
            "answers": [place_of(a) | {"kind": a.kind, "label": a.label, "reviewer": a.reviewer} for a in shown],
            "disputed": [
                {"list": name, "row": rows[image]}
                for name in queue.lists
                for image in agreed(a for a in shown if a.list == name)[1]
            ],
        }
        return JSONResponse(found)  # plain already: FastAPI would go through all of it once more

    def place_of(answer: Answer) -> dict[str, Any]:
        """Where it was given; of the audit also what the classifier says, now that it can lead nobody."""
        row = rows[answer.image]
        place = {"list": answer.list, "row": row, "place": places[answer.list][row]}
        return place | ({"predicted": queue.table["predicted"].iat[row]} if answer.list == "audit" else {})

    @app.post("/api/answer")
    def answer(given: AnswerGiven) -> dict[str, Any]:
        of_this(given.batch)
        if any(row not in places.get(given.list, {}) for row in given.rows):
            raise HTTPException(404, "there is no such image on this list")
        label = tidy(given.label) if given.label else None
        if label:  # "Cat" is the cat that everybody has on a button
            names = [*queue.known, *_new_classes(queue, queue.answers.current())]
            label = next((n for n in names if n.casefold() == label.casefold()), label)
        who, at = tidy(given.reviewer), now()
        said = [Answer(ids[row], given.kind, label, who, given.list, at) for row in dict.fromkeys(given.rows)]
        queue.answers.add(*said)
        return {"saved": True, "label": label, "places": [place_of(one) for one in said]}

    @app.post("/api/undo")
    def undo(back: Back) -> dict[str, Any]:
        of_this(back.batch)
        gone = queue.answers.undo(tidy(back.reviewer))
        return {"undone": [place_of(one) for one in gone if rows.get(one.image) in places[one.list]]}

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

    @app.get("/api/greys/{row:int}")
    def greys(row: int) -> dict[str, bool]:
        _check(row < len(ids))
        return {"more": pictures.has_greys(row)}

    @app.get("/image/{row:int}/window.png")
    def window(
        row: int, centre: Annotated[float, Query(ge=-2, le=3)], width: Annotated[float, Query(ge=0.001, le=8)]
    ) -> Response:
        _check(row < len(ids))
        return _picture(pictures.window(row, centre, width))

    @app.get("/image/{row:int}/original.png")
    def original(row: int) -> Response:
        _check(row < len(ids))
        return _picture(pictures.original(row))

    @app.get("/train/{row:int}.png")
    def trained(row: int) -> Response:
        _check(row < len(pictures.trained) and bool(pictures.trained[row]))
        return _picture(pictures.train(row))

    @app.get("/export/answers.csv")
    def to_csv() -> Response:
        return _download(exchange.to_csv(queue), f"{queue.run.batch_name}.csv", "text/csv")

    @app.get("/export/label-studio.json")
    def to_label_studio() -> Response:
        tasks = JSONResponse(exchange.to_label_studio(queue, home or address("127.0.0.1", port))).body
        return _download(bytes(tasks), f"{queue.run.batch_name}.json", "application/json")

    @app.post("/import/{ending}")
    async def take_in(ending: str, request: Request) -> dict[str, int]:
        """The file is the body as it is: no form, nothing to unpack."""
        content = await request.body()
        try:
            return await run_in_threadpool(exchange.take_in, content, f".{ending}", queue)
        except UserError as error:
            raise HTTPException(422, _clean(str(error))) from error

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
    app = make(queue, port, token, loopback=loopback, home=address(host, port))
    threading.Thread(target=app.state.prepare, daemon=True).start()
    entry = f"/?token={token}" if token else "/"
    announce(f"review of batch {queue.run.batch_name}: {address(host, port)}{entry}\nCtrl-C ends it; answers are kept")
    # No access log: it would hold the token. h11 has a limit for headers.
    config = uvicorn.Config(
        app, http="h11", log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _prepare(*parts: Neighbours | Overview) -> None:
    """In the background: what takes a while, and what the page can begin without."""
    for part in parts:
        try:
            part.prepare()
        except Exception as error:  # a thread's error would be lost
            part.failed = str(error) or type(error).__name__
            log.warning("the page shows no %s: %s", type(part).__name__.lower(), part.failed)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(host: str, port: int) -> str:
    """Where a browser finds it; all interfaces at once have no address, the machine's name does."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 (asked, not bound)
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _new_classes(queue: Queue, current: list[Answer]) -> list[str]:
    """Classes that reviewers made up, those of earlier batches first, then the first first."""
    said = [a.label for a in sorted(current, key=lambda a: a.at) if a.label is not None]
    return [name for name in dict.fromkeys([*queue.named, *said]) if name not in queue.known]


def _check(there: bool) -> None:
    if not there:
        raise HTTPException(404, "there is no such image in this batch")


def _picture(png: bytes) -> Response:
    return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=600"})


def _download(content: bytes | str, name: str, kind: str) -> Response:
    """Headers are Latin-1: another name goes as in RFC 5987, with a plain one for who does not know that."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    coded = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{plain}"{coded}'})


def _trouble(sentence: str, status: int) -> Response:
    return JSONResponse({"detail": _clean(sentence)}, status)


def _clean(sentence: str) -> str:
    """With half letters of what was sent spelled out: they cannot be sent back."""
    return sentence.encode("utf-8", "backslashreplace").decode()
