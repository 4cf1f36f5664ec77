"""The log book: the last lines, of bounded number and size, by operator and level."""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING

from holdfast.history.logs import LONGEST_TEXT, MOST_BYTES, MOST_LINES, LogBook
from holdfast.runtime.worker.log_lines import LogLine


def line(message: str, level: int = INFO, operator: str | None = "map", trace: str = "") -> LogLine:
    return LogLine(
        "shop", level, message, trace, operator, 0, 1.0, "a.py", 7, "f", "Main", 42, "host"
    )


def test_lines_by_operator_and_level() -> None:
    book = LogBook()
    for level, operator in ((DEBUG, "map"), (ERROR, "sink"), (INFO, "map"), (WARNING, None)):
        book.add(line(f"{level}", level, operator), attempt=1)
    assert [kept.number for kept in book.last(10)] == [1, 2, 3, 4]
    assert [kept.number for kept in book.last(2)] == [3, 4]
    assert [kept.line.level for kept in book.last(10, WARNING)] == [ERROR, WARNING]
    assert [kept.number for kept in book.last(10, operator="map")] == [1, 3]
    assert book.last(10, ERROR, "map") == []
    assert (book.operators, book.total) == (["map", "sink"], 4)


def test_many_small_matters_push_no_warning_out() -> None:
    book = LogBook()
    book.add(line("disk full", ERROR), attempt=0)
    for number in range(3 * MOST_LINES):
        book.add(line(f"{number}"), attempt=0)
    kept = book.last(10**6)
    assert len(kept) == 1 + MOST_LINES
    assert kept[0].line.message == "disk full"
    assert (kept[1].number, kept[-1].number) == (2 * MOST_LINES + 2, 3 * MOST_LINES + 1)


def test_large_lines_are_cut_and_fewer() -> None:
    book = LogBook()
    for _ in range(MOST_LINES):
        book.add(line("x" * 100_000, trace="y" * 100_000), attempt=0)
    kept = book.last(10**6)
    assert {len(one.line.message) for one in kept} == {LONGEST_TEXT + 1}
    assert sum(len(one.line.message) + len(one.line.trace) for one in kept) <= MOST_BYTES
    assert len(kept) > 100


def test_control_characters_are_escaped() -> None:
    book = LogBook()
    book.add(line("\x1b[2J", operator="a\nb"), attempt=0)
    (kept,) = book.last(10)
    assert (kept.line.message, kept.line.operator) == ("\\x1b[2J", "a\\nb")
    assert book.last(10, operator=book.operators[0]) == [kept]
