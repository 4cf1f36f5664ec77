"""Reads the sources of a resident subtask: some records of each in turn, as many as leave soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.datastream.columns.batch import AT_ONCE, count_rows
from holdfast.datastream.connectors.base import SplitRecords
from holdfast.runtime.event_time import StampingTime
from holdfast.runtime.fusion import Run as FusedRun
from holdfast.runtime.level import LevelOperators
from holdfast.runtime.operators.sources.source_instance import ReadRequest, SourceInstance
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.work import Work
from holdfast.runtime.worker.logs import at_work

#: maximum number of records that are passed to the functions at once
SLICE: Final = 1024
#: number of records to read from a source at once: maximum, and initial
_READ: Final = 4096
_READ_FIRST: Final = 256
#: in between, it is the number that is sent on in this many seconds, measured over the last second,
#: so that a subtask under backpressure reacts to checkpoints soon
_READ_SECONDS: Final = 0.1
_LAST: Final = 1.0
#: interval of polling a source that had no records, in seconds: at first, and later
_LOOK: Final = 0.001
_LOOK_LATER: Final = 0.01
#: number of polls without success after which the interval becomes longer
_MANY_LOOKS: Final = 500


class Intake:
    """The sources of one subtask, for one attempt.

    Attributes:
        ran_dry: a source returned fewer records than requested since this was last set to False.
    """

    def __init__(
        self,
        sources: Sequence[SourceInstance],
        operators: LevelOperators,
        feed: Callable[[Any, FusedRun], None],
        begin_sending: Callable[[], None],
    ) -> None:
        """Pass records to ``feed``; ``begin_sending`` is called before side outputs are emitted."""
        self.ran_dry = False
        self._sources = sources
        self._operators = operators
        self._feed = feed
        self._begin_sending = begin_sending
        #: how many records each source may still return before the next epoch
        self._quotas: dict[int, int] = {}
        self._ceilings: dict[str, int] = {}
        self._plans: dict[str, bytes] = {}
        self._at_once = _READ_FIRST
        in_batches = bool(sources) and all(source.gives_batches for source in sources)
        self._most = AT_ONCE if in_batches else _READ
        #: records that sources returned recently, and how long it took to send them on
        self._lately = self._lately_seconds = 0.0
        self._looks = 0
        #: whether a source must be polled because it cannot signal that there is more to read
        self._polls = any(not source.is_loop for source in sources)
        for source in sources:
            source.run_free()

    def begin_epoch(self, task: EpochTask) -> None:
        """Start an epoch with the quota and the ceilings of its task."""
        self._ceilings = task.ceilings
        self._quotas = {source.operator.id: task.quota for source in self._sources}

    def follow(self, plans: dict[str, bytes]) -> None:
        """Pass the plans of planners to the sources, if they are new."""
        for source in self._sources:
            uid = source.operator.uid
            plan = plans.get(uid)
            if plan is not None and plan != self._plans.get(uid):
                self._plans[uid] = plan
                source.follow(plan)

    @property
    def may_read(self) -> bool:
        """Return whether a source has quota left."""
        return any(self._quotas.values())

    @property
    def awaits(self) -> bool:
        """Return whether all sources ring the bell when there is more to read."""
        return bool(self._sources) and all(source.awaits for source in self._sources)

    @property
    def finished(self) -> bool:
        """Return whether all sources have ended."""
        return all(source.finished for source in self._sources)

    def next_look(self) -> float | None:
        """Return in how many seconds to poll again after nothing was found; None: never."""
        if not self._polls:
            return None
        self._looks += 1
        return _LOOK if self._looks < _MANY_LOOKS else _LOOK_LATER

    def read(self, work: Work) -> bool:
        """Read some records of each source; return whether there were any."""
        # NB: all of them, not only the first that has records
        found = [
            self._read(source, min(self._at_once, self._quotas[source.operator.id]), work)
            for source in self._sources
        ]
        if any(found):
            self._looks = 0
        return any(found)

    def halt_loops(self, halts: bool, work: Work) -> None:
        """Pause the loops of source functions until their snapshot."""
        for source in self._sources:
            if source.is_loop:
                self._read(source, _READ, work, barrier=True, halts=halts)

    def end(self) -> None:
        """End all sources, because the job is drained."""
        for source in self._sources:
            source.end()

    def _read(
        self,
        source: SourceInstance,
        limit: int,
        work: Work,
        barrier: bool = False,
        halts: bool = False,
    ) -> bool:
        number = source.operator.id
        ceiling = self._ceilings.get(source.operator.uid)
        if ceiling is not None:
            limit = self._aligned_limit(source, ceiling, limit)
        request = ReadRequest(-1, limit, barrier, halts=halts)
        flow = work.read[number]
        before = flow.records
        started = time.perf_counter()
        for records in source.read(request):
            flow.records += count_rows(records)
            if isinstance(records, SplitRecords):
                flow.records += len(records.aside)
                self._begin_sending()
                self._operators.turn_to(number, records)
            self._feed(records, self._operators.inputs[number, 0])
        if source.splits is not None:
            self._operators.keep_splits(number, source.splits)
        read = flow.records - before
        if read:
            self.ran_dry = self.ran_dry or read < limit
            seconds = time.perf_counter() - started
            self._adapt(read, seconds)
            flow.seconds += seconds
            work.records_read += read
            self._quotas[number] = max(0, self._quotas[number] - read)
        return read > 0

    def _adapt(self, read: int, seconds: float) -> None:
        """Adapt the number of records to read at once to the time that the last ones took."""
        self._lately += read
        self._lately_seconds += seconds
        if self._lately_seconds > _LAST:
            self._lately /= 2
            self._lately_seconds /= 2
        wanted = int(self._lately * _READ_SECONDS / max(self._lately_seconds, 1e-6))
        self._at_once = max(1, min(self._most, 2 * self._at_once, wanted))

    def _aligned_limit(self, source: SourceInstance, ceiling: int, limit: int) -> int:
        """Hold back the splits whose watermark exceeds the ceiling of their group."""
        instance = self._operators.instances[source.operator.id]
        stamping = instance.time
        assert isinstance(stamping, StampingTime)
        with at_work(instance.report):
            stamping.generate()
        ahead, splits = stamping.hold(ceiling)
        source.pause(splits)
        return 0 if ahead else min(limit, SLICE)
