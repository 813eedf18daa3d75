"""A real browser for tests, and reviewers who open the page in it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
NEEDED = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SWITCHES += ["--disable-sync", "--no-first-run"]
expect.set_options(timeout=20_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield started
        started.close()


@contextmanager
def reviewers(browser: Browser) -> Iterator[Callable[..., Page]]:
    """What opens the page in a window of its own, as a reviewer; errors in the page fail the test."""
    wrong: list[str] = []

    def start(url: str, reviewer: str = "Ada", **how: Any) -> Page:
        page = browser.new_context(**how).new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        page.goto(url)
        page.get_by_label("Your name").fill(reviewer)
        page.keyboard.press("Enter")
        expect(page.locator("#who")).to_have_text(reviewer)
        return page

    yield start
    for context in browser.contexts:
        context.close()
    assert wrong == []
