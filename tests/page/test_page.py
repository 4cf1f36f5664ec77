"""The page in a browser, over a job that the test drives: each part shows what is true."""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast.common import JobStatus
from holdfast.driver.job.rescaling import rescaled
from holdfast.driver.job_events import Cause
from holdfast.filesystem.local import LOCAL
from holdfast.history.events import EpochEnded, SubtaskFigures, SubtasksSeen
from holdfast.history.journal import SUFFIX, Journal, open_journal
from holdfast.rest.site import Files
from holdfast.runtime.worker.log_lines import LogLine
from tests.page.conftest import OpenPage, expect, keep
from tests.page.jobs import Trouble, finite, orders
from tests.page.reverse_proxy import below
from tests.serving import JOB_ID, LocalJob, checkpoints_in, served

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

NAME = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def settings(directory: Path) -> dict[str, str]:
    return checkpoints_in(directory) | {
        "execution.checkpointing.tolerable-failed-checkpoints": "5",
        "fs.s3a.secret.key": "hush",
        "pipeline.name": NAME,
    }


@pytest.fixture(scope="module")
def trouble(directory: Path) -> Trouble:
    return Trouble(directory)


@pytest.fixture(scope="module")
def job(settings: dict[str, str], trouble: Trouble) -> Iterator[LocalJob]:
    """A job that has failed, taken checkpoints, failed again, and runs."""
    made = LocalJob(orders(finite, settings, trouble), quota=40)
    with made.run:
        trouble.unknown.touch()
        made.fail()
        made.run.epoch()
        made.run.epoch(checkpoint=True)
        made.run.epoch(checkpoint=True)
        trouble.unknown.touch()
        made.fail()
        made.run.epoch()
        yield made


@pytest.fixture(scope="module")
def url(job: LocalJob, runtime_directory: Path) -> Iterator[str]:
    with served(job) as server:
        yield server.url


def tab(url: str, name: str) -> str:
    return f"{url}/#/jobs/{JOB_ID}/{name}"


def ask(page: Page, button: Locator) -> None:
    """Press a button, and wait until the server has the request: the next epoch carries it out."""
    with page.expect_response(lambda response: response.request.method == "POST"):
        button.click()


def test_the_list_leads_to_a_job(open_page: OpenPage, url: str) -> None:
    page = open_page(url)
    page.get_by_role("link", name=NAME).click()
    page.get_by_role("heading", level=1).filter(has_text=NAME).wait_for()
    assert page.title() == f"{NAME} · Plan · Holdfast"
    expect(page, "live", "#link")


def test_what_a_job_says_is_text(open_page: OpenPage, url: str) -> None:
    """A script in the name of a job, or in an exception, is shown and not run."""
    page = open_page(tab(url, "exceptions"))
    expect(page, re.compile("no such customer: customer-.<img src=x onerror"), "pre")
    assert page.locator("h1 img, h1 script, pre img, #where img").count() == 0
    expect(page, "tests/page/jobs.py", "pre")
    expect(page, "Counts (")
    starts = page.locator("[aria-label=Starts] tbody tr").all_inner_texts()
    assert [row.split("\t")[2] for row in starts] == [
        "from checkpoint 2",
        "from the start: no checkpoint had completed",
        "from the start",
    ]
    *took, never = (row.split("\t")[3].strip() for row in starts)
    assert all(re.match(r"[\d.]+ m?s\s+.*first result [\d.]+ m?s", text) for text in took)
    assert never == "", "it failed in its first epoch"
    keep(page, "exceptions")


def test_the_plan_is_a_graph_with_figures(open_page: OpenPage, url: str, job: LocalJob) -> None:
    page = open_page(tab(url, "plan"))
    page.locator(".vertex").first.wait_for()
    assert page.locator(".vertex").count() == len(job.history.graph.vertices)
    labels = page.locator(".graph text").all_text_contents()
    assert {"HASH", "REBALANCE", "large"} <= set(labels)
    box = page.get_by_role("button", name=re.compile("Counts"))
    assert "×2" in box.inner_text()
    assert "busy" in box.inner_text() or "blocked" in box.inner_text()
    share = box.get_by_role("img").get_attribute("aria-label")
    assert re.fullmatch(r"busy \d+ %, back-pressured \d+ %, idle \d+ %", share or "")
    box.focus()
    page.keyboard.press("Enter")
    subtasks = page.get_by_role("region", name="Subtasks").locator("tbody tr")
    subtasks.first.wait_for()
    assert subtasks.count() == 2
    sink = page.get_by_role("button", name=re.compile("^Largest"))
    assert re.search(r"wrote [1-9]", sink.inner_text())
    keep(page, "plan")
    was = [box.element_handle(), box.inner_text()]
    job.run.epoch(200)
    page.wait_for_function("([box, was]) => box.innerText !== was", arg=was)
    assert box.get_attribute("aria-pressed") == "true"


