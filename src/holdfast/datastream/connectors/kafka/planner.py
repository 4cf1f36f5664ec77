"""Decides in the driver, before each epoch, how far it reads; discovers partitions.

Invariant: what a reader reads in an epoch is a function of its saved position and of the plan.
Consequence: a task that is repeated reads the same records, although the topic has grown.

If nothing is repeated, readers run free. The planner then only looks for partitions, in its
own thread, so that no plan waits for a broker.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.datastream.connectors.base import EpochPlanner
from holdfast.datastream.connectors.kafka.client import (
    PATIENCE,
    KafkaConnectorError,
    KafkaMetadata,
)
from holdfast.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    OffsetKind,
    Split,
    describe,
)
from holdfast.printable import get_logger

_logger = get_logger(__name__)
#: how long an epoch waits for the ends of topics, in seconds; then it continues without
_SHORT_PATIENCE = 2.0
#: pause before the next look for partitions while no broker answers, in seconds
_RETRY_SECONDS = 10.0


@dataclass(frozen=True)
class Subscription:
    """The partitions that a source reads: all of some topics, or these.

    Attributes:
        topics: names of topics.
        pattern: instead of names, a regular expression for whole names.
        splits: instead of topics, partitions.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    splits: tuple[Split, ...] = ()

    def find(self, metadata: KafkaMetadata, patience: float) -> list[Split]:
        """Return the existing partitions; ``patience`` is the timeout in seconds.

        Raises:
            KafkaConnectorError: when a topic or partition that was named does not exist.
        """
        there = metadata.topics(patience)
        if self.pattern is not None:
            names: Collection[str] = [t for t in there if re.fullmatch(self.pattern, t)]
        else:
            names = self.topics or {topic for topic, _ in self.splits}
        for name in names:
            if name not in there:
                known = ", ".join(sorted(there)[:20]) or "none"
                raise KafkaConnectorError(
                    f"Kafka has no topic '{name}'; the job reads it, so create it first or correct "
                    f"its name. Topics there are: {known}"
                )
        if not self.splits:
            return sorted((name, number) for name in names for number in there[name])
        for name, number in self.splits:
            if number not in there[name]:
                raise KafkaConnectorError(
                    f"Kafka has no {describe((name, number))}, which the job reads; the topic has "
                    f"{len(there[name])} partitions"
                )
        return sorted(self.splits)


class SplitStart(NamedTuple):
    """Where a partition without a saved position starts, and where it stops."""

    offset: int
    stop: int | None


class KafkaPlan(NamedTuple):
    """The plan of an epoch, for the readers.

    Attributes:
        starts: for partitions without a saved position.
        ends: the current end offsets of all partitions.
    """

    starts: dict[Split, SplitStart]
    ends: dict[Split, int]


