"""Lines that functions log: kept in the process that logs them, handed to the driver's handlers."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import logging.config
import math
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.driver.epochs.logs import hand_over
from holdfast.history.logs import LogBook
from holdfast.plan.model import Call
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.fusion import Calling, FusedStep, Port, fuse
from holdfast.runtime.operators.event_loop import EventLoop
from holdfast.runtime.routing import Outbox
from holdfast.runtime.wire.blocks import Kind
from holdfast.runtime.worker import logs
from holdfast.runtime.worker.log_lines import (
    LONGEST_TEXT,
    MOST_BYTES,
    MOST_LINES,
    LineBuffer,
    LogLine,
    as_text,
    decode_line,
    encode_line,
)

logger = logging.getLogger("tests.functions")
COUNT = FailureReporter("count", 3)
OTHER = FailureReporter("other", 1)


@pytest.fixture
def worker() -> Iterator[None]:
    """This process keeps what it logs, as a worker does."""
    before = logs.levels()
    logs.take()  # what earlier tests in this process have left
    logs.capture()
    yield
    logging.root.removeHandler(logs._handler)
    logs.set_levels(before)
    logs._handler.levels = {}
    logs.take()


def taken() -> list[LogLine]:
    return [decode_line(line) for line in logs.take()]


def line(message: str = "hello", **changes: Any) -> LogLine:
    fields: dict[str, Any] = {
        "logger": "tests.functions",
        "level": logging.WARNING,
        "message": message,
        "trace": "",
        "operator": "count",
        "subtask": 3,
        "created": 1.5,
        "path": "/job.py",
        "line": 7,
        "function": "map",
        "thread": "subtask_0",
        "process": 42,
        "host": "node",
    }
    return LogLine(**(fields | changes))


def test_a_line_is_kept_with_its_arguments_put_in_and_where_it_comes_from(worker: None) -> None:
    with logs.at_work(COUNT):
        logger.warning("%s of %d", "one", 2)
    logger.info("not at the level that is set")
    (kept,) = taken()
    assert (kept.logger, kept.level, kept.message) == ("tests.functions", 30, "one of 2")
    assert (kept.operator, kept.subtask) == ("count", 3)
    assert kept.path == __file__
    assert kept.function.startswith("test_a_line_is_kept")
    assert taken() == []


def test_an_exception_and_a_stack_come_with_their_line(worker: None) -> None:
    try:
        raise ValueError("no such user")
    except ValueError:
        logger.exception("lookup failed", stack_info=True)
    (kept,) = taken()
    assert kept.trace.startswith("Traceback (most recent call last)")
    assert "ValueError: no such user" in kept.trace
    assert "Stack (most recent call last)" in kept.trace


@given(st.lists(st.integers(0, 60_000), max_size=40), st.integers(0, 2 * MOST_LINES))
def test_a_buffer_is_bounded_and_keeps_the_first_and_the_last_lines(
    sizes: list[int], short: int
) -> None:
    buffer = LineBuffer()
    lines = [line(f"{n} " + "x" * size) for n, size in enumerate([*sizes, *[0] * short])]
    for each in lines:
        buffer.add(encode_line(each))
    data = buffer.take()
    assert len(data) <= MOST_LINES + 1
    assert sum(map(len, data)) <= MOST_BYTES + 60_000 + 1_000
    kept = [decode_line(each) for each in data]
    gaps = [each for each in kept if "further lines" in each.message]
    if not gaps:
        assert kept == lines
        return
    (gap,) = gaps
    at = kept.index(gap)
    dropped = len(lines) - len(kept) + 1
    assert gap.message.startswith(f"{dropped:,} further lines of this subtask were dropped here")
    assert (gap.operator, gap.subtask, gap.level) == ("count", 3, logging.WARNING)
    assert kept[:at] == lines[:at]
    assert kept[at + 1 :] == lines[len(lines) - (len(kept) - at - 1) :]
    assert buffer.take() == []


def test_lines_of_many_threads_are_all_kept() -> None:
    buffer = LineBuffer()
    data = encode_line(line())
    found: list[bytes] = []

    def add() -> None:
        for _ in range(500):
            buffer.add(data)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found += buffer.take()
    found += buffer.take()
    gaps = [decode_line(each).message for each in found if each != data]
    dropped = sum(int(text.split()[0].replace(",", "")) for text in gaps)
    assert len(found) - len(gaps) + dropped == 2000


def test_no_block_is_sent_where_nothing_was_logged(worker: None) -> None:
    outbox = Outbox(0, 0, "stamp")
    outbox.send_log(1, 0)
    assert list(outbox.take()) == []
    logger.warning("something")
    outbox.send_log(1, 0)
    assert [block.header.kind for block in outbox.take()] == [Kind.LOG]


def test_a_record_in_a_chain_is_the_operators_that_is_at_work() -> None:
    """Of two functions in one piece of code, and of one that goes on after its results."""
    seen: list[tuple[str, str]] = []

    def say(what: str) -> None:
        owner = logs._owner()
        assert owner is not None
        seen.append((what, owner.operator))

    def double(value: int) -> Iterator[int]:
        say(f"before {value}")
        yield value
        say(f"after {value}")

    def keep(value: int) -> bool:
        say(f"keep {value}")
        return True

    steps = {
        1: FusedStep(COUNT, (Port(Calling.MANY, double),), calls=(Call(2, 0),)),
        2: FusedStep(OTHER, (Port(Calling.FILTER, keep),)),
    }
    run = fuse(steps, {(1, 0): False}).inputs[1, 0]
    with logs.at_work(OTHER):
        run([7])
    assert seen == [("before 7", "count"), ("keep 7", "other"), ("after 7", "count")]


def test_what_an_event_loop_runs_is_its_own_operators_whoever_waits(worker: None) -> None:
    loop = EventLoop()

    async def inner() -> None:
        logger.warning("inner")

    async def call() -> None:
        logs.begin_task(OTHER)
        await asyncio.gather(inner(), inner())
        logger.warning("outer")
        loop.wake()

    task = loop.loop.create_task(call())
    step = FusedStep(COUNT, (Port(Calling.ONE, lambda value: loop.wait(task.done)),))
    fuse({1: step}, {(1, 0): False}).inputs[1, 0]([7])
    loop.close()
    assert [(each.message, each.operator) for each in taken()] == [
        ("inner", "other"),
        ("inner", "other"),
        ("outer", "other"),
    ]


def test_a_thread_that_a_function_starts_has_an_operator_in_a_copy_of_the_context(
    worker: None,
) -> None:
    def log(message: str) -> None:
        logger.warning(message)

    with logs.at_work(COUNT):
        inherited = contextvars.copy_context()
        threads = [
            threading.Thread(target=log, args=("plain",)),
            threading.Thread(target=inherited.run, args=(log, "with its context")),
        ]
    for thread in threads:
        thread.start()
        thread.join()
    assert [(each.message, each.operator) for each in taken()] == [
        ("plain", None),
        ("with its context", "count"),
    ]


def test_the_lines_of_a_subtask_leave_with_its_own_runs(worker: None) -> None:
    subtasks = [contextvars.Context() for _ in range(2)]
    for number, subtask in enumerate(subtasks):
        subtask.run(logs.begin_subtask)
        subtask.run(logger.warning, "of subtask %d", number)
    logger.warning("of none")
    assert [each.message for each in subtasks[1].run(taken)] == ["of subtask 1", "of none"]
    assert [each.message for each in subtasks[0].run(taken)] == ["of subtask 0"]


def test_what_nobody_will_take_goes_to_standard_error(
    worker: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with logs.at_work(COUNT):
        logger.warning("last words")
    logs.spill()
    assert capsys.readouterr().err == "WARNING tests.functions [count #3] last words\n"
    assert taken() == []


def test_a_program_that_sets_up_logging_in_the_worker_does_not_lose_its_lines(
    worker: None,
) -> None:
    handlers = list(logging.root.handlers)
    logging.basicConfig(level=logging.ERROR)  # does nothing: there is a handler
    logger.warning("after basicConfig")
    try:
        logging.config.dictConfig(
            {"version": 1, "disable_existing_loggers": False, "root": {"handlers": []}}
        )
        assert logs._handler not in logging.root.handlers
        logs.capture()
        logger.warning("in the next epoch")
    finally:
        logging.root.handlers[:] = handlers
    assert [each.message for each in taken()] == ["after basicConfig", "in the next epoch"]


def test_levels_that_are_set_in_the_driver_hold_in_the_worker(worker: None) -> None:
    chatty = logging.getLogger("tests.chatty")
    chatty.setLevel(logging.DEBUG)
    wanted = logs.levels()
    chatty.setLevel(logging.NOTSET)
    assert wanted["tests.chatty"] == logging.DEBUG
    assert wanted[""] == logging.root.level
    logs.set_levels(wanted)
    chatty.debug("heard")
    logger.debug("not heard")
    logs.set_levels({"": logging.INFO})
    chatty.debug("not any more")
    logger.info("heard as well")
    assert [each.message for each in taken()] == ["heard", "heard as well"]


def handle(message: str, *arguments: Any, level: int = logging.WARNING) -> None:
    """Give a record to the worker's handler alone: those of pytest do not bear all of them."""
    logs._handler.handle(logging.LogRecord("x", level, "f.py", 1, message, arguments, None))


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "arguments", [("%d", "x"), ("%s", Unprintable()), ("%s %s", 1)], ids=["type", "str", "count"]
)
def test_a_line_that_cannot_be_made_fails_nobody(
    worker: None, arguments: tuple[Any, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    handle(*arguments)
    assert taken() == []
    assert "--- Logging error ---" in capsys.readouterr().err


def test_texts_that_cannot_be_encoded_or_are_too_long_travel_nevertheless(worker: None) -> None:
    handle("lone \ud800 surrogate")
    handle("a" + "x" * 100_000 + "z")
    handle("loud", level=10**30)
    surrogate, long, loud = taken()
    assert surrogate.message == "lone \\ud800 surrogate"
    assert len(long.message) < LONGEST_TEXT + 100
    assert (long.message[0], long.message[-1]) == ("a", "z")
    assert "characters left out" in long.message
    assert loud.level > logging.CRITICAL


def handed(caplog: pytest.LogCaptureFixture, *lines: LogLine) -> list[logging.LogRecord]:
    caplog.clear()
    hand_over([list(lines)], 2, LogBook())
    return list(caplog.records)


def test_handlers_of_the_driver_get_records_with_operator_and_subtask(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (record,) = handed(caplog, line("hello %s"))
    assert (record.name, record.levelname) == ("tests.functions", "WARNING")
    assert record.getMessage() == "[count #3] hello %s"
    assert (record.created, record.msecs) == (1.5, 500.0)
    assert (record.filename, record.lineno, record.funcName) == ("job.py", 7, "map")
    assert (record.process, record.threadName) == (42, "subtask_0")
    text = logging.Formatter("%(operator)s/%(subtask)d/%(attempt)d@%(host)s %(msecs)d")
    assert text.format(record) == "count/3/2@node 500"


def test_a_queue_between_logger_and_handler_changes_no_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from logging.handlers import QueueHandler

    (record,) = handed(caplog, line())
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    QueueHandler(queue).handle(record)  # type: ignore[arg-type]
    assert queue.get().getMessage() == "[count #3] hello"


def test_no_text_looks_like_a_record_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    forged = line(
        "paid\nERROR root forged\r\x1b[2Kgone\u2028too\x85",
        operator="a\nERROR root b",
        logger="x\nERROR root y",
        trace="Traceback\nValueError: no\n\nERROR root forged",
    )
    (record,) = handed(caplog, forged)
    formatter = logging.Formatter("%(levelname)s %(name)s %(message)s")
    for text in (formatter.format(record), as_text(forged)):
        first, *others = text.split("\n")
        assert first == "WARNING x\\nERROR root y [a\\nERROR root b #3] paid"
        assert len(others) == 5
        assert all(each.startswith("    ") for each in others)
        assert text.splitlines() == text.split("\n")
        assert "\x1b" not in text


def test_a_level_that_the_driver_has_raised_since_holds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "tests"):
        assert handed(caplog, line()) == []
    logging.disable(logging.WARNING)
    try:
        assert handed(caplog, line()) == []
    finally:
        logging.disable(logging.NOTSET)
    assert len(handed(caplog, line())) == 1


def test_names_that_workers_choose_make_no_loggers_here(caplog: pytest.LogCaptureFixture) -> None:
    known = set(logging.root.manager.loggerDict)
    names = ["tests.functions.user-17.cart", "never.heard.of"]
    records = handed(caplog, *(line(logger=name) for name in names))
    assert [record.name for record in records] == names
    assert set(logging.root.manager.loggerDict) == known


def test_a_filter_that_raises_and_a_time_that_is_none_fail_no_epoch(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("no")

    broken = Broken()
    logger.addFilter(broken)
    try:
        handed(caplog, line("first"), line("second"))
    finally:
        logger.removeFilter(broken)
    handed(caplog, line("third", created=math.nan))
    said = capsys.readouterr().err.splitlines()
    numbers = ("first", "second", "third")
    assert said[::2] == [f"WARNING tests.functions [count #3] {text}" for text in numbers]
    assert said[1] == "    (cannot be logged: RuntimeError('no'))"


def test_lines_come_by_time_and_those_of_a_subtask_in_their_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.clear()
    clocks = [[1.0, 3.0, 2.5, 9.0], [2.0, 4.0]]  # the first clock was set back
    batches = [
        [line(f"{number}", subtask=subtask, created=at) for number, at in enumerate(clock)]
        for subtask, clock in enumerate(clocks)
    ]
    hand_over(batches, 0, LogBook())
    said = [record.getMessage() for record in caplog.records]
    for subtask, clock in enumerate(clocks):
        own = [text for text in said if f"#{subtask}]" in text]
        assert own == [f"[count #{subtask}] {number}" for number in range(len(clock))]
    assert said[:2] == ["[count #0] 0", "[count #1] 0"]
