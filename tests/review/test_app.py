"""What the page's server shows, keeps and refuses."""

import io
import os
import re
import socket
from pathlib import Path
from typing import Any

import batches_to_review
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from erd.base import files
from erd.cli import main
from erd.data import packed
from erd.review import app, queue
from erd.review.queue import Queue
from erd.runs.answers import KINDS
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Group

PORT = 8600
HOME = f"http://127.0.0.1:{PORT}"
OWN = {"Origin": HOME}


def client(there: Queue, token: str | None = None, *, loopback: bool = True, home: str = HOME) -> TestClient:
    return TestClient(app.make(there, PORT, token, loopback=loopback), base_url=home)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return batches_to_review.make(tmp_path, inbox=tmp_path / "inbox")


@pytest.fixture
def there(run: RunDir) -> Queue:
    return queue.load(run)


@pytest.fixture
def page(there: Queue) -> TestClient:
    return client(there)


def answer(page: TestClient, row: int, reviewer: str = "Ada", **said: object) -> int:
    key = page.get("/api/batch").json()["key"]
    given = {
        "batch": key,
        "list": "flagged",
        "rows": [row],
        "kind": "class",
        "label": "digit 1",
        "reviewer": reviewer,
    } | said
    return page.post("/api/answer", json=given, headers=OWN).status_code


def undo(page: TestClient, reviewer: str = "Ada", origin: str = HOME) -> Any:
    key = page.get("/api/batch").json()["key"]
    return page.post("/api/undo", json={"batch": key, "reviewer": reviewer}, headers={"Origin": origin})


def state(page: TestClient, since: str = "") -> Any:
    key = page.get("/api/batch").json()["key"]
    return page.get("/api/state", params={"batch": key, "since": since}).json()


def pixels(page: TestClient, path: str) -> np.ndarray:
    response = page.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "image/png"
    return np.asarray(Image.open(io.BytesIO(response.content)))


def as_packed(page: TestClient, row: int) -> np.ndarray:
    """The eight pixels that the nets saw."""
    return pixels(page, f"/image/{row}/thumb.png")