def test_the_engine_and_why_it_is_that_one(open_page: OpenPage, url: str) -> None:
    page = open_page(tab(url, "plan"))
    engine = page.locator(".fact", has_text="Engine")
    assert engine.locator("dd").inner_text() == "in-process"
    assert engine.get_attribute("title") == "holdfast.testing runs it"


@pytest.mark.parametrize(
    ("engine", "address", "shown"),
    [
        ("resident", "http://127.0.0.1:4040", "127.0.0.1:4040"),
        ("epochs", "", "off set spark.ui.enabled=true"),
        ("local", "", None),
    ],
)
def test_where_the_page_of_spark_is(
    open_page: OpenPage, url: str, job: LocalJob, engine: str, address: str, shown: str | None
) -> None:
    began = job.history.began
    assert began is not None
    job.history.tell(msgspec.structs.replace(began, engine=engine, spark_page=address))
    try:
        page = open_page(tab(url, "plan"))
        page.locator(".fact", has_text="Engine").get_by_text(engine).wait_for()
        spark = page.locator(".fact", has_text="Spark's page")
        told = spark.locator("dd").all_inner_texts()
        links = [link.get_attribute("href") for link in spark.get_by_role("link").all()]
    finally:
        job.history.tell(began)
    assert told == ([] if shown is None else [shown])
    assert links == ([address] if address else [])


def test_epochs_over_time(open_page: OpenPage, url: str, job: LocalJob) -> None:
    page = open_page(tab(url, "epochs"), viewport={"width": 1400, "height": 900})
    last = job.history.epochs[-1].epoch
    table = page.get_by_role("region", name="Epochs")
    table.get_by_role("cell", name=str(last), exact=True).wait_for()
    job.run.epoch()
    table.get_by_role("cell", name=str(last + 1), exact=True).wait_for()
    chart = page.get_by_role("img", name=re.compile("^Duration"))
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(page, re.compile(rf"epoch {last + 1} · .*1 trigger .*2 load .*6 persist"), ".detail")
    legend = page.locator(".legend li").all_text_contents()
    assert [text.split()[0] for text in legend[:-1]] == [str(n) for n in range(1, 11)]
    room = page.get_by_role("region", name="Epochs")
    assert room.evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0  # nothing is cut off
    keep(page, "epochs")


def test_figures_over_time(open_page: OpenPage, url: str, job: LocalJob) -> None:
    """Charts of the job, of its vertices, and of the metrics of functions."""
    job.run.epoch()
    job.recorder.measure()
    page = open_page(tab(url, "series"))
    chart = page.get_by_role("img", name=re.compile("^Records per second"))
    chart.wait_for()
    before = len(job.history.series.points)
    job.run.epoch()
    job.recorder.measure()
    page.get_by_role("img", name=f"Records per second, {before + 1} points").wait_for()
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(page, re.compile(r" · read [\d.]+k?/s"), ".axis")
    expect(page, re.compile(r" · Counts [\d.]+k?/s"), ".axis")
    for name in ("Watermark", "Back pressure", "Busy", "Checkpoint duration", "Size of the state"):
        assert page.get_by_role("img", name=re.compile(f"^{name}")).count() == 1
    section = page.locator("section", has_text="Metrics of Counts")
    orders = sum(one["orders"] for one in job.history.subtasks.metrics["counts"].values())
    expect(page, f"orders: {orders}", "figcaption")
    assert section.get_by_role("img", name=re.compile("^numbers: mean of")).count() == 1
    keep(page, "metrics")
    page.get_by_role("button", name="15 minutes").click()
    page.locator("button[aria-pressed=true]", has_text="15 minutes").wait_for()
    chart.wait_for()


def test_metrics_of_functions_by_subtask(open_page: OpenPage, url: str, job: LocalJob) -> None:
    page = open_page(tab(url, "plan"))
    page.get_by_role("button", name=re.compile("^Counts")).click()
    rows = page.get_by_role("region", name="Metrics of functions").locator("tbody tr")
    rows.first.wait_for()
    names = rows.locator("code").all_inner_texts()
    assert names == ["numbers", "orders"]


