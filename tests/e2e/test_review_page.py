"""The review page in a real browser: what reviewers type is kept, whatever happens meanwhile."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batches_to_review
import browsers
import pytest
from batches_to_review import given, ids
from playwright.sync_api import Browser, Dialog, Page, expect
from servers import free_port, wait_for_answer

from erd.base import files
from erd.review import queue
from erd.runs.folder import RunDir

Open = Callable[..., Page]
pytestmark = browsers.NEEDED


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return batches_to_review.make(tmp_path, inbox=tmp_path / "inbox")


def saved(page: Page, count: int) -> None:
    expect(page.locator("#strip i:not(.dispute):not(.waiting)")).to_have_count(count)


def place(page: Page, number: int, of: int = 20) -> None:
    expect(page.locator("#place")).to_have_text(f"{number} of {of}")


def test_ten_images_are_labelled_by_keyboard_and_are_there_after_a_reload(
    run: RunDir, serve: Callable[..., str], visit: Open
) -> None:
    page = visit(serve(run))
    expect(page.locator("#headline")).to_contain_text("20 of 60 images of batch 2026-W46")
    place(page, 1)
    keys = "12345xb123"
    for number, key in enumerate(keys, start=1):
        page.keyboard.press(key)
        place(page, number + 1)
    saved(page, 10)
    labels = [f"digit {int(key) - 1}" if key.isdigit() else {"x": "not-novel", "b": "bad"}[key] for key in keys]
    assert given(run) == [("Ada", image, label, "flagged") for image, label in zip(ids(run), labels, strict=False)]
    page.reload()
    saved(page, 10)
    place(page, 11)
    expect(page.get_by_role("tab", name="Most novel")).to_contain_text("10 of 20")
    expect(page.locator("#who")).to_have_text("Ada")


def test_moving_undoing_and_the_list_of_keys(run: RunDir, serve: Callable[..., str], visit: Open) -> None:
    page = visit(serve(run))
    place(page, 1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("2")
    place(page, 3)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#mine")).to_have_text("You said digit 1 ✓ saved")
    page.keyboard.press("u")
    expect(page.locator("#mine")).to_have_text("What does it show?")
    saved(page, 0)
    assert given(run) == []
    page.keyboard.press("u")
    expect(page.locator("#status")).to_have_text("There is nothing to undo")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("undo your last answer")
    page.keyboard.press("x")  # not meant for the image behind
    page.keyboard.press("Escape")
    assert given(run) == []
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    place(page, 1)


def test_a_killed_server_loses_nothing_and_the_page_goes_on_by_itself(run: RunDir, tmp_path: Path, visit: Open) -> None:
    port = free_port()
    words = [sys.executable, "-m", "erd.cli", "review", "--batch", run.batch_name, "--port", str(port)]

    def start() -> subprocess.Popen:
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(words, cwd=tmp_path, stderr=log, start_new_session=True)
        wait_for_answer(f"http://127.0.0.1:{port}/", process)
        return process

    server = start()
    try:
        page = visit(f"http://127.0.0.1:{port}")
        place(page, 1)
        for key in "1234":
            page.keyboard.press(key)
        saved(page, 4)
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        batches_to_review.torn(run)
        page.keyboard.press("5")
        expect(page.locator("#status")).to_contain_text("Not saved yet (the server does not answer)")
        saved(page, 4)
        expect(page.locator("#strip i.waiting")).to_have_count(1)
        server = start()
        saved(page, 5)
        expect(page.locator("#status")).not_to_contain_text("Not saved")
        page.reload()
        saved(page, 5)
        assert [(image, label) for _, image, label, _ in given(run)] == [
            (image, f"digit {number}") for number, image in enumerate(ids(run)[:5])
        ]
        assert f"http://127.0.0.1:{port}/\n" in (tmp_path / "log").read_text()
    finally:
        server.kill()
        server.wait()


# In the page and not by `page.route`: on a busy machine the browser has been seen to send an answer past that.
REFUSE = """
const send = window.fetch;
window.fetch = (to, ...more) => String(to).includes("api/answer") && sessionStorage.getItem("refused")
    ? Promise.reject(new TypeError("Failed to fetch")) : send(to, ...more);
