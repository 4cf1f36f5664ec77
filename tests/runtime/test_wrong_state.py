"""State, timers and keys used where there are none, and accumulators that keys would share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from holdfast.common import Types
from holdfast.datastream import (
    AggregateFunction,
    DataStream,
    EmbeddedRocksDBStateBackend,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    functions,
)
from holdfast.datastream.state import AggregatingStateDescriptor, ValueStateDescriptor
from holdfast.datastream.window import CountTrigger, GlobalWindows
from holdfast.errors import PickleError, UserFunctionError
from holdfast.runtime.worker.job_code import make_job_code, pack, unpack
from holdfast.testing import LocalExecutor, run_locally

COUNT = ValueStateDescriptor("count", Types.INT())


class UsedInOpen(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.count.update(7)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield self.count.value()


class RequestedLate(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = self.context.get_state(COUNT)
        count.update((count.value() or 0) + 1)
        yield count.value()


class WithoutKeys(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def map(self, value: Any) -> Any:
        return value


class Asks(ProcessFunction):
    """Asks the context of a record for something that it does not have."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self.ask = ask

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield self.ask(ctx)


class AsksForState(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_state(COUNT)


class Base(KeyedProcessFunction):
    def __init__(self) -> None:
        self.limit = 3

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)


class ForgetsInit(Base):
    def __init__(self) -> None:
        self.other = 4

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield self.limit


class ForgetsOpen(Base):
    def open(self, runtime_context: RuntimeContext) -> None: ...

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield self.count.value()


class Collected(AggregateFunction):
    def __init__(self, start: Any) -> None:
        self.start = start

    def create_accumulator(self) -> Any:
        return self.start

    def add(self, value: Any, accumulator: Any) -> Any:
        return type(accumulator)((*accumulator, value))

    def get_result(self, accumulator: Any) -> Any:
        return list(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class Aggregates(KeyedProcessFunction):
    def __init__(self, function: AggregateFunction) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = AggregatingStateDescriptor("all", self.function)
        self.all = runtime_context.get_aggregating_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.all.add(value)
        yield self.all.get()


def counted(stream: Any, function: AggregateFunction) -> DataStream:
    """Windows of one record."""
    windows = stream.key_by(abs).window(GlobalWindows.create()).trigger(CountTrigger.of(1))
    result: DataStream = windows.aggregate(function)
    return result


NO_KEY = (
    r"a keyed state is used while there is no key: open\(\) only requests the state(.|\n)*in open"
)
SHARED = (
    r"'Collected.create_accumulator' \(test_wrong_state.py, line \d+\) returned the same list "
    "twice, so several keys or windows would share it; return a new one from each call"
)
MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "state in open": (lambda s: s.key_by(abs).process(UsedInOpen()), NO_KEY),
    "state without keys": (
        lambda s: s.map(WithoutKeys()),
        r"^operator 'guilty' requests the keyed state 'count', but its input is not a keyed stream;"
        r" call key_by\(\.\.\.\) before it\n  in open\(\)",
    ),
    "timer without keys": (
        lambda s: s.process(Asks(lambda ctx: ctx.timer_service().register_event_time_timer(5))),
        r"^operator 'guilty' sets a timer, but timers belong to keys and its stream has none",
    ),
    "key without keys": (
        lambda s: s.process(Asks(lambda ctx: ctx.get_current_key())),
        r"has no attribute 'get_current_key': this stream has no keys; call key_by\(\.\.\.\) bef",
    ),
    "state of a record's context": (
        lambda s: s.key_by(abs).process(AsksForState()),
        r"has no attribute 'get_state'; request the state in open\(\): self.state = runtime_cont",
    ),
    "no super().__init__": (
        lambda s: s.key_by(abs).process(ForgetsInit()),
        r"'ForgetsInit' object has no attribute 'limit': Base.__init__ sets it, and "
        r"ForgetsInit.__init__ does not call it; add super\(\).__init__\(\.\.\.\) there",
    ),
    "no super().open": (
        lambda s: s.key_by(abs).process(ForgetsOpen()),
        r"no attribute 'count': Base.open sets it, and ForgetsOpen.open does not call it; add sup",
    ),
    "shared accumulator": (lambda s: s.key_by(abs).process(Aggregates(Collected([]))), SHARED),
    "shared accumulator of windows": (lambda s: counted(s, Collected([])), SHARED),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake(env: StreamExecutionEnvironment, mistake: str) -> None:
    build, message = MISTAKES[mistake]
    made = build(env.set_parallelism(1).from_collection([1, 2])).name("guilty")
    with pytest.raises(UserFunctionError, match=message) as caught:
        run_locally(made)
    assert caught.value.operator == "guilty"
    assert f'File "{__file__}", line ' in caught.value.user_traceback


def test_state_in_open_with_a_database(env: StreamExecutionEnvironment) -> None:
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    env.from_collection([1]).key_by(abs).process(UsedInOpen())
    with pytest.raises(UserFunctionError, match=NO_KEY):
        run_locally(env)


def test_a_state_may_be_requested_with_a_record(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1, 2, 2]).key_by(abs).process(RequestedLate())
    assert sorted(run_locally(stream).records) == [1, 1, 2]