class KafkaPlanner(EpochPlanner):
    """Plans the epochs of one attempt of one source."""

    def __init__(
        self,
        metadata: KafkaMetadata,
        subscription: Subscription,
        start: KafkaOffsetsInitializer,
        stop: KafkaOffsetsInitializer | None,
        discovery_seconds: float,
        restored: bool,
    ) -> None:
        """Make no request yet; ``discovery_seconds`` is the time between two discoveries.

        A bounded source looks only once, because it ends where its partitions ended then.
        """
        self._metadata = metadata
        self._subscription = subscription
        self._start = start
        self._stop = stop
        self._discovery = discovery_seconds if stop is None else math.inf
        self._restored = restored
        self._starts: dict[Split, SplitStart] = {}
        self._ends: dict[Split, int] = {}
        self._has_looked = self._is_away = self._is_free = False
        self._next_look = 0.0
        #: discovers partitions while readers run free
        self._looking: threading.Thread | None = None

    def run_free(self) -> None:
        """Ask for the ends of partitions only when discovering partitions."""
        self._is_free = True

    def plan(self) -> KafkaPlan:
        """Ask for the current ends of the topics.

        While no broker answers, epochs read no further than the last one, and the job continues;
        an answer is needed only at the start of an attempt.
        """
        if not self._has_looked:
            self._discover(PATIENCE)
        elif not self._is_free:
            self._look_again()
        elif time.monotonic() >= self._next_look and not self._is_looking:
            self._looking = threading.Thread(
                target=self._look_again, name="holdfast-kafka-partitions", daemon=True
            )
            self._looking.start()
        return KafkaPlan(self._starts, self._ends)

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and self._looking.is_alive()

    def _look_again(self) -> None:
        try:
            if time.monotonic() >= self._next_look:
                self._discover(_SHORT_PATIENCE)
            else:
                self._ends = self._ends | self._metadata.latest(self._ends, _SHORT_PATIENCE)
        except KafkaConnectorError as error:
            if not self._is_away:
                what = "no new partitions are found" if self._is_free else "nothing new is read"
                _logger.warning("%s until Kafka answers again: %s", what, error)
            self._is_away = True
            if self._is_free:
                self._next_look = time.monotonic() + min(self._discovery, _RETRY_SECONDS)
            return
        if self._is_away:
            _logger.warning("Kafka answers again; the job goes on as before")
        self._is_away = False

    def _discover(self, patience: float) -> None:
        splits = self._subscription.find(self._metadata, patience)
        ends = self._metadata.latest(splits, patience)
        new = [split for split in splits if split not in self._starts]
        # NB: replaced, not changed: a plan may be pickled meanwhile
        if not (self._has_looked or self._restored):
            self._starts = self._starts | self._beginnings(new, ends)
        elif self._stop is None:
            # a partition that was added later is read from its beginning
            oldest = self._metadata.earliest(new)
            later = {split: SplitStart(oldest[split], None) for split in new}
            self._starts = self._starts | later
        if self._has_looked and new:
            _logger.info("found new partitions: %s", ", ".join(map(describe, new)))
        self._ends = ends
        self._has_looked = True
        self._next_look = time.monotonic() + self._discovery

    def _beginnings(
        self, splits: Collection[Split], ends: dict[Split, int]
    ) -> dict[Split, SplitStart]:
        first = resolve(self._metadata, self._start, splits, ends)
        if self._stop is None:
            return {split: SplitStart(first[split], None) for split in splits}
        last = resolve(self._metadata, self._stop, splits, ends)
        return {split: SplitStart(first[split], last[split]) for split in splits}


def resolve(
    metadata: KafkaMetadata,
    wanted: KafkaOffsetsInitializer,
    splits: Collection[Split],
    ends: dict[Split, int],
) -> dict[Split, int]:
    """Return the offsets of an initializer.

    Raises:
        KafkaConnectorError: when it has no offset for a partition.
    """
    if wanted.kind is OffsetKind.EARLIEST:
        return metadata.earliest(splits)
    if wanted.kind is OffsetKind.LATEST:
        return {split: ends[split] for split in splits}
    if wanted.kind is OffsetKind.TIMESTAMP:
        return metadata.at_time(splits, wanted.time)
    if wanted.kind is OffsetKind.COMMITTED:
        known = metadata.committed(splits)
    else:
        known = {split: offset for split, offset in wanted.given.items() if split in splits}
    rest = [split for split in splits if split not in known]
    if not rest:
        return known
    if wanted.reset is KafkaOffsetResetStrategy.EARLIEST:
        return {**known, **metadata.earliest(rest)}
    if wanted.reset is KafkaOffsetResetStrategy.LATEST:
        return {**known, **{split: ends[split] for split in rest}}
    raise KafkaConnectorError(
        f"Kafka source: nothing says where to begin in {describe(rest[0])}: there is no "
        f"{wanted.kind.value} offset for it; give an offset, or a KafkaOffsetResetStrategy other "
        "than NONE"
    )
