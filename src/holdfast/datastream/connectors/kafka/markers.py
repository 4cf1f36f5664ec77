"""The topic in which transactions record that they were committed.

A marker is a record of the transaction itself: its key is the name of what is committed,
its value the transactional id. It can be read as committed only when all transactions have ended
that began before it in the same partition. So sinks are divided between the partitions, to avoid
needless waiting:

- A marker that was never written was not committed. A reader of uncommitted records sees that.
- If it was written, only the transactions before it matter. The first one that is open is at the
  last stable offset, and its marker says whose it is.
- One of the same sink was left by a process that died: it is ended by taking its id over.
- One of another sink ends by itself, after its ``transaction.timeout.ms`` if its process is dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from holdfast.datastream.connectors.kafka.records import KafkaSinkError
from holdfast.printable import get_logger

#: of a topic that the sink creates
PARTITIONS = 16
MARKERS_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
#: in seconds: how long a broker may be unavailable before an operation fails
PATIENCE = 60.0
#: in seconds: how long to wait for the transaction of another sink
LONGEST_WAIT = 120.0
#: in seconds: a live transaction of this sink with a marker ends within this time
_GRACE = 2.0
#: in seconds: time between two log messages while waiting
_REPORT = 10.0
#: in seconds: time between two checks
_PAUSE = 0.1

#: settings of all clients; the others are for producers
_OF_ALL_CLIENTS = (
    *("bootstrap.", "security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.", "client."),
    *("reconnect.", "metadata.", "log", "debug", "oauth", "api.version."),
)

_logger = get_logger(__name__)


class Marker(NamedTuple):
    """A record of the topic, committed or not; without a value it removes an earlier one."""

    partition: int
    offset: int
    name: bytes | None
    transactional_id: bytes | None


class Markers:
    """The markers of all sinks, as one of them sees them.

    Attributes:
        topic: their topic.
        partition: where this sink writes its own.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        partitions: Sequence[int],
        transactional_id: str,
        end: Callable[[str], None],
    ) -> None:
        """Take what is known about the topic; makes no request yet.

        ``end`` ends the transactions of a transactional id.
        """
        self.topic = topic
        self._settings = settings
        self._id = transactional_id
        self._sink = _sink_of(transactional_id)
        self.partition = partitions[crc32(self._sink.encode()) % len(partitions)]
        self._end = end
        self._admin = AdminClient(of_all_clients(settings), logger=_logger)

    def contains(self, name: str) -> bool:
        """Return whether there is a committed marker with this name; waits for open transactions.

        Raises:
            KafkaException: when the broker does not answer.
            KafkaSinkError: when a transaction stays open for too long.
        """
        # NB: in all partitions: their number may have been different when it was written
        known = self._admin.list_topics(self.topic, PATIENCE).topics[self.topic]
        stable = self._offsets([*known.partitions], IsolationLevel.READ_COMMITTED)
        ends = self._offsets([*known.partitions], IsolationLevel.READ_UNCOMMITTED)
        found: list[Marker] = []
        undecided: dict[tuple[int, int], bytes | None] = {}
        for marker in self._read(dict.fromkeys(ends, 0), ends, "read_uncommitted"):
            if marker.name == name.encode():
                found.append(marker)
            if marker.offset >= stable[marker.partition]:
                undecided[marker.partition, marker.offset] = marker.transactional_id
        return any(
            self._is_committed([m for m in found if m.partition == partition], undecided)
            for partition in {marker.partition for marker in found}
        )

    def _is_committed(
        self, written: Sequence[Marker], undecided: Mapping[tuple[int, int], bytes | None]
    ) -> bool:
        """Return whether the last committed one of these, of one partition, is a marker."""
        partition, last = written[-1].partition, written[-1].offset
        self._await(partition, last, undecided)
        starts, ends = {partition: written[0].offset}, {partition: last + 1}
        values = [
            marker.transactional_id
            for marker in self._read(starts, ends, "read_committed")
            if marker.name == written[-1].name
        ]
        return bool(values) and values[-1] is not None

    def _await(
        self, partition: int, offset: int, undecided: Mapping[tuple[int, int], bytes | None]
    ) -> None:
        """Wait until all transactions that began before an offset have ended."""
        began = time.monotonic()
        deadline, report = began + LONGEST_WAIT, began
        ended: set[str] = set()
        while (
            stable := self._offsets([partition], IsolationLevel.READ_COMMITTED)[partition]
        ) <= offset:
            owner = (undecided.get((partition, stable)) or b"").decode(errors="replace")
            now = time.monotonic()
            if _sink_of(owner) == self._sink and owner not in ended and now > began + _GRACE:
                self._end(owner)
                ended.add(owner)
            elif now > deadline:
                raise KafkaSinkError(
                    f"Kafka sink '{self._sink}': cannot tell whether a transaction was committed, "
                    f"since {self._open(partition, stable, owner)} has not ended for "
                    f"{LONGEST_WAIT:.0f} s; end it with kafka-transactions.sh abort, or lower "
                    "transaction.timeout.ms of its producer"
                )
            elif now >= report:
                _logger.warning(
                    "Kafka sink '%s': waiting for %s to end; at most %.0f s. Kafka ends what a "
                    "dead producer has left open after its transaction.timeout.ms",
                    self._sink,
                    self._open(partition, stable, owner),
                    deadline - now,
                )
                report = now + _REPORT
            time.sleep(_PAUSE)

    def _open(self, partition: int, offset: int, owner: str) -> str:
        whose = f"'{owner}'" if owner else "another producer"
        return (
            f"the transaction of {whose} at offset {offset} of topic '{self.topic}', partition "
            f"{partition},"
        )

    def _offsets(self, partitions: Sequence[int], level: IsolationLevel) -> dict[int, int]:
        """Return the end offsets; for committed records, those of the first open transaction.

        A reader of committed records can read up to them.
        """
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = {TopicPartition(self.topic, number): latest for number in partitions}
        asked = self._admin.list_offsets(places, isolation_level=level)
        return {place.partition: int(asked[place].result(PATIENCE).offset) for place in places}

    def _read(
        self, starts: Mapping[int, int], ends: Mapping[int, int], isolation: str
    ) -> Iterator[Marker]:
        """Read ranges of partitions, each in order."""
        left = {partition: end for partition, end in ends.items() if starts[partition] < end}
        if not left:
            return
        settings = {
            **of_all_clients(self._settings),
            "group.id": self._id,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
        consumer = Consumer(settings, logger=_logger)
        deadline = time.monotonic() + 2 * PATIENCE
        try:
            consumer.assign([TopicPartition(self.topic, p, starts[p]) for p in left])
            while left:
                for message in consumer.consume(1000, _PAUSE):
                    error, partition = message.error(), message.partition() or 0
                    reached = message.offset() or 0
                    if error is None:
                        yield Marker(partition, reached, message.key(), message.value())
                        reached += 1
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    if reached >= left.get(partition, reached + 1):
                        del left[partition]
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        finally:
            consumer.close()


def of_all_clients(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a producer that any client accepts."""
    return {key: value for key, value in settings.items() if key.startswith(_OF_ALL_CLIENTS)}


def _sink_of(transactional_id: str) -> str:
    """Return the unique prefix of the sink that made the id."""
    return transactional_id.rpartition("-")[0]
