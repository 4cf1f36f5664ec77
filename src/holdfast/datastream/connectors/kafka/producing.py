"""The Kafka side of a sink: topics, producers, and transactions with markers.

A committed transaction leaves a marker, written within the transaction. A process that does not
know whether a commit was completed looks for it. A later transaction removes it when it is not
needed any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from holdfast.datastream.connectors.kafka.markers import PATIENCE, Markers, of_all_clients
from holdfast.datastream.connectors.kafka.records import KafkaSinkError, ProducerRecord
from holdfast.printable import get_logger

#: in seconds: how long a broker may take to create a topic automatically
_NEW_TOPIC = 5.0
#: overhead of a batch with one record
_OVERHEAD = 128
_MAX_BYTES = 1_000_000

#: a user who sets one of these decides about the order
_OF_ORDER = frozenset(
    {
        *("enable.idempotence", "acks", "request.required.acks", "retries"),
        *("max.in.flight", "max.in.flight.requests.per.connection"),
    }
)

_REMEDIES = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "raise max.message.bytes of the topic (and message.max.bytes of the producer), or lower "
        "batch.size with set_property if the records themselves are smaller"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct its name",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or correct its name",
    KafkaError._UNKNOWN_PARTITION: "choose a partition that the topic has",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to write to the topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "allow this user to write with transactional ids that begin with the sink's prefix"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this user idempotent writes",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "lower transaction.timeout.ms with set_property, or raise the broker's "
        "transaction.max.timeout.ms"
    ),
    KafkaError._FENCED: (
        "if another sink uses the same transactional id, give each sink of each job a prefix of "
        "its own with set_transactional_id_prefix; if the transaction took too long, raise "
        "transaction.timeout.ms with set_property"
    ),
    KafkaError._INVALID_ARG: "correct the property that was given with set_property",
}
#: errors of a fenced producer: immediately, and for all later calls
_ENDS = frozenset(
    {
        *(KafkaError._FENCED, KafkaError._FATAL),
        *(KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED),
    }
)
_REMEDIES |= dict.fromkeys(_ENDS, _REMEDIES[KafkaError._FENCED])
_AWAY = "look whether the broker runs and can be reached under its bootstrap.servers"

_logger = get_logger(__name__)


def fail(what: str, error: KafkaError | KafkaException) -> NoReturn:
    """Raise an error of Kafka's client with a remedy."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    remedy = _REMEDIES.get(cause.code(), _AWAY)
    message = f"Kafka sink: cannot {what}: {cause.str()} ({cause.name()}); {remedy}"
    origin = error if isinstance(error, KafkaException) else None
    raise KafkaSinkError(message, cause.fatal() or cause.code() in _ENDS) from origin


class Topic(NamedTuple):
    """Facts about a topic.

    Attributes:
        largest: the maximum size of a record in bytes, as far as known.
    """

    partitions: list[int]
    largest: int


