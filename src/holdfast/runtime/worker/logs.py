"""Keeps what functions log in a worker or in the process of a source, until it is sent on.

A handler at the root of ``logging`` keeps the lines of each subtask. They are sent with the blocks
of its run: with the acknowledgement, or with the failure. Nothing is done per record: the operator
whose function is running is looked up when a line is logged.

    in a chain      a local variable of the generated code identifies it, as for failures
    elsewhere       ``at_work`` sets it: in ``open``, in a timer, in an asynchronous call
    in a thread     that a function started: unknown, unless it runs in a copy of the context
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

from holdfast.runtime.worker.log_lines import (
    LineBuffer,
    LogLine,
    as_text,
    cut,
    decode_line,
    encode_line,
)

#: the global of generated code with the function that returns the current operator
WHOSE = "__whose__"
_HOST = socket.gethostname()
_LARGEST_LEVEL = 1_000_000
#: the code that runs the callbacks of an event loop
_LOOP = asyncio.events.Handle._run.__code__


class Owner(Protocol):
    """The operator and subtask that lines belong to."""

    operator: str
    subtask: int


_at_work: ContextVar[Owner | None] = ContextVar("holdfast-at-work", default=None)
_lines: ContextVar[LineBuffer | None] = ContextVar("holdfast-lines", default=None)


@contextmanager
def at_work(owner: Owner) -> Iterator[None]:
    """Attribute lines that are logged in the body to this operator."""
    token = _at_work.set(owner)
    try:
        yield
    finally:
        _at_work.reset(token)


def begin_task(owner: Owner) -> None:
    """Attribute all lines of the current task of an event loop to this operator."""
    _at_work.set(owner)


def begin_subtask() -> None:
    """Start a buffer for the lines of this context, which is that of one subtask."""
    _lines.set(LineBuffer())


def take() -> list[bytes]:
    """Remove and return the lines of this context, and of threads that belong to no subtask."""
    own = _lines.get()
    lines = own.take() if own is not None else []
    return lines + _handler.lines.take()


def pass_on(lines: Iterable[bytes]) -> None:
    """Add lines that were logged in another process."""
    buffer = _lines.get() or _handler.lines
    for line in lines:
        buffer.add(line)


def spill() -> None:
    """Write the lines of this context to standard error, because they cannot be sent on."""
    for data in (_lines.get() or _handler.lines).take():
        print(as_text(decode_line(data)), file=sys.stderr, flush=True)


def capture(owner: Owner | None = None) -> None:
    """Keep what this process logs from now on; ``owner``: the operator of all lines.

    It may be called again, and adds the handler again if a program has removed it.
    """
    _handler.owner = owner
    if _handler not in logging.root.handlers:
        logging.root.addHandler(_handler)


def levels() -> dict[str, int]:
    """Return the levels that are set in this process, by logger; the root has an empty name."""
    known = dict(logging.root.manager.loggerDict)
    found = {
        name: logger.level
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET
    }
    return {"": logging.root.level, **found}


def set_levels(wanted: Mapping[str, int]) -> None:
    """Set these levels, and reset others that were set here before."""
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
        #: what is logged outside of subtasks
        self.lines = LineBuffer()
        #: the levels that a job has set
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
    """Return the operator whose function is running in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _LOOP:
        whose = frame.f_globals.get(WHOSE)
        if whose is not None:
            owner: Owner = whose(frame.f_lineno)
            return owner
        frame = frame.f_back
    # NB: a callback of a loop belongs to the context in which it was created, not to the thread
    # that runs the loop
    return _at_work.get()
