"""`Operator`: one operator in one subtask, and what all kinds of operators have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from holdfast.datastream.functions import Function
from holdfast.datastream.time_domain import TimeDomain
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.checkpointing import initialize, notify, snapshot
from holdfast.runtime.context import Clock, OperatorContext
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.function_fields import FunctionFields
from holdfast.runtime.fusion import FusedStep, Port
from holdfast.runtime.operators.event_loop import EventLoop
from holdfast.runtime.operators.firing_timers import checked, fire_timers
from holdfast.runtime.timer_queue import Timer
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.logs import at_work
from holdfast.state.backend import KeyedStateBackend
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.mutations import MutationWatch
from holdfast.state.live.operator_state import Image, decode_image, encode_image

#: a result, and its timestamp
Pair = tuple[Any, int | None]


class SubtaskParts(NamedTuple):
    """What the operators of a subtask share."""

    job: JobCode
    subtask: int
    attempt: int
    backend: KeyedStateBackend
    clock: Clock
    loop: EventLoop


class Operator:
    """One operator in one subtask: its function object, if it has one, its state and its time.

    This class forwards records unchanged; subclasses process them.

    Attributes:
        emit: takes results that are produced outside of a call, with their timestamps.
    """

    #: the method named in a failure of a timer; None if the operator's error names it itself
    timer_method: ClassVar[str | None] = "on_timer"

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Take the function object; it is not opened yet."""
        job = parts.job
        self.operator = operator
        self.function = function
        self.report = FailureReporter(operator.name, parts.subtask)
        self.watch = MutationWatch(operator.name) if job.state.check_mutations else None
        self.key_context = self._make_key_context()
        self.time = self._make_time(parts)
        self.context = OperatorContext(
            operator,
            parts.subtask,
            parts.attempt,
            parts.backend,
            self.key_context,
            job.parameters,
            job.staging_directory,
            self.watch,
            job.functions_stay,
            (job.plan.name, job.id),
        )
        self.fields = FunctionFields(operator.name, function, self.context)
        self.emit: Callable[[Iterable[Pair]], None] = _nowhere
        #: the operator state that was saved last
        self._saved_states: bytes | None = None

    # Overridden by subclasses

    def _make_key_context(self) -> KeyContext | None:
        """Return the object with the key of the current record; None without keys."""
        return None

    def _make_time(self, parts: SubtaskParts) -> OperatorTime:
        """Return the operator's time, with queues if it has timers."""
        return OperatorTime(parts.clock)

    @property
    def has_sides(self) -> bool:
        """Return whether a result may be for a side output."""
        return False

    @property
    def emits_later(self) -> bool:
        """Return whether there may be results outside of a call, such as those of timers."""
        return bool(self.time.queues)

    def ports(self) -> tuple[Port, ...]:
        """Return the functions that are called with the records of each input."""
        return (Port(),)

    def keys_of(self, number: int, records: list[Any]) -> list[Any]:
        """Return the keys of records of an input; nothing if there are no keys."""
        return []

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        """Return the results of a timer that is due."""
        raise NotImplementedError

    def _run(self, method: Callable[[], object]) -> None:
        """Call a method of the function, in the same environment as its other calls."""
        method()

    def epoch_accepted(self) -> None:
        """Commit pending work of accepted epochs, because there will be no checkpoint."""

    def finish_calls(self) -> None:
        """Wait for asynchronous calls, and forward their results."""

    def flush(self) -> None:
        """Forward records that were only collected, because nothing may wait any longer."""

    def finish(self) -> None:
        """Finish after the last record."""

    def end_epoch(self, barrier: bool = True) -> None:
        """End an epoch after its last record.

        Without ``barrier`` no checkpoint is taken here, and the function continues in this process:
        transactions stay open, and clients need not be flushed. An engine may pass False only in a
        job that takes checkpoints, and not when the job closes.
        """
        if self.watch is not None:
            self.watch.check()

    def abandon(self) -> None:
        """Abandon a failed run: its external effects must not become visible."""

    # The same for all operators

    def step(self) -> FusedStep:
        """Return the description of this operator for code generation."""
        declared = self.operator.node.output_type
        step = FusedStep(
            self.report,
            self.ports(),
            key_context=self.key_context,
            coerce=declared.coercer() if declared else None,
            calls=self.operator.calls,
            has_sides=self.has_sides,
            check=None if self.watch is None else self.watch.check,
        )
        if step.has_sides:
            sides = self.operator.side_types.items()
            step.side_coerce = {tag: known.coercer() for tag, known in sides if known is not None}
        return step

    def fire(self, domain: TimeDomain) -> None:
        """Call the function for each timer that is due."""
        if domain in self.time.queues:
            call = checked(self.on_timer, self.watch)
            fire_timers(self.time, domain, call, self.timer_method, self.report, self.emit)

    def open(self) -> None:
        """Call the function's ``open``."""
        if isinstance(self.function, Function):
            self.context.opening(True)
            try:
                self._call("open", lambda: self._run(lambda: self.function.open(self.context)))
            finally:
                self.context.opening(False)

    def initialize(self, restored: bool, image: Image | None) -> None:
        """Start an attempt: load the operator state, and call ``initialize_state``."""
        states = self.context.operator_states
        states.load(image or {})
        self._saved_states = None
        self._call(
            "initialize_state", lambda: initialize(self.function, restored, states, self.context)
        )

    def restore_states(self, data: bytes | None) -> None:
        """Restore the operator state that was saved, unless it is loaded already."""
        if self.function is not None and data is not None and data != self._saved_states:
            self.context.operator_states.load(decode_image(data, self.operator.uid))
            self._saved_states = data

    def save_states(self) -> bytes | None:
        """Return the operator state as bytes; None if there is none."""
        states = self.context.operator_states
        if self.function is None or not states.used:
            return None
        self._saved_states = encode_image(states.image())
        return self._saved_states

    def snapshot(self, checkpoint: int, timestamp: int, savepoint: bool = False) -> None:
        """Take part in a checkpoint, or in a savepoint; raise what ``snapshot_state`` raises."""
        with at_work(self.report):
            snapshot(self.function, checkpoint, timestamp, self.context.operator_states)

    def notify(self, completed: tuple[int, ...], aborted: tuple[int, ...]) -> None:
        """Notify the function of checkpoints that ended."""
        if completed or aborted:
            self._call(
                "notify_checkpoint_complete", lambda: notify(self.function, completed, aborted)
            )

    def close(self) -> None:
        """Call the function's ``close``."""
        if isinstance(self.function, Function):
            self._call("close", lambda: self._run(self.function.close))

    def _call(self, what: str, method: Callable[[], object]) -> None:
        with at_work(self.report):
            try:
                method()
            except Exception as error:
                self.report.during(what, error)


def _nowhere(pairs: Iterable[Pair]) -> None:
    """Output nothing, for an operator that produces results only when it is called."""
