"""Records in topics: each guarantee, on a real broker, with everything that can go wrong."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

import pytest
from confluent_kafka import Producer

from holdfast.common import (
    Configuration,
    SerializationSchema,
    SimpleStringSchema,
    WatermarkStrategy,
)
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import (
    DeliveryGuarantee,
    FlinkKafkaProducer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkContext,
    KafkaSinkError,
    KafkaTopicSelector,
    ProducerRecord,
    Semantic,
)
from holdfast.datastream.connectors.kafka.markers import PARTITIONS, Markers
from holdfast.datastream.connectors.kafka.producing import TransactionalProducer
from holdfast.datastream.connectors.kafka.sink import TransactionalSinkFunction
from holdfast.datastream.connectors.kafka.staging import StagedRecords
from holdfast.filesystem import MissingFileError
from holdfast.runtime.failures import OperatorFailed
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource
from tests.datastream.sink_engine import Failed, Killed, Lost, SinkEngine
from tests.kafka import Kafka

pytestmark = [
    pytest.mark.timeout(900),
    #: a process that is killed does not close its files
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


class Text(SerializationSchema):
    def serialize(self, value: Any) -> bytes:
        return str(value).encode()


def sink(
    kafka: Kafka,
    topic: str,
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
    serializer: KafkaRecordSerializationSchema | None = None,
    prefix: str = "",
    **properties: str,
) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(Text())
    builder = KafkaSink.builder().set_record_serializer(serializer or schema.build())
    for key, value in {**kafka.settings(), **properties}.items():
        builder.set_property(key.replace("__", "."), value)
    builder.set_transactional_id_prefix(prefix or f"sink-{uuid.uuid4().hex}")
    return builder.set_delivery_guarantee(guarantee).build()


def engine(sink: KafkaSink, folder: Path, **settings: Any) -> SinkEngine:
    function: Any = sink.create_function()
    return SinkEngine(function, staging=str(folder), **settings)


def numbers(kafka: Kafka, topic: str) -> list[int]:
    """What a consumer of committed records sees."""
    return [int(value) for value in kafka.values(topic)]


def staged(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


# The life of a transaction


def test_records_appear_with_their_checkpoint(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=3)
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(3)
    job.epoch(2, checkpoint=True)
    assert numbers(kafka, topic) == []
    assert len(staged(tmp_path)) == 2
    job.epoch(1, checkpoint=True)
    assert sorted(numbers(kafka, topic)) == [0, 1, 2, 3, 4]
    assert len([name for name in staged(tmp_path) if not name.endswith(".begun")]) == 1
    job.finish()
    assert sorted(numbers(kafka, topic)) == [0, 1, 2, 3, 4, 5]
    assert staged(tmp_path) == []


def test_records_of_a_subtask_keep_their_order(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(2500)
    job.epoch(2500)
    job.finish()
    assert numbers(kafka, topic) == list(range(5000))


def test_every_kind_of_end_of_a_run(kafka: Kafka, tmp_path: Path) -> None:
    """Runs that are killed, that fail, that do not count; and all of them again as zombies."""
    topic = kafka.topic(partitions=2)
    job = engine(sink(kafka, topic), tmp_path, parallelism=2)
    job.epoch(4, fates=[Killed(1), Lost()])
    job.epoch(4, fates=[Failed(1)], checkpoint=True)
    job.epoch(4, fates=[Lost()], checkpoint=True)
    job.epoch(4, checkpoint=True, complete=False)
    zombies = list(job.zombies)
    job.epoch(4, checkpoint=True, stay=True)
    for zombie in zombies:
        with suppress(OperatorFailed, MissingFileError):  # what it wants to commit may be gone
            zombie()
    job.restart()
    job.epoch(4, checkpoint=True)
    job.finish()
    assert sorted(numbers(kafka, topic)) == list(range(job.position))


def test_a_job_without_checkpoints_commits_with_the_next_epoch(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path, checkpoints=False)
    job.epoch(2)
    job.epoch(2, fates=[Lost()])
    assert numbers(kafka, topic) == [0, 1]
    job.finish()
    assert numbers(kafka, topic) == [0, 1, 2, 3]


# A crash anywhere in a commit


class _Crash(BaseException):
    """The process is gone."""


@contextmanager
def crash(
    owner: Any, method: str, after: bool, how: type[BaseException] | BaseException = _Crash
) -> Iterator[None]:
    """Die once, at a method: as it is called, or as it has come to its end."""
    original, left = getattr(owner, method), [1]

    def dying(*arguments: Any, **settings: Any) -> Any:
        if not after and left and left.pop():
            raise how
        result = original(*arguments, **settings)
        if after and left and left.pop():
            raise how
        return result

    with patch.object(owner, method, dying):
        yield


class _Dying:
    """A producer that is killed within a transaction: what it has sent is on the broker."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._client = Producer(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        if name == "commit_transaction":
            self._client.flush()
            raise _Crash
        return getattr(self._client, name)


