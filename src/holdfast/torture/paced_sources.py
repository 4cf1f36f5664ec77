"""Sources that read at the pace of a run."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

from holdfast.datastream.columns.batch import count_rows
from holdfast.datastream.connectors.base import EpochPlanner, Source, SourceReader
from holdfast.metrics import MetricGroup
from holdfast.torture.agent import ensure_agent
from holdfast.torture.pacing import Pace
from holdfast.torture.shares import FirstRecords, RecordShare

__all__ = ["paced"]


def paced(source: Source, run: str, name: str, first: FirstRecords | None = None) -> Source:
    """Return a source that reads the same at the pace of a run.

    Args:
        source: of the user's program.
        run: the directory of the run.
        name: of the source, in the names of files.
        first: which records are read; None: all.
    """
    # NB: with another number of subtasks, the first records of each would be others
    movable = type(source).redistribute is not Source.redistribute and first is None
    return (PacedSource if movable else FixedPacedSource)(source, run, name, first)


class FixedPacedSource(Source):
    """A source at a pace, whose parallelism is fixed."""

    def __init__(self, source: Source, run: str, name: str, first: FirstRecords | None) -> None:
        """Take what `paced` is given."""
        self._source = source
        self._run = run
        self._name = name
        self._first = first
        # NB: the planner of the job asks for it
        self.gives_timestamps = bool(getattr(source, "gives_timestamps", False))
        self.batch_type = source.batch_type

    @property
    def parallelism_limit(self) -> int | None:
        """Return that of the source."""
        return self._source.parallelism_limit

    @property
    def listens(self) -> bool:
        """Return that of the source."""
        return self._source.listens

    @property
    def side_outputs(self) -> bool:
        """Return that of the source."""
        return self._source.side_outputs

    def create_planner(self, restored: bool) -> EpochPlanner | None:
        """Return that of the source."""
        return self._source.create_planner(restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return a reader of the source, at the pace of the run."""
        ensure_agent(self._run)
        pace = Pace(self._run, f"{self._name}-{subtask}")
        share = None if self._first is None else self._first.share(subtask, parallelism)
        return PacedReader(self._source.create_reader(subtask, parallelism), pace, share)


class PacedSource(FixedPacedSource):
    """A source at a pace, whose parallelism can change."""

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Return the positions of the source, with shares of what was read in all."""
        inner = self._source.redistribute([position for position, _ in positions], parallelism)
        total = sum(count for _, count in positions)
        shares = [total // parallelism + (n < total % parallelism) for n in range(parallelism)]
        return list(zip(inner, shares, strict=True))


class PacedReader(SourceReader):
    """Reads as another reader does, at a pace."""

    def __init__(self, reader: SourceReader, pace: Pace, share: RecordShare | None) -> None:
        """Read from another reader: all records, or a share of them."""
        self._reader = reader
        self._pace = pace
        self._share = share

    @property
    def splits(self) -> Collection[Hashable] | None:  # type: ignore[override]
        """Return those of the reader."""
        return self._reader.splits

    def open(self, metrics: MetricGroup) -> None:
        """Pass it on, as the next ones do."""
        self._reader.open(metrics)

    def run_free(self) -> None:
        """Pass it on."""
        self._reader.run_free()

    def follow(self, plan: Any) -> None:
        """Pass it on."""
        self._reader.follow(plan)

    def pause(self, splits: Collection[Hashable]) -> None:
        """Pass it on."""
        self._reader.pause(splits)

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Pass it on."""
        self._reader.snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Pass it on."""
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Pass it on."""
        self._reader.notify_checkpoint_aborted(checkpoint_id)

    def notify_epoch_accepted(self) -> None:
        """Pass it on."""
        self._reader.notify_epoch_accepted()

    def restore(self, position: Any) -> None:
        """Go to a position, with what was read before it."""
        inner, self._pace.count = position
        self._reader.restore(inner)

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        """Yield as much as the pace and the share allow now."""
        for bound in (self._pace.room(), self._left()):
            limit = limit if bound is None else min(limit, bound)
        if limit > 0:
            for batch in self._reader.read(limit):
                self._pace.take(count_rows(batch))
                yield batch
                if self._left() == 0:  # the reader might give more than it was asked for
                    break
        self._pace.note(at_once=self._is_read())

    def _left(self) -> int | None:
        return None if self._share is None else self._share.left(self._pace.count)

    def _is_read(self) -> bool:
        ended = self._reader.finished
        return ended if self._share is None else self._share.is_read(self._pace.count, ended)

    def position(self) -> Any:
        """Return the position, with what was read before it."""
        return self._reader.position(), self._pace.count

    @property
    def finished(self) -> bool:
        """Return whether there will never be another record, and the run may end."""
        return self._is_read() and not self._pace.held

    def close(self) -> None:
        """Pass it on."""
        self._reader.close()
