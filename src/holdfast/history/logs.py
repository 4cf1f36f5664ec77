"""`LogBook`: the last lines that functions of a job have logged, for users.

It is kept in memory while the job runs; it is not part of the history in the job's directory.
"""

from __future__ import annotations

import threading
from collections import deque
from logging import WARNING
from typing import Final

import msgspec

from holdfast.printable import printable, printable_lines
from holdfast.runtime.worker.log_lines import LogLine

#: limits for lines below WARNING, and the same again for the others, which are not pushed out by
#: lines that matter less
MOST_LINES: Final = 1000
MOST_BYTES: Final = 1 << 20
#: maximum length of a message or a traceback, in characters
LONGEST_TEXT: Final = 4000
#: maximum number of operators whose names are known
_OPERATORS: Final = 1000


class BookLine(msgspec.Struct, frozen=True):
    """A line of a log book; numbers count the lines of the job, from 1."""

    number: int
    attempt: int
    line: LogLine


class _Shelf:
    """The last lines, of bounded number and size."""

    def __init__(self) -> None:
        self.lines: deque[BookLine] = deque()
        self._bytes = 0

    def add(self, kept: BookLine) -> None:
        self.lines.append(kept)
        self._bytes += _size(kept)
        while len(self.lines) > MOST_LINES or self._bytes > MOST_BYTES:
            self._bytes -= _size(self.lines.popleft())


class LogBook:
    """The last lines of a job. Any thread may add lines and read them.

    Attributes:
        total: how many lines there were, including dropped ones.
    """

    def __init__(self) -> None:
        """Start without lines."""
        self.total = 0
        self._minor, self._major = _Shelf(), _Shelf()
        self._operators: dict[str, None] = {}
        self._lock = threading.Lock()

    def add(self, line: LogLine, attempt: int) -> None:
        """Add a line; control characters in it are escaped."""
        line = msgspec.structs.replace(
            line,
            operator=None if line.operator is None else printable(line.operator),
            logger=printable(line.logger),
            message=_cut(printable_lines(line.message)),
            trace=_cut(printable_lines(line.trace)),
        )
        with self._lock:
            self.total += 1
            shelf = self._minor if line.level < WARNING else self._major
            shelf.add(BookLine(self.total, attempt, line))
            if line.operator is not None and len(self._operators) < _OPERATORS:
                self._operators[line.operator] = None

    @property
    def operators(self) -> list[str]:
        """Return the names of the operators that have logged something."""
        with self._lock:
            return sorted(self._operators)

    def last(self, most: int, level: int = 0, operator: str | None = None) -> list[BookLine]:
        """Return the last lines of at least this level, and of this operator; the oldest first."""
        with self._lock:
            lines = [*self._minor.lines, *self._major.lines]
        found = [kept for kept in lines if kept.line.level >= level and _is_of(kept, operator)]
        found.sort(key=lambda kept: kept.number)
        return found[-most:]


def _is_of(kept: BookLine, operator: str | None) -> bool:
    return operator is None or kept.line.operator == operator


def _size(kept: BookLine) -> int:
    line = kept.line
    texts = (line.message, line.trace, line.logger, line.operator or "", line.path, line.host)
    return sum(map(len, texts))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
