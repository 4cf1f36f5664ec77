"""Functions of windows: called with the records of one window when it fires.

After ``reduce`` or ``aggregate`` they are given the one result instead of the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from holdfast.datastream.functions.base import Function, KeyedStateStore

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """The function of the windows of a keyed stream."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Called each time a window of a key fires; yields results."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """The function of the windows of a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Called each time a window fires; yields results."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """The general function of the windows of a keyed stream: with time, state and side outputs."""

    class Context(ABC, Generic[W2]):
        """What is known of the window; valid only during the call."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark of the operator; -2**63 before the first one."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key and this window; if you use it, implement ``clear``.

            It cannot be used with windows that merge.
            """

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key, shared by its windows; no ``clear`` is needed for it.

            A state here and one of ``window_state`` are two, also if they have one name.
            """

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Called each time a window of a key fires; yields results."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Called once when a window is gone, after its lateness: clear its ``window_state``."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """The general function of the windows of a stream without keys."""

    class Context(ABC, Generic[W2]):
        """What is known of the window; valid only during the call."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this window; see `ProcessWindowFunction.Context.window_state`."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State shared by all windows."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Called each time a window fires; yields results."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Called once when a window is gone, after its lateness: clear its ``window_state``."""


class PassThroughWindowFunction(WindowFunction[IN, IN, KEY, W]):
    """Gives back what the window holds."""

    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        """Return the records themselves."""
        return inputs


class PassThroughAllWindowFunction(AllWindowFunction[IN, IN, W]):
    """Gives back what the window holds."""

    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        """Return the records themselves."""
        return inputs