def test_logs_by_operator_and_level(open_page: OpenPage, url: str, job: LocalJob) -> None:
    text = "<b>bold</b> news"
    for level, operator in ((logging.INFO, "parsed"), (logging.ERROR, "parsed"), (30, "Counts")):
        said = LogLine("shop", level, text, "", operator, 1, 1.0, "a.py", 7, "f", "Main", 42, "h")
        job.logs.add(said, attempt=1)
    page = open_page(tab(url, "logs"))
    lines = page.get_by_role("region", name="Log lines").locator("li")
    lines.nth(2).wait_for()
    assert "<b>bold</b> news" in lines.first.inner_text()
    keep(page, "logs")
    page.get_by_label("From level").select_option("WARNING")
    page.wait_for_function("() => document.querySelectorAll('.log li').length === 2")
    page.get_by_label("Operator").select_option("Counts")
    page.wait_for_function("() => document.querySelectorAll('.log li').length === 1")
    assert "Counts #1" in lines.first.inner_text()
    # a new one comes by itself
    job.logs.add(msgspec.structs.replace(said, message="the last one"), attempt=1)
    job.run.epoch()
    lines.get_by_text("the last one").wait_for()


def test_a_checkpoint_fails_and_the_next_one_is_complete(
    open_page: OpenPage, url: str, job: LocalJob, trouble: Trouble
) -> None:
    page = open_page(tab(url, "checkpoints"))
    rows = page.get_by_role("region", name="Checkpoints", exact=True).locator("tbody tr")
    rows.first.wait_for()
    trouble.locked.touch()
    ask(page, page.get_by_role("button", name="Checkpoint", exact=True))
    expect(page, "Taking a checkpoint", "#notes")
    job.run.epoch()
    expect(page, re.compile("the ledger is locked"), "#notes")
    rows.first.get_by_text("failed").wait_for()
    rows.first.get_by_role("button").click()
    expect(page, "the ledger is locked", ".more")
    total = job.history.graph.subtasks
    rows.first.get_by_text(f"{total - 2}/{total}").wait_for()  # the two of Counts did not
    subtasks = page.get_by_role("region", name=re.compile("Subtasks of checkpoint"))
    missing = subtasks.get_by_role("cell", name="no", exact=True)
    missing.first.wait_for()
    assert missing.count() == 2
    trouble.locked.unlink()
    # NB: what the notes say is still of the first one
    ask(page, page.get_by_role("button", name="Checkpoint", exact=True))
    job.run.epoch()
    rows.first.get_by_text("completed").wait_for()
    rows.first.get_by_role("button").click()
    subtasks.get_by_text("Counts").wait_for()
    keep(page, "checkpoints")


def test_savepoint(open_page: OpenPage, url: str, job: LocalJob, directory: Path) -> None:
    page = open_page(tab(url, "plan"))
    page.get_by_role("button", name="Savepoint…").click()
    page.get_by_role("dialog").wait_for()
    keep(page, "savepoint")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.get_by_role("button", name="Savepoint…").click()
    ask(page, page.get_by_role("button", name="Take a savepoint"))
    expect(page, "Taking a savepoint", "#notes")
    job.run.epoch()
    expect(page, re.compile("The savepoint is complete"), "#notes")
    said = page.locator(".note.good span").inner_text()
    assert Path(said.split(": ", 1)[1]).is_relative_to(directory / "savepoints")


def test_below_a_path_of_a_proxy(open_page: OpenPage, url: str, job: LocalJob) -> None:
    """The page finds its parts, its figures and its actions below any path."""
    with below("/proxy/application_17_0001/", url) as shown:
        page = open_page(shown)
        page.get_by_role("link", name=NAME).click()
        expect(page, "live", "#link")
        page.locator(".vertex").first.wait_for()
        page.get_by_role("button", name="Savepoint…").click()
        ask(page, page.get_by_role("button", name="Take a savepoint"))
        expect(page, "Taking a savepoint", "#notes")
        job.run.epoch()
        expect(page, re.compile("The savepoint is complete"), "#notes")
        assert page.url.startswith(f"{shown}#/jobs/")
        page.goto("about:blank")


def test_a_savepoint_elsewhere_is_refused_in_words(open_page: OpenPage, url: str) -> None:
    page = open_page(tab(url, "plan"), forgives=("403",))
    page.get_by_role("button", name="Savepoint…").click()
    page.get_by_label("Directory").fill("/etc")
    page.get_by_role("button", name="Take a savepoint").click()
    expect(page, re.compile("a savepoint may be written below"), "#notes")


