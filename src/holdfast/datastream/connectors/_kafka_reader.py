"""Reads a subtask's share of partitions, and commits how far it is."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.datastream.connectors._kafka_consuming import Client, Fetched
from holdfast.datastream.connectors._kafka_decoding import Decoder
from holdfast.datastream.connectors._kafka_fetcher import Fetcher
from holdfast.datastream.connectors._kafka_free_fetcher import FreeFetcher
from holdfast.datastream.connectors._kafka_offsets import Split, divide, owner
from holdfast.datastream.connectors._kafka_planner import Beginning, KafkaPlan
from holdfast.datastream.connectors.base import SourceReader, SplitRecords
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from holdfast.datastream.connectors._kafka_source import KafkaSource
    from holdfast.metrics import MetricGroup

_logger = get_logger(__name__)
#: offsets of so many checkpoints wait to be committed; those of earlier ones are let go
MAX_NUM_PENDING_CHECKPOINTS = 100
_DEFAULT_PATIENCE = 60_000
#: between two commits of a job without checkpoints, in milliseconds
COMMIT_INTERVAL = 5_000


class KafkaReader(SourceReader):
    """Its position: where it is in each partition, and where it was in checkpoints under way."""

    def __init__(self, source: KafkaSource, subtask: int, parallelism: int) -> None:
        """Connect when there is something to read."""
        self._source = source
        self._place = (subtask, parallelism)
        self._positions: dict[Split, Beginning] = {}
        self._pending: dict[int, dict[Split, int]] = {}
        self._ends: Mapping[Split, int] = {}
        #: partitions that are left out
        self._paused: Collection[Hashable] = ()
        #: whether it was told which partitions there are
        self._planned = False
        self._fetcher: Fetcher | None = None
        #: reads in its place if the reader runs free
        self._free: FreeFetcher | None = None
        #: whether the free one has still to hear of the plan
        self._moved = False
        self._committed: dict[Split, int] = {}
        self._next_commit = 0.0

    def open(self, metrics: MetricGroup) -> None:
        """Register how far behind it is."""
        metrics.gauge("pendingRecords", self._lag)
        errors = metrics.counter("numRecordsInErrors")
        self._decoder = Decoder(self._source.schema, self._source.bad_records, errors)

    def run_free(self) -> None:
        """Read what comes, up to where partitions stop."""
        self._free = FreeFetcher(self._source.properties, self._patience)

    def restore(self, position: Any) -> None:
        """Go to where a reader of these partitions was."""
        places, self._pending, self._planned = position
        self._positions = {split: Beginning(*place) for split, place in places.items()}
        self._pending = dict(self._pending)
        self._moved = True

    def position(self) -> Any:
        """Plain values, so that a saved position can be read without this class."""
        places = {split: tuple(place) for split, place in self._positions.items()}
        return places, self._pending, self._planned

    def follow(self, plan: KafkaPlan) -> None:
        """Take what is this subtask's of the partitions that there are."""
        subtask, parallelism = self._place
        mine = [split for split in plan.ends if owner(split, parallelism) == subtask]
        known = {**plan.starts, **self._positions}
        self._positions = {split: known[split] for split in mine if split in known}
        self._moved = self._moved or not self._planned or plan.ends != self._ends
        self._ends = plan.ends
        self._planned = True
        self._find_splits()

    def pause(self, splits: Collection[Hashable]) -> None:
        """Leave these partitions out; the consumer goes on fetching them ahead."""
        self._paused = splits

    def read(self, limit: int) -> Iterator[SplitRecords]:
        """What there is up to the plan's ends; if it runs free, what has come."""
        fetched = self._planned_ranges(limit) if self._free is None else self._come(limit)
        for split, messages, reached in fetched:
            batch = self._decoder.decode(split, messages)
            place = self._positions[split] = self._positions[split]._replace(offset=reached)
            if _has_ended(place):
                self._find_splits()
            yield batch

    def _come(self, limit: int) -> Iterator[Fetched]:
        """What the consumer has now."""
        assert self._free is not None
        if self._moved:
            self._free.follow(self._positions, self._ends)
            self._moved = False
        self._free.pause(self._paused)
        return self._free.read(limit)

    def _planned_ranges(self, limit: int) -> Iterator[Fetched]:
        """What there is up to the plan's ends."""
        backlog = {
            s: (place.offset, self._end(s))
            for s, place in self._positions.items()
            if s not in self._paused
        }
        ranges = divide(backlog, limit)
        return self._connected().read(self.offsets(), ranges) if ranges else iter(())

    @property
    def finished(self) -> bool:
        """Whether all partitions have reached where they are to stop."""
        if not (self._source.stops and self._planned):
            return False
        return all(map(_has_ended, self._positions.values()))

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Remember what to commit when the checkpoint is complete."""
        if self._source.commits_on_checkpoints:
            self._pending[checkpoint_id] = self.offsets()
            while len(self._pending) > MAX_NUM_PENDING_CHECKPOINTS:
                del self._pending[min(self._pending)]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit what it had; earlier ones are covered by it."""
        offsets = self._pending.get(checkpoint_id)
        self._pending = {n: o for n, o in self._pending.items() if n > checkpoint_id}
        if offsets:
            self.commit(offsets)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Forget what it had; a later checkpoint covers it."""
        self._pending.pop(checkpoint_id, None)

    def notify_epoch_accepted(self) -> None:
        """Without checkpoints: commit now and then, if the properties say so."""
        if self._source.commits_periodically and time.monotonic() >= self._next_commit:
            interval = int(self._source.properties.get("auto.commit.interval.ms", COMMIT_INTERVAL))
            self._next_commit = time.monotonic() + interval / 1000
            self.commit(self.offsets())

    def close(self) -> None:
        """Disconnect."""
        for client in (self._fetcher, self._free):
            if client is not None:
                client.close()
        self._fetcher = self._free = None

    def commit(self, offsets: Mapping[Split, int]) -> None:
        """Tell the group what has changed; that it fails is no harm, for nobody here needs it."""
        changed = {s: at for s, at in offsets.items() if self._committed.get(s) != at}
        if not changed:
            return
        try:
            client: Client = self._free or self._connected()
            client.commit(changed)
        except Exception as error:
            _logger.warning("offsets %s could not be committed to Kafka: %s", changed, error)
            return
        self._committed |= changed

    def _connected(self) -> Fetcher:
        if self._fetcher is None:
            self._fetcher = Fetcher(self._source.properties, self._patience)
        return self._fetcher

    @property
    def _patience(self) -> float:
        properties = self._source.properties
        return int(properties.get("default.api.timeout.ms", _DEFAULT_PATIENCE)) / 1000

    def offsets(self) -> dict[Split, int]:
        """Where it is, in each of its partitions."""
        return {split: place.offset for split, place in self._positions.items()}

    def _find_splits(self) -> None:
        """Leave out partitions that have ended: time does not wait for them."""
        self.splits = tuple(s for s, place in self._positions.items() if not _has_ended(place))

    def _end(self, split: Split) -> int:
        stop, end = self._positions[split].stop, self._ends[split]
        return end if stop is None else min(end, stop)

    def _lag(self) -> int:
        """Records that were there when the epoch began, and are not read yet."""
        if self._free is not None:
            return self._free.lag()
        ends = self._ends
        return sum(max(ends.get(s, 0) - p.offset, 0) for s, p in self._positions.items())


def _has_ended(place: Beginning) -> bool:
    return place.stop is not None and place.offset >= place.stop
