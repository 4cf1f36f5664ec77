"""Calls of the job's thread are carried out in the thread that waits for the job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.driver.outcome import AbandonedError
from holdfast.local.function_thread import FunctionThread


@pytest.fixture
def job() -> Iterator[ThreadPoolExecutor]:
    """The job's thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def ended(thread: FunctionThread, *calls: Future[Any]) -> Callable[[], bool]:
    """Return a condition that is true when these calls of the job's thread have returned."""
    for call in calls:
        call.add_done_callback(lambda _: thread.wake())
    return lambda: all(call.done() for call in calls)


def test_calls_are_carried_out_here(job: ThreadPoolExecutor) -> None:
    thread = FunctionThread()
    calls = [job.submit(thread.call, threading.get_ident) for _ in range(3)]
    thread.work(ended(thread, *calls), pytest.fail)
    assert [call.result() for call in calls] == 3 * [threading.get_ident()]


def test_what_is_over_goes_before_the_next_call(job: ThreadPoolExecutor) -> None:
    thread = FunctionThread()
    call = job.submit(thread.call, threading.get_ident)
    thread.work(lambda: True, pytest.fail)
    assert not call.done()
    thread.work(ended(thread, call), pytest.fail)
    assert call.result() == threading.get_ident()


def test_a_call_of_this_thread_does_not_wait_for_it() -> None:
    assert FunctionThread().call(threading.get_ident) == threading.get_ident()


def test_an_error_is_one_of_the_call(job: ThreadPoolExecutor) -> None:
    thread = FunctionThread()
    call = job.submit(thread.call, lambda: 1 // 0)
    thread.work(ended(thread, call), pytest.fail)
    with pytest.raises(ZeroDivisionError):
        call.result()


def test_an_interrupt_cancels_the_job_and_its_last_calls_are_carried_out(
    job: ThreadPoolExecutor,
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    thread, cancelled = FunctionThread(), threading.Event()
    first = job.submit(thread.call, interrupted)

    def end() -> int:
        assert isinstance(first.exception(), AbandonedError)
        assert cancelled.is_set()
        return thread.call(threading.get_ident)

    last = job.submit(end)
    with pytest.raises(KeyboardInterrupt):
        thread.work(ended(thread, first, last), cancelled.set)
    assert last.result() == threading.get_ident()


def test_an_interrupt_between_two_calls(job: ThreadPoolExecutor) -> None:
    thread, cancelled = FunctionThread(), threading.Event()
    asked: list[bool] = []

    def is_over() -> bool:
        asked.append(True)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return cancelled.is_set()

    with pytest.raises(KeyboardInterrupt):
        thread.work(is_over, cancelled.set)
    assert cancelled.is_set()


def test_who_cannot_work_any_more_leaves_the_job_to_itself(job: ThreadPoolExecutor) -> None:
    def fail() -> bool:
        raise SystemExit

    thread = FunctionThread()
    with pytest.raises(SystemExit):
        thread.work(fail, pytest.fail)
    call = job.submit(thread.call, threading.get_ident)
    assert call.result(60) != threading.get_ident()
