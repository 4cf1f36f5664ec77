"""Checkpoints whose state is being stored while the stream continues.

The subtasks of some engines acknowledge a barrier before their state is written, and send a
`StoredState` when it is. The checkpoint can be completed only when all of these have arrived. Until
then, this module keeps what its metadata needs. Pure: it reads and writes no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from holdfast.checkpoint.events import SubtaskAcknowledged, WriteMetadata
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage, OperatorImage
from holdfast.runtime.wire.protocol import Acknowledgement, StoredState
from holdfast.state.format.head import Head
from holdfast.state.names import StateId

#: a subtask: its level and its number
_Place = tuple[int, int]


@dataclass
class PendingCheckpoint:
    """An accepted checkpoint whose state is not stored yet.

    Attributes:
        order: the instruction of the coordinator.
        image: the metadata as of its epoch, with the previous heads of states being stored.
        acknowledged: when each subtask acknowledged the barrier.
        missing: the subtasks whose state has not arrived.
        stored: the states that have arrived.
    """

    order: WriteMetadata
    image: CheckpointMetadata
    acknowledged: tuple[SubtaskAcknowledged, ...]
    missing: set[_Place]
    stored: dict[_Place, StoredState] = field(default_factory=dict)

    @property
    def failure(self) -> str | None:
        """Return why the checkpoint cannot be completed; None if no state has failed."""
        for place, state in self.stored.items():
            if state.failure is not None:
                return f"the state of {self._name(place)} could not be stored: {state.failure}"
        return None

    def _name(self, place: _Place) -> str:
        names = (ack.name for ack in self.acknowledged if (ack.level, ack.subtask) == place)
        return next(names, f"subtask {place[0]}/{place[1]}")

    def take(self, state: StoredState) -> None:
        """Record a state that was stored, or could not be stored."""
        place = state.level, state.subtask
        self.missing.discard(place)
        self.stored[place] = state

    def metadata(self) -> CheckpointMetadata:
        """Return the metadata, with the heads of all states."""
        levels = (
            LevelImage(level.parallelism, tuple(self._heads(number, level)))
            for number, level in enumerate(self.image.levels)
        )
        pickled = {each for state in self.stored.values() for each in state.pickled}
        operators = {
            uid: _with_pickles(uid, image, pickled) for uid, image in self.image.operators.items()
        }
        return msgspec.structs.replace(self.image, levels=tuple(levels), operators=operators)

    def _heads(self, number: int, level: LevelImage) -> Iterator[Head]:
        for subtask, head in enumerate(level.heads):
            state = self.stored.get((number, subtask))
            yield head if state is None or state.failure is not None else state.head

    def acknowledgements(self) -> tuple[SubtaskAcknowledged, ...]:
        """Return the time when each subtask had stored its state."""
        return tuple(replace(ack, time=self._time(ack)) for ack in self.acknowledged)

    def _time(self, ack: SubtaskAcknowledged) -> int | None:
        place = ack.level, ack.subtask
        if place in self.missing:
            return None
        return self.stored[place].stored if place in self.stored else ack.time


def _with_pickles(uid: str, image: OperatorImage, pickled: set[StateId]) -> OperatorImage:
    """Return an operator image in which the states with pickled values are marked."""
    states = tuple(
        msgspec.structs.replace(state, pickled=True)
        if (uid, state.name, state.namespaced) in pickled
        else state
        for state in image.states
    )
    return image if states == image.states else msgspec.structs.replace(image, states=states)


class Storing:
    """All states of an attempt that are being stored, of checkpoints in flight and aborted ones.

    A subtask builds its next state on the previous one, even if that checkpoint failed. So the
    files of a state may be needed from the moment they are started, but their names are unknown
    until the state has arrived. Their names begin with the number of the checkpoint's epoch.

    Invariant: every file that a later state or checkpoint of the attempt may refer to is in the
    head of a subtask, in `files`, or belongs to an epoch from `since` on.
    """

    def __init__(self) -> None:
        """Start with no states."""
        #: oldest first
        self._pending: dict[int, PendingCheckpoint] = {}
        #: the states that have not arrived, with the epoch of their checkpoint
        self._awaited: dict[tuple[int, _Place], int] = {}

    def __contains__(self, checkpoint: object) -> bool:
        return checkpoint in self._pending

    def expect(self, checkpoint: int, epoch: int, acks: Iterable[Acknowledgement]) -> set[_Place]:
        """Record and return the subtasks that are storing their state for a checkpoint."""
        places = {(ack.level, ack.subtask) for ack in acks if ack.storing}
        self._awaited |= {(checkpoint, place): epoch for place in places}
        return places

    def add(self, pending: PendingCheckpoint) -> None:
        """Keep a checkpoint until its state is stored."""
        self._pending[pending.order.checkpoint_id] = pending

    def take(self, state: StoredState) -> None:
        """Record a state; that of an aborted checkpoint completes nothing."""
        self._awaited.pop((state.checkpoint, (state.level, state.subtask)), None)
        if state.checkpoint in self._pending:
            self._pending[state.checkpoint].take(state)

    def settled(self) -> Iterator[PendingCheckpoint]:
        """Yield and remove the checkpoints that can be completed or have failed, oldest first."""
        for checkpoint, pending in list(self._pending.items()):
            if not pending.missing or pending.failure is not None:
                yield self._pending.pop(checkpoint)

    def get(self, checkpoint: int) -> PendingCheckpoint | None:
        """Return a checkpoint; None if its state is not awaited."""
        return self._pending.get(checkpoint)

    def drop(self, in_flight: Iterable[int]) -> list[int]:
        """Remove the checkpoints that are not in flight any more; return their ids."""
        dropped = sorted(self._pending.keys() - set(in_flight))
        for checkpoint in dropped:
            del self._pending[checkpoint]
        return dropped

    def begin_attempt(self) -> None:
        """Expect no states: those of an earlier attempt do not count."""
        self._awaited.clear()

    @property
    def files(self) -> set[str]:
        """Return the state files that pending checkpoints refer to so far."""
        return {name for pending in self._pending.values() for name in pending.metadata().files()}

    @property
    def since(self) -> int | None:
        """Return the epoch of the oldest state that has not arrived; None if all have."""
        return min(self._awaited.values(), default=None)