@contextmanager
def crash_within_transaction() -> Iterator[None]:
    with patch("holdfast.datastream.connectors.kafka.producing.Producer", _Dying):
        yield


CRASHES: dict[str, Callable[[], Any]] = {
    "before the id is taken over": lambda: crash(TransactionalSinkFunction, "_take_over", False),
    "after the id is taken over": lambda: crash(TransactionalSinkFunction, "_take_over", True),
    "after it was said to begin": lambda: crash(StagedRecords, "begin", True),
    "before the transaction": lambda: crash(TransactionalProducer, "commit", False),
    "within the transaction": crash_within_transaction,
    "after the transaction": lambda: crash(TransactionalProducer, "commit", True),
    "before the files are deleted": lambda: crash(StagedRecords, "discard", False),
    "after the files are deleted": lambda: crash(StagedRecords, "discard", True),
}


@pytest.mark.parametrize("place", CRASHES)
def test_a_crash_in_a_commit(kafka: Kafka, tmp_path: Path, place: str) -> None:
    """A task that is run again commits what is left to commit."""
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path, parallelism=2)
    job.epoch(4, checkpoint=True)
    with CRASHES[place](), pytest.raises(_Crash):
        job.epoch(4, checkpoint=True)
    job.epoch(4, checkpoint=True)
    assert sorted(numbers(kafka, topic)) == [0, 1, 2, 3], "nothing is open, nothing is doubled"
    job.finish()
    assert sorted(numbers(kafka, topic)) == list(range(8))
    assert staged(tmp_path) == []


ONE_OF_EACH = ["after it was said to begin", "within the transaction", "after the transaction"]


@pytest.mark.parametrize("place", ONE_OF_EACH)
def test_fewer_subtasks_after_a_crash_in_a_commit(kafka: Kafka, tmp_path: Path, place: str) -> None:
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path, parallelism=2)
    job.epoch(4, checkpoint=True)
    with CRASHES[place](), pytest.raises(_Crash):
        job.epoch(4, checkpoint=True)
    job.restart(parallelism=1)
    job.epoch(4)
    assert sorted(numbers(kafka, topic)) == [0, 1, 2, 3]
    job.finish()
    assert sorted(numbers(kafka, topic)) == list(range(8))
    assert staged(tmp_path) == []


@pytest.mark.parametrize("place", ["within the transaction", "after the transaction"])
def test_a_crash_in_the_commit_of_a_recovery(kafka: Kafka, tmp_path: Path, place: str) -> None:
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(4, checkpoint=True)
    job.restart()
    with CRASHES[place](), pytest.raises(_Crash):
        job.epoch(4)
    job.restart()
    job.epoch(4)
    assert numbers(kafka, topic) == [0, 1, 2, 3]


def test_a_zombie_is_fenced(kafka: Kafka, tmp_path: Path) -> None:
    """It stands within its transaction while another process commits the same records."""
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(3, checkpoint=True)
    go_on, stands = threading.Event(), threading.Event()
    commit, ends = TransactionalProducer.commit, []
    run = job._run(0, range(0), None, False)

    def zombie() -> None:
        try:
            run(Lost())
        except OperatorFailed as error:
            ends.append(str(error))

    thread = threading.Thread(target=zombie)

    def slow_in_one(self: TransactionalProducer, name: str, records: Any, forget: Any) -> None:
        def slowly() -> Iterator[Any]:
            yield from records
            self._producer.flush()
            stands.set()
            assert go_on.wait(60)

        is_zombie = threading.current_thread() is thread
        commit(self, name, slowly() if is_zombie else records, forget)

    with patch.object(TransactionalProducer, "commit", slow_in_one):
        thread.start()
        assert stands.wait(60)
        job.epoch(0)
        assert numbers(kafka, topic) == [0, 1, 2]
        go_on.set()
        thread.join(60)
    assert len(ends) <= 1, "it may find out by itself that its records were committed"
    job.finish()
    assert numbers(kafka, topic) == [0, 1, 2]


