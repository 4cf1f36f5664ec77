"""The machine of a job and the effects of its instructions. Events come from any thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.common import CompletableFuture
from holdfast.common.job_status import JobStatus
from holdfast.driver import job_events as events
from holdfast.driver.checkpoints.job_checkpoints import JobCheckpoints
from holdfast.driver.job.machine import JobMachine
from holdfast.driver.recording import Recorder
from holdfast.plan.model import Plan
from holdfast.state.errors import StateCorruptionError, StateStorageError


class JobControl:
    """Passes events to the machine of a job, and carries out the effects that it decides on.

    Attributes:
        machine: decides what the job does next.
        status: the reported status.
        suspects: the last attempt failed because state could not be read.
        told: held while the machine handles an event, and notified afterwards.
    """

    def __init__(
        self, machine: JobMachine, checkpoints: JobCheckpoints, recorder: Recorder
    ) -> None:
        """Start with a job that was not started yet."""
        self.machine = machine
        self.status = JobStatus.CREATED
        self.suspects = False
        self.told = threading.Condition(threading.RLock())
        self._checkpoints = checkpoints
        self._recorder = recorder
        self._requests = itertools.count(1)
        self._rescales: dict[int, CompletableFuture[None]] = {}

    def next_request(self) -> int:
        """Return the number of the next change of plan."""
        return next(self._requests)

    def rescale(self, plan: Plan) -> CompletableFuture[None]:
        """Request another plan; the future ends when it runs."""
        done: CompletableFuture[None] = CompletableFuture()
        request = self.next_request()
        self._rescales[request] = done
        self.tell(events.RescaleRequested(request, plan))
        return done

    def tell(self, event: events.JobEvent) -> None:
        """Pass an event to the machine, and carry out the effects; from any thread."""
        answers: list[Callable[[], None]] = []
        with self.told:
            for instruction in self.machine.handle(event):
                self._carry_out(instruction, answers)
            self.told.notify_all()
        # NB: without the lock, because a waiting caller may send another request at once
        for answer in answers:
            answer()

    def _carry_out(
        self, instruction: events.JobInstruction, answers: list[Callable[[], None]]
    ) -> None:
        match instruction:
            case events.ReportStatus(status):
                self.status = status
                self._recorder.status(status)
            case events.ReportFailure(attempt, failure, restart_ms, reason):
                origin = None if restart_ms is None else self._checkpoints.next_origin
                self._recorder.failure(attempt, failure, restart_ms, origin, reason)
                self.suspects = isinstance(failure, StateCorruptionError | StateStorageError)
            case events.TakeCheckpoint(request):
                # NB: with the lock: the machine must get the end of the checkpoint before that of
                # the epoch, because the job may change its plan when the epoch is committed
                asked = self._checkpoints.requests.ask_checkpoint(halts=True)
                asked.add_done_callback(partial(self._taken, request))
            case events.ReportRescale(request, cause, plan, wanted):
                self._recorder.rescale(request, cause, self._checkpoints.plan, plan, wanted)
            case events.AnswerRescale(request, problem, superseded):
                self._recorder.rescale_ended(request, problem, self._reason(problem, superseded))
                # NB: no caller waits for a change that the machine decided on itself
                if request in self._rescales:
                    answers.append(partial(_answer, self._rescales.pop(request), problem))

    def _reason(self, problem: BaseException | None, superseded: bool) -> str:
        """Return why a change of plan has ended, with the names of Flink's ``terminatedReason``."""
        if problem is None:
            return "SUCCEEDED"
        if superseded:
            return "RESOURCE_REQUIREMENTS_UPDATED"
        return _REASONS.get(self.machine.status, "EXCEPTION_OCCURRED")

    def _taken(self, request: int, checkpoint: CompletableFuture[int]) -> None:
        self.tell(events.CheckpointEnded(request, checkpoint.exception()))


#: why a change of plan failed, if the job has ended
_REASONS: Final = {
    JobStatus.FINISHED: "JOB_FINISHED",
    JobStatus.CANCELED: "JOB_CANCELING",
    JobStatus.FAILED: "JOB_FAILING",
}


def _answer(future: CompletableFuture[None], failure: BaseException | None) -> None:
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)