def test_a_look_into_state(open_page: OpenPage, url: str, job: LocalJob) -> None:
    page = open_page(tab(url, "states"))
    table = page.get_by_role("region", name="States")
    table.get_by_text("count", exact=True).wait_for()
    page.get_by_label("State", exact=True).select_option(label="Counts: count")
    page.get_by_label(re.compile("^Key")).fill("customer-3")
    page.get_by_role("button", name="Look up").click()
    page.locator(".found pre").wait_for()
    assert page.locator(".found pre").inner_text() == str(
        job.run.query_state("counts", "count", "customer-3")
    )
    page.get_by_label(re.compile("^Key")).fill("nobody'); <script>")
    page.get_by_role("button", name="Look up").click()
    expect(page, "Nothing.", ".found")
    page.get_by_role("button", name="Compare").click()
    expect(page, re.compile("new, .* changed"), "summary")
    keep(page, "state")


def test_entries_of_a_state_page_by_page(open_page: OpenPage, url: str, job: LocalJob) -> None:
    page = open_page(tab(url, "states"))
    section = page.locator("section", has=page.get_by_role("heading", name="Entries"))
    section.get_by_label("Entries of").select_option(label="Counts: count")
    # ten keys are one page; a page of three shows how one turns over
    page.route("**/state/entries?*", lambda route: route.continue_(url=three_rows(route)))
    section.get_by_role("button", name="Show entries").click()
    rows = section.get_by_role("region", name="Entries").locator("tbody tr")
    found = []
    for number in range(1, 5):
        section.get_by_text(f"Page {number}.").wait_for()
        found += rows.all_inner_texts()
        if number < 4:
            section.get_by_role("button", name="Next").click()
    assert section.get_by_role("button", name="Next").is_disabled()
    assert sorted(row.split("\t")[0] for row in found) == [f'"customer-{n}"' for n in range(10)]
    section.get_by_role("button", name="Previous").click()
    section.get_by_text("Page 3.").wait_for()
    assert rows.all_inner_texts() == found[6:9]
    keep(page, "entries")


def three_rows(route: Route) -> str:
    return route.request.url.replace("rows=50", "rows=3")


def test_settings_without_secrets(open_page: OpenPage, url: str) -> None:
    page = open_page(tab(url, "configuration"))
    page.get_by_label("Show those with").fill("secret")
    rows = page.get_by_role("region", name="Settings").locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == 1
    assert "the program" in rows.first.inner_text()
    assert "hush" not in page.content()
    page.get_by_label("Show those with").fill("checkpointing.mode")
    rows.get_by_text("EXACTLY_ONCE").wait_for()
    assert "default" in rows.first.inner_text()
    page.get_by_label("From").select_option("program")
    rows.first.wait_for(state="detached")
    keep(page, "configuration")


def test_on_a_phone_only_tables_scroll_sideways(open_page: OpenPage, url: str) -> None:
    size = {"width": 390, "height": 800}
    page = open_page(tab(url, "plan"), viewport=size, color_scheme="dark", has_touch=True)
    for name in (
        "Plan",
        "Metrics",
        "Logs",
        "Epochs",
        "Checkpoints",
        "Exceptions",
        "State",
        "Configuration",
    ):
        page.get_by_role("link", name=re.compile(f"^{name}")).click()
        page.locator(".tab section, .tab .plan").first.wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, name
        keep(page, f"phone-{name.lower()}")


def test_dark_is_dark(open_page: OpenPage, url: str) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page = open_page(tab(url, "plan"), color_scheme=scheme)
        page.locator(".vertex").first.wait_for()
        colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        grounds[scheme] = sum(map(int, re.findall(r"\d+", colour)[:3]))
        keep(page, f"plan-{scheme}")
    assert grounds["dark"] < 150 < 600 < grounds["light"]


TIMES = """async () => {
    const { time } = await import("./format.js");
    const now = new Date();
    const noon = (days) => {
        const day = new Date(now.getFullYear(), now.getMonth(), now.getDate() - days, 12);
        return time(day.getTime());
    };
    return [noon(0), noon(1), noon(400)];
}"""


