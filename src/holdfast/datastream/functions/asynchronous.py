"""Asynchronous functions: many records wait for the outside world at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from holdfast.datastream.functions.base import Function

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, Generic[IN, OUT]):
    """A function that is awaited; as many calls as the capacity allows are under way at once.

    All calls of a subtask run in one event loop, so what does not await holds up the others. The
    loop runs while there are records that wait, and stands still between epochs. ``open`` and
    ``close`` are called within the running loop, so they may make what belongs to one, such as an
    HTTP session; what they return is awaited if it can be, so each may be an ``async def``.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for a record. An exception fails the job, unless a retry strategy helps."""

    def timeout(self, value: IN) -> list[OUT]:
        """Called instead of waiting longer for a record: its results, or an exception.

        Raises:
            TimeoutError: unless a subclass does something else.
        """
        message = (
            f"{type(self).__name__}.async_invoke took longer than its timeout for the record "
            f"{value!r}; give it more time, or return results for such a record from timeout()"
        )
        raise TimeoutError(message)
