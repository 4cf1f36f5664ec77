"""Asynchronous functions and their retry strategies, as far as they need no runtime."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Time
from holdfast.datastream import AsyncFunction, AsyncRetryStrategy
from holdfast.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from holdfast.datastream.async_retry_strategies import (
    NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    NoRetryStrategy,
)


class Twice(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value, value]


def test_an_async_function_is_awaited() -> None:
    assert asyncio.run(Twice().async_invoke(3)) == [3, 3]


def test_a_timeout_names_function_and_record() -> None:
    message = r"Twice\.async_invoke took longer than its timeout for the record 3; give it more"
    with pytest.raises(TimeoutError, match=message):
        Twice().timeout(3)


def test_no_retry() -> None:
    strategy = AsyncRetryStrategy.no_restart()
    assert strategy is NO_RETRY_STRATEGY
    assert isinstance(strategy, NoRetryStrategy)
    assert not strategy.can_retry(1)
    assert strategy.get_backoff_time_millis(1) == -1
    assert strategy.get_retry_predicate().result_predicate() is None
    assert strategy.get_retry_predicate().exception_predicate() is None


def test_fixed_delay() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(
        2, Time.seconds(1), empty_result_predicate, has_exception_predicate
    )
    assert isinstance(strategy, FixedDelayRetryStrategy)
    assert [strategy.can_retry(attempts) for attempts in (1, 2, 3)] == [True, True, False]
    assert [strategy.get_backoff_time_millis(attempts) for attempts in (1, 2)] == [1_000] * 2
    assert strategy.get_retry_predicate().result_predicate() is empty_result_predicate
    assert strategy.get_retry_predicate().exception_predicate() is has_exception_predicate


def test_exponential_backoff() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(9, 100, "1 s", 2, None, None)
    assert isinstance(strategy, ExponentialBackoffDelayRetryStrategy)
    delays = [strategy.get_backoff_time_millis(attempts) for attempts in range(1, 7)]
    assert delays == [100, 200, 400, 800, 1_000, 1_000]
    assert [strategy.can_retry(attempts) for attempts in (1, 9, 10)] == [True, True, False]


def test_one_records_delay_does_not_depend_on_anothers() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(9, 100, 1_000, 2, None, None)
    first = strategy.get_backoff_time_millis(2)
    strategy.get_backoff_time_millis(3)
    assert strategy.get_backoff_time_millis(2) == first == 200


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.floats(0.01, 100),
    st.integers(0, 10**6),
)
def test_a_delay_is_never_longer_than_the_longest(
    initial: int, longest: int, multiplier: float, attempts: int
) -> None:
    strategy: Any = ExponentialBackoffDelayRetryStrategy(
        1, initial, longest, multiplier, None, None
    )
    assert 0 <= strategy.get_backoff_time_millis(attempts) <= longest


def test_strategies_can_be_sent_to_the_workers() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(2, 5, empty_result_predicate, None)
    copy = pickle.loads(pickle.dumps(strategy))
    assert copy.get_backoff_time_millis(1) == 5
    assert copy.get_retry_predicate().result_predicate() is empty_result_predicate


def test_predicates() -> None:
    assert [empty_result_predicate(r) for r in (None, [], [None], [1])] == [
        True,
        True,
        False,
        False,
    ]
    assert [has_exception_predicate(e) for e in (None, ValueError())] == [False, True]
    assert exception_type_predicate(KeyError("a"), LookupError)
    assert exception_type_predicate(KeyError("a"), (OSError, LookupError))
    assert not exception_type_predicate(KeyError("a"), OSError)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedDelayRetryStrategy(0, 1, None, None), "FixedDelay.*: max_attempts.*; got 0"),
        (lambda: FixedDelayRetryStrategy(1, 0, None, None), "backoff_time_millis must be greater"),
        (
            lambda: ExponentialBackoffDelayRetryStrategy(1, 0, 1, 1.0, None, None),
            "initial_delay must be greater than zero; got 0",
        ),
        (
            lambda: ExponentialBackoffDelayRetryStrategy(1, 1, 0, 1.0, None, None),
            "max_retry_delay must be greater than zero; got 0",
        ),
        (
            lambda: ExponentialBackoffDelayRetryStrategy(1, 1, 1, 0.0, None, None),
            "multiplier must be greater than zero; got 0.0",
        ),
    ],
)
def test_numbers_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
