"""Checks that the search of the documentation works in a browser, from files and without a server.

``make docs`` runs it after the build. Without a Chromium it says so, and checks nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.page.conftest import SWITCHES, find_browser

__all__ = ["found"]

SITE: Final = Path(__file__).resolve().parents[1] / "build" / "site"
#: what is searched for, from which page, and the page that must be among the results
_SEARCHES: Final = (
    ("watermark alignment", "index.html", "event_time.html"),
    ("KeyedProcessFunction", "internals/epoch.html", "python/holdfast.datastream.html"),
)
_LONGEST: Final = 60_000


def found(question: str, page: str) -> list[str]:
    """Return the pages that a search finds, as addresses in the site."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=list(SWITCHES))
        tab = browser.new_page()
        tab.set_default_timeout(_LONGEST)
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((SITE / page).as_uri())
        tab.get_by_role("textbox", name="Search").first.fill(question)
        results = tab.locator(".md-search-result__link")
        results.first.wait_for()
        links = [str(link) for link in results.evaluate_all("all => all.map(one => one.href)")]
        browser.close()
    elsewhere = [url for url in asked if not url.startswith(("file:", "about:", "data:"))]
    if elsewhere:
        sys.exit(f"error: the site asks for {', '.join(elsewhere)}")
    return [link.removeprefix(f"{SITE.as_uri()}/").partition("?")[0] for link in links]


def main() -> None:
    """Search, and fail if a page is not found."""
    for question, page, wanted in _SEARCHES:
        pages = [link.partition("#")[0] for link in found(question, page)]
        if wanted not in pages:
            sys.exit(f"error: a search for {question!r} from {page} finds {pages}, not {wanted}")
    print("the search works without a server")


if __name__ == "__main__":
    try:
        main()
    except pytest.skip.Exception as problem:
        print(f"the search was not checked: {problem}")