def test_an_accumulator_that_cannot_change_may_be_shared(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1, 2]).key_by(abs).process(Aggregates(Collected(())))
    assert sorted(run_locally(stream).records) == [[1], [2]]


def test_a_runtime_context_before_open() -> None:
    class Early(KeyedProcessFunction):
        def __init__(self) -> None:
            self.state = self.get_runtime_context().get_state(COUNT)  # type: ignore[attr-defined]

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any: ...

    message = r"no attribute 'get_runtime_context'; open\(self, runtime_context\) gets it"
    with pytest.raises(AttributeError, match=message):
        Early()


def test_no_base_class_of_functions_needs_its_init_called() -> None:
    """So a function that does not call ``super().__init__()`` works."""
    bases = [getattr(functions, name) for name in functions.__all__]
    assert [
        base.__name__
        for base in bases
        if isinstance(base, type)
        and issubclass(base, functions.Function)
        and "__init__" in vars(base)
    ] == []


def test_an_environment_or_a_stream_in_a_function(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    remedy = "an environment and its streams exist in the driver only; read what the function"
    stream.map(lambda x: (x, env.get_parallelism())).name("first")
    with pytest.raises(PickleError, match=rf"'first'.*the variable 'env' .*: {remedy}"):
        LocalExecutor(env)
    other = StreamExecutionEnvironment.get_execution_environment()
    other.from_collection([1]).map(lambda x: (x, stream.get_name())).name("second")
    with pytest.raises(PickleError, match=rf"'second'.*of the variable 'stream' .*: {remedy}"):
        LocalExecutor(other)


def test_an_object_of_spark_in_a_function(env: StreamExecutionEnvironment) -> None:
    class Session:
        def __reduce__(self) -> Any:
            raise RuntimeError("It appears that you are attempting to reference SparkContext")

    Session.__module__ = "pyspark.sql.session"
    spark = Session()
    env.from_collection([1]).map(lambda x: (x, spark)).name("uses Spark")
    message = "the variable 'spark' .* cannot be pickled: objects of Spark work in the driver only"
    with pytest.raises(PickleError, match=message):
        LocalExecutor(env)


def test_a_default_that_cannot_be_pickled(env: StreamExecutionEnvironment) -> None:
    numbers = (number for number in [1])

    def takes(value: Any, rest: Any = numbers) -> Any:
        return next(rest)

    env.from_collection([1]).map(takes)
    with pytest.raises(PickleError, match=r"the default of its parameter 'rest' \(builtins.gen"):
        LocalExecutor(env)


def test_workers_have_the_arguments_of_the_program(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.from_collection([1]).map(lambda x: (x, sys.argv))
    monkeypatch.setattr(sys, "argv", ["job.py", "--input", "data"])
    packed = pack(make_job_code("job", env._plan(None), ""))
    monkeypatch.setattr(sys, "argv", ["pyspark/daemon.py"])
    job = unpack(packed)
    function = next(f for f in map(cloudpickle.loads, job.functions.values()) if f is not None)
    assert function(1) == (1, ["job.py", "--input", "data"])
