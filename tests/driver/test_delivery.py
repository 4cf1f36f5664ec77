"""Records on their way from a job to the program that iterates over them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.errors import JobExecutionError

#: in seconds, for what happens in another thread
LONGEST = 240


def test_records_come_in_order_and_then_the_end() -> None:
    records = CollectedRecords()
    records.put([1, 2])
    records.put([])
    records.put([3])
    records.end()
    assert list(records) == [1, 2, 3]
    assert list(records) == []


def test_an_error_comes_after_the_last_record_and_the_first_one_counts() -> None:
    records = CollectedRecords()
    records.put([1])
    records.end(ValueError("first"))
    records.end(ValueError("second"))
    reader = iter(records)
    assert next(reader) == 1
    with pytest.raises(ValueError, match="first"):
        next(reader)


def test_the_end_does_not_wait_for_a_reader_who_is_behind() -> None:
    records = CollectedRecords(capacity=1)
    records.put([1])
    records.end()
    assert list(records) == [1]


def test_a_job_that_waits_for_its_reader_fails_when_it_is_ended() -> None:
    records = CollectedRecords(capacity=1)
    records.put([1])
    with ThreadPoolExecutor(1) as job:
        waiting = job.submit(records.put, [2])
        records.end(JobExecutionError("Spark is lost"))
        with pytest.raises(JobExecutionError, match="has ended before its records were read"):
            waiting.result(LONGEST)
    reader = iter(records)
    assert next(reader) == 1
    with pytest.raises(JobExecutionError, match="Spark is lost"):
        next(reader)


def test_a_job_goes_on_when_its_reader_reads_or_leaves() -> None:
    records = CollectedRecords(capacity=1)
    records.put([1])
    with ThreadPoolExecutor(1) as job:
        waiting = job.submit(records.put, [2])
        assert next(iter(records)) == 1
        waiting.result(LONGEST)
        waiting = job.submit(records.put, [3])
        records.close()
        waiting.result(LONGEST)


def test_a_reader_waits_for_records() -> None:
    records = CollectedRecords()
    asked = threading.Event()

    def read() -> int:
        asked.set()
        first: int = next(iter(records))
        return first

    with ThreadPoolExecutor(1) as program:
        reading = program.submit(read)
        assert asked.wait(LONGEST)
        records.put([7])
        assert reading.result(LONGEST) == 7
