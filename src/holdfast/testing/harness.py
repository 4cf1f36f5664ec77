"""One function by itself, with everything that the runtime gives it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import cloudpickle

from holdfast.common._cloudpickle import dumps
from holdfast.common.time import DurationLike
from holdfast.common.typeinfo import type_info_of
from holdfast.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from holdfast.datastream.keyed_functions import Reduce
from holdfast.datastream.output_tag import OutputTag
from holdfast.datastream.state import ListState, MapState, ValueState
from holdfast.datastream.time_domain import TimeDomain
from holdfast.errors import PickleError
from holdfast.graph.nodes import FunctionOperation, Node, Style
from holdfast.plan.model import Call, Defaults, Level, Plan, PlannedOperator
from holdfast.runtime.chain import OperatorInstance
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import OperatorFailed
from holdfast.runtime.fusion import Step, fuse
from holdfast.runtime.job import JobCode
from holdfast.state.backend import Chain, HeapKeyedStateBackend
from holdfast.state.key_groups import key_group_range
from holdfast.state.operator_state import Image, redistribute
from holdfast.state.settings import StateSettings
from holdfast.testing.clock import ManualClock
from holdfast.testing.storage import MemoryStateStorage

__all__ = ["Harness", "KeyedHarness", "Snapshot"]

_H = TypeVar("_H", bound="Harness")

_STYLES: Sequence[tuple[type[Function], Style]] = (
    (MapFunction, Style.MAP),
    (FlatMapFunction, Style.FLAT_MAP),
    (FilterFunction, Style.FILTER),
    (ProcessFunction, Style.PROCESS),
    (KeyedProcessFunction, Style.PROCESS),
    (SinkFunction, Style.SINK),
)


@dataclass(frozen=True)
class Snapshot:
    """The state of one harness, as it would be in a checkpoint."""

    storage: MemoryStateStorage
    chain: Chain
    operator_state: Image = field(default_factory=dict)


class Harness:
    """Runs one function: opens it, gives it records, keeps what it gives.

    >>> harness = Harness(lambda line: line.split(), kind="flat_map")
    >>> harness.process("to be", "or not")
    ['to', 'be', 'or', 'not']

    The function object is used as it is, so a test can look at its fields; exceptions of it come
    as they are.

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
            kind: what a plain callable is: ``map``, ``flat_map`` or ``filter``; keyed, also
                ``reduce``. The class of a function object says so by itself.
            parallelism: the number of subtasks that the function is told of.
            subtask: the index of the one that it is.
            max_parallelism: the number of key groups.
            name: the name of the operator, which is also its uid.
            output_type: the declared type, whose shape outputs take.
            side_outputs: the side outputs to keep; others go nowhere.
            clock: the processing time; by default one that stands at 0.
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
        """Call ``initialize_state`` and ``open``, once; ``process`` does it where it was not."""
        if not self._opened:
            self._opened = True
            self._call(self._instance.initialize, self._restored is not None, self._restored)
            self._call(self._instance.open)
        return self

    def process(self, *records: Any) -> list[Any]:
        """Give records to the function; returns what it gave for them."""
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
        """The function's metrics, by name."""
        return self._instance.context.get_metrics_group().snapshot()

    def move(self: _H) -> _H:
        """The same function in another worker: opened there; state, fields and metrics carried.

        Raises:
            PickleError: when the function cannot be pickled.
        """
        self.open()
        if isinstance(self._pristine, Exception):
            msg = f"{self.function!r} cannot be moved: it cannot be pickled ({self._pristine})"
            raise PickleError(msg) from self._pristine
        other: _H = self._like(cloudpickle.loads(self._pristine))
        other._storage, other._epoch = self._storage, self._epoch + 1
        other._backend.restore(self._storage, self._persist())
        other.open()
        other._instance.restore_states(self._instance.save_states())
        other._instance.carrier.restore(self._instance.carrier.save())
        return other

    def _like(self, function: Any) -> Any:
        return type(self)(function, clock=self.clock, **self._settings)

    def _persist(self) -> Chain:
        self._epoch += 1
        return self._backend.persist(self._storage, uuid.uuid4().hex, self._epoch)

    def _operation(self) -> FunctionOperation:
        return FunctionOperation(_style(self.function, self._settings["kind"]), self.function)

    def _make_instance(self) -> OperatorInstance:
        operation = self._operation()
        settings = self._settings
        name, parallelism = settings["name"], settings["parallelism"]
        node = Node(0, operation.style.value, name, operation)
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
        return OperatorInstance(planned, job, settings["subtask"], 0, self._backend, self.clock)

    def _make_process(self) -> Callable[[Any], None]:
        declared = type_info_of(self._settings["output_type"])
        step = self._instance.step()
        step.coerce = declared.coercer() if declared is not None else None
        takes = {None: self.outputs} | {
            tag.tag_id: outputs for tag, outputs in self.side_outputs.items()
        }
        step.calls = tuple(Call(number, 0, tag) for number, tag in enumerate(takes, 1))
        steps = {0: step} | {
            number: Step(step.report, take=outputs.append)
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
        key_selector: Callable[[Any], Any] | KeySelector,
        *,
        restore: Snapshot | Iterable[Snapshot] = (),
        **settings: Any,
    ) -> None:
        """Take a function and how to find the key of a record.

        Args:
            function: what to run.
            key_selector: the key of a record.
            restore: snapshots of other harnesses, perhaps of another parallelism; this subtask
                takes the keys that are its own.
            settings: as those of ``Harness``.
        """
        self._key_selector = key_selector
        super().__init__(function, **settings)
        snapshots = [restore] if isinstance(restore, Snapshot) else list(restore)
        if snapshots:
            files = MemoryStateStorage(*(snapshot.storage for snapshot in snapshots))
            self._backend.import_key_groups(files, [snapshot.chain for snapshot in snapshots])
            images = [snapshot.operator_state for snapshot in snapshots]
            shares = redistribute(images, self._settings["parallelism"])
            self._restored = shares[self._settings["subtask"]]

    def advance_watermark(self, timestamp: int) -> list[Any]:
        """Move event time to a timestamp; returns what the timers that are due gave."""
        self.open()
        first = len(self.outputs)
        self._instance.time.watermark = Watermark(timestamp)
        self._call(self._instance.fire, TimeDomain.EVENT_TIME)
        return self.outputs[first:]

    def advance_clock(self, duration: DurationLike) -> list[Any]:
        """Move processing time by a duration; returns what the timers that are due gave."""
        self.open()
        first = len(self.outputs)
        self.clock.advance(duration)
        self._call(self._instance.fire, TimeDomain.PROCESSING_TIME)
        return self.outputs[first:]

    def state(self, name: str, key: Any) -> Any:
        """What a state holds for a key: a value, a list, a dict, or an accumulator's result."""
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
        """What a state holds for every key."""
        self.open()
        entries = self._backend.entries(self._settings["name"], name)
        return {key: self.state(name, key) for key in [key for key, _, _ in entries]}

    def snapshot(self) -> Snapshot:
        """The state as it would be in a checkpoint; fields of the function are no part of it."""
        self.open()
        self._call(self._instance.snapshot, 1, self.clock())
        image = self._instance.context.operator_states.image()
        chain = self._persist()
        return Snapshot(MemoryStateStorage(self._storage), chain, image)

    def _operation(self) -> FunctionOperation:
        function, kind = self.function, self._settings["kind"]
        if isinstance(function, ReduceFunction) or kind == "reduce":
            function, kind = Reduce(function), "process"
        return FunctionOperation(_style(function, kind), function, self._key_selector)

    def _like(self, function: Any) -> Any:
        return type(self)(function, self._key_selector, clock=self.clock, **self._settings)


@dataclass(frozen=True)
class _HarnessJob(JobCode):
    """Hands out the function object itself."""

    function: Any = field(default=None)

    def new_function(self, operator: int) -> Any:
        return self.function


def _style(function: Any, kind: str) -> Style:
    for known, style in _STYLES:
        if isinstance(function, known):
            return style
    if not callable(function):
        msg = f"expected a function object or a callable; got {function!r}"
        raise TypeError(msg)
    return Style(kind)


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
