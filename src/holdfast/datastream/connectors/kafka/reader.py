"""Reads a subtask's share of the partitions, and commits its offsets."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.datastream.connectors.base import SourceReader, SplitRecords
from holdfast.datastream.connectors.kafka.consuming import Fetched, SplitConsumer
from holdfast.datastream.connectors.kafka.fetcher import Fetcher
from holdfast.datastream.connectors.kafka.free_fetcher import FreeFetcher
from holdfast.datastream.connectors.kafka.offsets import Split, divide, owner
from holdfast.datastream.connectors.kafka.planner import KafkaPlan, SplitStart

if TYPE_CHECKING:
    from holdfast.datastream.connectors.kafka.source import KafkaSource
    from holdfast.metrics import MetricGroup

#: the maximum number of checkpoints whose offsets wait for a commit; older ones are dropped
MAX_NUM_PENDING_CHECKPOINTS = 100
_DEFAULT_PATIENCE = 60_000
#: between two commits of a job without checkpoints, in milliseconds
COMMIT_INTERVAL = 5_000


class KafkaReader(SourceReader):
    """Reads partitions; its position has the offsets now and in pending checkpoints."""

    def __init__(self, source: KafkaSource, subtask: int, parallelism: int) -> None:
        """Connect when there is something to read."""
        self._source = source
        self._place = (subtask, parallelism)
        self._positions: dict[Split, SplitStart] = {}
        self._pending: dict[int, dict[Split, int]] = {}
        self._ends: Mapping[Split, int] = {}
        #: partitions that are paused
        self._paused: Collection[Hashable] = ()
        #: whether it has a plan
        self._planned = False
        self._fetcher: Fetcher | None = None
        #: does the reading if the reader runs free
        self._free: FreeFetcher | None = None
        #: whether the free one does not know the plan yet
        self._moved = False
        self._committed: dict[Split, int] = {}
        self._next_commit = 0.0

    def open(self, metrics: MetricGroup) -> None:
        """Register the metric of pending records."""
        metrics.gauge("pendingRecords", self._lag)
        errors = metrics.counter("numRecordsInErrors")
        self._decoder = self._source.create_decoder(errors)

    def run_free(self) -> None:
        """Read records as they arrive, up to the stopping offsets."""
        self._free = FreeFetcher(self._source.properties, self._patience)

    def restore(self, position: Any) -> None:
        """Restore the position of a reader of these partitions."""
        places, self._pending, self._planned = position
        self._positions = {split: SplitStart(*place) for split, place in places.items()}
        self._pending = dict(self._pending)
        self._moved = True

    def position(self) -> Any:
        """Return plain values, so that a saved position can be read without this class."""
        places = {split: tuple(place) for split, place in self._positions.items()}
        return places, self._pending, self._planned

    def follow(self, plan: KafkaPlan) -> None:
        """Take this subtask's share of the partitions in the plan."""
        subtask, parallelism = self._place
        mine = [split for split in plan.ends if owner(split, parallelism) == subtask]
        known = {**plan.starts, **self._positions}
        self._positions = {split: known[split] for split in mine if split in known}
        self._moved = self._moved or not self._planned or plan.ends != self._ends
        self._ends = plan.ends
        self._planned = True
        self._find_splits()

    def pause(self, splits: Collection[Hashable]) -> None:
        """Skip these partitions; the consumer still prefetches them."""
        self._paused = splits

    def read(self, limit: int) -> Iterator[SplitRecords]:
        """Return records up to the plan's ends; if it runs free, those that have arrived."""
        fetched = self._planned_ranges(limit) if self._free is None else self._come(limit)
        for split, messages, reached in fetched:
            batch = self._decoder.decode(split, messages)
            place = self._positions[split] = self._positions[split]._replace(offset=reached)
            if _has_ended(place):
                self._find_splits()
            yield batch

    def _come(self, limit: int) -> Iterator[Fetched]:
        """Return the records that the consumer has now."""
        assert self._free is not None
        if self._moved:
            self._free.follow(self._positions, self._ends)
            self._moved = False
        self._free.pause(self._paused)
        return self._free.read(limit)

    def _planned_ranges(self, limit: int) -> Iterator[Fetched]:
        """Return the ranges up to the plan's ends."""
        backlog = {
            s: (place.offset, self._end(s))
            for s, place in self._positions.items()
            if s not in self._paused
        }
        ranges = divide(backlog, limit)
        unfinished = self._fetcher is not None and self._fetcher.commits.unfinished
        if not (ranges or unfinished):
            return iter(())
        return self._connected().read(self.offsets(), ranges)

    @property
    def finished(self) -> bool:
        """Return whether all partitions have reached their stopping offsets."""
        if not (self._source.stops and self._planned):
            return False
        return all(map(_has_ended, self._positions.values()))

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Remember the offsets to commit when the checkpoint is complete."""
        if self._source.commits_on_checkpoints:
            self._pending[checkpoint_id] = self.offsets()
            while len(self._pending) > MAX_NUM_PENDING_CHECKPOINTS:
                del self._pending[min(self._pending)]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit its offsets, which cover those of earlier ones."""
        offsets = self._pending.get(checkpoint_id)
        self._pending = {n: o for n, o in self._pending.items() if n > checkpoint_id}
        if offsets:
            self.commit(offsets)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Drop its offsets; a later checkpoint covers them."""
        self._pending.pop(checkpoint_id, None)

    def notify_epoch_accepted(self) -> None:
        """Without checkpoints, commit periodically if that is configured."""
        if self._source.commits_periodically and time.monotonic() >= self._next_commit:
            interval = int(self._source.properties.get("auto.commit.interval.ms", COMMIT_INTERVAL))
            self._next_commit = time.monotonic() + interval / 1000
            self.commit(self.offsets())

    def close(self) -> None:
        for client in (self._fetcher, self._free):
            if client is not None:
                client.close()
        self._fetcher = self._free = None

    def commit(self, offsets: Mapping[Split, int]) -> None:
        """Commit changed offsets to the group; a failure does no harm, as the job has its own."""
        changed = {s: at for s, at in offsets.items() if self._committed.get(s) != at}
        if not changed:
            return
        client: SplitConsumer = self._free or self._connected()
        client.commits.ask(changed)
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
        """Return the current offset of each partition."""
        return {split: place.offset for split, place in self._positions.items()}

    def _find_splits(self) -> None:
        """Drop partitions that have ended, so that the watermark does not wait for them."""
        self.splits = tuple(s for s, place in self._positions.items() if not _has_ended(place))

    def _end(self, split: Split) -> int:
        stop, end = self._positions[split].stop, self._ends[split]
        return end if stop is None else min(end, stop)

    def _lag(self) -> int:
        """Return the number of records of the epoch's plan that are not read yet."""
        if self._free is not None:
            return self._free.lag()
        ends = self._ends
        return sum(max(ends.get(s, 0) - p.offset, 0) for s, p in self._positions.items())


def _has_ended(place: SplitStart) -> bool:
    return place.stop is not None and place.offset >= place.stop