def test_the_flagged_come_first_most_novel_first_and_the_list_goes_on_below(page: TestClient, run: RunDir) -> None:
    items = page.get("/api/list/flagged?count=500").json()
    assert [item["row"] for item in items] == batches_to_review.most_novel(run)
    assert [item["flagged"] for item in items] == [True] * 20 + [False] * 40
    assert [item["wrong"] for item in items] == [place // 4 for place in range(60)]
    assert page.get("/api/list/flagged?start=58&count=10").json() == items[58:]
    facts = page.get("/api/batch").json()
    assert (facts["flagged"], facts["images"], facts["audit"]) == (20, 60, 12)
    assert facts["headline"].startswith("20 of 60 images")


def test_the_bound_never_falls_where_flags_do_not_follow_the_scores(run: RunDir) -> None:
    table = queue.load(run).table
    lowest = table["score"].idxmin()
    files.save_table(run.scores, table.assign(flagged=table["flagged"] | (table.index == lowest)))
    there = queue.load(run)
    assert there.cut == 21
    assert there.lists["flagged"][20] == lowest
    assert (np.diff(there.wrong_at_most) >= 0).all()
    assert there.wrong_at_most[20] == 14


def test_the_audit_shows_no_score(page: TestClient, run: RunDir) -> None:
    items = page.get("/api/list/audit").json()
    assert len(items) == 12
    assert {key for item in items for key in item} == {"place", "row", "id"}
    assert page.get("/api/list/audit").json() == client(queue.load(run)).get("/api/list/audit").json()


def test_answers_of_all_reviewers_are_shown_with_new_classes_and_disagreement(page: TestClient, there: Queue) -> None:
    first, second, third = (int(row) for row in there.lists["flagged"][:3])
    version = state(page)["version"]
    assert state(page, version) == {"version": version}
    assert answer(page, first) == answer(page, first, "Ben", label="walrus") == answer(page, second, "Ben") == 200
    assert answer(page, third, "Ben", label=" WALRUS  ") == 200
    assert answer(page, second, kind="not-novel", label=None, list="flagged") == 200
    shown = state(page, version)
    assert shown["new"] == ["walrus"], "one class, however it is typed"
    assert {(d["list"], d["row"]) for d in shown["disputed"]} == {("flagged", first), ("flagged", second)}
    assert len(shown["answers"]) == 5
    assert undo(page).json()["undone"] == [{"list": "flagged", "row": second, "place": 1}]
    assert [d["row"] for d in state(page)["disputed"]] == [first]
    assert undo(page, "Nobody").json() == {"undone": []}


def test_look_alikes_are_told_with_their_images_and_answered_all_or_none(tmp_path: Path) -> None:
    there = queue.load(batches_to_review.make(tmp_path / "grouped", groups=(8, 5)))
    page = client(there)
    first, second = page.get("/api/groups").json()
    assert page.get("/api/batch").json()["groups"] == 2
    assert first["said"].startswith("8 look-alikes, unlike anything labelled, nearest to “digit 0”")
    rows = [image["row"] for image in first["images"]]
    assert rows == there.lists["flagged"][:8].tolist()
    assert [image["place"] for image in second["images"]] == [*range(8, 13)]
    assert answer(page, 0, rows=[*rows, 60]) == 404
    assert answer(page, 0, rows=[]) == 422
    assert there.answers.current() == []
    assert answer(page, 0, rows=rows) == 200
    assert len({said.at for said in there.answers.current()}) == 1
    assert [one["row"] for one in undo(page).json()["undone"]] == rows
    assert there.answers.current() == []


def test_without_look_alikes_or_where_they_are_of_another_run_there_are_none(page: TestClient, run: RunDir) -> None:
    assert page.get("/api/groups").json() == []
    decided = Decided.read(run)
    Decided(decided.verdict, [], [Group(1, 1, "digit 0", ["gone"])]).write(run)
    assert queue.load(run).groups == []
    run.decision.unlink()
    assert queue.load(run).groups == []


def test_the_audit_tells_what_the_classifier_says_only_of_what_is_answered(page: TestClient, there: Queue) -> None:
    first, second = (int(row) for row in there.lists["audit"][:2])
    assert answer(page, first, list="audit") == answer(page, second) == 200
    told = {(one["list"], one["row"]): one.get("predicted") for one in state(page)["answers"]}
    assert told == {("audit", first): there.table["predicted"][first], ("flagged", second): None}


def test_an_answer_is_on_disk_when_the_server_says_so(page: TestClient, there: Queue, run: RunDir) -> None:
    assert answer(page, 3) == 200
    assert run.answers.read_text().count("\n") == 1
    batches_to_review.torn(run)
    assert len(state(page)["answers"]) == 1
    run.answers.chmod(0o400)
    if os.geteuid() != 0:  # root may write anyway
        assert answer(page, 4) == 500


def test_what_is_no_answer_is_refused(page: TestClient, there: Queue) -> None:
    unaudited = next(row for row in range(60) if row not in there.lists["audit"])
    assert answer(page, unaudited, list="audit") == 404
    assert answer(page, 60) == answer(page, -1) == answer(page, 3, list="train") == 404
    assert answer(page, 3, kind="maybe") == answer(page, 3, label=None) == answer(page, 3, reviewer=" ") == 422
    assert there.answers.current() == []


def test_a_page_of_another_batch_that_was_left_open_changes_nothing(page: TestClient, tmp_path: Path) -> None:
    """Two batches in turn at the same port: a row of the one is another image in the other."""
    other = batches_to_review.make(tmp_path, name="2026-W47")
    key = page.get("/api/batch").json()["key"]
    later = client(queue.load(other))
    given = {"batch": key, "list": "flagged", "rows": [3], "kind": "bad", "reviewer": "Ada"}
    assert later.post("/api/answer", json=given, headers=OWN).status_code == 409
    assert later.post("/api/undo", json={"batch": key, "reviewer": "Ada"}, headers=OWN).status_code == 409
    assert later.get("/api/state", params={"batch": key}).status_code == 409
    assert not other.answers.exists()


def test_neighbours_are_of_training_and_kept(there: Queue, run: RunDir) -> None:
    application = app.make(there, PORT)
    application.state.prepare()
    page = TestClient(application, base_url=HOME)
    kept = files.load_json(run.neighbours)["neighbours"]
    rows = {int(row) for row in [*there.lists["flagged"][:20], *there.lists["audit"]]}
    assert {int(row) for row in kept} == rows
    below = next(row for row in range(60) if row not in rows)
    for row in (min(rows), below):
        found = page.get(f"/api/neighbours/{row}").json()["neighbours"]
        assert len(found) == 5
        assert [n["cosine"] for n in found] == sorted((n["cosine"] for n in found), reverse=True)
        for neighbour in found:
            assert pixels(page, f"/train/{neighbour['row']}.png").shape == (8, 8)
            assert neighbour["label"] in there.known
    files.save_json(
        run.neighbours, {"key": files.load_json(run.neighbours)["key"], "neighbours": {row: [] for row in kept}}
    )
    again = app.make(there, PORT)
    again.state.prepare()
    row = min(rows)
    assert TestClient(again, base_url=HOME).get(f"/api/neighbours/{row}").json() == {"neighbours": []}, "not found anew"


def test_a_training_image_is_nearest_to_itself(run: RunDir, tmp_path: Path) -> None:
    labeled = packed.read(run.labeled)
    batch = packed.read(run.batch).images.clone()
    batch[7] = labeled.images[11]
    files.save_tensors(run.batch, {"images": batch}, {})
    found = client(queue.load(run)).get("/api/neighbours/7").json()["neighbours"][0]
    assert (found["row"], found["cosine"]) == (11, 1.0)


def test_without_a_classifier_the_page_works_all_the_same(run: RunDir) -> None:
    run.pretrained.unlink()
    application = app.make(queue.load(run), PORT)
    application.state.prepare()
    assert TestClient(application, base_url=HOME).get("/api/list/flagged").status_code == 200


def test_the_large_picture_is_the_file_that_was_scored(page: TestClient, there: Queue, tmp_path: Path) -> None:
    inbox, ids = tmp_path / "inbox", there.table["id"]
    original = np.asarray(Image.open(inbox / ids[0]))
    assert np.array_equal(pixels(page, "/image/0/large.png"), original)
    assert np.array_equal(pixels(page, "/image/0/original.png"), original)
    assert not np.array_equal(original, as_packed(page, 0))
    gone, damaged, replaced, linked = (inbox / ids[row] for row in (1, 2, 3, 4))
    gone.unlink()
    damaged.write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    Image.fromarray(np.full((32, 32), 7, np.uint8)).save(replaced)  # next week's scan of the same name
    linked.rename(tmp_path / "outside.png")
    linked.symlink_to(tmp_path / "outside.png")
    for row in (1, 2, 3, 4):
        assert np.array_equal(pixels(page, f"/image/{row}/large.png"), as_packed(page, row))
    (inbox / "ward 2").rename(tmp_path / "elsewhere")
    assert np.array_equal(pixels(page, "/image/5/large.png"), as_packed(page, 5))


def test_the_large_picture_has_a_size_for_a_screen_and_the_original_all_its_pixels(
    page: TestClient, there: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "inbox" / there.table["id"][0]
    Image.open(file).resize((1600, 1600), Image.Resampling.NEAREST).save(file)
    assert pixels(page, "/image/0/large.png").shape == (8, 8), "other bytes than were scored"
    table = files.load_table(packed.manifest(there.run.batch))
    files.save_table(packed.manifest(there.run.batch), table.assign(file=table["id"], sha256=files.sha256(file)))
    again = client(queue.load(there.run))
    assert pixels(again, "/image/0/large.png").shape == (1024, 1024)
    assert pixels(again, "/image/0/original.png").shape == (1600, 1600)


@pytest.mark.parametrize(
    "window", ["centre=nan&width=1", "centre=0.5&width=0", "centre=1e99&width=1", "centre=0.5", ""]
)
def test_a_window_that_is_none_is_refused(page: TestClient, window: str) -> None:
    refused = page.get(f"/image/0/window.png?{window}")
    assert refused.status_code == 422
    assert len(refused.text) < 200
    assert page.get("/image/9999/window.png?centre=0.5&width=1").status_code == 404
    assert pixels(page, "/image/0/window.png?centre=0.5&width=1").shape == (8, 8), "of 8 bits there are no more greys"


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "a/../../secret.png", "x\0y"])
def test_an_id_that_leads_out_of_the_inbox_shows_no_file(run: RunDir, tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret.png"
    (tmp_path / "inbox" / "a").mkdir()
    Image.open(tmp_path / "inbox" / queue.load(run).table["id"][0]).save(secret)
    table = queue.load(run).table
    table.loc[0, "id"] = name
    files.save_table(run.scores, table)
    page = client(queue.load(run))
    assert np.array_equal(pixels(page, "/image/0/large.png"), as_packed(page, 0))


@pytest.mark.parametrize(
    "path",
    ["/image/60/large.png", "/image/-1/large.png", "/image/60/thumb.png", "/image/1.5/thumb.png",
     "/image/99999999999999999999/thumb.png", "/image/..%2f..%2fsettings.json", "/train/160.png", "/train/100000.png",
     "/image/ward%200%2fscan-000.png/large.png", "/train/..%2fbatch.png", "/settings.json", "/..%2f..%2fsettings.json",
     "/page.py", "/answers.jsonl", "/docs", "/openapi.json", "/api/list/train", "/api/neighbours/60",
     "/api/neighbours/-1", "/api/image/60", "/api/image/-1", "/image/60/original.png", "/page_answers.py"],
)  # fmt: skip
def test_nothing_but_this_batch_is_shown(page: TestClient, path: str) -> None:
    assert page.get(path).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9999"},
     {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
     {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}],
)  # fmt: skip
def test_posts_from_other_sites_are_refused(page: TestClient, there: Queue, headers: dict[str, str]) -> None:
    given = {"batch": there.key, "list": "flagged", "rows": [0], "kind": "bad", "reviewer": "Mallory"}
    table = b"image,kind,label,reviewer,list,at\nward 0/scan-000.png,bad,,Mallory,flagged,\n"
    assert page.post("/api/answer", json=given, headers=headers).status_code == 403
    assert page.post("/api/undo", json={"reviewer": "Ada"}, headers=headers).status_code == 403
    assert page.post("/import/csv", content=table, headers=headers).status_code == 403
    assert there.answers.current() == []
    assert page.post("/api/answer", json=given, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8600", "127.0.0.1", "127.0.0.1:80", "localhost:8600.evil.example", ""]
)
def test_another_name_for_this_machine_is_refused(page: TestClient, host: str) -> None:
    assert page.get("/api/batch", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8600", "127.0.0.1:8600", "[::1]:8600"])
def test_this_machines_own_names_are_served(page: TestClient, host: str) -> None:
    assert page.get("/api/batch", headers={"Host": host}).status_code == 200


def test_beyond_this_machine_a_token_is_needed(there: Queue) -> None:
    home = "http://lab.example:8600"
    page = client(there, "s3cret-ü", loopback=False, home=home)
    for path in (
        "/",
        "/page.js",
        "/api/batch",
        "/image/0/thumb.png",
        "/?token=",
        "/?token=wrong",
        "/api/batch?token=s3cret-ü",
    ):
        assert page.get(path).status_code == 401
    assert page.get("/api/batch", headers={"Cookie": "erd_review_8600=wrong"}).status_code == 401
    assert page.post("/api/undo", json={"reviewer": "Ada"}, headers={"Origin": home}).status_code == 401
    page = client(there, "s3cret", loopback=False, home=home)
    welcome = page.get("/?token=s3cret")
    assert welcome.status_code == 200
    cookie = welcome.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert page.get("/api/batch").status_code == 200
    assert undo(page, origin=home).status_code == 200
    assert undo(page, origin=HOME).status_code == 403


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.8.8.8", True), ("0.0.0.0", False), ("::", False),
     ("", False), ("lab.example", False)],
)  # fmt: skip
def test_which_addresses_are_this_machine_alone(host: str, own: bool) -> None:
    assert app.is_loopback(host) == own


