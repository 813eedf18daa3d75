"""What is sent to the page's server to hurt it, and what comes out of it that could hurt others."""

import csv
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import batches_to_review
import psutil  # type: ignore[import-untyped]
import pytest
from fastapi.testclient import TestClient

from erd.cli import main
from erd.review import app, queue
from erd.review.guard import LARGEST, LARGEST_IMPORT
from erd.runs.folder import RunDir

PORT = 8600
HOME = f"http://127.0.0.1:{PORT}"
OWN = {"Origin": HOME, "Content-Type": "application/json"}
MANY = 10_000  # answers


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return batches_to_review.make(tmp_path)


@pytest.fixture
def page(run: RunDir) -> TestClient:
    """Errors of the server are answers with 500 here, as for a browser."""
    return TestClient(app.make(queue.load(run), PORT), base_url=HOME, raise_server_exceptions=False)


def an_answer(page: TestClient, **said: object) -> bytes:
    given = {"batch": page.get("/api/batch").json()["key"], "list": "flagged", "rows": [0], "kind": "class",
             "label": "digit 1", "reviewer": "Ada"}  # fmt: skip
    return json.dumps(given | said).encode()


def by_hand(address: str, head: str, body: Iterable[bytes] = (), wait: float = 30) -> tuple[int, bytes, int]:
    """A request that no library would send: status, answer, and how many bytes of the body were taken."""
    place, sent, got = urlsplit(address), 0, b""
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=wait) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        with suppress(OSError):  # the server has closed it; what it said before is there
            for piece in body:
                connection.sendall(piece)
                sent += len(piece)
        with suppress(OSError):
            while some := connection.recv(65536):
                got += some
    return int(got.split(b" ", 2)[1]), got.partition(b"\r\n\r\n")[2], sent


@pytest.mark.parametrize("path", ["/api/answer", "/api/undo", "/import/csv", "/import/json", "/nothing"])
def test_a_body_that_says_it_is_too_large_is_not_read(page: TestClient, path: str) -> None:
    limit = LARGEST_IMPORT if path.startswith("/import/") else LARGEST
    refused = page.post(path, content=b"x", headers=OWN | {"Content-Length": str(limit + 1)})
    assert refused.status_code == 413
    assert f"larger than {limit // 1_000_000} MB" in refused.json()["detail"]
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert page.post(path, content=b"x", headers=OWN | {"Content-Length": "9" * 5000}).status_code == 413