def test_a_producer_that_finds_itself_fenced_while_it_writes_gives_way_to_a_new_one(
    kafka: Kafka, tmp_path: Path
) -> None:
    """A subtask comes back to a process that has its producer of long ago."""
    topic, prefix = kafka.topic(), f"sink-{uuid.uuid4().hex}"
    settings = {**kafka.settings(), "linger.ms": 0}
    markers = kafka.topic()
    old = TransactionalProducer(settings, f"{prefix}-0", markers, [0])
    new = TransactionalProducer(settings, f"{prefix}-0", markers, [0])
    record = ProducerRecord(topic, b"7")

    def endless() -> Iterator[Any]:
        while True:
            old._producer.client.poll(0.01)
            yield [record]

    with pytest.raises(KafkaSinkError, match="transactional id") as raised:
        old.commit("old", endless(), ())
    assert raised.value.ends_producer
    new.commit("new", [[record]], ())
    assert numbers(kafka, topic) == [7]


def test_a_transaction_that_was_left_open_blocks_nobody(kafka: Kafka, tmp_path: Path) -> None:
    """A new start of the job ends it, though it has no checkpoint that knows of it."""
    topic, prefix = kafka.topic(), f"sink-{uuid.uuid4().hex}"
    left = Producer({**kafka.settings(), "transactional.id": f"{prefix}-0"})
    left.init_transactions(60)
    left.begin_transaction()
    left.produce(topic, b"-1")
    left.flush(60)
    kafka.produce(topic, ["7"])
    assert numbers(kafka, topic) == []
    job = engine(sink(kafka, topic, prefix=prefix), tmp_path)
    job.epoch(0)
    assert numbers(kafka, topic) == [7]


def test_fewer_subtasks_end_what_the_others_left_open(kafka: Kafka, tmp_path: Path) -> None:
    topic, prefix = kafka.topic(), f"sink-{uuid.uuid4().hex}"
    job = engine(sink(kafka, topic, prefix=prefix), tmp_path, parallelism=3)
    job.epoch(0, checkpoint=True)
    left = Producer({**kafka.settings(), "transactional.id": f"{prefix}-2"})
    left.init_transactions(60)
    left.begin_transaction()
    left.produce(topic, b"-1")
    left.flush(60)
    kafka.produce(topic, ["7"])
    job.restart(parallelism=1)
    job.epoch(0)
    assert numbers(kafka, topic) == [7]