def test_the_link_holds_a_token_when_others_can_reach_the_page(there: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: sockets[0].close())
    monkeypatch.delenv("ERD_REVIEW_TOKEN", raising=False)
    said: list[str] = []
    for host in ("127.0.0.1", "0.0.0.0", "0.0.0.0"):
        app.serve(there, host, 0, said.append)
    assert "token" not in said[0]
    first, second = (re.search(r"/\?token=([\w-]{32,})\n", text) for text in said[1:])
    assert first is not None
    assert second is not None
    assert first[1] != second[1]
    monkeypatch.setenv("ERD_REVIEW_TOKEN", "ours")
    app.serve(there, "0.0.0.0", 0, said.append)
    assert "/?token=ours\n" in said[-1]


def test_every_answer_tells_the_browser_what_not_to_do(page: TestClient) -> None:
    for path in ("/", "/page.js", "/api/batch", "/image/0/large.png", "/nothing"):
        headers = page.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    refused = page.get("/", headers={"Host": "evil.example"})
    assert refused.headers["x-content-type-options"] == "nosniff"


def test_files_go_out_and_in_by_the_page(page: TestClient, there: Queue) -> None:
    assert answer(page, 3) == 200
    table = page.get("/export/answers.csv")
    assert table.text.splitlines()[0] == "image,kind,label,reviewer,list,at"
    assert 'filename="2026-W46.csv"' in table.headers["content-disposition"]
    tasks = page.get("/export/label-studio.json").json()
    assert tasks[0]["data"]["image"].startswith(f"{HOME}/image/")
    assert undo(page).status_code == 200
    more = table.text.replace("Ada", "Ben")
    assert page.post("/import/csv", content=more, headers=OWN).json() == {"added": 1, "there": 0, "unknown": 0}
    assert page.post("/import/csv", content=more, headers=OWN).json() == {"added": 0, "there": 1, "unknown": 0}
    wrong = page.post("/import/json", content="{", headers=OWN)
    assert wrong.status_code == 422
    assert "no JSON" in wrong.json()["detail"]
    assert [a.reviewer for a in there.answers.current()] == ["Ben"]


def test_a_port_that_is_taken_is_said_in_one_sentence(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["review", "--batch", run.batch_name, "--port", str(taken.getsockname()[1])]) == 2
    assert "address already in use; try another --port" in capsys.readouterr().err


def test_every_kind_of_answer_has_its_key_on_the_page() -> None:
    script = (Path(app.__file__).parent / "page_answers.js").read_text(encoding="utf-8")
    table = re.search(r"const KINDS = \{(.*?)\n\};", script, re.DOTALL)
    assert table is not None
    keys = dict(re.findall(r'^  "?([\w-]+)"?: \{ key: "(.)"', table[1], re.MULTILINE))
    assert set(keys) == {kind.name for kind in KINDS.values() if not kind.labelled}
    assert len(set(keys.values())) == len(keys)
