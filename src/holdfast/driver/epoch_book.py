"""What the driver knows about a job between epochs: state heads, read quota, whether it has ended.

Pure: acknowledgements in, decisions out. Spark and the in-process run both use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.driver.quota import FIRST_QUOTA, Quota
from holdfast.driver.watermark_alignment import WatermarkGroups
from holdfast.errors import DisagreementError, InternalError
from holdfast.history.events import EpochEnded
from holdfast.plan.model import Plan
from holdfast.runtime.network.addresses import Location
from holdfast.runtime.wire.protocol import Acknowledgement, EpochTask, Origin, StoredState
from holdfast.state.format.catalog import SavedState, merged
from holdfast.state.format.head import Head


class Barrier(NamedTuple):
    """What an epoch carries: the checkpoint at its end, if any, and notifications for listeners.

    Attributes:
        savepoint: the checkpoint is written as a savepoint.
        drains: before the checkpoint, sources end and the watermark advances to its maximum.
        halts: nothing is read after the checkpoint until the next epoch says otherwise.
        awaited: a caller waits for the checkpoint.
    """

    checkpoint: int | None = None
    timestamp: int = 0
    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    savepoint: bool = False
    drains: bool = False
    halts: bool = False
    awaited: bool = False


@dataclass
class EpochBook:
    """The state of the driver between two epochs.

    Attributes:
        largest_quota: the maximum number of records that a source subtask reads in one epoch.
        adapts: how the quota adapts to how long epochs take; None: it is always the maximum.
        closes_at_end, takes_checkpoints: the same fields of `EpochTask`.
    """

    job: str
    plan: Plan
    largest_quota: int = 4_000_000
    adapts: Quota | None = field(default_factory=Quota)
    closes_at_end: bool = True
    takes_checkpoints: bool = False
    attempt: int = 0
    quota: int = FIRST_QUOTA
    #: the head of every subtask's state, by level
    heads: list[list[Head]] = field(init=False)
    #: the location of every subtask, by level, as far as it is known
    homes: list[list[Location | None]] = field(init=False)
    #: users' metrics of the last epoch, by (operator uid, subtask)
    metrics: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    #: the watermark at the end of the last epoch, by (operator uid, subtask)
    watermarks: dict[tuple[str, int], int] = field(default_factory=dict)
    #: the operators that were idle at that time
    idle: set[tuple[str, int]] = field(default_factory=set)
    finished: bool = False
    #: the checkpoint that this attempt started from
    origin: Origin | None = None
    #: whether no epoch of this attempt has been accepted yet
    unproven: bool = True
    #: the operators that had state at the last barrier
    stateful: frozenset[str] = frozenset()
    #: the states that they had, by operator uid
    states: dict[str, tuple[SavedState, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start with empty state in every subtask."""
        self._clear()
        self._groups = WatermarkGroups(self.plan)
        self.quota = self._first_quota

    @property
    def _first_quota(self) -> int:
        first = self.largest_quota if self.adapts is None else self.adapts.first
        return min(first, self.largest_quota)

    def _clear(self) -> None:
        self.heads = [[Head()] * level.parallelism for level in self.plan.levels]
        self.homes = [[None] * level.parallelism for level in self.plan.levels]
        self.metrics, self.watermarks, self.idle = {}, {}, set()
        self.finished, self.unproven = False, True

    def begin_attempt(self, attempt: int, origin: Origin | None, continues: bool = True) -> None:
        """Return to a checkpoint, or to the beginning if ``origin`` is None.

        ``continues``: the heads of the checkpoint were written by the same subtasks, which continue
        with them. Otherwise subtasks read their share of the checkpoint and write files of their
        own.
        """
        self._clear()
        self.attempt = attempt
        self.origin = origin
        self.quota = self._first_quota
        if origin is not None and continues:
            self.heads = [list(level) for level in origin.levels]

    def tasks(
        self,
        epoch: int,
        barrier: Barrier = Barrier(),  # noqa: B008
        plans: Mapping[str, bytes] = MappingProxyType({}),
        closing: bool = False,
    ) -> list[EpochTask]:
        """Return the task of each level for an epoch (step 1); ``plans`` go to the sources."""
        ceilings = self._groups.ceilings(self.watermarks, self.idle)
        return [
            EpochTask(
                job=self.job,
                attempt=self.attempt,
                epoch=epoch,
                level=level.index,
                heads=tuple(self.heads[level.index]),
                quota=self.quota,
                closing=closing,
                draining=barrier.drains,
                closes_at_end=self.closes_at_end,
                takes_checkpoints=self.takes_checkpoints,
                restored=self.origin is not None,
                origin=self.origin if self.unproven else None,
                checkpoint=barrier.checkpoint,
                checkpoint_timestamp=barrier.timestamp,
                savepoint=barrier.savepoint,
                completed=barrier.completed,
                aborted=barrier.aborted,
                plans=dict(plans) if level.index == 0 else {},
                ceilings=ceilings if level.index == 0 else {},
                halts=barrier.halts or closing,
                homes=tuple(self.homes[level.index]) if any(self.homes[level.index]) else (),
            )
            for level in self.plan.levels
        ]

    def accept(
        self, epoch: int, acks: Iterable[Acknowledgement], started: float, seconds: float
    ) -> tuple[EpochEnded, list[str]]:
        """Make an epoch part of the job (step 8); return its event, and files that no head needs.

        Raises:
            DisagreementError: when subtasks consumed different runs of a producer. The epoch must
                be run again from the heads before it.
            InternalError: when not every subtask acknowledged exactly once.
        """
        by_place = self._by_place(acks)
        _check_agreement(by_place)
        unneeded = self._advance(by_place)
        ended = self._ended(epoch, by_place, started, seconds)
        self._adapt_quota(by_place, seconds)
        self.finished = all(ack.finished for ack in by_place.values())
        self.unproven = False
        self.stateful = frozenset(uid for ack in by_place.values() for uid in ack.stateful)
        self.states = _states(by_place.values())
        return ended, unneeded

    def take(self, state: StoredState) -> list[str]:
        """Move the head of a subtask to a stored state; return files that it needs no longer."""
        if state.failure is not None:
            return []
        return self._move_head(state.level, state.subtask, state.head)

    def _by_place(self, acks: Iterable[Acknowledgement]) -> dict[tuple[int, int], Acknowledgement]:
        by_place: dict[tuple[int, int], Acknowledgement] = {}
        for ack in acks:
            if (ack.level, ack.subtask) in by_place:
                raise DisagreementError(f"subtask {ack.level}/{ack.subtask} acknowledged twice")
            by_place[ack.level, ack.subtask] = ack
        expected = {(lv.index, i) for lv in self.plan.levels for i in range(lv.parallelism)}
        if set(by_place) != expected:
            missing = sorted(expected - set(by_place))
            raise InternalError(f"no acknowledgement from {missing} (level, subtask)")
        return by_place

    def _advance(self, acks: dict[tuple[int, int], Acknowledgement]) -> list[str]:
        unneeded: list[str] = []
        for (level, subtask), ack in acks.items():
            unneeded += self._move_head(level, subtask, ack.head)
            self.homes[level][subtask] = ack.home
            for uid, values in ack.metrics.items():
                self.metrics[uid, subtask] = values
            for uid, time in ack.watermarks.items():
                self.watermarks[uid, subtask] = time
        self.idle = {(uid, ack.subtask) for ack in acks.values() for uid in ack.idle}
        return unneeded

    def _move_head(self, level: int, subtask: int, head: Head) -> list[str]:
        """Move a head, but never back; return the files that it needs no longer.

        A subtask may acknowledge with an older head while its newest state is still on its way.
        """
        before = self.heads[level][subtask]
        if head.until < before.until:
            return []
        self.heads[level][subtask] = head
        known = {ref.name for ref in before.all_files}
        return sorted(known - {ref.name for ref in head.all_files})

    def _ended(
        self,
        epoch: int,
        acks: dict[tuple[int, int], Acknowledgement],
        started: float,
        seconds: float,
    ) -> EpochEnded:
        steps: dict[str, float] = {}
        for ack in acks.values():
            for step, took in ack.seconds.items():
                steps[step] = max(took, steps.get(step, 0.0))
        memory = {ack.process: ack.rss for ack in acks.values()}
        return EpochEnded(
            epoch=epoch,
            started=round(1000 * started),
            seconds=seconds,
            # the records that level 0 receives from elsewhere are the rows of DataFrames
            read=sum(
                ack.records_read + (ack.records_in if ack.level == 0 else 0)
                for ack in acks.values()
            ),
            records=sum(ack.records_in + ack.records_read for ack in acks.values()),
            quota=self.quota,
            steps=steps,
            memory=sum(memory.values()),
            state=sum(ack.head.size for ack in acks.values()),
            processes=memory,
        )

    def _adapt_quota(self, acks: dict[tuple[int, int], Acknowledgement], seconds: float) -> None:
        if self.adapts is not None:
            saturated = any(ack.saturated for ack in acks.values())
            self.quota = self.adapts.after(self.quota, seconds, saturated)
            self.quota = min(self.quota, self.largest_quota)


def _states(acks: Iterable[Acknowledgement]) -> dict[str, tuple[SavedState, ...]]:
    found: dict[str, list[SavedState]] = {}
    for ack in acks:
        for uid, states in ack.states.items():
            found.setdefault(uid, []).extend(states)
    return {uid: merged(states) for uid, states in found.items()}


def _check_agreement(acks: dict[tuple[int, int], Acknowledgement]) -> None:
    """Check that all consumers read the same run of each producer: the acknowledged one.

    When an executor is lost, Spark may compute a stage again after part of its output was read. If
    the second run differs from the first, records of both must not become state.
    """
    stamps = {f"{level}/{subtask}": ack.stamp for (level, subtask), ack in acks.items()}
    for ack in acks.values():
        for producer, stamp in ack.consumed.items():
            if stamps.setdefault(producer, stamp) != stamp:
                raise DisagreementError(
                    f"subtask {ack.level}/{ack.subtask} read run {stamp} of its producer "
                    f"{producer}, others read run {stamps[producer]}"
                )
