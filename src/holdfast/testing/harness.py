"""Runs one function with everything that the runtime provides."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import cloudpickle

from holdfast.common._cloudpickle import dumps
from holdfast.common.time import DurationLike
from holdfast.common.typeinfo import type_info_of
from holdfast.datastream import functions
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.state import ListState, MapState, ValueState
from holdfast.datastream.streams.keyed_functions import Reduce
from holdfast.datastream.time_domain import TimeDomain
from holdfast.errors import PickleError
from holdfast.graph import operations
from holdfast.graph.nodes import Node
from holdfast.plan.model import Call, Defaults, Level, Plan, PlannedOperator
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import OperatorFailed
from holdfast.runtime.fusion import FusedStep, fuse
from holdfast.runtime.operators.base import Operator, SubtaskParts
from holdfast.runtime.operators.choosing import make_operator
from holdfast.runtime.operators.event_loop import EventLoop
from holdfast.runtime.worker.job_code import JobCode
from holdfast.state.backend import Head, HeapKeyedStateBackend
from holdfast.state.key_groups import key_group_range
from holdfast.state.live.operator_state import Image, redistribute
from holdfast.state.settings import StateSettings
from holdfast.testing.clock import ManualClock
from holdfast.testing.storage import MemoryStateStorage

_H = TypeVar("_H", bound="Harness")

#: by the name of the operation of a plain callable
_OPERATIONS: Mapping[str, type[operations.FunctionOperation]] = {
    "map": operations.MapOperation,
    "flat_map": operations.FlatMapOperation,
    "filter": operations.FilterOperation,
    "process": operations.ProcessOperation,
    "sink": operations.SinkOperation,
}
_OF_FUNCTIONS: Sequence[tuple[type[functions.Function], type[operations.FunctionOperation]]] = (
    (functions.MapFunction, operations.MapOperation),
    (functions.FlatMapFunction, operations.FlatMapOperation),
    (functions.FilterFunction, operations.FilterOperation),
    (functions.ProcessFunction, operations.ProcessOperation),
    (functions.KeyedProcessFunction, operations.ProcessOperation),
    (functions.SinkFunction, operations.SinkOperation),
)


@dataclass(frozen=True)
class Snapshot:
    """The state of one harness, as it would be in a checkpoint."""

    storage: MemoryStateStorage
    head: Head
    operator_state: Image = field(default_factory=dict)


class Harness:
    """Runs one function: opens it, passes records to it, keeps its output.

    >>> harness = Harness(lambda line: line.split(), kind="flat_map")
    >>> harness.process("to be", "or not")
    ['to', 'be', 'or', 'not']

    The function object itself is used, so a test can read its fields; its exceptions are raised
    unchanged.

    Attributes:
        function: the function object.
        outputs: all outputs so far.
        side_outputs: those that went to side outputs, by tag.
        clock: the processing time.
    """

    def __init__(
        self,
        function: Any,
        *,
        kind: str = "map",
        parallelism: int = 1,
        subtask: int = 0,
        max_parallelism: int = 128,
        name: str = "operator",
        output_type: Any = None,
        side_outputs: Iterable[OutputTag] = (),
        clock: ManualClock | None = None,
        parameters: Mapping[str, str] | None = None,
        check_mutations: bool = True,
    ) -> None:
        """Take a function object, or a callable.

        Args:
            function: what to run.
            kind: the kind of a plain callable: ``map``, ``flat_map`` or ``filter``; keyed, also
                ``reduce``. Not needed for a function object.
            parallelism: the number of subtasks.
            subtask: the index of the function's subtask.
            max_parallelism: the number of key groups.
            name: the name of the operator, which is also its uid.
            output_type: the declared type, to which outputs are converted.
            side_outputs: the side outputs to keep; others are dropped.
            clock: the processing time; by default a clock at 0.
            parameters: the global job parameters.
            check_mutations: raise a ``StateMutationError`` when the function changes a value of
                its state in place and does not save it.
        """
        self._settings = {
            "kind": kind,
            "parallelism": parallelism,
            "subtask": subtask,
            "max_parallelism": max_parallelism,
            "name": name,
            "output_type": output_type,
            "side_outputs": tuple(side_outputs),
            "parameters": parameters,
            "check_mutations": check_mutations,
        }
        self.function = function
        self.outputs: list[Any] = []
        self.side_outputs: dict[OutputTag, list[Any]] = {
            tag: [] for tag in self._settings["side_outputs"]
        }
        self.clock = clock or ManualClock()
        self._pristine = _try_pickle(function)
        self._storage = MemoryStateStorage()
        groups = key_group_range(subtask, parallelism, max_parallelism)
        self._backend = HeapKeyedStateBackend(groups, max_parallelism)
        self._backend.use_clock(self.clock)
        self._instance = self._make_instance()
        self._process = self._make_process()
        self._opened = False
        self._epoch = 0
        self._restored: Image | None = None

    def open(self: _H) -> _H:
        """Call ``initialize_state`` and ``open``, once; ``process`` does it if needed."""
        if not self._opened:
            self._opened = True
            self._call(self._instance.initialize, self._restored is not None, self._restored)
            self._call(self._instance.open)
        return self

    def process(self, *records: Any) -> list[Any]:
        """Pass records to the function, and return its output."""
        self.open()
        first = len(self.outputs)
        for record in records:
            self._call(self._process, record)
        self._backend.processed(self._settings["name"], len(records))
        return self.outputs[first:]

    def close(self) -> None:
        """Call ``close``."""
        self._call(self._instance.close)

    def __enter__(self: _H) -> _H:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metrics(self) -> dict[str, Any]:
        """Return the function's metrics, by name."""
        return self._instance.context.get_metrics_group().snapshot()

    def move(self: _H) -> _H:
        """Return the function in another worker: opened there, with state, fields and metrics.

        Raises:
            PickleError: when the function cannot be pickled.
        """
        self.open()
        if isinstance(self._pristine, Exception):
            message = f"{self.function!r} cannot be moved: it cannot be pickled ({self._pristine})"
            raise PickleError(message) from self._pristine
        other: _H = self._like(cloudpickle.loads(self._pristine))
        other._storage, other._epoch = self._storage, self._epoch + 1
        other._backend.restore(self._storage, self._persist())
        other.open()
        other._instance.restore_states(self._instance.save_states())
        other._instance.fields.restore(self._instance.fields.save())
        return other

    def _like(self, function: Any) -> Any:
        return type(self)(function, clock=self.clock, **self._settings)

    def _persist(self) -> Head:
        self._epoch += 1
        return self._backend.persist(self._storage, uuid.uuid4().hex, self._epoch)

    def _operation(self) -> operations.FunctionOperation:
        return _operation_for(self.function, self._settings["kind"])(self.function)

    def _make_instance(self) -> Operator:
        operation = self._operation()
        settings = self._settings
        name, parallelism = settings["name"], settings["parallelism"]
        node = Node(0, "function", name, operation)
        limit = settings["max_parallelism"]
        planned = PlannedOperator(node, name, 0, 0, parallelism, limit, (), ())
        defaults = Defaults(parallelism, limit)
        plan = Plan("harness", {0: planned}, (), (Level(0, parallelism, (0,), ()),), defaults)
        parameters = dict(settings["parameters"] or {})
        job = _HarnessJob(
            "harness",
            plan,
            {},
            "",
            "",
            parameters,
            state=StateSettings(check_mutations=settings["check_mutations"]),
            function=operation.function,
        )
        parts = SubtaskParts(job, settings["subtask"], 0, self._backend, self.clock, EventLoop())
        return make_operator(planned, parts)

    def _make_process(self) -> Callable[[Any], None]:
        declared = type_info_of(self._settings["output_type"])
        step = self._instance.step()
        step.coerce = declared.coercer() if declared is not None else None
        takes = {None: self.outputs} | {
            tag.tag_id: outputs for tag, outputs in self.side_outputs.items()
        }
        step.calls = tuple(Call(number, 0, tag) for number, tag in enumerate(takes, 1))
        steps = {0: step} | {
            number: FusedStep(step.report, take=outputs.append)
            for number, outputs in enumerate(takes.values(), 1)
        }
        fused = fuse(steps, {(0, 0): False}, [0])
        self._instance.emit = fused.outputs[0]
        return lambda record: fused.inputs[0, 0]((record,))

    def _call(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except OperatorFailed as failed:
            raise failed.__cause__ or failed from None
        finally:
            self._forget_what_was_handed_out()

    def _forget_what_was_handed_out(self) -> None:
        """What a test does with values of state, or a function that raised did, is its own."""
        if self._instance.watch is not None:
            self._instance.watch.clear()


class KeyedHarness(Harness):
    """Runs one function on a keyed stream, with state.

    >>> harness = KeyedHarness(lambda a, b: a + b, key_selector=lambda n: n % 2, kind="reduce")
    >>> harness.process(1, 2, 3, 4)
    [1, 2, 4, 6]
    >>> harness.state("reduced", 1)
    4
    """

    def __init__(
        self,
        function: Any,
        key_selector: Callable[[Any], Any] | functions.KeySelector,
        *,
        restore: Snapshot | Iterable[Snapshot] = (),
        **settings: Any,
    ) -> None:
        """Take a function and how to find the key of a record.

        Args:
            function: what to run.
            key_selector: the key of a record.
            restore: snapshots of other harnesses, perhaps with another parallelism; this subtask
                takes its own keys.
            settings: those of ``Harness``.
        """
        self._key_selector = key_selector
        super().__init__(function, **settings)
        snapshots = [restore] if isinstance(restore, Snapshot) else list(restore)
        if snapshots:
            files = MemoryStateStorage(*(snapshot.storage for snapshot in snapshots))
            self._backend.import_key_groups(files, [snapshot.head for snapshot in snapshots])
            images = [snapshot.operator_state for snapshot in snapshots]
            shares = redistribute(images, self._settings["parallelism"])
            self._restored = shares[self._settings["subtask"]]

    def advance_watermark(self, timestamp: int) -> list[Any]:
        """Move event time to a timestamp, and return the output of the timers that are due."""
        self.open()
        first = len(self.outputs)
        self._instance.time.watermark = Watermark(timestamp)
        self._call(self._instance.fire, TimeDomain.EVENT_TIME)
        return self.outputs[first:]

    def advance_clock(self, duration: DurationLike) -> list[Any]:
        """Move processing time by a duration, and return the output of the timers that are due."""
        self.open()
        first = len(self.outputs)
        self.clock.advance(duration)
        self._call(self._instance.fire, TimeDomain.PROCESSING_TIME)
        return self.outputs[first:]

    def state(self, name: str, key: Any) -> Any:
        """Return the state of a key: a value, a list, a dict, or an accumulator's result."""
        self.open()
        context = self._instance.key_context
        assert context is not None
        before, context.key = context.key, key
        try:
            return _contents(self._instance.context.state_named(name))
        finally:
            context.key = before
            self._forget_what_was_handed_out()

    def states(self, name: str) -> dict[Any, Any]:
        """Return the state of every key."""
        self.open()
        entries = self._backend.entries(self._settings["name"], name)
        return {key: self.state(name, key) for key in [key for key, _, _ in entries]}

    def snapshot(self) -> Snapshot:
        """Return the state as in a checkpoint, without the fields of the function."""
        self.open()
        self._call(self._instance.snapshot, 1, self.clock())
        image = self._instance.context.operator_states.image()
        head = self._persist()
        return Snapshot(MemoryStateStorage(self._storage), head, image)

    def _operation(self) -> operations.FunctionOperation:
        function, kind = self.function, self._settings["kind"]
        if isinstance(function, functions.ReduceFunction) or kind == "reduce":
            function, kind = Reduce(function), "process"
        return _operation_for(function, kind)(function, self._key_selector)

    def _like(self, function: Any) -> Any:
        return type(self)(function, self._key_selector, clock=self.clock, **self._settings)


@dataclass(frozen=True)
class _HarnessJob(JobCode):
    """Returns the function object itself."""

    function: Any = field(default=None)

    def new_function(self, operator: int) -> Any:
        return self.function


def _operation_for(function: Any, kind: str) -> type[operations.FunctionOperation]:
    for known, operation in _OF_FUNCTIONS:
        if isinstance(function, known):
            return operation
    if not callable(function):
        message = f"expected a function object or a callable; got {function!r}"
        raise TypeError(message)
    if kind not in _OPERATIONS:
        raise ValueError(f"kind must be one of {', '.join(_OPERATIONS)}; got {kind!r}")
    return _OPERATIONS[kind]


def _contents(state: Any) -> Any:
    if isinstance(state, ValueState):
        return state.value()
    if isinstance(state, MapState):
        return dict(state.items())
    return list(state.get()) if isinstance(state, ListState) else state.get()


def _try_pickle(function: Any) -> bytes | Exception:
    try:
        return dumps(function)
    except Exception as error:
        return error