def test_a_time_of_another_day_has_its_date(open_page: OpenPage, url: str) -> None:
    today, yesterday, long_ago = open_page(url, locale="en").evaluate(TIMES)
    assert today == "12:00:00"
    assert re.fullmatch(r"[A-Z][a-z]{2} \d{1,2}, \d{4}, 12:00:00", yesterday)
    assert yesterday != long_ago


LAYOUT = """async ([nodes, vertical]) => {
    const { layout } = await import("./layout.js");
    const sizes = { width: 100, height: 50, gap: 60, space: 10, vertical };
    const { boxes, ...rest } = layout(nodes, sizes);
    return { ...rest, boxes: Object.fromEntries(boxes) };
}"""


@pytest.mark.parametrize("vertical", [False, True])
def test_boxes_do_not_overlap_and_edges_go_on(
    open_page: OpenPage, url: str, vertical: bool
) -> None:
    """The layout of a graph with edges over several levels, in both directions."""
    levels = {f"n{i}": math.isqrt(i) for i in range(40)}
    nodes = [
        {
            "id": name,
            "level": level,
            "inputs": [
                {"id": other}
                for number, (other, before) in enumerate(levels.items())
                if before < level and (7 * number + int(name[1:])) % 5 == 0
            ],
        }
        for name, level in levels.items()
    ]
    found = open_page(url).evaluate(LAYOUT, [nodes, vertical])
    boxes = found["boxes"]
    assert boxes.keys() == levels.keys()
    for one in boxes.values():
        assert -0.01 <= one["x"] <= found["width"] - 99.99
        assert -0.01 <= one["y"] <= found["height"] - 49.99
    for one, other in itertools.combinations(boxes.values(), 2):
        assert abs(one["x"] - other["x"]) >= 99.99 or abs(one["y"] - other["y"]) >= 49.99
    along = "y" if vertical else "x"
    assert len(found["edges"]) == sum(len(node["inputs"]) for node in nodes) > 40
    for edge in found["edges"]:
        way = [point[along] for point in edge["points"]]
        assert way == sorted(way)
        assert way[0] > boxes[edge["from"]][along]
        assert way[-1] == boxes[edge["to"]][along]


def test_a_token_is_asked_for(open_page: OpenPage, job: LocalJob, runtime_directory: Path) -> None:
    with served(job, token="open sesame", read_token="just looking") as server:
        page = open_page(server.url, forgives=("401", "403"))
        page.get_by_label("Token", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_label("Token", exact=True).fill("just looking")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("link", name=NAME).click()
        page.get_by_role("button", name="Checkpoint", exact=True).click()
        expect(page, "this client may only read", "#notes")


@pytest.fixture
def another(settings: dict[str, str], tmp_path: Path) -> Iterator[LocalJob]:
    """A job that a test may end."""
    place = {"execution.checkpointing.dir": str(tmp_path / "checkpoints")}
    job = LocalJob(orders(finite, {**settings, **place}, Trouble(tmp_path)), quota=40)
    with job.run:
        job.run.epoch()
        yield job


def test_the_rate_of_a_job_whose_epochs_take_long(
    open_page: OpenPage, another: LocalJob, runtime_directory: Path
) -> None:
    """The last epoch alone took longer than the seconds that the rate is of."""
    began = another.history.epochs[-1].started + 1000
    another.history.tell(EpochEnded(1, began, 10.0, 420, 420, 420, {}, 0, 0))
    with served(another) as server:
        page = open_page(tab(server.url, "plan"))
        page.locator(".facts").get_by_text("42/s").wait_for()


def test_a_subtask_that_has_most_of_the_work(
    open_page: OpenPage, another: LocalJob, runtime_directory: Path
) -> None:
    """The box of a skewed vertex says so, and its details say which subtask it is."""
    seen = another.history
    vertex = next(one for one in seen.graph.vertices if "Counts" in one.name)
    # NB: what the other vertices really did may be skewed as well, since it was little
    figures = {each.id: [SubtaskFigures(), SubtaskFigures()] for each in seen.graph.vertices}
    figures[vertex.id] = [
        SubtaskFigures(busy_now=60, in_now=10.0),
        SubtaskFigures(busy_now=980, in_now=190.0),
    ]
    seen.tell(SubtasksSeen(seen.epochs[-1].started + 1, figures))
    with served(another) as server:
        page = open_page(tab(server.url, "plan"))
        box = page.get_by_role("button", name=re.compile("Counts"))
        box.wait_for()
        assert "98 %, others 6 %" in box.inner_text()
        box.click()
        expect(page, "Skewed: subtask 2 is 98 % busy and gets 95 % of the records", "p.skew")
        assert page.locator(".vertex.skewed").count() == 1


def test_fewer_task_slots_are_at_the_top_until_they_are_back(
    open_page: OpenPage, another: LocalJob, runtime_directory: Path
) -> None:
    plan, record = another.run.plan, another.recorder
    fewer = rescaled(plan, 1)
    with served(another) as server:
        page = open_page(tab(server.url, "exceptions"))
        expect(page, "The parallelism has not changed.")
        assert page.locator(".fact", has_text="Task slots").count() == 0
        record.rescale(1, Cause.RECOVERABLE_FAILOVER, plan, fewer, plan)
        record.rescale_ended(1, None, "SUCCEEDED")
        rows = page.locator("[aria-label=Rescales] tbody tr")
        rows.first.wait_for()
        (cells,) = [row.split("\t") for row in rows.all_inner_texts()]
        assert cells[1:4] == ["fewer task slots", "2 → 1", "2"]
        slots = page.locator(".fact", has_text="Task slots")
        slots.wait_for()
        assert slots.inner_text().split() == ["Task", "slots", "1", "of", "2"]
        keep(page, "fewer slots")
        record.rescale(2, Cause.NEW_RESOURCE_AVAILABLE, fewer, plan, plan)
        record.rescale_ended(2, None, "SUCCEEDED")
        expect(page, "more task slots")
        slots.wait_for(state="detached")
        newest = rows.first.inner_text().split("\t")
        assert newest[1:4] == ["more task slots", "1 → 2", "2"]


def test_cancelling_is_asked_about_first(
    open_page: OpenPage, another: LocalJob, runtime_directory: Path
) -> None:
    with served(another) as server:
        page = open_page(tab(server.url, "plan"))
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="No, go back").click()
        page.get_by_role("dialog").wait_for(state="detached")
        assert not another.cancelled
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Cancel the job").click()
        expect(page, "The job was asked to end.", "#notes")
        assert another.cancelled
        another.recorder.status(JobStatus.CANCELED)
        page.locator("h1 + .status").get_by_text("canceled").wait_for()
        assert page.get_by_role("button", name="Cancel…").count() == 0
        expect(page, "ended", "#link")


