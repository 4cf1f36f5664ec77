"""The operators of one subtask.

``Chain`` makes the function objects of a level for one subtask, opens them, wires them, carries
their fields and closes them. It does not know of blocks, epochs or files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any

from holdfast.datastream.connectors.base import SplitRecords
from holdfast.datastream.functions import Function, ProcessJoinFunction, SinkFunction
from holdfast.datastream.state import MapStateDescriptor
from holdfast.datastream.time_domain import TimeDomain
from holdfast.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.datastream.window_operation import WindowOperation
from holdfast.graph.nodes import (
    FunctionOperation,
    Hash,
    ResultOperation,
    SourceOperation,
    Style,
    WriterOperation,
)
from holdfast.plan.model import Level, Plan, PlannedOperator
from holdfast.runtime.async_calls import AsyncCalls
from holdfast.runtime.broadcasting import broadcast_contexts, no_key
from holdfast.runtime.checkpointing import OPERATOR_STATE, initialize, notify, snapshot
from holdfast.runtime.context import Clock, OperatorContext
from holdfast.runtime.event_loop import EventLoop
from holdfast.runtime.event_time import (
    END,
    TIME,
    OnTimer,
    OperatorTime,
    StampingTime,
    Watermark,
    combine,
)
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.fields import FIELDS, FieldCarrier
from holdfast.runtime.fusion import Fused, Port, Step, fuse, methods_of
from holdfast.runtime.interval_joining import IntervalJoiner
from holdfast.runtime.job import JobCode
from holdfast.runtime.logs import at_work
from holdfast.runtime.protocol import EpochTask
from holdfast.runtime.record_context import KeyedRecordContext, RecordContext
from holdfast.runtime.results import ResultBuffer, make_buffer
from holdfast.runtime.routing import Router, key_function
from holdfast.runtime.timers import Timer, TimerQueue
from holdfast.runtime.window_contexts import Surroundings
from holdfast.runtime.window_operator import WindowOperator
from holdfast.runtime.windowing import make_windows
from holdfast.state.backend import KeyedStateBackend
from holdfast.state.errors import decoding
from holdfast.state.key_forms import key_form
from holdfast.state.mutations import MutationWatch, WatchedKeyContext
from holdfast.state.operator_state import Image, decode_image, encode_image
from holdfast.state.views import KeyContext

#: results of timers go on to the next operator so many at a time
_BATCH = 1000


class OperatorInstance:
    """One operator in one subtask: its function object and what belongs to it."""

    def __init__(
        self,
        operator: PlannedOperator,
        job: JobCode,
        subtask: int,
        attempt: int,
        backend: KeyedStateBackend,
        clock: Clock,
        loop: EventLoop | None = None,
    ) -> None:
        """Make the function object; nothing is opened yet."""
        operation = operator.node.operation
        self.operator = operator
        self.report = FailureReporter(operator.name, subtask)
        self.function: Any = job.new_function(operator.id)
        keyed = isinstance(operation, FunctionOperation) and operation.key_selector
        self.watch = MutationWatch(operator.name) if job.state.check_mutations else None
        self.key_context = self._make_key_context() if keyed else None
        self.time = self._make_time(backend, clock)
        self.joiner = self._make_joiner(backend)
        self.context = OperatorContext(
            operator,
            subtask,
            attempt,
            backend,
            self.key_context,
            job.parameters,
            job.staging_directory,
            self.watch,
            job.functions_stay,
        )
        self.carrier = FieldCarrier(operator.name, self.function, self.context)
        #: what the function is given with the records of each input
        self.record_contexts = self._make_contexts()
        #: the operator state as it was saved last
        self._saved_states: bytes | None = None
        self.windows = self._make_windows(backend)
        #: takes results that the operator has outside of a call, with their timestamps
        self.emit: Callable[[Iterable[tuple[Any, int | None]]], None] = _nowhere
        self._loop = loop or EventLoop()
        self.calls = self._make_calls()

    def _make_key_context(self) -> KeyContext:
        form = key_form(getattr(self.operator.node.operation, "key_type", None))
        thaw = form and form.thaw
        return KeyContext(thaw=thaw) if self.watch is None else WatchedKeyContext(self.watch, thaw)

    def _make_time(self, backend: KeyedStateBackend, clock: Clock) -> OperatorTime:
        operation = self.operator.node.operation
        strategy = getattr(operation, "strategy", None)
        if strategy is not None:
            return StampingTime(clock, strategy)
        timed = _has_timers(self.function) or isinstance(self.function, WindowOperation)
        if self.key_context is None or not timed:
            return OperatorTime(clock)
        uid, key = self.operator.uid, self.key_context
        queues = tuple(TimerQueue(domain, uid, backend, key) for domain in TimeDomain)
        return OperatorTime(clock, queues)

    def _make_joiner(self, backend: KeyedStateBackend) -> IntervalJoiner | None:
        operation, key = self.operator.node.operation, self.key_context
        if not isinstance(self.function, ProcessJoinFunction) or key is None:
            return None
        assert isinstance(operation, FunctionOperation)

        def state(descriptor: MapStateDescriptor) -> Any:
            return backend.keyed_state(self.operator.uid, descriptor, key)

        return IntervalJoiner(self.function, operation.settings, self.time, state)

    def _make_calls(self) -> AsyncCalls | None:
        operation = self.operator.node.operation
        if not isinstance(operation, FunctionOperation) or operation.style is not Style.ASYNC:
            return None
        settings, report = operation.settings, self.report
        return AsyncCalls(self.function, settings, self._loop, report, lambda out: self.emit(out))

    def _make_contexts(self) -> tuple[RecordContext, RecordContext]:
        time, name, key = self.time, self.operator.name, self.key_context
        operation = self.operator.node.operation
        if isinstance(operation, FunctionOperation) and operation.style is Style.BROADCAST:
            return broadcast_contexts(time, name, key, self.context, operation.settings)
        context = RecordContext(time, name) if key is None else KeyedRecordContext(time, name, key)
        return context, context

    def _make_windows(self, backend: KeyedStateBackend) -> WindowOperator | None:
        if not isinstance(self.function, WindowOperation) or self.key_context is None:
            return None
        self.time.lag = 1  # the last millisecond of a window has to be over
        uid, key = self.operator.uid, self.key_context
        around = Surroundings(uid, backend, key, self.time, self.context)
        return make_windows(self.function, around)

    def fire(self, domain: TimeDomain) -> None:
        """Call the function for each timer that is due."""
        if domain not in self.time.queues:
            return
        operator = self.windows or self.joiner
        on_timer = self._checked(self._on_timer if operator is None else operator.on_timer)
        pairs: list[tuple[Any, int | None]] = []
        with at_work(self.report):
            for timer in self.time.due(domain):
                try:
                    pairs += on_timer(timer, domain)
                except Exception as error:
                    self.report.during("on_timer" if self.windows is None else None, error)
                if len(pairs) >= _BATCH:
                    self.emit(pairs)
                    pairs = []
        self.emit(pairs)

    def _checked(self, on_timer: OnTimer) -> OnTimer:
        """Look for state that was changed in place after each timer, if that was asked for."""
        watch = self.watch
        if watch is None:
            return on_timer

        def checked(timer: Timer, domain: TimeDomain) -> Iterable[tuple[Any, int | None]]:
            pairs = list(on_timer(timer, domain))
            watch.check()
            return pairs

        return checked

    def _on_timer(self, timer: Timer, domain: TimeDomain) -> list[tuple[Any, int | None]]:
        """Call the function for a timer."""
        context = self.record_contexts[0]
        assert isinstance(context, KeyedRecordContext)
        timestamp = timer.timestamp
        context.stamp, context.domain = timestamp, domain
        stamp = timestamp if domain is TimeDomain.EVENT_TIME else None
        results = self.function.on_timer(timestamp, context)
        # NB: a generator runs here, with the context as it is
        pairs = [] if results is None else [(result, stamp) for result in results]
        context.stamp = None
        return pairs

    def open(self) -> None:
        """Call the function's ``open``."""
        if isinstance(self.function, Function):
            self.context.opening(True)
            try:
                self._call("open", lambda: self._run(lambda: self.function.open(self.context)))
            finally:
                self.context.opening(False)

    def initialize(self, restored: bool, image: Image | None) -> None:
        """Begin an attempt: hand out the operator state, call ``initialize_state``."""
        self.context.operator_states.load(image or {})
        self._saved_states = None
        states = self.context.operator_states
        self._call(
            "initialize_state", lambda: initialize(self.function, restored, states, self.context)
        )

    def restore_states(self, data: bytes | None) -> None:
        """Go to the operator state that was saved, unless it is there already."""
        if self.function is not None and data is not None and data != self._saved_states:
            self.context.operator_states.load(decode_image(data, self.operator.uid))
            self._saved_states = data

    def save_states(self) -> bytes | None:
        """The operator state as bytes; None where there is none."""
        states = self.context.operator_states
        if self.function is None or not states.used:
            return None
        self._saved_states = encode_image(states.image())
        return self._saved_states

    def snapshot(self, checkpoint: int, timestamp: int) -> None:
        """Take part in a checkpoint; raises what ``snapshot_state`` raises."""
        with at_work(self.report):
            snapshot(self.function, checkpoint, timestamp, self.context.operator_states)

    def notify(self, completed: tuple[int, ...], aborted: tuple[int, ...]) -> None:
        """Tell the function of checkpoints that ended."""
        if completed or aborted:
            self._call(
                "notify_checkpoint_complete", lambda: notify(self.function, completed, aborted)
            )

    def epoch_accepted(self) -> None:
        """What is pending is of accepted epochs, and there will be no checkpoint."""
        if isinstance(self.function, TwoPhaseCommitSinkFunction):
            self._call("commit", self.function.epoch_accepted)

    def finish_calls(self) -> None:
        """Wait for the calls that are under way; their results go on."""
        if self.calls is not None:
            self.calls.finish()

    def finish(self) -> None:
        """There will be no more records: a sink writes what it has buffered."""
        if isinstance(self.function, SinkFunction):
            self._call("finish", self.function.finish)

    def end_epoch(self, barrier: bool = True) -> None:
        """The last record of an epoch was processed: sinks let nothing wait.

        Without ``barrier`` no checkpoint is taken here, and the function goes on in this process:
        transactions stay open, and clients need not be flushed. An engine may say so only in a job
        that takes checkpoints, and not when the job closes.
        """
        if self.watch is not None:
            self.watch.check()
        if not isinstance(self.function, SinkFunction):
            return
        if barrier:
            self._call("end_epoch", self.function.end_epoch)
        else:
            self._call("end_round", self.function.end_round)

    def abandon(self) -> None:
        """The run failed: an open transaction is aborted."""
        if isinstance(self.function, TwoPhaseCommitSinkFunction):
            with at_work(self.report):
                self.function.abandon_epoch()

    def close(self) -> None:
        """Call the function's ``close``."""
        if isinstance(self.function, Function):
            self._call("close", lambda: self._run(self.function.close))

    def _run(self, method: Callable[[], object]) -> None:
        """Call a method of the function where its calls are made: within the loop, or here."""
        if self.calls is None:
            method()
        else:
            self._loop.call(method)

    def _call(self, what: str, method: Callable[[], object]) -> None:
        with at_work(self.report):
            try:
                method()
            except Exception as error:
                self.report.during(what, error)

    def step(self) -> Step:
        """This operator, as the chain's code needs it."""
        operator, operation = self.operator, self.operator.node.operation
        coerce = operator.node.output_type.coercer() if operator.node.output_type else None
        check = None if self.watch is None else self.watch.check
        step = Step(self.report, coerce=coerce, calls=operator.calls, check=check)
        if isinstance(self.time, StampingTime):
            step.stamping = self.time
        if isinstance(operation, FunctionOperation):
            step.key_context = self.key_context
            step.ports = self._ports(operation)
            step.has_sides = operation.style in _WITH_SIDES
        else:
            step.has_sides = _puts_aside(operation)
        if step.has_sides:
            sides = operator.side_types.items()
            step.side_coerce = {tag: known.coercer() for tag, known in sides if known is not None}
        return step

    def _ports(self, operation: FunctionOperation) -> tuple[Port, ...]:
        if self.calls is not None:
            return (Port(Style.ASYNC, self.calls.begin),)
        methods: tuple[tuple[Style, Callable[..., Any]], ...]
        if self.windows is not None:
            methods = ((Style.WINDOW, self.windows.process),)
        elif self.joiner is not None:
            joins = self.joiner.process_left, self.joiner.process_right
            methods = tuple((Style.WINDOW, join) for join in joins)
        else:
            methods = methods_of(self.function, operation.style)
        selectors = self._selectors(operation)
        # if one input has timestamps, a record of the other one has to say that it has none
        stamped = bool(self.operator.timestamped_inputs)
        return tuple(
            Port(
                style,
                call,
                context,
                selector,
                stamped and style in _WITH_CONTEXT,
            )
            for (style, call), selector, context in zip(
                methods, selectors, self.record_contexts, strict=False
            )
        )

    def _selectors(self, operation: FunctionOperation) -> list[Callable[[Any], Any] | None]:
        """What finds the key of a record, by input."""
        kept = {
            edge.input
            for edge in self.operator.node.inputs
            if isinstance(edge.partitioning, Hash) and edge.partitioning.kept
        }
        found = [
            key_function(selector, operation.key_type, number in kept) if selector else None
            for number, selector in enumerate((operation.key_selector, operation.second_selector))
        ]
        if operation.style is Style.BROADCAST and operation.key_selector:
            found[1] = no_key
        return found


