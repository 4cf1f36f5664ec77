"""How many records a queue in memory may hold: fewer, if they are large.

To look at every record would cost more than to put it into the queue, so a few are looked at, and
their sizes are estimated: the object, what it contains, and what that contains.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Any

_MOST_RECORDS = 100_000
_MOST_BYTES = 64 * 1024 * 1024
#: every so many records one is looked at
_INTERVAL = 64
#: how much the size of one record counts in the average
_WEIGHT = 0.25
_DEPTH = 2
#: of a large container so many elements are looked at
_SAMPLE = 16


class QueueRoom:
    """The bound of one queue.

    Attributes:
        records: how many it may hold now.
    """

    def __init__(self) -> None:
        """Allow as many as there may be of small ones."""
        self.records = _MOST_RECORDS
        self._average = 0.0
        self._until_next = 1

    def note(self, record: Any) -> None:
        """A record is put into the queue."""
        self._until_next -= 1
        if not self._until_next:
            self._until_next = _INTERVAL
            self._measure(record)

    def _measure(self, record: Any) -> None:
        size = estimated_size(record)
        weight = _WEIGHT if self._average else 1.0
        self._average += weight * (size - self._average)
        self.records = max(1, min(_MOST_RECORDS, int(_MOST_BYTES / self._average)))


def estimated_size(value: Any, depth: int = _DEPTH) -> int:
    """About how many bytes an object takes."""
    size = getsizeof(value, 64)
    if depth == 0 or isinstance(value, str | bytes | bytearray | int | float | None):
        return size
    return size + sum(_members(members, depth - 1) for members in _contents(value))


def _contents(value: Any) -> list[Any]:
    """The containers that an object consists of."""
    if isinstance(value, dict):
        return [value.keys(), value.values()]
    if isinstance(value, tuple | list | set | frozenset):
        return [value]
    fields = getattr(value, "__dict__", None)
    if fields is not None:
        return [fields.values()]
    slots = getattr(type(value), "__slots__", ())
    return [[getattr(value, name, None) for name in ([slots] if type(slots) is str else slots)]]


def _members(members: Any, depth: int) -> int:
    looked_at = _first(members)
    known = sum(estimated_size(member, depth) for member in looked_at)
    return known * len(members) // max(1, len(looked_at))


def _first(members: Iterable[Any]) -> list[Any]:
    return [member for member, _ in zip(members, range(_SAMPLE), strict=False)]
