"""Passes the lines that functions have logged in workers to the driver's ``logging``."""

from __future__ import annotations

import heapq
import logging
import sys
from collections.abc import Iterable

from holdfast.history.logs import LogBook
from holdfast.printable import printable
from holdfast.runtime.worker.log_lines import LogLine, as_text, indented, shown


def hand_over(log: Iterable[Iterable[LogLine]], attempt: int, book: LogBook) -> None:
    """Pass log lines to the handlers of this process, by time; lines of a subtask keep their order.

    ``book`` keeps the last ones. No line, handler or filter can make the epoch fail.
    """
    for line in heapq.merge(*log, key=lambda line: line.created):
        book.add(line, attempt)
        try:
            logger = _logger(line.logger)
            if logger.isEnabledFor(line.level):
                logger.handle(_record(line, attempt))
        except Exception as error:
            print(f"{as_text(line)}\n    (cannot be logged: {error!r})", file=sys.stderr)


def _logger(name: str) -> logging.Logger:
    """Return the logger that handles a name; never create one, since workers choose the names."""
    while name:
        known = logging.root.manager.loggerDict.get(name)
        if isinstance(known, logging.Logger):
            return known
        name = name.rpartition(".")[0]
    return logging.root


def _record(line: LogLine, attempt: int) -> logging.LogRecord:
    record = logging.LogRecord(
        printable(line.logger),
        line.level,
        line.path,
        line.line,
        shown(line),
        None,
        None,
        line.function,
    )
    record.created = line.created
    record.msecs = int(line.created % 1 * 1000) + 0.0
    record.process, record.processName = line.process, "worker"
    record.thread, record.threadName = None, line.thread
    if line.trace:
        record.exc_text = "    " + indented(line.trace)
    record.__dict__.update(
        operator=line.operator, subtask=line.subtask, attempt=attempt, host=line.host
    )
    return record
