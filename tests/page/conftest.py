"""A real browser, and pages in it that may not complain or ask anyone else for anything."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: kept after the tests, for people; ``make clean`` removes them
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
#: no sandbox: it needs rights that root in a container has not; and no calls home
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

OpenPage = Callable[..., "Page"]


def find_browser() -> str:
    """The browser to test in, or a skip."""
    told = os.environ.get("HOLDFAST_CHROMIUM")
    found = [told] if told else [shutil.which(name) for name in NAMES] + [MAC]
    for path in found:
        if path is not None and os.access(path, os.X_OK):
            return path
    pytest.skip(
        "no Chromium or Chrome found: install one (Debian: apt-get install chromium), or set "
        "HOLDFAST_CHROMIUM to its path"
    )


# NB: a browser of a module: while it is driven, an event loop runs, and others cannot have one
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a module."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs holdfast[dev]")
    path = find_browser()
    with driver.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens an address in a window of its own.

    At the end nothing may have been said on the console, where the browser tells of errors and of
    what the content security policy forbade, and nobody else may have been asked for anything.
    That a server has gone, as it does with its last job, may be said.
    """
    contexts, complaints = [], []

    def open_(url: str, *, forgives: tuple[str, ...] = (), **options: Any) -> Page:
        origin = "/".join(url.split("/")[:3]) + "/"
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()

        def complain(text: str) -> None:
            if not any(part in text for part in (*forgives, "net::ERR_")):
                complaints.append(text)

        page.on("console", lambda message: complain(message.text))
        page.on("pageerror", lambda error: complain(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(origin) else complain(asked.url),
        )
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def keep(page: Page, name: str) -> None:
    """Take a picture for people."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def expect(page: Page, text: str | re.Pattern[str], within: str = "body") -> None:
    """Wait until a text can be seen."""
    page.locator(within).get_by_text(text).first.wait_for()
