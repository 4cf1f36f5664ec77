"""Log lines that are sent from a worker to the driver, as plain data of bounded size.

A line is encoded where it is logged, so that an error occurs there, and no object of the user is
pickled.
"""

from __future__ import annotations

import threading
from collections import deque
from logging import WARNING, getLevelName

import msgspec

from holdfast.printable import printable, printable_lines

#: Limits per subtask and epoch. Half of each is for the first lines, half for the last ones, which
#: include what was logged just before a failure.
MOST_LINES = 1000
MOST_BYTES = 256 * 1024
#: maximum length of a message or a traceback, in characters
LONGEST_TEXT = 16 * 1024


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One log record, as it is sent.

    Attributes:
        message: the formatted message.
        trace: the traceback and the stack that were logged with it.
        operator: the name of the operator whose function logged it; None if it is unknown.
        subtask: its index.
        created: in seconds, by the clock of its machine.
    """

    logger: str
    level: int
    message: str
    trace: str
    operator: str | None
    subtask: int | None
    created: float
    path: str
    line: int
    function: str
    thread: str
    process: int
    host: str


encode_line = msgspec.msgpack.Encoder().encode
decode_line = msgspec.msgpack.Decoder(LogLine).decode


class LineBuffer:
    """Lines that are kept until the end of an epoch; any number of threads may add lines."""

    def __init__(self) -> None:
        """Start empty."""
        # NB: a finalizer may log while its own thread adds a line
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._bytes_first = self._bytes_last = 0
        self._dropped = 0
        self._dropped_line = b""

    def add(self, line: bytes) -> None:
        """Add a line; drop one if there are too many."""
        with self._lock:
            room = len(self._first) < MOST_LINES // 2 and self._bytes_first < MOST_BYTES // 2
            if room and not self._last:
                self._first.append(line)
                self._bytes_first += len(line)
                return
            self._last.append(line)
            self._bytes_last += len(line)
            while len(self._last) > MOST_LINES // 2 or self._bytes_last > MOST_BYTES // 2:
                self._dropped_line = self._last.popleft()
                self._bytes_last -= len(self._dropped_line)
                self._dropped += 1

    def take(self) -> list[bytes]:
        """Remove and return all lines, with one in between that says how many were dropped."""
        if not self._first:
            return []
        with self._lock:
            gap = [self._gap()] if self._dropped else []
            lines = [*self._first, *gap, *self._last]
            self._clear()
        return lines

    def _gap(self) -> bytes:
        dropped = decode_line(self._dropped_line)
        message = (
            f"{self._dropped:,} further lines of this subtask were dropped here; an epoch sends "
            f"at most {MOST_LINES:,} lines and {MOST_BYTES // 1024} kB"
        )
        level = max(WARNING, dropped.level)
        return encode_line(msgspec.structs.replace(dropped, message=message, trace="", level=level))


def shown(line: LogLine) -> str:
    """Return the message for users: with the operator and the subtask in front.

    Lines after the first are indented, so that none looks like a record of its own.
    """
    label = "" if line.operator is None else f"[{printable(line.operator)} #{line.subtask}] "
    return label + indented(line.message)


def indented(text: str) -> str:
    """Return text whose lines after the first are indented, without control characters."""
    return printable_lines(text).replace("\n", "\n    ")


def as_text(line: LogLine) -> str:
    """Return the whole line as text, for a stream that is not written by a logging handler."""
    trace = "\n    " + indented(line.trace) if line.trace else ""
    return f"{getLevelName(line.level)} {printable(line.logger)} {shown(line)}{trace}"


def cut(text: str) -> str:
    """Return text that can be sent: of limited length, and valid in UTF-8."""
    if len(text) > LONGEST_TEXT:
        half = LONGEST_TEXT // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}… ({left_out:,} characters left out) …{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()
