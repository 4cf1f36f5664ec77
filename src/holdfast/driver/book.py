"""The driver's book of a job: the heads of all states, what an epoch may read, when the job ends.

Pure: acknowledgements in, decisions out. Spark and the in-process run use it alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.driver.alignment import WatermarkGroups
from holdfast.errors import DisagreementError, InternalError
from holdfast.plan.model import Plan
from holdfast.runtime.protocol import Acknowledgement, EpochTask, Origin, StoredState
from holdfast.state.catalog import SavedState, merged
from holdfast.state.chain import Chain

FIRST_QUOTA = 20_000
_SHORT_EPOCH = 3.0
_LONG_EPOCH = 6.0


@dataclass(frozen=True)
class EpochReport:
    """What one epoch did, for people and benchmarks.

    Attributes:
        started: when its Spark job was, in seconds.
        seconds: how long that took: steps 2 to 7 of the protocol.
        read: records that the sources gave.
        steps: how long each step took: on the driver, or the longest time of any subtask.
        memory: resident bytes of each worker process.
    """

    epoch: int
    started: float
    seconds: float
    read: int
    records: int
    quota: int
    steps: dict[str, float]
    memory: dict[int, int]
    state_bytes: int


class Barrier(NamedTuple):
    """What an epoch carries: the checkpoint at its end, if any, and what listeners are told.

    Attributes:
        drains: before the checkpoint, sources end and time goes to its end.
        halts: nothing is read after it, until the next epoch says otherwise.
        awaited: somebody waits for the checkpoint.
    """

    checkpoint: int | None = None
    timestamp: int = 0
    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    drains: bool = False
    halts: bool = False
    awaited: bool = False


class Manner(NamedTuple):
    """How an epoch is run; see ``EpochTask``."""

    closing: bool = False
    closes_at_end: bool = True
    takes_checkpoints: bool = False


@dataclass
class EpochBook:
    """The state of the driver between two epochs.

    Attributes:
        largest_quota: the bound for what a source subtask reads in one epoch.
        adapts: an epoch may read less, if it takes long.
    """

    job: str
    plan: Plan
    largest_quota: int = 4_000_000
    adapts: bool = True
    attempt: int = 0
    quota: int = FIRST_QUOTA
    #: the head of every subtask's state, by level
    chains: list[list[Chain]] = field(init=False)
    #: users' metrics of the last epoch, by (operator uid, subtask)
    metrics: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    #: how far time was at the end of the last epoch, by (operator uid, subtask)
    watermarks: dict[tuple[str, int], int] = field(default_factory=dict)
    #: the operators that were idle then
    idle: set[tuple[str, int]] = field(default_factory=set)
    finished: bool = False
    #: the checkpoint that this attempt began with
    origin: Origin | None = None
    #: whether no epoch of this attempt has been accepted yet
    unproven: bool = True
    #: the operators that had state at the last barrier
    stateful: frozenset[str] = frozenset()
    #: the states that they had, by operator uid
    states: dict[str, tuple[SavedState, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Every subtask starts without state."""
        self._clear()
        self._groups = WatermarkGroups(self.plan)
        self.quota = self._first_quota

    @property
    def _first_quota(self) -> int:
        return min(FIRST_QUOTA, self.largest_quota) if self.adapts else self.largest_quota

    def _clear(self) -> None:
        self.chains = [[Chain()] * level.parallelism for level in self.plan.levels]
        self.metrics, self.watermarks, self.idle = {}, {}, set()
        self.finished, self.unproven = False, True

    @property
    def fresh(self) -> bool:
        """Whether no epoch has become part of the job yet, in this run of it or an earlier one."""
        return self.unproven and self.origin is None

    def begin_attempt(self, attempt: int, origin: Origin | None, continues: bool = True) -> None:
        """Go back to a checkpoint; None: to the beginning.

        ``continues``: its chains are those of this job's own subtasks, and go on. Otherwise the
        subtasks take what is theirs out of it and begin chains of their own.
        """
        self._clear()
        self.attempt = attempt
        self.origin = origin
        self.quota = self._first_quota
        if origin is not None and continues:
            self.chains = [list(level) for level in origin.levels]

    def tasks(
        self,
        epoch: int,
        barrier: Barrier = Barrier(),  # noqa: B008
        manner: Manner = Manner(),  # noqa: B008
        plans: Mapping[str, bytes] = MappingProxyType({}),
    ) -> list[EpochTask]:
        """What each level is told for an epoch (step 1); sources, which are in the first, plans."""
        ceilings = self._groups.ceilings(self.watermarks, self.idle)
        return [
            EpochTask(
                job=self.job,
                attempt=self.attempt,
                epoch=epoch,
                level=level.index,
                chains=tuple(self.chains[level.index]),
                quota=self.quota,
                closing=manner.closing,
                draining=barrier.drains,
                closes_at_end=manner.closes_at_end,
                takes_checkpoints=manner.takes_checkpoints,
                restored=self.origin is not None,
                origin=self.origin if self.unproven else None,
                checkpoint=barrier.checkpoint,
                checkpoint_timestamp=barrier.timestamp,
                completed=barrier.completed,
                aborted=barrier.aborted,
                plans=dict(plans) if level.index == 0 else {},
                ceilings=ceilings if level.index == 0 else {},
                halts=barrier.halts or manner.closing,
            )
            for level in self.plan.levels
        ]

    def accept(
        self, epoch: int, acks: Iterable[Acknowledgement], started: float, seconds: float
    ) -> tuple[EpochReport, list[str]]:
        """Make an epoch part of the job (step 8); returns a report, and files nobody needs now.

        Raises:
            DisagreementError: when subtasks consumed different runs of a producer: the epoch must
                be run again from the heads before it.
            InternalError: when not every subtask acknowledged exactly once.
        """
        by_place = self._by_place(acks)
        _check_agreement(by_place)
        unneeded = self._advance(by_place)
        report = self._report(epoch, by_place, started, seconds)
        self._adapt_quota(by_place, seconds)
        self.finished = all(ack.finished for ack in by_place.values())
        self.unproven = False
        self.stateful = frozenset(uid for ack in by_place.values() for uid in ack.stateful)
        self.states = _states(by_place.values())
        return report, unneeded

    def take(self, state: StoredState) -> list[str]:
        """Move the head of a subtask to a state that was stored; returns files nobody needs now."""
        if state.failure is not None:
            return []
        return self._move_head(state.level, state.subtask, state.chain)

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
            unneeded += self._move_head(level, subtask, ack.chain)
            for uid, values in ack.metrics.items():
                self.metrics[uid, subtask] = values
            for uid, time in ack.watermarks.items():
                self.watermarks[uid, subtask] = time
        self.idle = {(uid, ack.subtask) for ack in acks.values() for uid in ack.idle}
        return unneeded

    def _move_head(self, level: int, subtask: int, chain: Chain) -> list[str]:
        """Move a head, and never back: a subtask may acknowledge while its newest state comes."""
        head = self.chains[level][subtask]
        if chain.until < head.until:
            return []
        self.chains[level][subtask] = chain
        before = {ref.name for ref in head.all_files}
        return sorted(before - {ref.name for ref in chain.all_files})

    def _report(
        self,
        epoch: int,
        acks: dict[tuple[int, int], Acknowledgement],
        started: float,
        seconds: float,
    ) -> EpochReport:
        steps: dict[str, float] = {}
        for ack in acks.values():
            for step, took in ack.seconds.items():
                steps[step] = max(took, steps.get(step, 0.0))
        return EpochReport(
            epoch=epoch,
            started=started,
            seconds=seconds,
            # what level 0 gets from elsewhere are the rows of DataFrames
            read=sum(
                ack.records_read + (ack.records_in if ack.level == 0 else 0)
                for ack in acks.values()
            ),
            records=sum(ack.records_in + ack.records_read for ack in acks.values()),
            quota=self.quota,
            steps=steps,
            memory={ack.process: ack.rss for ack in acks.values()},
            state_bytes=sum(ack.chain.size for ack in acks.values()),
        )

    def _adapt_quota(self, acks: dict[tuple[int, int], Acknowledgement], seconds: float) -> None:
        """Larger epochs under load, so that the fixed cost of an epoch counts for less."""
        if not self.adapts:
            return
        if seconds > _LONG_EPOCH:
            self.quota = max(FIRST_QUOTA, self.quota // 2)
        elif seconds < _SHORT_EPOCH and any(ack.saturated for ack in acks.values()):
            self.quota = self.quota * 2 if seconds > _SHORT_EPOCH / 2 else self.quota * 4
        self.quota = min(self.quota, self.largest_quota)


def _states(acks: Iterable[Acknowledgement]) -> dict[str, tuple[SavedState, ...]]:
    found: dict[str, list[SavedState]] = {}
    for ack in acks:
        for uid, states in ack.states.items():
            found.setdefault(uid, []).extend(states)
    return {uid: merged(states) for uid, states in found.items()}


def _check_agreement(acks: dict[tuple[int, int], Acknowledgement]) -> None:
    """Every consumer must have read the same run of each producer: the one that acknowledged.

    Spark may compute a stage again after part of it was read, when an executor is lost. If the
    second run differs from the first, what was read of both may not become state.
    """
    stamps = {f"{level}/{subtask}": ack.stamp for (level, subtask), ack in acks.items()}
    for ack in acks.values():
        for producer, stamp in ack.consumed.items():
            if stamps.setdefault(producer, stamp) != stamp:
                raise DisagreementError(
                    f"subtask {ack.level}/{ack.subtask} read run {stamp} of its producer "
                    f"{producer}, others read run {stamps[producer]}"
                )