class Chain:
    """All operators of a level in one subtask."""

    def __init__(
        self,
        job: JobCode,
        level: Level,
        subtask: int,
        attempt: int,
        backend: KeyedStateBackend,
        clock: Clock,
    ) -> None:
        """Make and wire the operators that this subtask has."""
        self._backend = backend
        self._directory = job.directory
        self._loop = EventLoop()
        self.instances = {
            op.id: OperatorInstance(op, job, subtask, attempt, backend, clock, self._loop)
            for op in (job.plan.operators[op_id] for op_id in level.operators)
            if subtask < op.parallelism
        }
        self._calls = [each.calls for each in self.instances.values() if each.calls is not None]
        self.routers: list[Router] = []
        self.results: list[ResultBuffer] = []
        fused = self._wire(job.plan, level, subtask)
        #: what takes the records that reach an operator; for a source, those that it read
        self.inputs = fused.inputs
        for number, emit in fused.outputs.items():
            self.instances[number].emit = emit

    def initialize(self, restored: bool, images: Mapping[str, Image]) -> None:
        """Begin an attempt, the last function of the chain first."""
        for instance in reversed(self.instances.values()):
            instance.initialize(restored, images.get(instance.operator.uid))

    def snapshot(self, checkpoint: int, timestamp: int) -> str | None:
        """Take part in a checkpoint, the last function first; why that failed, or None."""
        for instance in reversed(self.instances.values()):
            try:
                instance.snapshot(checkpoint, timestamp)
            except Exception as error:
                return f"snapshot_state of '{instance.operator.name}': {error!r}"
        return None

    def notify(self, task: EpochTask) -> None:
        """Tell listeners of checkpoints that ended, the last function first."""
        for instance in reversed(self.instances.values()):
            instance.notify(task.completed, task.aborted)
            if not task.takes_checkpoints:
                instance.epoch_accepted()

    def finish(self) -> None:
        """There will be no more records."""
        for instance in self.instances.values():
            instance.finish()

    def end_epoch(self, barrier: bool = True) -> None:
        """The last record of an epoch was processed; see `OperatorInstance.end_epoch`."""
        for instance in self.instances.values():
            instance.end_epoch(barrier)

    def abandon(self) -> None:
        """The run failed; what it did outside must not become visible."""
        for instance in self.instances.values():
            instance.abandon()

    def open(self) -> None:
        """Open all functions, the last of the chain first, as Flink does."""
        for instance in reversed(self.instances.values()):
            instance.open()
        for router in self.routers:
            router.open_functions(self.instances[router.exchange.source].context)

    def restore_fields(self) -> None:
        """Put the carried fields back."""
        for instance in self.instances.values():
            uid = instance.operator.uid
            instance.restore_states(self._backend.get_blob(uid, OPERATOR_STATE))
            instance.carrier.restore(self._backend.get_blob(uid, FIELDS))

    def save_fields(self) -> None:
        """Put the fields where they are persisted with the state."""
        for instance in self.instances.values():
            data = instance.carrier.save()
            if data is not None:
                self._backend.set_blob(instance.operator.uid, FIELDS, data)

    def save_states(self) -> None:
        """Put the operator states where they are persisted with the state."""
        for instance in self.instances.values():
            image = instance.save_states()
            if image is not None:
                self._backend.set_blob(instance.operator.uid, OPERATOR_STATE, image)

    def restore_time(self) -> None:
        """Go to the watermarks in the loaded state."""
        for instance in self.instances.values():
            uid = instance.operator.uid
            with decoding(f"the time of operator {uid!r}"):
                instance.time.load(self._backend.get_blob(uid, TIME))

    def save_time(self) -> None:
        """Put the watermarks where they are persisted with the state."""
        for instance in self.instances.values():
            self._backend.set_blob(instance.operator.uid, TIME, instance.time.dump())

    def fire_processing_timers(self) -> None:
        """Call functions whose processing-time timers are due."""
        for instance in self.instances.values():
            instance.finish_calls()
            instance.fire(TimeDomain.PROCESSING_TIME)

    def next_processing_timer(self) -> int | None:
        """Return when the next timer of processing time is due; None if there is none."""
        times = [instance.time.next_due() for instance in self.instances.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def calls_under_way(self) -> bool:
        """Return whether asynchronous calls are under way."""
        return any(len(calls) for calls in self._calls)

    def poll_calls(self, seconds: float) -> bool:
        """Let calls go on for so long, or until one has a result; hand on what there is.

        Returns whether there was a result.
        """
        self._loop.run_for(seconds)
        ready = [calls.hand_on_ready() for calls in self._calls]
        return any(ready)

    def advance(self, arrived: Mapping[int, list[Watermark]]) -> dict[int, Watermark]:
        """Move time to where the inputs are, operator by operator; returns where each is then.

        ``arrived`` are the watermarks that came through exchanges, or that sources told, by the
        operator they came to.
        """
        inputs = {number: list(arrived.get(number, ())) for number in self.instances}
        for number, instance in self.instances.items():
            instance.finish_calls()
            before = instance.time.watermark
            now = combine(inputs[number], before)
            if isinstance(instance.time, StampingTime) and now.time != END.time:
                with at_work(instance.report):
                    now = combine([instance.time.generate()], before)
            instance.time.watermark = now
            if now.time > before.time:
                instance.fire(TimeDomain.EVENT_TIME)
            for call in instance.operator.calls:
                inputs[call.target].append(now)
        return {number: instance.time.watermark for number, instance in self.instances.items()}

    def turn_to(self, number: int, batch: SplitRecords) -> None:
        """The next records of a source are of this split; those put aside go to side outputs."""
        instance = self.instances[number]
        if isinstance(instance.time, StampingTime):
            instance.time.turn_to(batch.split)
        if batch.aside:
            instance.emit([((tag, record), stamp) for tag, record, stamp in batch.aside])

    def keep_splits(self, number: int, splits: Collection[Hashable]) -> None:
        """A source has these splits now; time waits for each of them."""
        time = self.instances[number].time
        if isinstance(time, StampingTime):
            time.keep_splits(splits)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The users' metrics, by operator uid."""
        taken = {
            instance.operator.uid: instance.context.get_metrics_group().snapshot()
            for instance in self.instances.values()
        }
        return {uid: metrics for uid, metrics in taken.items() if metrics}

    def close(self) -> None:
        """Close all functions, in the order of the stream."""
        for instance in self.instances.values():
            instance.close()

    def release(self) -> None:
        """Let go of what the operators hold, without a call of the users' functions."""
        self._loop.close()

    def _wire(self, plan: Plan, level: Level, subtask: int) -> Fused:
        steps = {number: instance.step() for number, instance in self.instances.items()}
        for number, step in steps.items():
            operator = plan.operators[number]
            step.routers = tuple(
                Router(plan.exchanges[exchange], subtask, step.report)
                for exchange in operator.exchanges
            )
            self.routers += step.routers
            if isinstance(operator.node.operation, ResultOperation | WriterOperation):
                buffer = make_buffer(operator, subtask, self._directory)
                self.results.append(buffer)
                step.take = buffer.emit
        for router in self.routers:
            router.accompany(self.routers)
        reached = {(ex.target, ex.input) for ex in plan.exchanges if ex.target_level == level.index}
        reached |= {(number, 0) for number in steps if plan.operators[number].node.is_source}
        entries = {
            (number, port): port in plan.operators[number].timestamped_inputs
            for number, port in sorted(reached)
            if number in steps
        }
        later = [
            number
            for number, instance in self.instances.items()
            if instance.time.queues
            or instance.calls is not None
            or _puts_aside(instance.operator.node.operation)
        ]
        return fuse(steps, entries, later)


#: styles whose results may go to side outputs
_WITH_SIDES = frozenset(
    {Style.PROCESS, Style.CO_PROCESS, Style.BROADCAST, Style.WINDOW, Style.INTERVAL_JOIN}
)
#: styles whose functions can ask for the timestamp
_WITH_CONTEXT = frozenset({Style.PROCESS, Style.SINK})


def _puts_aside(operation: Any) -> bool:
    return isinstance(operation, SourceOperation) and operation.source.side_outputs


def _has_timers(function: Any) -> bool:
    return hasattr(function, "on_timer") or isinstance(function, ProcessJoinFunction)


def _nowhere(pairs: Iterable[tuple[Any, int | None]]) -> None:
    """The output of an operator that has results only when it is called."""
