"""Asynchronous functions on streams: many records wait for external systems at the same time."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from holdfast.common.time import DurationLike, to_millis
from holdfast.datastream.async_retry_strategies import NO_RETRY_STRATEGY
from holdfast.datastream.functions.async_retries import AsyncRetryStrategy
from holdfast.datastream.functions.asynchronous import AsyncFunction
from holdfast.datastream.streams.function_checks import check_object
from holdfast.errors import JobTypeError
from holdfast.graph.operations import AsyncOperation, AsyncSettings

if TYPE_CHECKING:
    from holdfast.datastream.data_stream import DataStream, KeyedStream

__all__ = ["AsyncDataStream", "AsyncSettings"]


class AsyncDataStream:
    """Applies an ``AsyncFunction`` to a stream.

    All calls of an epoch complete before the epoch ends. So no call is in progress when a
    checkpoint is taken, and no result is emitted after the watermark that follows its record. But
    a slow call delays its epoch; use the timeout to limit this.

    The function is called once per record, unless the retry strategy retries it. A call that fails
    after all attempts fails the epoch, and with it the job; the error names the record.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream | KeyedStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Emit results as soon as they are available, regardless of the order of their records."""
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
        """Do the same as ``unordered_wait``, with retries within the timeout."""
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
        """Emit results in the order of their records; a result waits for those before it."""
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
        """Do the same as ``ordered_wait``, with retries within the timeout."""
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
    operation = AsyncOperation(function, settings=settings)
    return stream._new("async", "async wait operator", operation, stream._edges, output_type)


def _check_function(function: Any) -> None:
    check_object("AsyncDataStream", function, AsyncFunction, awaited=True)
    if not inspect.iscoroutinefunction(function.async_invoke):
        message = f"async_invoke of {type(function).__name__} must be declared as 'async def'"
        raise JobTypeError(message)


def _check_settings(settings: AsyncSettings) -> None:
    if not isinstance(settings.retry, AsyncRetryStrategy):
        message = f"AsyncDataStream: expected an AsyncRetryStrategy; got {settings.retry!r}"
        raise JobTypeError(message)
    if settings.capacity < 1:
        message = f"AsyncDataStream: the capacity must be at least 1; got {settings.capacity}"
        raise ValueError(message)
    if settings.timeout < 0:
        message = f"AsyncDataStream: the timeout must not be negative; got {settings.timeout} ms"
        raise ValueError(message)
    if settings.retry is not NO_RETRY_STRATEGY and not settings.timeout:
        message = "AsyncDataStream: a retry strategy requires a timeout; got 0"
        raise ValueError(message)
