"""Talks to Kafka through confluent-kafka, which is loaded when a job needs it.

Properties are those of Kafka's own clients, as in Flink. Properties of the Java client that have no
meaning here are left out; those with another name are translated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from holdfast.datastream.connectors.kafka.offsets import Split, describe
from holdfast.errors import JobDefinitionError, JobExecutionError

if TYPE_CHECKING:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, OffsetSpec

#: properties of the Java client or of Flink's connector, which are ignored
_NOT_FOR_THE_CLIENT = frozenset(
    {
        "client.id.prefix",
        "commit.offsets.on.checkpoint",
        "default.api.timeout.ms",
        "flink.partition-discovery.interval-millis",
        "key.deserializer",
        "key.serializer",
        "max.poll.records",
        "partition.discovery.interval.ms",
        "register.consumer.metrics",
        "value.deserializer",
        "value.serializer",
    }
)
#: our defaults
_DEFAULTS: Mapping[str, Any] = {
    # failures are raised as exceptions, with better messages than the client logs
    "log_level": 2,
    "reconnect.backoff.max.ms": 1000,
}
_CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "auto.offset.reset": "error",
    # how soon the end of a topic is known if its last entry is not a record
    "fetch.wait.max.ms": 100,
    # a process may have consumers of subtasks that have moved to another one
    "queued.max.messages.kbytes": 32 * 1024,
    # the client's default of a second is too long for a reader that empties a full queue at once
    "fetch.queue.backoff.ms": 20,
}
#: timeout of a request to the brokers, in seconds
PATIENCE = 10.0


class KafkaConnectorError(JobExecutionError):
    """Kafka does not have what the job needs, or does not answer."""


def library() -> Any:
    """Return the module ``confluent_kafka``.

    Raises:
        JobDefinitionError: when it is not installed.
    """
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise JobDefinitionError(
            "jobs that read from or write to Kafka need the package confluent-kafka, which is not "
            f"installed ({error}): pip install 'holdfast[kafka]'"
        ) from error
    return confluent_kafka


def client_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings for any client of Kafka."""
    known = {key: value for key, value in properties.items() if key not in _NOT_FOR_THE_CLIENT}
    if "client.id.prefix" in properties:
        known.setdefault("client.id", properties["client.id.prefix"])
    return {**_DEFAULTS, **known}


def new_consumer(properties: Mapping[str, str], **callbacks: Any) -> confluent_kafka.Consumer:
    """Return a consumer with assigned partitions that never commits by itself.

    Raises:
        JobDefinitionError: when it rejects a property.
    """
    settings = {**_CONSUMER_DEFAULTS, **client_settings(properties), **callbacks}
    # NB: without a group nothing is ever committed, but the client needs one
    settings.setdefault("group.id", "holdfast")
    forced = {"enable.auto.commit": False, "enable.auto.offset.store": False}
    kafka = library()
    try:
        consumer: confluent_kafka.Consumer = kafka.Consumer(
            {**settings, **forced, "enable.partition.eof": True}
        )
    except kafka.KafkaException as error:
        raise _refused(error) from error
    return consumer


def _refused(error: Exception) -> JobDefinitionError:
    reason = getattr(error.args[0], "str", lambda: str(error))()
    return JobDefinitionError(
        f"the Kafka client does not take the properties of the job: {reason}; its properties are "
        "those of librdkafka, which are Kafka's own but for some of the Java client"
    )


class KafkaMetadata:
    """Asks brokers for the partitions and offsets of topics."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Connect.

        Raises:
            JobDefinitionError: when the client rejects a property.
        """
        kafka = self._kafka = library()
        self._servers = properties.get("bootstrap.servers", "")
        self._group = properties.get("group.id")
        isolation = properties.get("isolation.level", "read_committed").upper()
        self._isolation = kafka.IsolationLevel[isolation]
        # settings of consumers would make it warn
        settings = client_settings(properties)
        for key in ("group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level"):
            settings.pop(key, None)
        try:
            self._admin: AdminClient = kafka.admin.AdminClient(settings)
        except kafka.KafkaException as error:
            raise _refused(error) from error

    def topics(self, patience: float = PATIENCE) -> dict[str, list[int]]:
        """Return all topics except Kafka's own, with their partitions.

        Raises:
            KafkaConnectorError: when no broker answers.
        """
        try:
            found = self._admin.list_topics(timeout=patience).topics
        except self._kafka.KafkaException as error:
            raise self._unreachable(error) from error
        return {
            name: sorted(topic.partitions)
            for name, topic in found.items()
            if topic.error is None and not name.startswith("__")
        }

    def earliest(self, splits: Collection[Split]) -> dict[Split, int]:
        """Return the offsets of the oldest records."""
        return self._offsets(splits, self._kafka.admin.OffsetSpec.earliest())

    def latest(self, splits: Collection[Split], patience: float = PATIENCE) -> dict[Split, int]:
        """Return the offsets after the last records that may be read."""
        return self._offsets(splits, self._kafka.admin.OffsetSpec.latest(), patience)

    def at_time(self, splits: Collection[Split], timestamp: int) -> dict[Split, int]:
        """Return the offsets of the first records that are not older, or the end."""
        found = self._offsets(splits, self._kafka.admin.OffsetSpec.for_timestamp(timestamp))
        beyond = [split for split, offset in found.items() if offset < 0]
        return {**found, **(self.latest(beyond) if beyond else {})}

    def committed(self, splits: Collection[Split]) -> dict[Split, int]:
        """Return the offsets that the consumer group has committed.

        Raises:
            KafkaConnectorError: when there is no group, or no answer.
        """
        if not self._group:
            raise KafkaConnectorError(
                "Kafka source: it is to begin at the offsets that its group has committed, but has "
                "no group; set_group_id(...), or the property group.id"
            )
        asked = self._kafka.ConsumerGroupTopicPartitions(self._group, self._places(splits))
        answer = self._admin.list_consumer_group_offsets([asked], request_timeout=PATIENCE)
        found = self._result(answer[self._group]).topic_partitions
        return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def _offsets(
        self, splits: Collection[Split], spec: OffsetSpec, patience: float = PATIENCE
    ) -> dict[Split, int]:
        if not splits:
            return {}
        answers = self._admin.list_offsets(
            dict.fromkeys(self._places(splits), spec),
            isolation_level=self._isolation,
            request_timeout=patience,
        )
        return {
            (place.topic, place.partition): self._result(
                answer, (place.topic, place.partition)
            ).offset
            for place, answer in answers.items()
        }

    def _places(self, splits: Iterable[Split]) -> list[confluent_kafka.TopicPartition]:
        return [self._kafka.TopicPartition(*split) for split in sorted(splits)]

    def _result(self, answer: Future[Any], split: Split | None = None) -> Any:
        try:
            return answer.result(PATIENCE)
        except (self._kafka.KafkaException, TimeoutError) as error:
            raise self._unreachable(error, split) from error

    def _unreachable(self, error: Exception, split: Split | None = None) -> KafkaConnectorError:
        reason = getattr(error.args[0], "str", lambda: str(error))() if error.args else "no answer"
        what = f" about {describe(split)}" if split is not None else ""
        return KafkaConnectorError(
            f"Kafka at {self._servers} does not answer{what}: {reason}; see that a broker runs "
            "there, and that bootstrap.servers is right"
        )
