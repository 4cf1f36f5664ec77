"""Takes the pictures of the web UI in docs/images: ``make pictures``.

They show the order system of ``examples/orders`` while it runs on Spark in this process: one
picture as a browser with a light theme shows it, one with a dark theme. Both need a Chromium.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from examples.orders.faults import FailOnce
from examples.orders.job import NAME, JobSettings, prepare
from examples.orders.pipeline import PipelineSettings
from examples.orders.shop import Shop
from holdfast.common import Duration, JobClient
from holdfast.rest.registry import registered
from tests.page.conftest import SWITCHES, find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

__all__ = ["FOLDER", "SCHEMES", "take"]

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
SCHEMES: Final = ("light", "dark")
_SIZE: Final[ViewportSize] = {"width": 1280, "height": 840}
#: the vertex whose operators and subtasks are shown
_OPENED: Final = "inventory"
#: how much of the job is to be seen: by then it has failed once and continued
_CHECKPOINTS: Final = 8
_RATE: Final = 2_000.0
#: in seconds; a machine may be slow and busy
_LONGEST: Final = 300.0


def take(folder: Path = FOLDER) -> None:
    """Run the job until there is something to see, and write the pictures."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=list(SWITCHES))
        client = prepare(_settings(Path(place))).execute_async(NAME)
        try:
            _wait(lambda: _completed(client) >= _CHECKPOINTS, client)
            (server,) = (entry.url for entry in registered() if entry.process == os.getpid())
            address = f"{server}/#/jobs/{client.get_job_id()}/plan"
            for scheme in SCHEMES:
                _picture(browser, address, scheme, folder / f"web-ui-{scheme}.png")
        finally:
            client.cancel().result()
            browser.close()


def _settings(place: Path) -> JobSettings:
    """The shop with disorder, duplicates and late orders, and one failure."""
    shop = Shop(rate=_RATE, duplicates=0.05, disorder=True, lateness=0.02)
    fault = FailOnce(4_000, str(place / "failed"))
    return JobSettings(
        directory=place,
        shop=shop,
        parallelism=2,
        checkpoint_interval=2_000,
        restart_delay=1_000,
        pipeline=PipelineSettings(remember=Duration.of_hours(24), fault=fault),
    )


def _completed(client: JobClient) -> int:
    return sum(one.status.name == "COMPLETED" for one in client.get_checkpoints())


def _wait(reached: Callable[[], bool], client: JobClient) -> None:
    """Wait for the job to come so far.

    Raises:
        RuntimeError: if it ends before, or takes too long.
    """
    deadline = time.monotonic() + _LONGEST
    while not reached():
        if client.get_job_status().result().is_terminal_state() or time.monotonic() > deadline:
            message = f"there is nothing to take a picture of: {client.get_attempts()}"
            raise RuntimeError(message)
        time.sleep(0.1)


def _picture(browser: Browser, address: str, scheme: str, path: Path) -> None:
    """Open the page of a job, wait until it shows rates, and write what can be seen."""
    context = browser.new_context(viewport=_SIZE, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    page.get_by_text(re.compile(r"^in [1-9]")).first.wait_for(timeout=_LONGEST * 1_000)
    page.get_by_role("button", name=re.compile(f"^{_OPENED}")).click()
    # what the page shows of the last seconds comes with the next messages of the server
    page.wait_for_timeout(5_000)
    content = page.locator("#content").bounding_box()
    assert content is not None
    height = min(content["y"] + content["height"], _SIZE["height"])
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": _SIZE["width"], "height": height})
    context.close()


if __name__ == "__main__":
    try:
        take()
    except pytest.skip.Exception as problem:
        sys.exit(f"error: {problem}")
