"""A job on Spark, from the list of jobs to its history, as a person would go through it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import JobClient, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.rest.registry import registered
from holdfast.rest.site import Files
from tests.page.conftest import OpenPage, expect, keep
from tests.page.jobs import Trouble, orders
from tests.serving import checkpoints_in, served

pytestmark = pytest.mark.spark

NAME = "orders <b>today</b>"


def endless(env: StreamExecutionEnvironment) -> Any:
    numbers = env.from_source(
        NumberSequenceSource(0, 10**12), WatermarkStrategy.no_watermarks(), "orders"
    )
    return numbers.map(lambda n: (f"customer-{n % 10}", n)).name("of customers")


@pytest.fixture
def trouble(tmp_path: Path) -> Trouble:
    return Trouble(tmp_path)


@pytest.fixture
def client(
    spark: Any, browser: Any, tmp_path: Path, trouble: Trouble, runtime_directory: Path
) -> Iterator[JobClient]:
    settings = checkpoints_in(tmp_path) | {
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.tolerable-failed-checkpoints": "100",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "10ms",
        "holdfast.epoch.max-records": "400",
        "rest.port": "0",
    }
    running = orders(endless, settings, trouble).execute_async(NAME)
    yield running
    if not running.get_job_status().result().is_terminal_state():
        running.cancel().result()


def test_from_the_list_to_the_history(
    client: JobClient, trouble: Trouble, open_page: OpenPage, tmp_path: Path
) -> None:
    (entry,) = registered()
    page = open_page(entry.url)

    # the list, and the plan
    page.get_by_role("link", name=NAME).click()
    counts = page.get_by_role("button", name=re.compile("^Counts"))
    counts.get_by_text(re.compile(r"^in [1-9]")).wait_for()
    assert "×2" in counts.inner_text()
    expect(page, "set spark.ui.enabled=true", ".fact")
    keep(page, "spark-plan")

    # a checkpoint fails, and the next one does not
    page.get_by_role("link", name=re.compile("^Checkpoints")).click()
    checkpoints = page.get_by_role("region", name="Checkpoints", exact=True)
    rows = checkpoints.locator("tbody tr")
    # NB: not the first row: on a slow machine that is always one in progress
    rows.get_by_text("completed").first.wait_for()
    trouble.locked.touch()
    failed = rows.filter(has_text="failed")
    failed.first.get_by_role("button").click()
    expect(page, "the ledger is locked", ".more")
    trouble.locked.unlink()
    # one is complete above those that have failed
    checkpoints.locator("tr:has-text('completed') ~ tr:has-text('failed')").first.wait_for()
    keep(page, "spark-checkpoints")

    # what its function logged in a worker
    page.get_by_role("link", name="Logs").click()
    said = page.get_by_role("region", name="Log lines").locator("li").first
    said.get_by_text("no <i>ledger</i>").wait_for()
    assert re.search(r"ERROR\s+Counts #[01]", said.inner_text())

    # so does the job, which goes on
    trouble.unknown.touch()
    page.get_by_role("link", name=re.compile("^Exceptions")).click()
    expect(page, re.compile("no such customer: customer-"), "pre")
    expect(page, "tests/page/jobs.py", "pre")
    page.locator("h1 + .status").get_by_text("running").wait_for()
    keep(page, "spark-exceptions")

    # a savepoint
    page.get_by_role("button", name="Savepoint…").click()
    page.get_by_role("button", name="Take a savepoint").click()
    note = page.locator(".note.good").get_by_text(re.compile("The savepoint is complete"))
    note.wait_for()
    saved = Path(note.inner_text().split(": ", 1)[1])
    assert saved.is_relative_to(tmp_path / "savepoints")
    assert saved.exists()

    # more subtasks
    page.get_by_role("link", name=re.compile("^Plan")).click()
    page.get_by_role("button", name="Rescale…").click()
    page.get_by_label("Parallelism").fill("3")
    page.get_by_role("button", name="Rescale", exact=True).click()
    expect(page, "The job runs with parallelism 3.", "#notes")
    counts.get_by_text("×3").wait_for()
    keep(page, "spark-rescaled")

    # a look into state
    page.get_by_role("link", name=re.compile("^State")).click()
    page.get_by_label("State", exact=True).select_option(label="Counts: count")
    page.get_by_label(re.compile("^Key")).fill("customer-3")
    page.get_by_role("button", name="Look up").click()
    page.locator(".found pre").wait_for()
    assert int(page.locator(".found pre").inner_text()) > 0

    # the end
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    client.get_job_execution_result().exception()
    page.locator("#link").get_by_text(re.compile("ended|gone|no answer")).wait_for()

    # its history
    with served(site=Files([tmp_path / "checkpoints"])) as server:
        page = open_page(server.url)
        page.get_by_role("link", name=NAME).click()
        page.locator("h1 + .status").get_by_text("canceled").wait_for()
        assert page.get_by_role("button", name="Cancel…").count() == 0
        assert "×3" in counts_of(page)
        page.get_by_role("link", name=re.compile("^Checkpoints")).click()
        expect(page, "savepoint", "tbody")
        page.get_by_role("link", name=re.compile("^Exceptions")).click()
        expect(page, re.compile("no such customer: customer-"), "pre")
        keep(page, "spark-history")


def counts_of(page: Any) -> str:
    return page.get_by_role("button", name=re.compile("^Counts")).inner_text()