def test_stopping_too_and_it_leaves_a_savepoint(
    open_page: OpenPage, another: LocalJob, runtime_directory: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept by the job"
    another.recorder.keep_in(open_journal(LOCAL, str(kept), JOB_ID, another.history, tmp_path))
    with served(another) as server:
        page = open_page(tab(server.url, "plan"))
        page.get_by_role("button", name="Stop…").click()
        page.get_by_label(re.compile("^Drain")).check()
        page.get_by_role("button", name="Stop the job").click()
        expect(page, "Taking the last savepoint", "#notes")
        another.run.run_to_end()
        expect(page, re.compile("The job has stopped. Its savepoint: /"), "#notes")
    # the server has gone with the job, and what was known stays
    expect(page, "server gone", "#link")
    expect(page, "The job has finished", ".ending")
    expect(page, f"holdfast history '{kept}'", ".ending")
    expect(page, f"http://127.0.0.1:8082/#/jobs/{JOB_ID}", ".ending")
    assert page.locator(".vertex").count() == len(another.history.graph.vertices)


def test_a_job_that_has_ended_is_shown_from_its_file(
    open_page: OpenPage, another: LocalJob, tmp_path: Path, runtime_directory: Path
) -> None:
    another.recorder.keep_in(Journal(tmp_path / f"{JOB_ID}{SUFFIX}", another.history))
    another.run.epoch(checkpoint=True)
    another.recorder.status(JobStatus.FINISHED)
    another.recorder.close()
    with served(site=Files([tmp_path])) as server:
        page = open_page(server.url)
        expect(page, "Jobs on file")
        page.get_by_role("link", name=NAME).click()
        page.locator("h1 + .status").get_by_text("finished").wait_for()
        expect(page, "ended", "#link")
        expect(page, "The job has finished", ".ending")
        assert page.locator(".ending", has_text="holdfast history").count() == 0  # this is it
        assert page.locator(".vertex").count() == len(another.history.graph.vertices)
        assert page.get_by_role("group", name="What can be done to the job").count() == 0
        page.get_by_role("link", name="State").click()
        page.get_by_role("region", name="States").get_by_text("count", exact=True).wait_for()
        assert page.get_by_role("button", name="Look up").count() == 0
        keep(page, "history")