@pytest.mark.parametrize("old", [False, True])
def test_another_program_goes_on(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """It finds the files of the one before, and commits them once; old leftovers go."""
    if old:
        monkeypatch.setattr("holdfast.datastream.connectors.files.part_files._OLD", -60_000)
    topic, prefix = kafka.topic(), f"sink-{uuid.uuid4().hex}"
    job = engine(sink(kafka, topic, prefix=prefix), tmp_path, parallelism=2)
    job.epoch(4, checkpoint=True)
    job.epoch(4)
    job.restart(parallelism=3, function=sink(kafka, topic, prefix=prefix).create_function())
    job.epoch(3)
    job.finish()
    assert sorted(numbers(kafka, topic)) == list(range(7))
    # the program before may still run, as far as this one knows
    assert len(staged(tmp_path)) == (0 if old else 2)


# Open transactions in the topic of markers: they outlast the patience of whoever waits for them


def left_open(kafka: Kafka, markers: str, transactional_id: str, partition: int = 0) -> Producer:
    """A transaction that has its marker, and whose process is dead."""
    settings = {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    producer = Producer({**kafka.settings(), **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(markers, transactional_id.encode(), b"left", partition)
    producer.flush(60)
    return producer


def test_a_marker_behind_an_open_transaction_of_another_sink_is_waited_for(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was committed behind it cannot be seen before it ends, and must not be missed."""
    topic, markers = kafka.topic(), kafka.topic()
    job = engine(sink(kafka, topic, holdfast__commits__topic=markers), tmp_path)
    job.epoch(3, checkpoint=True)
    other = left_open(kafka, markers, "another-sink-7")
    with crash(StagedRecords, "discard", after=False), pytest.raises(_Crash):
        job.epoch(0)
    told = threading.Event()
    with patch.object(Markers, "_open", _then(Markers._open, told.set)):
        ends = threading.Thread(target=lambda: told.wait(60) and other.abort_transaction())
        ends.start()
        job.epoch(0)
        ends.join()
    assert numbers(kafka, topic) == [0, 1, 2]
    assert (
        "waiting for the transaction of 'another-sink-7' at offset 0 of topic "
        f"'{markers}', partition 0, to end; at most 1" in caplog.text
    )


def test_a_transaction_that_does_not_end_is_named(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    markers = kafka.topic()
    job = engine(sink(kafka, kafka.topic(), holdfast__commits__topic=markers), tmp_path)
    job.epoch(3, checkpoint=True)
    left_open(kafka, markers, "another-sink-8")
    with crash(StagedRecords, "discard", after=False), pytest.raises(_Crash):
        job.epoch(0)
    monkeypatch.setattr("holdfast.datastream.connectors.kafka.markers.LONGEST_WAIT", 0.0)
    with pytest.raises(
        OperatorFailed, match=r"since the transaction of 'another-sink-8' at .*abort"
    ):
        job.epoch(0)


def _then(method: Callable[..., Any], follow: Callable[[], None]) -> Callable[..., Any]:
    def both(*arguments: Any) -> Any:
        follow()
        return method(*arguments)

    return both


def test_a_marker_that_was_never_written_is_not_waited_for(kafka: Kafka, tmp_path: Path) -> None:
    topic, markers = kafka.topic(), kafka.topic()
    job = engine(sink(kafka, topic, holdfast__commits__topic=markers), tmp_path)
    job.epoch(3, checkpoint=True)
    left_open(kafka, markers, "another-sink-7")
    with CRASHES["after it was said to begin"](), pytest.raises(_Crash):
        job.epoch(0)
    job.restart()
    job.epoch(0)
    assert numbers(kafka, topic) == [0, 1, 2]


@pytest.mark.parametrize("place", ["within the transaction", "after the transaction"])
def test_an_open_transaction_of_another_sink_is_in_another_partition(
    kafka: Kafka, tmp_path: Path, place: str
) -> None:
    topic, markers = kafka.topic(), f"commits-{uuid.uuid4().hex}"
    prefix = f"sink-{uuid.uuid4().hex}"
    taken = crc32(prefix.encode()) % PARTITIONS
    used = sink(kafka, topic, prefix=prefix, holdfast__commits__topic=markers)
    job = engine(used, tmp_path)
    job.epoch(3, checkpoint=True)
    left_open(kafka, markers, "another-sink-7", (taken + 1) % PARTITIONS)
    with CRASHES[place](), pytest.raises(_Crash):
        job.epoch(0)
    job.restart()
    job.epoch(0)
    assert numbers(kafka, topic) == [0, 1, 2]
    assert len(kafka.ends(markers)) == PARTITIONS
    assert kafka.ends(markers)[taken] > 0


@pytest.mark.parametrize("place", ["within the transaction", "after the transaction"])
def test_an_open_transaction_of_another_subtask_is_ended(
    kafka: Kafka, tmp_path: Path, place: str
) -> None:
    """The one that would end it comes after the one that waits."""
    topic, markers, prefix = kafka.topic(), kafka.topic(), f"sink-{uuid.uuid4().hex}"
    used = sink(kafka, topic, prefix=prefix, holdfast__commits__topic=markers)
    job = engine(used, tmp_path, parallelism=2)
    job.epoch(4, checkpoint=True)
    left_open(kafka, markers, f"{prefix}-1")
    with CRASHES[place](), pytest.raises(_Crash):
        job.epoch(0)
    job.restart()
    job.epoch(0)
    assert sorted(numbers(kafka, topic)) == [0, 1, 2, 3]


def test_a_marker_is_found_when_the_topic_has_got_more_partitions(
    kafka: Kafka, tmp_path: Path
) -> None:
    """As with a topic that an earlier version has made."""
    topic, markers = kafka.topic(), kafka.topic()
    job = engine(sink(kafka, topic, holdfast__commits__topic=markers), tmp_path)
    job.epoch(3, checkpoint=True)
    with CRASHES["after the transaction"](), pytest.raises(_Crash):
        job.epoch(0)
    kafka.add_partitions(markers, 7)
    job.restart()
    job.epoch(0)
    assert numbers(kafka, topic) == [0, 1, 2]


def test_a_damaged_file_is_no_record(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(3, checkpoint=True)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(OperatorFailed, match=r"the records for Kafka in '.*' are damaged"):
        job.epoch(0)
    assert numbers(kafka, topic) == []


def test_files_that_are_gone(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the job runs that is an error; at its start it is an old checkpoint."""
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(3, checkpoint=True)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(OperatorFailed, match="somebody has deleted them"):
        job.epoch(0)
    job.restart()
    job.epoch(0)
    assert "they may have been committed" in caplog.text


@pytest.mark.parametrize("fails", [True, False], ids=["first", "none"])
def test_two_transactions_of_one_subtask_keep_their_order(
    kafka: Kafka, tmp_path: Path, fails: bool
) -> None:
    """An aborted checkpoint leaves its transaction to the next; if one fails, the other waits."""
    topic = kafka.topic()
    job = engine(sink(kafka, topic), tmp_path)
    job.epoch(2, checkpoint=True, complete=False)
    job.epoch(2, checkpoint=True)
    if fails:
        failing = crash(TransactionalProducer, "commit", False, KafkaSinkError("failed"))
        with failing, pytest.raises(OperatorFailed, match="KafkaSinkError: failed"):
            job.epoch(0)
        assert numbers(kafka, topic) == []
        job.restart()
    job.epoch(0)
    assert numbers(kafka, topic) == [0, 1, 2, 3]


def test_markers_go_when_nobody_needs_them(kafka: Kafka, tmp_path: Path) -> None:
    topic, markers = kafka.topic(), kafka.topic()
    job = engine(sink(kafka, topic, holdfast__commits__topic=markers), tmp_path)
    for _ in range(5):
        job.epoch(1, checkpoint=True)
    live: dict[Any, Any] = {}
    for message in kafka.records(markers):
        live[message.key()] = message.value()
    assert len(live) == 4
    assert len([value for value in live.values() if value is not None]) <= 3
    assert len(staged(tmp_path)) <= 4


# What goes wrong at the broker


@pytest.mark.parametrize("guarantee", DeliveryGuarantee, ids=lambda g: g.name)
def test_a_topic_that_does_not_exist(
    kafka: Kafka, guarantee: DeliveryGuarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.datastream.connectors.kafka.producing._NEW_TOPIC", 0.1)
    with pytest.raises(Exception, match=r"cannot write to topic 'nowhere'.*create the topic"):
        run([1], sink(kafka, "nowhere", guarantee))


@pytest.mark.parametrize("guarantee", DeliveryGuarantee, ids=lambda g: g.name)
def test_a_record_that_is_too_large(kafka: Kafka, guarantee: DeliveryGuarantee) -> None:
    """It is refused at once: a transaction that can never be committed would stop the job."""
    topic = kafka.topic(max_message_bytes="2000")
    with pytest.raises(Exception, match=rf"topic '{topic}' has 3000 bytes; at most 1872.*raise"):
        run(["x" * 3000], sink(kafka, topic, guarantee))


def test_batches_that_are_too_large(kafka: Kafka) -> None:
    topic = kafka.topic(max_message_bytes="2000")
    small = sink(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE)
    with pytest.raises(Exception, match=r"lower batch\.size"):
        run(["x" * 100] * 1000, small)
    small = sink(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE, batch__size="1500")
    run(["x" * 100] * 50, small)


def test_a_property_that_does_not_exist(kafka: Kafka) -> None:
    with pytest.raises(Exception, match=r"No such configuration property.*set_property"):
        run([1], sink(kafka, "any", DeliveryGuarantee.NONE, buffer__memory="1"))


@pytest.mark.parametrize(
    "guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE], ids=str
)
def test_a_broker_that_goes_away_and_comes_back(kafka: Kafka, guarantee: DeliveryGuarantee) -> None:
    """The epoch waits for it."""
    topic = kafka.topic()
    with started([1, 2, EndOfEpoch(), 3, 4], sink(kafka, topic, guarantee)) as job:
        job.epoch(checkpoint=True)
        kafka.broker.kill()
        back = threading.Timer(0.5, kafka.broker.start)
        back.start()
        job.run_to_end()
        back.join()
    assert numbers(kafka, topic) == [1, 2, 3, 4]


def test_a_broker_that_is_away(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.datastream.connectors.kafka.producing.PATIENCE", 0.5)
    away = sink(kafka, "any", DeliveryGuarantee.EXACTLY_ONCE, bootstrap__servers="127.0.0.1:9")
    with pytest.raises(Exception, match="look whether the broker runs"):
        run([1], away)


# Guarantees, serializers and selectors


@pytest.mark.parametrize("guarantee", DeliveryGuarantee, ids=lambda g: g.name)
def test_each_guarantee_in_a_job(kafka: Kafka, guarantee: DeliveryGuarantee) -> None:
    topic = kafka.topic(partitions=2)
    run([1, 2, EndOfEpoch(), 3], sink(kafka, topic, guarantee))
    assert sorted(numbers(kafka, topic)) == [1, 2, 3]


def test_at_least_once_writes_an_epoch_again_that_is_run_again(kafka: Kafka) -> None:
    topic = kafka.topic()
    with started([1, EndOfEpoch(), 2], sink(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE)) as job:
        job.epoch(checkpoint=True)
        job.epoch()
        assert numbers(kafka, topic) == [1, 2], "the records of an epoch are there with its end"
        job.recover()
        job.run_to_end()
    assert numbers(kafka, topic) == [1, 2, 2]


class Everything(KafkaRecordSerializationSchema):
    """Sets all that a record has; leaves out what is negative."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def serialize(
        self, element: int, context: KafkaSinkContext, timestamp: int | None
    ) -> ProducerRecord | None:
        if element < 0:
            return None
        place = (context.get_parallel_instance_id(), context.get_number_of_parallel_instances())
        partition = context.get_partitions_for_topic(self._topic)[-1]
        headers = (("place", b"%d/%d" % place), ("empty", None))
        value = None if element == 0 else b"%d" % element
        return ProducerRecord(self._topic, value, b"key", partition, 1000 + element, headers)


@pytest.mark.parametrize("guarantee", DeliveryGuarantee, ids=lambda g: g.name)
def test_all_parts_of_a_record(kafka: Kafka, guarantee: DeliveryGuarantee) -> None:
    topic = kafka.topic(partitions=3)
    run(
        [-1, 0, EndOfEpoch(), -2, EndOfEpoch(), 5], sink(kafka, topic, guarantee, Everything(topic))
    )
    found = kafka.records(topic)
    assert [(m.key(), m.value(), m.partition(), m.timestamp()[1]) for m in found] == [
        (b"key", None, 2, 1000),
        (b"key", b"5", 2, 1005),
    ]
    assert found[0].headers() == [("place", b"0/1"), ("empty", None)]


class ByParity(KafkaTopicSelector):
    def __init__(self, *topics: str) -> None:
        self._topics = topics

    def apply(self, data: int) -> str:
        return self._topics[data % 2]


@pytest.mark.parametrize("as_object", [True, False], ids=["object", "function"])
def test_topics_and_keys_by_record(kafka: Kafka, as_object: bool) -> None:
    even, odd = kafka.topic(partitions=4), kafka.topic(partitions=4)
    select: Any = ByParity(even, odd) if as_object else (lambda n: (even, odd)[n % 2])
    schema = KafkaRecordSerializationSchema.builder().set_topic_selector(select)
    schema.set_value_serialization_schema(Text()).set_key_serialization_schema(_Tens())
    run(list(range(40)), sink(kafka, "", serializer=schema.build()))
    assert sorted(numbers(kafka, even)) == list(range(0, 40, 2))
    assert sorted(numbers(kafka, odd)) == list(range(1, 40, 2))
    for message in kafka.records(even):
        assert message.partition() == (murmur2(message.key()) & 0x7FFFFFFF) % 4


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's own client finds a partition."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    result = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        result = result * factor & mask ^ word
    if data[whole:]:
        result = (result ^ int.from_bytes(data[whole:], "little")) * factor & mask
    result = (result ^ result >> 13) * factor & mask
    return result ^ result >> 15


class _Tens(SerializationSchema):
    def serialize(self, value: int) -> bytes:
        return str(value // 10).encode()


def test_event_timestamps_go_along(kafka: Kafka) -> None:
    topic = kafka.topic()
    env = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Thousands())
    stream = env.from_source(ScriptedSource([1, 2, -3])).assign_timestamps_and_watermarks(strategy)
    stream.sink_to(sink(kafka, topic))
    with LocalExecutor(env) as job:
        job.run_to_end()
    stamps = [message.timestamp()[1] for message in kafka.records(topic)]
    assert stamps[:2] == [1000, 2000]
    assert stamps[2] > 1_700_000_000_000, "Kafka has no time before 1970: the time of writing"


class _Thousands(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return 1000 * value


@pytest.mark.parametrize("semantic", Semantic, ids=lambda s: s.name)
def test_the_older_producer(kafka: Kafka, semantic: Semantic) -> None:
    topic = kafka.topic(partitions=3)
    config = {**kafka.settings(), "transactional.id": uuid.uuid4().hex}
    producer = FlinkKafkaProducer(topic, SimpleStringSchema(), config, semantic=semantic)
    producer.set_write_timestamp_to_kafka(True).ignore_failures_after_transaction_timeout()
    env = environment()
    env.from_source(ScriptedSource(["a", "b"])).add_sink(producer)
    with LocalExecutor(env) as job:
        job.run_to_end()
    assert [(m.value(), m.partition()) for m in kafka.records(topic)] == [(b"a", 0), (b"b", 0)]


def test_the_older_producer_logs_failures_only(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(max_message_bytes="2000")
    producer = FlinkKafkaProducer(topic, SimpleStringSchema(), kafka.settings())
    env = environment()
    env.from_source(ScriptedSource(["x" * 100] * 1000)).add_sink(
        producer.set_log_failures_only(True).set_flush_on_checkpoint(True)
    )
    with LocalExecutor(env) as job:
        job.run_to_end()
    assert f"a record for topic '{topic}' is lost" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.set_property("transactional.id", "x"), "set_transactional_id_prefix"),
        (lambda b: b.set_transactional_id_prefix("x" * 6401), "1 to 6400 bytes; got 6401"),
        (lambda b: b.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build(), "prefix"),
        (lambda b: KafkaSink.builder().build(), "set_bootstrap_servers"),
        (lambda b: KafkaSink.builder().set_bootstrap_servers("x").build(), "set_record_serializer"),
        (lambda b: KafkaRecordSerializationSchema.builder().build(), "needs a topic"),
        (
            lambda b: KafkaRecordSerializationSchema.builder().set_topic("x").build(),
            "needs a value",
        ),
        (
            lambda b: FlinkKafkaProducer("t", Text(), {}, semantic=Semantic.EXACTLY_ONCE),
            "needs a transactional.id",
        ),
    ],
)
def test_what_a_builder_refuses(change: Callable[[Any], Any], message: str) -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t")
    schema.set_value_serialization_schema(Text())
    builder = KafkaSink.builder().set_bootstrap_servers("x").set_record_serializer(schema.build())
    with pytest.raises(ValueError, match=message):
        change(builder)


def environment() -> StreamExecutionEnvironment:
    configuration = Configuration({"execution.checkpointing.interval": "1 h"})
    return StreamExecutionEnvironment(configuration).set_parallelism(1)


def started(records: list[Any], sink: KafkaSink) -> LocalExecutor:
    env = environment()
    env.from_source(ScriptedSource(records)).sink_to(sink)
    return LocalExecutor(env, workers=2)


def run(records: list[Any], sink: KafkaSink) -> None:
    with started(records, sink) as job:
        job.run_to_end()
