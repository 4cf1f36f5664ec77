"""The Kafka sink where subtasks stay where they are, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.datastream.connectors.kafka import DeliveryGuarantee
from holdfast.datastream.connectors.kafka.producing import RecordProducer
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.failures import OperatorFailed
from holdfast.runtime.record_context import RecordContext
from tests.datastream.sink_engine import make_instance
from tests.datastream.test_kafka_sink import CRASHES, _Crash, engine, numbers, sink, staged
from tests.kafka import Kafka, wait_for

pytestmark = [
    pytest.mark.timeout(900),
    #: a process that is killed does not close its files
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


def test_records_wait_in_one_file_for_their_checkpoint(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path, stays=True)
    for _ in range(4):
        job.epoch(1500)
    assert len(staged(tmp_path)) == 1
    job.epoch(checkpoint=True)
    assert numbers(kafka, topic) == []
    job.epoch(3)
    wait_for(lambda: numbers(kafka, topic) == list(range(6000)))
    job.finish()
    wait_for(lambda: numbers(kafka, topic) == list(range(6003)))
    assert staged(tmp_path) == []


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "other engine"])
@pytest.mark.parametrize("place", sorted(CRASHES.keys() - {"after it was said to begin"}))
def test_a_crash_in_a_commit(kafka: Kafka, tmp_path: Path, place: str, stays: bool) -> None:
    """The next attempt commits what is left to commit, whichever engine runs it."""
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path, parallelism=2, stays=True)
    job.epoch(2)
    job.epoch(2, checkpoint=True)
    if place == "within the transaction":
        # NB: the client that dies is that of the first commit, made when there was none to do
        job.restart()
    with CRASHES[place](), pytest.raises(_Crash):
        job.epoch(4, checkpoint=True)
    job.restart(parallelism=1, stays=stays)
    job.epoch(4)
    wait_for(lambda: sorted(numbers(kafka, topic)) == [0, 1, 2, 3])
    job.finish()
    wait_for(lambda: len(numbers(kafka, topic)) >= 8)
    assert sorted(numbers(kafka, topic)) == list(range(8)), "nothing is doubled"
    assert staged(tmp_path) == []


def test_a_checkpoint_of_the_other_engine_is_committed(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(2)
    job.epoch(2, checkpoint=True)
    job.restart(stays=True)
    job.epoch(2)
    wait_for(lambda: numbers(kafka, topic) == [0, 1, 2, 3])
    job.epoch(2, checkpoint=True)
    job.restart(stays=False)
    job.finish()
    wait_for(lambda: numbers(kafka, topic) == list(range(8)))


def test_a_subtask_that_was_taken_for_dead_writes_nothing_twice(
    kafka: Kafka, tmp_path: Path
) -> None:
    """It hears late that a checkpoint is complete which its successor has started from."""
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path, parallelism=2, stays=True)
    job.epoch(4, checkpoint=True)
    job.epoch(4, checkpoint=True)
    job.restart()
    ghosts: Iterator[Any] = iter(job.ghosts)
    with suppress(OperatorFailed):
        next(ghosts)()  # before its successor
    job.epoch(4)
    for ghost in ghosts:
        with suppress(OperatorFailed):
            ghost()
    job.epoch(4, checkpoint=True)
    job.finish()
    wait_for(lambda: len(numbers(kafka, topic)) >= job.position)
    assert sorted(numbers(kafka, topic)) == list(range(job.position))


def test_a_subtask_that_was_fenced_looks_whether_its_successor_has_committed(
    kafka: Kafka, tmp_path: Path
) -> None:
    """The successor has died since, and the records are still there."""
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path, stays=True)
    job.epoch(4, checkpoint=True)
    job.restart()
    with CRASHES["before the files are deleted"](), pytest.raises(_Crash):
        job.epoch()
    assert len(staged(tmp_path)) == 1
    for ghost in job.ghosts:
        ghost()
    assert staged(tmp_path) == []
    job.restart()
    job.finish()
    wait_for(lambda: len(numbers(kafka, topic)) >= 4)
    assert numbers(kafka, topic) == [0, 1, 2, 3]


def test_at_least_once_waits_for_the_broker_at_checkpoints_only(kafka: Kafka) -> None:
    topic = kafka.topic()
    function: Any = sink(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE).create_function()
    function.open(OperatorContext(_operator(), 0, 0, None, None, {}))  # type: ignore[arg-type]
    context = RecordContext(OperatorTime(lambda: 0), "sink")
    with patch.object(RecordProducer, "flush", side_effect=AssertionError):
        function.invoke(1, context)
        function.end_round()
        wait_for(lambda: numbers(kafka, topic) == [1])
    function.invoke(2, context)
    function.end_epoch()
    assert numbers(kafka, topic) == [1, 2]
    function.close()


def _operator() -> Any:
    return make_instance(b"\x80\x04N.").operator
