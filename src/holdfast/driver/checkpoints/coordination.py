"""Connects the coordinator with the job: passes events to it, and carries out its instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from holdfast.checkpoint import events
from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.store import CheckpointStore
from holdfast.driver.checkpoints.requests import CheckpointRequests
from holdfast.driver.checkpoints.superseded import Superseded
from holdfast.errors import JobExecutionError

#: called for every checkpoint that begins or ends, with the ids of the retained ones
Report: TypeAlias = Callable[[events.ReportCheckpoint, tuple[int, ...]], None]
#: the instructions that concern the epochs of the job
Order: TypeAlias = events.InjectBarrier | events.WriteMetadata | events.StopJob


class Coordination:
    """The coordinator of a job, and what it needs to act.

    Attributes:
        coordinator: decides; it is replaced once the checkpoint directory was read.
        requests: the requests of users for checkpoints and savepoints.
        superseded: what is to be deleted.
    """

    def __init__(
        self,
        settings: events.CheckpointSettings,
        store: CheckpointStore,
        requests: CheckpointRequests,
        superseded: Superseded,
        report: Report,
    ) -> None:
        """Start with no checkpoints."""
        self.coordinator = Coordinator(settings)
        self.requests = requests
        self.superseded = superseded
        self._store = store
        self._report = report

    def begin(self, first_id: int, completed: Iterable[int]) -> None:
        """Begin with the checkpoints in the directory."""
        self.coordinator = Coordinator(self.coordinator.settings, first_id, completed)

    def take_requests(self) -> None:
        """Pass the requests that have arrived to the coordinator."""
        for request in self.requests.take():
            self.tell(request)

    def tell(self, event: events.Event) -> list[Order]:
        """Pass an event to the coordinator; return the instructions that are left to carry out.

        Raises:
            JobExecutionError: when too many checkpoints failed.
        """
        orders: list[Order] = []
        for instruction in self.coordinator.handle(event):
            if isinstance(instruction, Order):
                orders.append(instruction)
            else:
                self._carry_out(instruction)
        return orders

    def _carry_out(self, instruction: events.Instruction) -> None:
        match instruction:
            case events.DiscardCheckpoint(checkpoint_id):
                self.superseded.checkpoints.append(checkpoint_id)
            case events.MarkFinished():
                self._store.mark_finished()
            case events.ReportCheckpoint():
                self._report(instruction, self.coordinator.completed)
            case events.AnswerRequest():
                self.requests.answer(instruction)
            case events.FailJob(reason):
                raise JobExecutionError(reason)