def test_a_body_without_an_end_takes_no_memory(run: RunDir, serve: Callable[..., str]) -> None:
    home, pieces = serve(run), 200
    head = f"POST /api/answer HTTP/1.1\nHost: {urlsplit(home).netloc}\nOrigin: {home}\nConnection: close"
    head += "\nTransfer-Encoding: chunked"
    before = psutil.Process().memory_info().rss
    status, said, sent = by_hand(home, head, (b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n" for _ in range(pieces)))
    assert status == 413
    assert b"larger than 2 MB" in said
    assert sent < 50_000_000, "what lies in the machine's own buffers, and not all of it"
    assert psutil.Process().memory_info().rss - before < 50_000_000


def test_headers_without_an_end_are_refused(run: RunDir, tmp_path: Path, serve: Callable[..., str]) -> None:
    home = serve(run)
    status, _, _ = by_hand(home, f"GET / HTTP/1.1\nHost: {urlsplit(home).netloc}\nX-More: {'x' * 1_000_000}")
    assert status == 400


def test_three_hundred_clients_that_never_finish_keep_nobody_waiting(run: RunDir, serve: Callable[..., str]) -> None:
    home = serve(run)
    place, slow = urlsplit(home), []
    head = f"POST /api/answer HTTP/1.1\r\nHost: {place.netloc}\r\nOrigin: {home}\r\nContent-Length: 500\r\n\r\n{{"
    try:
        for _ in range(300):
            slow.append(socket.create_connection((place.hostname or "", place.port or 0), timeout=30))
            slow[-1].sendall(head.encode())
        began = time.monotonic()
        asked = f"GET /api/batch HTTP/1.1\nHost: {place.netloc}\nConnection: close"
        assert by_hand(home, asked)[0] == 200
        assert time.monotonic() - began < 10
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.parametrize("origin", ["http://[::1", "http://[x]/\\", "//", ":", "null", "http://127.0.0.1:8600@evil"])
def test_an_origin_that_is_none_is_a_foreign_one(page: TestClient, run: RunDir, origin: str) -> None:
    assert page.post("/api/answer", content=an_answer(page), headers={"Origin": origin}).status_code == 403
    assert not run.answers.exists()


@pytest.mark.parametrize(
    "body",
    [b"NaN", b'{"batch": NaN}', b'{"rows": [NaN]}', b'{"rows": [Infinity]}', b"[" * 100_000, b'{"a":' * 50_000, b"",
     b"[1]", b'"', b"\xff", b'{"rows": [' + b"9" * 6_000 + b"]}", b'{"reviewer": "\\ud800", "batch": 5}', b"\0" * 99],
)  # fmt: skip
def test_what_is_no_answer_of_the_page_is_said_in_a_sentence(page: TestClient, run: RunDir, body: bytes) -> None:
    for path in ("/api/answer", "/api/undo"):
        refused = page.post(path, content=body, headers=OWN)
        assert refused.status_code in (400, 422)
        assert 10 < len(refused.json()["detail"]) < 300
    assert not run.answers.exists()


def test_half_letters_and_rows_told_a_thousand_times_make_one_sound_answer(page: TestClient, run: RunDir) -> None:
    wild = an_answer(page, label="\ud800cat\udfff", reviewer="\udc00Ada", rows=[3] * 1000)
    assert page.post("/api/answer", content=wild, headers=OWN).json()["label"] == "cat"
    assert batches_to_review.given(run) == [("Ada", queue.load(run).table["id"][3], "cat", "flagged")]
    assert run.answers.read_text().count("\n") == 1


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1e400", "2026-11-16T09:30:00+99:99", "9" * 5_000]
)
def test_times_that_nobody_lived_in_are_refused_and_nothing_is_taken(page: TestClient, run: RunDir, at: str) -> None:
    table = f"image,kind,label,reviewer,list,at\nward 0/scan-000.png,bad,,Ada,flagged,{at}\n"
    said = {"result": [{"type": "choices", "value": {"choices": ["cat"]}}], "created_at": at}
    tasks = [{"data": {"id": "ward 0/scan-000.png"}, "annotations": [said]}]
    for kind, body in (("csv", table.encode()), ("json", json.dumps(tasks).encode())):
        refused = page.post(f"/import/{kind}", content=body, headers=OWN)
        assert refused.status_code == 422
        assert "is no time such as" in refused.json()["detail"]
        assert len(refused.json()["detail"]) < 200
    assert not run.answers.exists()


@pytest.mark.parametrize(
    "tasks",
    [b"[" * 100_000, b"[" + b"9" * 6_000 + b"]", b"NaN",
     b'[{"data": {"id": "a"}, "annotations": [{"created_at": "\\ud800", "result":'
     b' [{"type": "choices", "value": {"choices": ["cat"]}}]}]}]',
     b'[{"data": {"id": "a"}, "annotations": [{"result": [{"type": "choices", "value": {"choices": [[]]}}]}]}]'],
)  # fmt: skip
def test_a_file_that_is_no_export_is_refused_in_a_sentence(page: TestClient, run: RunDir, tasks: bytes) -> None:
    refused = page.post("/import/json", content=tasks, headers=OWN)
    assert refused.status_code == 422
    assert len(refused.json()["detail"]) < 300
    assert not run.answers.exists()


def test_a_batch_may_be_named_in_any_script(tmp_path: Path) -> None:
    there = queue.load(batches_to_review.make(tmp_path, name="週-46"))
    page = TestClient(app.make(there, PORT), base_url=HOME)
    for path, ending in (("/export/answers.csv", "csv"), ("/export/label-studio.json", "json")):
        found = page.get(path)
        assert found.status_code == 200
        assert f"filename*=UTF-8''%E9%80%B1-46.{ending}" in found.headers["content-disposition"]
        assert f'filename="_-46.{ending}"' in found.headers["content-disposition"]


@pytest.mark.parametrize("host", ["evil.example", None])
def test_links_in_an_export_lead_here_whatever_the_request_calls_this_place(
    run: RunDir, serve: Callable[..., str], host: str | None
) -> None:
    home = serve(run, "s3cret", loopback=False, home="http://lab.example:8600")
    named = f"\nHost: {host}" if host else ""
    cookie = f"\nCookie: erd_review_{urlsplit(home).port}=s3cret"
    status, body, _ = by_hand(home, f"GET /export/label-studio.json HTTP/1.0{named}{cookie}")
    assert status == 200
    assert {task["data"]["image"].partition("/image/")[0] for task in json.loads(body)} == {"http://lab.example:8600"}


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", "＝1", "'=1", "' =1"]


def test_no_cell_of_an_export_is_a_formula_and_it_comes_back_as_it_was(page: TestClient, run: RunDir) -> None:
    for row, wild in enumerate(FORMULAS):
        content = an_answer(page, rows=[row], label=wild, reviewer=f"{wild}R")
        assert page.post("/api/answer", content=content, headers=OWN).status_code == 200
    before = batches_to_review.given(run)
    assert [label for _, _, label, _ in before] == FORMULAS
    table = page.get("/export/answers.csv").text
    for cells in csv.reader(io.StringIO(table)):
        assert not [cell for cell in cells if cell.lstrip(" ").startswith(("=", "+", "-", "@", "＝", "\t", "\r"))]
    run.answers.unlink()
    assert page.post("/import/csv", content=table.encode(), headers=OWN).json()["added"] == len(FORMULAS)
    assert batches_to_review.given(run) == before


@pytest.mark.parametrize(
    "line",
    ['{"image": ["a"], "kind": "bad", "label": null, "reviewer": "Ada", "list": "flagged", "at": "2026"}',
     '{"image": "a", "kind": ["bad"], "label": null, "reviewer": "Ada", "list": "flagged", "at": "2026"}',
     '{"image": "a", "kind": "bad", "label": null, "reviewer": "Ada", "list": "flagged", "at": 5}',
     '{"image": "\\ud800", "kind": "bad", "label": null, "reviewer": "Ada", "list": "flagged", "at": "2026"}',
     '{"undo": [], "reviewer": [], "list": {}, "at": null}', "[1]", "5", '"undo"', "[" * 100_000, "9" * 6_000],
)  # fmt: skip
def test_a_damaged_line_among_the_answers_is_named_and_stays(
    page: TestClient, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture,
    line: str,
) -> None:  # fmt: skip
    assert page.post("/api/answer", content=an_answer(page), headers=OWN).status_code == 200
    with run.answers.open("a") as file:
        file.write(line + "\n")
    before, key = run.answers.read_bytes(), page.get("/api/batch").json()["key"]
    for asked in (page.get("/api/state", params={"batch": key}), page.get("/export/answers.csv"),
                  page.post("/api/answer", content=an_answer(page, rows=[1]), headers=OWN)):  # fmt: skip
        assert "line 2 of" in asked.json()["detail"]
        assert "correct or delete it" in asked.json()["detail"]
    monkeypatch.chdir(tmp_path)
    assert main(["review", "--batch", run.batch_name, "--export", "out.csv"]) == 1
    assert "line 2 of" in capsys.readouterr().err
    assert run.answers.read_bytes() == before


def test_with_ten_thousand_answers_the_next_one_is_as_quick_and_none_is_read_again(
    page: TestClient, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quickest(rows: range) -> float:
        took = []
        for row in rows:
            content = an_answer(page, rows=[row], reviewer="Zoe")
            began = time.perf_counter()
            assert page.post("/api/answer", content=content, headers=OWN).status_code == 200
            took.append(time.perf_counter() - began)
        return min(took)

    alone = quickest(range(5))
    said = '{{"image": "x{0}", "kind": "class", "label": "cat", "reviewer": "R{1}", "list": "flagged", "at": "2026"}}\n'
    with run.answers.open("a") as file:  # another process
        file.write("".join(said.format(number, number % 7) for number in range(MANY)))
    assert len(page.app.state.queue.answers.current()) == MANY + 5  # type: ignore[attr-defined]

    def unread(path: Path) -> bytes:
        raise AssertionError(f"{path} is read again")

    monkeypatch.setattr(Path, "read_bytes", unread)
    among = quickest(range(5, 10))
    assert among < 10 * alone + 0.05
    monkeypatch.undo()
    assert len(queue.load(run).answers.current()) == MANY + 10


def test_two_servers_of_a_batch_hear_of_each_others_answers_and_lose_none(run: RunDir) -> None:
    one, other = (TestClient(app.make(queue.load(run), PORT), base_url=HOME) for _ in range(2))

    def answer(page: TestClient, reviewer: str) -> None:
        for row in range(20):
            content = an_answer(page, rows=[row], reviewer=reviewer)
            assert page.post("/api/answer", content=content, headers=OWN).status_code == 200

    threads = [threading.Thread(target=answer, args=pair) for pair in ((one, "Ada"), (other, "Ben"), (one, "Cleo"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    key = one.get("/api/batch").json()["key"]
    for page in (one, other):
        assert len(page.get("/api/state", params={"batch": key}).json()["answers"]) == 60
    assert len(batches_to_review.given(run)) == 60
