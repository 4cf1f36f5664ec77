"""Asynchronous functions on streams: many records wait for the outside world at once."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.common.time import DurationLike, to_millis
from holdfast.datastream.async_functions import AsyncFunction, AsyncRetryStrategy
from holdfast.datastream.async_retry_strategies import NO_RETRY_STRATEGY
from holdfast.graph.nodes import FunctionOperation, Style

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

__all__ = ["AsyncDataStream", "AsyncSettings"]


@dataclass(frozen=True)
class AsyncSettings:
    """How calls are made, for the runtime.

    Attributes:
        timeout: in milliseconds, for all tries of a record together; 0: none.
        capacity: how many records may wait for their results at once, in each subtask.
        retry: whether and when to try again.
        ordered: whether results come in the order of the records, or as they are there.
    """

    timeout: int
    capacity: int
    retry: AsyncRetryStrategy[Any]
    ordered: bool


class AsyncDataStream:
    """Applies an ``AsyncFunction`` to a stream.

    All calls of an epoch have their results before the epoch ends. So there is never a call under
    way when a checkpoint is taken, and no result is behind the watermark that follows its record;
    but a call that takes long holds up its epoch, which the timeout is for.

    Each record is called once, unless the retry strategy says otherwise. A call that fails for good
    fails the epoch, and with it the job, with the record named.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream | KeyedStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Results go on as soon as they are there, whatever the order of their records."""
        settings = AsyncSettings(to_millis(timeout), capacity, NO_RETRY_STRATEGY, False)
        return _apply(data_stream, async_function, settings, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream | KeyedStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """As ``unordered_wait``; a call may be tried again, within the timeout."""
        settings = AsyncSettings(to_millis(timeout), capacity, async_retry_strategy, False)
        return _apply(data_stream, async_function, settings, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream | KeyedStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Results go on in the order of their records; they wait for those before them."""
        settings = AsyncSettings(to_millis(timeout), capacity, NO_RETRY_STRATEGY, True)
        return _apply(data_stream, async_function, settings, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream | KeyedStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """As ``ordered_wait``; a call may be tried again, within the timeout."""
        settings = AsyncSettings(to_millis(timeout), capacity, async_retry_strategy, True)
        return _apply(data_stream, async_function, settings, output_type)


def _apply(
    stream: DataStream | KeyedStream,
    function: AsyncFunction[Any, Any],
    settings: AsyncSettings,
    output_type: Any,
) -> DataStream:
    _check_function(function)
    _check_settings(settings)
    operation = FunctionOperation(Style.ASYNC, function, settings=settings)
    return stream._new("async", "async wait operator", operation, stream._edges, output_type)


def _check_function(function: Any) -> None:
    if not isinstance(function, AsyncFunction):
        msg = f"AsyncDataStream: expected an AsyncFunction; got {function!r}"
        raise TypeError(msg)
    if not inspect.iscoroutinefunction(function.async_invoke):
        msg = f"async_invoke of {type(function).__name__} must be declared as 'async def'"
        raise TypeError(msg)


def _check_settings(settings: AsyncSettings) -> None:
    if not isinstance(settings.retry, AsyncRetryStrategy):
        msg = f"AsyncDataStream: expected an AsyncRetryStrategy; got {settings.retry!r}"
        raise TypeError(msg)
    if settings.capacity < 1:
        msg = f"AsyncDataStream: the capacity must be at least 1; got {settings.capacity}"
        raise ValueError(msg)
    if settings.timeout < 0:
        msg = f"AsyncDataStream: the timeout must not be negative; got {settings.timeout} ms"
        raise ValueError(msg)
    if settings.retry is not NO_RETRY_STRATEGY and not settings.timeout:
        msg = "AsyncDataStream: calls that are tried again need a timeout; got 0"
        raise ValueError(msg)
