"""The capacity of a queue in memory: the number of records depends on their size.

Measuring every record would cost more than putting it into the queue, so a sample is measured.
Sizes are estimated: the object, its contents, and the contents of these.
"""

from __future__ import annotations

from itertools import islice
from sys import getsizeof
from typing import Any

_MOST_RECORDS = 100_000
_MOST_BYTES = 64 * 1024 * 1024
#: one record out of this many is measured
_INTERVAL = 64
#: weight of the size of one record in the moving average
_WEIGHT = 0.25
_DEPTH = 2
#: number of elements of a large container that are measured
_SAMPLE = 16


class QueueRoom:
    """The bound of one queue.

    Attributes:
        records: how many records it may hold now.
    """

    def __init__(self) -> None:
        """Start with the capacity for small records."""
        self.records = _MOST_RECORDS
        self._average = 0.0
        self._until_next = 1

    def note(self, record: Any) -> None:
        """Count a record that is put into the queue, and measure some of them."""
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
    """Return the approximate size of an object in bytes."""
    size = getsizeof(value, 64)
    if depth == 0 or isinstance(value, str | bytes | bytearray | int | float | None):
        return size
    return size + sum(_members(members, depth - 1) for members in _contents(value))


def _contents(value: Any) -> list[Any]:
    """Return the containers that an object consists of."""
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
    looked_at = list(islice(members, _SAMPLE))
    known = sum(estimated_size(member, depth) for member in looked_at)
    return known * len(members) // max(1, len(looked_at))