class Topics:
    """Facts about topics; the broker is asked once for each."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Connect with the first request."""
        self._settings = settings
        self._known: dict[str, Topic] = {}
        self._limit = int(settings.get("message.max.bytes", _MAX_BYTES))
        kinds = (settings.get(name, "none") for name in ("compression.type", "compression.codec"))
        self._compresses = any(kind != "none" for kind in kinds)
        self._admin: AdminClient | None = None

    def __getitem__(self, topic: str) -> Topic:
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = Topic(self._partitions(topic), self._largest(topic))
        return known

    def check(self, record: ProducerRecord) -> None:
        """Reject a record that no broker would accept, before a checkpoint contains it."""
        size = len(record.value or b"") + len(record.key or b"")
        if record.headers:
            size += sum(len(name) + len(value or b"") for name, value in record.headers)
        largest = self[record.topic].largest
        if size > largest:
            message = (
                f"Kafka sink: a record for topic '{record.topic}' has {size} bytes; at most "
                f"{largest} are allowed: {_REMEDIES[KafkaError.MSG_SIZE_TOO_LARGE]}"
            )
            raise KafkaSinkError(message)

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic unless it exists."""
        if self._metadata(topic) is not None:
            return
        made = self._client.create_topics([NewTopic(topic, partitions, config=config)])[topic]
        try:
            made.result(PATIENCE)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                settings = ", ".join(f"{key}={value}" for key, value in config.items())
                what = f"{partitions} partitions, {settings}"
                fail(f"create topic '{topic}' ({what}) for its commits", error)

    @property
    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(of_all_clients(self._settings), logger=_logger)
        return self._admin

    def _partitions(self, topic: str) -> list[int]:
        deadline = time.monotonic() + _NEW_TOPIC
        while (found := self._metadata(topic)) is None:
            if time.monotonic() > deadline:
                fail(f"write to topic '{topic}'", KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            time.sleep(0.1)
        return found

    def _metadata(self, topic: str) -> list[int] | None:
        try:
            found = self._client.list_topics(topic, PATIENCE).topics[topic]
        except KafkaException as error:
            fail(f"ask for topic '{topic}'", error)
        missing = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
        if found.error is not None and found.error.code() not in missing:
            fail(f"use topic '{topic}'", found.error)
        return sorted(found.partitions) or None

    def _largest(self, topic: str) -> int:
        """Return the limit of the producer, or of the topic if it can be read."""
        if self._compresses:
            return self._limit
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found = self._client.describe_configs([resource])[resource].result(PATIENCE)
        except KafkaException:
            return self._limit
        return min(self._limit, int(found["max.message.bytes"].value) - _OVERHEAD)


class RecordProducer:
    """A producer that takes records one by one and remembers the first one that failed."""

    def __init__(self, settings: Mapping[str, Any], logs_failures: bool = False) -> None:
        """Make the client; failures may also be logged and ignored."""
        self._failure: tuple[KafkaError, str] | None = None
        self._logs_failures = logs_failures
        given = {
            # as the Java client does, so that keys go to the same partitions
            "partitioner": "murmur2_random",
            # so that records keep their order when a request is retried
            **({} if _OF_ORDER.intersection(settings) else {"enable.idempotence": True}),
            **settings,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
        }
        try:
            self.client = Producer(given, logger=_logger)
        except KafkaException as error:
            fail("make a producer", error)

    def send(self, record: ProducerRecord) -> None:
        """Pass a record to the client; waits while its queue is full."""
        topic, value, key, partition, timestamp, headers = record
        while True:
            try:
                self.client.produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    timestamp=timestamp or 0,
                    headers=list(headers) if headers else None,
                )
                return
            except BufferError:
                self.client.poll(0.1)
                self.check()
            except KafkaException as error:
                fail(f"write to topic '{topic}'", error)

    def flush(self) -> None:
        """Wait until the broker has all records, or one failed."""
        while self.client.flush(PATIENCE):
            self.check()
        self.check()

    def check(self) -> None:
        """Raise the first failure, if any; polls the client."""
        if self._failure is not None:
            error, topic = self._failure
            self._failure = None
            fail(f"write to topic '{topic}'", error)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._logs_failures:
            _logger.error("a record for topic '%s' is lost: %s", message.topic(), error.str())
        elif error is not None and self._failure is None:
            self._failure = error, message.topic()


class TransactionalProducer:
    """The producer of a transactional id; it fences all older ones.

    It must be dropped after any failure: its successor aborts what it has left open.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        markers: str,
        partitions: Sequence[int],
    ) -> None:
        """Take over the id; aborts the open transaction of its former owner.

        Args:
            settings: of the client.
            transactional_id: the id; it has one producer at a time.
            markers: the topic of markers.
            partitions: the partitions of that topic.
        """
        self._settings = settings
        self._id = transactional_id
        self._markers = Markers(settings, markers, partitions, transactional_id, self._end)
        self._producer = end_transactions(settings, transactional_id)

    def commit(
        self, name: str, records: Iterable[Sequence[ProducerRecord]], forget: Iterable[str]
    ) -> None:
        """Write records and a marker with this name, all or nothing.

        Args:
            name: the name of what is committed.
            records: in batches.
            forget: the names of markers to remove.
        """
        client = self._producer.client
        try:
            client.begin_transaction()
            for batch in records:
                for record in batch:
                    self._producer.send(record)
                client.poll(0)
            # NB: first, so that others who wait for this transaction can see whose it is
            self._mark(name, self._id.encode())
            for old in forget:
                self._mark(old, None)
            client.commit_transaction(PATIENCE)
        except KafkaException as error:
            self._producer.check()
            fail(f"commit the transaction of '{self._id}'", error)

    def _mark(self, name: str, value: bytes | None) -> None:
        topic, partition = self._markers.topic, self._markers.partition
        self._producer.send(ProducerRecord(topic, value, name.encode(), partition))

    def has_committed(self, name: str) -> bool:
        """Return whether there is a marker with this name."""
        try:
            return self._markers.contains(name)
        except KafkaException as error:
            fail(f"read topic '{self._markers.topic}' to see what was committed", error)

    def _end(self, transactional_id: str) -> None:
        """Abort the open transaction of another id of this sink."""
        end_transactions(self._settings, transactional_id)


def end_transactions(settings: Mapping[str, Any], transactional_id: str) -> RecordProducer:
    """Take over an id; the open transaction of its former owner is aborted.

    Returns the producer that has it now.
    """
    producer = RecordProducer({**settings, "transactional.id": transactional_id})
    try:
        producer.client.init_transactions(PATIENCE)
    except KafkaException as error:
        fail(f"take over the transactional id '{transactional_id}'", error)
    return producer