"""


def test_an_answer_that_could_not_be_sent_outlives_a_reload(
    run: RunDir, serve: Callable[..., str], visit: Open
) -> None:
    page = visit(serve(run))
    place(page, 1)
    page.evaluate(f"() => {{ {REFUSE} sessionStorage.setItem('refused', 'yes') }}")
    page.add_init_script(REFUSE)
    page.keyboard.press("3")
    expect(page.locator("#status")).to_contain_text("Not saved yet")
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    page.reload()
    assert asked == ["beforeunload"]
    expect(page.locator("#strip i.waiting")).to_have_count(1)
    page.evaluate("() => sessionStorage.removeItem('refused')")
    saved(page, 1)
    assert [label for _, _, label, _ in given(run)] == ["digit 2"]


def test_two_reviewers_at_once_are_both_kept_and_their_disagreement_is_shown(
    run: RunDir, serve: Callable[..., str], visit: Open
) -> None:
    url = serve(run)
    ada, ben = visit(url), visit(url, "Ben")
    place(ada, 1)
    place(ben, 1)
    for one, other in ("11", "23", "44"):
        ada.keyboard.press(one)
        ben.keyboard.press(other)
    saved(ada, 3)
    saved(ben, 3)
    assert len(given(run)) == 6
    for page, other, said in ((ada, "Ben", "digit 2"), (ben, "Ada", "digit 1")):
        expect(page.locator("#strip i.dispute")).to_have_count(1)
        page.get_by_role("button", name="Image 2, you said").click()
        expect(page.locator("#others")).to_contain_text("Reviewers disagree")
        expect(page.locator("#others")).to_contain_text(f"{other} said {said}")
    cy = visit(url, "Cy")
    expect(cy.locator("#others")).to_have_text("2 other reviewers answered; shown after your answer.")
    cy.locator("#who").click()
    cy.get_by_label("Your name").fill("Ada")
    cy.keyboard.press("Enter")
    saved(cy, 3)


def test_the_slider_goes_down_the_list_with_the_bound_at_that_cut(
    run: RunDir, serve: Callable[..., str], visit: Open
) -> None:
    page = visit(serve(run))
    expect(page.locator("#bound")).to_have_text("the first 20 of 60 images: at least 16 of them novel (90% confidence)")
    page.get_by_label("How far down").focus()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#bound")).to_have_text("the first 29 of 60 images: at least 22 of them novel (90% confidence)")
    place(page, 1, 29)
    page.keyboard.press("2")
    saved(page, 1)
    page.get_by_role("button", name="Image 29").click()
    expect(page.locator("#facts")).to_contain_text("Flaggedno")
    page.keyboard.press("x")
    saved(page, 2)
    page.reload()
    expect(page.get_by_role("tab", name="Most novel")).to_contain_text("2 of 29")
    page.get_by_role("button", name="Back to the first 20").click()
    expect(page.get_by_role("tab", name="Most novel")).to_contain_text("1 of 20")


def test_where_nothing_is_flagged_the_images_worth_a_look_are_shown_with_how_far_they_are_good(
    tmp_path: Path, serve: Callable[..., str], visit: Open
) -> None:
    look: dict[str, Any] = {"look_at_novel": 24.6, "look_at_least": 19, "last_good": 27, "mix_changed": "more cats"}
    run = batches_to_review.make(tmp_path, flagged=0, budget=40, alarm=True, **look)
    page = visit(serve(run))
    place(page, 1, 40)
    expect(page.locator("#headline")).to_contain_text("of the 40 images that look most novel about 25 are expected")
    expect(page.locator("#about-look")).to_contain_text("Down to image 27 of the list")
    expect(page.locator("#findings")).to_have_text("More cats.")
    expect(page.get_by_label("How far down")).to_have_value("40")
    assert "Flagged 0" not in page.locator("body").inner_text()
    line = page.get_by_role("separator")
    expect(line).to_have_text("likely novel up to here")
    assert line.evaluate("node => node.previousElementSibling.getAttribute('aria-label')") == "Image 27"
    page.keyboard.press("x")
    saved(page, 1)
    page.get_by_role("tab", name="Audit").click()
    expect(page.locator("#about-look")).to_be_hidden()
    expect(line).to_have_count(0)


def test_where_the_list_is_empty_the_slider_still_leads_to_images(
    tmp_path: Path, serve: Callable[..., str], visit: Open
) -> None:
    moved = batches_to_review.make(tmp_path, flagged=0, budget=0, bulk_moved="nearly all images have moved")
    page = visit(serve(moved))
    expect(page.locator("#empty")).to_contain_text("move the slider to the right")
    page.keyboard.press("x")  # of no image
    page.get_by_label("How far down").fill("3")
    place(page, 1, 3)
    expect(page.locator("#bound")).to_have_text("the first 3 of 60 images")  # no bound holds where all have moved
    page.keyboard.press("x")
    saved(page, 1)


def test_a_new_class_is_typed_once_and_then_has_a_key_for_everybody(
    run: RunDir, serve: Callable[..., str], visit: Open
) -> None:
    url = serve(run)
    ada, ben = visit(url), visit(url, "Ben")
    place(ada, 1)
    ada.keyboard.press("n")
    ada.keyboard.type("walrus x b 1")
    ada.keyboard.press("Enter")
    place(ada, 2)
    expect(ada.get_by_role("button", name="6 walrus x b 1")).to_be_visible()
    ada.keyboard.press("6")
    saved(ada, 2)
    expect(ben.get_by_role("button", name="6 walrus x b 1")).to_be_visible()
    ben.keyboard.press("6")
    saved(ben, 1)
    first, second = ids(run)[:2]
    assert given(run) == [
        ("Ada", first, "walrus x b 1", "flagged"),
        ("Ada", second, "walrus x b 1", "flagged"),
        ("Ben", first, "walrus x b 1", "flagged"),
    ]


def test_of_many_classes_one_is_found_by_typing(tmp_path: Path, serve: Callable[..., str], visit: Open) -> None:
    words = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu")
    names = [*"01234", *(f"kind of {word}" for word in words)]
    run = batches_to_review.make(tmp_path, classes=names)
    page = visit(serve(run))
    place(page, 1)
    page.keyboard.press("4")  # a class that is named by a digit has that digit for a key
    place(page, 2)
    page.keyboard.press("/")
    page.keyboard.type("gnu")
    page.keyboard.press("Enter")
    saved(page, 2)
    assert [label for _, _, label, _ in given(run)] == ["4", "kind of gnu"]


def test_the_audit_is_apart_and_says_nothing_of_scores(run: RunDir, serve: Callable[..., str], visit: Open) -> None:
    page = visit(serve(run))
    expect(page.locator("#facts")).to_contain_text("p-value")
    page.get_by_role("tab", name="Audit").click()
    place(page, 1, 12)
    text = page.locator("main").inner_text()
    assert not re.search(r"p-value|score\s*0|0\.\d|flagged\s*(yes|no)", text, re.IGNORECASE)
    page.keyboard.press("3")
    saved(page, 1)
    expect(page.get_by_role("tab", name="Most novel")).to_contain_text("0 of 20")
    assert [(label, where) for _, _, label, where in given(run)] == [("digit 2", "audit")]


def test_neighbours_from_training_are_shown(run: RunDir, serve: Callable[..., str], visit: Open) -> None:
    page = visit(serve(run))
    pictures = page.locator("#neighbours img")
    expect(pictures).to_have_count(5)
    expect(pictures.first).to_have_attribute("alt", re.compile("Training image of class digit"))
    for picture in [page.locator("#large"), *pictures.all()]:  # loaded, not just asked for
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("image => image.naturalWidth") > 0


def test_names_are_never_read_as_html(tmp_path: Path, serve: Callable[..., str], visit: Open) -> None:
    evil = '<img src=x onerror="document.title=1">'
    run = batches_to_review.make(tmp_path, classes=[f"{evil}{n}" for n in range(5)])
    table = queue.load(run).table
    files.save_table(run.scores, table.assign(id=[f"{evil}{row}" for row in table.index]))
    url = serve(run)
    page, other = visit(url, evil), visit(url, "Ben")
    place(page, 1)
    page.keyboard.press("n")
    page.keyboard.type(f"{evil} new")
    page.keyboard.press("Enter")
    saved(page, 1)
    expect(page.locator("#name")).to_contain_text(evil)
    expect(page.locator("#facts")).to_contain_text(evil)
    place(other, 1)
    other.keyboard.press("1")
    saved(other, 1)
    other.get_by_role("button", name="Image 1, you said").click()
    expect(other.locator("#others")).to_contain_text(f"{evil} said {evil} new")
    assert page.locator("img[src=x]").count() == other.locator("img[src=x]").count() == 0
    assert page.title() == other.title() == "Review 2026-W46"


def test_the_link_with_the_token_opens_the_page_and_nothing_else_does(
    run: RunDir, serve: Callable[..., str], visit: Open, browser: Browser
) -> None:
    url = serve(run, "s3cret", loopback=False)
    stranger = browser.new_context().new_page()
    assert stranger.goto(url).status == 401  # type: ignore[union-attr]
    page = visit(f"{url}/?token=s3cret")
    expect(page).to_have_url(f"{url}/")
    place(page, 1)
    page.keyboard.press("1")
    saved(page, 1)
    assert "s3cret" not in page.evaluate("document.cookie")


def test_a_foreign_page_can_neither_answer_nor_read(run: RunDir, serve: Callable[..., str], browser: Browser) -> None:
    url = serve(run)
    page = browser.new_context().new_page()
    page.route("http://evil.example/**", lambda route: route.fulfill(content_type="text/html", body="<p>"))
    page.goto("http://evil.example/")
    key = queue.load(run).key
    body = f'{{"batch": "{key}", "list": "flagged", "rows": [0], "kind": "bad", "reviewer": "Mallory"}}'
    send = "([url, body]) => fetch(url, {method: 'POST', mode: 'no-cors', body}).then(() => 'sent', () => 'not sent')"
    read = "(url) => fetch(url).then(() => 'read', () => 'not read')"
    page.evaluate(send, [f"{url}/api/answer", body])
    assert page.evaluate(read, f"{url}/api/state") == "not read"
    assert given(run) == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    run: RunDir, serve: Callable[..., str], visit: Open, scheme: str
) -> None:
    page = visit(serve(run), viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True)
    place(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#buttons").get_by_role("button", name="digit 3").tap()
    place(page, 2)
    saved(page, 1)
    page.get_by_role("button", name="Undo").tap()
    place(page, 1)
    saved(page, 0)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 380
    assert light == (scheme == "light")
