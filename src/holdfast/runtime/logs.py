"""What functions log in a worker or in the process of a source, until it goes to the driver.

A handler at the root of ``logging`` keeps the lines of each subtask. They leave with the blocks of
its run: with the acknowledgement, or with the failure. Nothing is done for a record of data: whose
function is at work is looked up when a line is logged.

    in a chain      the chain's code has it in a local variable, for its failures too
    elsewhere       ``at_work`` says it: in ``open``, in a timer, in an asynchronous call
    in a thread     that a function started: not known, unless it runs in a copy of the context
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Protocol

from holdfast.runtime.log_lines import (
    LineBuffer,
    LogLine,
    as_text,
    cut,
    decode_line,
    encode_line,
)

#: the name under which the code of a chain has the function that says who is at work
WHOSE = "__whose__"
_HOST = socket.gethostname()
_LARGEST_LEVEL = 1_000_000
#: runs what an event loop has to run
_LOOP = asyncio.events.Handle._run.__code__


class Owner(Protocol):
    """Whose lines they are."""

    operator: str
    subtask: int


_at_work: ContextVar[Owner | None] = ContextVar("holdfast-at-work", default=None)
_lines: ContextVar[LineBuffer | None] = ContextVar("holdfast-lines", default=None)


@contextmanager
def at_work(owner: Owner) -> Iterator[None]:
    """What is logged within is this operator's."""
    token = _at_work.set(owner)
    try:
        yield
    finally:
        _at_work.reset(token)


def begin_task(owner: Owner) -> None:
    """What this task of an event loop logs, to its end, is this operator's."""
    _at_work.set(owner)


def begin_subtask() -> None:
    """What is logged in this context, which is a subtask's own, leaves with its runs."""
    _lines.set(LineBuffer())


def take() -> list[bytes]:
    """Remove and return what was logged in this context, and in threads that are no subtask's."""
    own = _lines.get()
    lines = own.take() if own is not None else []
    return lines + _handler.lines.take()


def pass_on(lines: Iterable[bytes]) -> None:
    """Keep lines that were logged in another process."""
    buffer = _lines.get() or _handler.lines
    for line in lines:
        buffer.add(line)


def spill() -> None:
    """Write what was logged in this context to standard error: nothing will take it further."""
    for data in (_lines.get() or _handler.lines).take():
        print(as_text(decode_line(data)), file=sys.stderr, flush=True)


def capture(owner: Owner | None = None) -> None:
    """Keep what this process logs from now on; ``owner``: all of it is this operator's.

    It may be called again, and puts the handler back if a program has removed it.
    """
    _handler.owner = owner
    if _handler not in logging.root.handlers:
        logging.root.addHandler(_handler)


def levels() -> dict[str, int]:
    """The levels that are set in this process, by logger; the root has an empty name."""
    known = dict(logging.root.manager.loggerDict)
    found = {
        name: logger.level
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET
    }
    return {"": logging.root.level, **found}


def set_levels(wanted: Mapping[str, int]) -> None:
    """Log at these levels, and at no others that were set here before."""
    for name in _handler.levels.keys() - wanted.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in wanted.items():
        logging.getLogger(name).setLevel(level)
    _handler.levels = dict(wanted)


class _Handler(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.owner: Owner | None = None
        #: what is logged outside of every subtask
        self.lines = LineBuffer()
        #: those that a job has set
        self.levels: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = encode_line(_line(record, _owner() or self.owner))
        except Exception:
            self.handleError(record)
            return
        (_lines.get() or self.lines).add(line)


_handler = _Handler()
_formatter = logging.Formatter()


def _line(record: logging.LogRecord, owner: Owner | None) -> LogLine:
    return LogLine(
        logger=cut(record.name),
        level=max(0, min(record.levelno, _LARGEST_LEVEL)),
        message=cut(record.getMessage()),
        trace=cut(_trace(record)),
        operator=None if owner is None else cut(owner.operator),
        subtask=None if owner is None else owner.subtask,
        created=float(record.created),
        path=cut(record.pathname),
        line=int(record.lineno),
        function=cut(record.funcName or ""),
        thread=cut(record.threadName or ""),
        process=int(record.process or 0),
        host=_HOST,
    )


def _trace(record: logging.LogRecord) -> str:
    parts = [record.exc_text or ""]
    if record.exc_info and not record.exc_text:
        parts = [_formatter.formatException(record.exc_info)]
    return "\n".join(part for part in (*parts, record.stack_info or "") if part)


def _owner() -> Owner | None:
    """Whose function is at work in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _LOOP:
        whose = frame.f_globals.get(WHOSE)
        if whose is not None:
            owner: Owner = whose(frame.f_locals["at"])
            return owner
        frame = frame.f_back
    # NB: what a loop runs belongs to the context that it was made in, whoever waits for the loop
    return _at_work.get()
