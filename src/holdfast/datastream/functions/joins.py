"""Functions of joins: of the windows of two streams, and of records that are close in time.

PyFlink has none of them; names and meaning are those of Flink's Java API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from holdfast.datastream.functions.base import Function

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Makes one record of each pair of a window join."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """Return the result for two records of one key and one window."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Makes any number of records of each pair of a window join."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Iterable[OUT] | None:
        """Return the results for two records of one key and one window."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Sees all records that two streams have of one key in one window."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2]) -> Iterable[OUT] | None:
        """Called each time a window of a key fires; one of the two sides may be empty."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """The function of an interval join: sees each pair of records that are close in time."""

    class Context(ABC):
        """What is known of the pair; valid only during the call."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Return the timestamp of the left record."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Return the timestamp of the right record."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Return the later of the two, which is the timestamp of the results."""

    @abstractmethod
    def process_element(
        self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context
    ) -> Iterable[Any] | None:
        """Called once for each pair; yields results."""
