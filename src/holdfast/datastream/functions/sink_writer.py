"""`SinkWriter`, the first half of a sink with one committer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from holdfast.datastream.functions.base import Function
from holdfast.datastream.functions.basic import SinkFunction


class SinkWriter(Function):
    """Writes the records of one subtask where nobody sees them, and says what it has written.

    What ``prepare_commit`` returns goes to the committer of the sink, a
    ``TwoPhaseCommitSinkFunction`` with one subtask. It gets the output of all writers up to a
    checkpoint before that checkpoint, and makes it visible in one step when the checkpoint is
    complete.

    A run of an epoch that fails or is repeated tells the committer nothing. The files of such a run
    are left behind. Delete them where it is known that no checkpoint refers to them.
    """

    @abstractmethod
    def write(self, value: Any, context: SinkFunction.Context) -> Iterable[Any] | None:
        """Write a record.

        Returns records for side outputs, each a pair of an ``OutputTag`` and a record; None, or
        nothing, in most calls.
        """

    @abstractmethod
    def prepare_commit(self) -> Iterable[Any]:
        """Store everything that was written, and describe it for the committer.

        Called before the barrier of a checkpoint. On the epochs engine, and in jobs without
        checkpoints, it is called at the end of every epoch. The descriptions must be picklable.
        Pairs of an ``OutputTag`` and a record go to side outputs.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Delete what was written since the last ``prepare_commit``: the run has failed."""
