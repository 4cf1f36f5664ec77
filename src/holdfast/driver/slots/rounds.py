"""The messages that the slots of an attempt have sent to the driver, and what follows from them.

Pure: messages in, outcomes out. It has neither connections nor a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.driver.outcome import EpochOutcome, LostSlotError, sort_out
from holdfast.runtime.failures import to_exception
from holdfast.runtime.resident.messages import (
    Frame,
    Hello,
    Round,
    Say,
    decode_progress,
    pack_round,
)
from holdfast.runtime.wire.blocks import Block, Kind, decode_header
from holdfast.runtime.wire.protocol import (
    EpochTask,
    Progress,
    StoredState,
    decode_failure,
    decode_stored_state,
)
from holdfast.runtime.worker.log_lines import LogLine

#: rounds become less frequent after this many seconds without a record
_IDLE: Final = 1.0
#: the pause is then this fraction of the time without a record, but at most the longest pause
_PART: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
#: In a round each subtask sends a mark to all subtasks of the next level. From this many subtasks
#: on, the pause between rounds is a number of seconds per subtask, chosen such that marks take
#: about a fifth of a slot's time.
_MANY_SUBTASKS: Final = 100
_PAUSE_OF_MARKS: Final = 0.00075


class Rounds:
    """The rounds of one attempt.

    Attributes:
        ready: the slots that are connected to all others.
        failure: why the attempt cannot continue; None while it can.
        carried: whether the last round carried a record, or sources wait for the next round.
    """

    def __init__(self, job: str, attempt: int, subtasks: int) -> None:
        """Expect the slots of an attempt, which have ``subtasks`` subtasks in total."""
        self.ready: set[int] = set()
        self.failure: BaseException | None = None
        self._job = job
        self._attempt = attempt
        self._subtasks = subtasks
        #: what subtasks have sent in the current round
        self._blocks: list[Block] = []
        self._acknowledged = 0
        self._results: list[tuple[int, Block]] = []
        self._log: list[Block] = []
        #: what subtasks have reported in a long round
        self._progress: list[Progress] = []
        self._stored: list[StoredState] = []
        #: how many states are being stored, and whether a state that arrived has failed
        self._storing = 0
        self._storing_failed = False
        self._rounds = 0
        self.carried = True
        #: sources wait for the driver, which aligns their event time
        self._aligns_sources = False
        self._ended_inputs = 0
        self._news = False

    def admits(self, hello: Hello) -> bool:
        """Return whether a slot belongs to the attempt."""
        return (hello.job, hello.attempt) == (self._job, self._attempt)

    def begin(self, tasks: Sequence[EpochTask]) -> Round:
        """Begin a round; return the message for all slots."""
        if self._rounds:  # only the first round sends heads: later, the subtasks have their state
            tasks = [replace(task, heads=(), origin=None) for task in tasks]
        self._rounds += 1
        self._aligns_sources = any(task.ceilings for task in tasks)
        self._blocks, self._acknowledged = [], 0
        self._progress = []
        return pack_round(tasks)

    @property
    def ended(self) -> bool:
        """Return whether every subtask has acknowledged the round."""
        return self._acknowledged >= self._subtasks

    @property
    def has_stored(self) -> bool:
        """Return whether all states that are being stored have arrived, or one has failed.

        That is when a checkpoint can end. A single state is not reported, since that would begin a
        round each time.
        """
        return bool(self._stored) and (self._storing <= 0 or self._storing_failed)

    def take_news(self) -> bool:
        """Return, once, whether the next round should begin now.

        It should when the first round has ended, because sources wait for that, and when all input
        has ended.
        """
        news, self._news = self._news, False
        return news

    def take_outcome(self) -> EpochOutcome:
        """Return what the subtasks have sent in this round."""
        blocks, self._blocks = self._blocks, []
        self._news = self._news or self._rounds == 1
        outcome = sort_out(blocks)
        self._storing += sum(ack.storing for ack in outcome.acks)
        self.carried = self._aligns_sources or any(
            ack.records_read or ack.records_in or ack.records_out for ack in outcome.acks
        )
        return outcome

    def pause(self, interval: float, idle: float) -> float:
        """Return how long to wait for the next round, in seconds.

        The pause is longer in a job without data and in one with many subtasks. ``interval`` is the
        pause of other jobs, ``idle`` the time without a record.
        """
        if self._subtasks >= _MANY_SUBTASKS:
            interval = max(interval, _PAUSE_OF_MARKS * self._subtasks)
        return interval if idle < _IDLE else max(interval, min(_LONGEST_PAUSE, _PART * idle))

    def take_results(self) -> tuple[list[Block], dict[int, int]]:
        """Return the results that have arrived, and the bytes of them that came from each slot."""
        results, self._results = self._results, []
        taken: dict[int, int] = {}
        for number, block in results:
            taken[number] = taken.get(number, 0) + len(block.data)
        return [block for _, block in results], taken

    def take_log(self) -> list[list[LogLine]]:
        """Return what functions have logged."""
        blocks, self._log = self._log, []
        return sort_out(blocks).log if blocks else []

    def take_progress(self) -> list[Progress]:
        """Return what subtasks have done so far in this round, if it takes long."""
        progress, self._progress = self._progress, []
        return progress

    def take_stored(self) -> list[StoredState]:
        """Return the states that were stored."""
        stored, self._stored = self._stored, []
        self._storing_failed = False
        return stored

    def take(self, number: int, message: Frame | BaseException) -> None:
        """Handle a message of a slot, or the reason why there are no more."""
        if isinstance(message, BaseException):
            self._fail(message)
        elif message.kind == Say.BLOCK:
            self._take_block(number, Block(decode_header(message.head), message.data))
        elif message.kind == Say.STORED:
            self._take_state(decode_stored_state(message.data))
        elif message.kind == Say.PROGRESS:
            self._progress.extend(decode_progress(message.data))
        elif message.kind == Say.READY:
            self.ready.add(number)
        elif message.kind == Say.LOST:
            self._fail(LostSlotError(bytes(message.data).decode()))

    def _take_state(self, state: StoredState) -> None:
        self._stored.append(state)
        self._storing -= 1
        self._storing_failed = self._storing_failed or state.failure is not None

    def _take_block(self, number: int, block: Block) -> None:
        kind = block.header.kind
        if kind == Kind.RESULT:
            self._results.append((number, block))
        elif kind == Kind.LOG:
            self._log.append(block)
        elif kind == Kind.ENDED:
            self._ended_inputs += 1
            self._news = self._news or self._ended_inputs == self._subtasks
        elif kind == Kind.FAILURE:
            self._blocks.append(block)
            self._fail(to_exception(decode_failure(block.data)))
        else:
            self._blocks.append(block)
            self._acknowledged += kind == Kind.ACKNOWLEDGEMENT

    def _fail(self, failure: BaseException) -> None:
        """Record why the attempt has failed; only the first failure counts."""
        if self.failure is None:
            self.failure = failure
