"""The response about what functions have logged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from holdfast.history.logs import BookLine
from holdfast.rest.shapes import logs as shapes
from holdfast.rest.site import ServedJob

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: number of lines in a response, unless a client wants fewer or more
LINES: Final = 200


def logs(job: ServedJob, query: Mapping[str, Any]) -> shapes.Logs:
    """Return the last lines of a job, by operator and level."""
    book = job.logs
    if book is None:
        return shapes.Logs([], [], 0, kept=False)
    level = logging.getLevelNamesMapping()[query.get("level", "DEBUG")]
    lines = book.last(query.get("lines", LINES), level, query.get("operator"))
    return shapes.Logs(
        [_entry(kept) for kept in lines],
        book.operators,
        book.total,
        kept=True,
    )


def _entry(kept: BookLine) -> shapes.LogEntry:
    line = kept.line
    return shapes.LogEntry(
        number=kept.number,
        time=round(1000 * line.created),
        level=logging.getLevelName(line.level),
        logger=line.logger,
        operator=line.operator,
        subtask=line.subtask,
        attempt=kept.attempt,
        host=line.host,
        process=line.process,
        message=line.message,
        trace=line.trace,
    )
