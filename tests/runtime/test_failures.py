"""A user's exception: the operator, the record, and the traceback from the user's own line on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Types
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.functions import SourceContext
from holdfast.datastream.state import ListStateDescriptor
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.runtime.failures import shorten
from holdfast.testing import LocalExecutor, run_locally


class Broken(Exception):
    """The user's own exception."""


def broken(value: Any, *_: Any) -> Any:
    raise Broken(f"no {value}")


def broken_generator(value: Any) -> Iterator[Any]:
    yield value
    raise Broken(f"no {value}")


def unpickled(*_: Any) -> Any:
    class Local(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("stays here")

    raise Local("cannot travel")


class BrokenIn(MapFunction):
    """Raises in the method of that name."""

    def __init__(self, method: str) -> None:
        self.method = method

    def open(self, runtime_context: RuntimeContext) -> None:
        self._maybe("open")

    def map(self, value: Any) -> Any:
        self._maybe("map")
        return value

    def close(self) -> None:
        self._maybe("close")

    def _maybe(self, method: str) -> None:
        if method == self.method:
            broken(method)


class BrokenProcess(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield broken(value)


class BrokenKeyedProcess(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return broken(value)  # type: ignore[no-any-return]


class BrokenReduce(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return broken(value2)


class BrokenKey(KeySelector):
    def get_key(self, value: Any) -> Any:
        return broken(value)


class BrokenSink(SinkFunction):
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        broken(value)


class BrokenSource(Source):
    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return BrokenReader()


class BrokenReader(SourceReader):
    finished = False

    def restore(self, position: Any) -> None: ...

    def read(self, limit: int) -> Iterator[list[Any]]:
        yield [1]
        broken("read")

    def position(self) -> Any: ...


class BrokenLoop(SourceFunction):
    def __init__(self, method: str) -> None:
        self.method = method

    def open(self, runtime_context: RuntimeContext) -> None:
        if self.method == "open":
            broken("open")

    def run(self, ctx: SourceContext) -> None:
        ctx.collect(1)
        broken("run")


Build = Callable[[DataStream], Any]

AT_A_RECORD: dict[str, tuple[Build, str]] = {
    "map": (lambda s: s.map(broken), "Map"),
    "flat_map": (lambda s: s.flat_map(broken), "Flat Map"),
    "flat_map generator": (lambda s: s.flat_map(broken_generator), "Flat Map"),
    "filter": (lambda s: s.filter(broken), "Filter"),
    "process": (lambda s: s.process(BrokenProcess()), "Process"),
    "keyed process": (lambda s: s.key_by(abs).process(BrokenKeyedProcess()), "Process"),
    "keyed map": (lambda s: s.key_by(abs).map(broken), "Map"),
    "reduce": (lambda s: s.key_by(abs).reduce(BrokenReduce()), "Reduce"),
    "map_with_state": (lambda s: s.key_by(abs).map_with_state(broken), "Map With State"),
    "key selector": (lambda s: s.key_by(broken).sum(), "Source: Collection"),
    "key selector class": (lambda s: s.key_by(BrokenKey()).sum(), "Source: Collection"),
    "partitioner": (
        lambda s: s.partition_custom(broken, abs).map(abs),
        "Source: Collection",
    ),
    "sink": (lambda s: s.add_sink(BrokenSink()), "Sink"),
}


@pytest.mark.parametrize("build", AT_A_RECORD)
def test_at_a_record(env: StreamExecutionEnvironment, build: str) -> None:
    make, operator = AT_A_RECORD[build]
    make(env.from_collection([7, 7]))
    with pytest.raises(UserFunctionError) as caught:
        run_locally(env)
    error = caught.value
    assert error.operator == operator
    assert error.record == "7"
    assert error.error == "tests.runtime.test_failures.Broken: no 7"
    assert isinstance(error.original, Broken)
    assert f"in operator '{operator}', subtask {error.subtask}\n  record: 7" in str(error)
    assert_first_frame_is_ours(error)


OUTSIDE_OF_A_RECORD: dict[str, tuple[Callable[[StreamExecutionEnvironment], Any], str]] = {
    "open": (lambda env: env.from_collection([1]).map(BrokenIn("open")), "Map"),
    "close": (lambda env: env.from_collection([1]).map(BrokenIn("close")), "Map"),
    "read": (lambda env: env.from_source(BrokenSource()), "Source: Source"),
    "run": (lambda env: env.add_source(BrokenLoop("run")), "Source: Custom Source"),
    "open of a loop": (lambda env: env.add_source(BrokenLoop("open")), "Source: Custom Source"),
}


@pytest.mark.parametrize("build", OUTSIDE_OF_A_RECORD)
def test_outside_of_a_record(env: StreamExecutionEnvironment, build: str) -> None:
    make, operator = OUTSIDE_OF_A_RECORD[build]
    make(env)
    phase = build.split()[0]
    with pytest.raises(UserFunctionError) as caught:
        run_locally(env)
    error = caught.value
    assert (error.operator, error.record) == (operator, None)
    assert error.error == f"tests.runtime.test_failures.Broken: no {phase} in {phase}()"
    assert_first_frame_is_ours(error)


def assert_first_frame_is_ours(error: UserFunctionError) -> None:
    lines = error.user_traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert Path(__file__).name in lines[1]
    assert lines[-1].endswith(error.error.split(" in ")[0])


def test_what_a_loop_gave_before_it_failed_is_processed(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(env.add_source(BrokenLoop("run"))) as run:
        with pytest.raises(UserFunctionError, match=r"no run in run\(\)"):
            run.run_to_end()
        assert run.records in ([], [1])


def test_an_exception_that_cannot_travel(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).map(unpickled).print()
    with pytest.raises(UserFunctionError, match="Local: cannot travel") as caught:
        run_locally(env)
    assert caught.value.original is None


def test_a_failure_downstream_names_the_operator_at_fault(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).flat_map(lambda x: [x, x]).name("innocent")
    stream.process(Passes()).name("innocent too").map(broken).name("guilty").map(abs)
    with pytest.raises(UserFunctionError) as caught:
        run_locally(env)
    assert caught.value.operator == "guilty"


class Passes(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value


def test_partitioner_that_misses(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).partition_custom(lambda key, n: n, abs).map(abs)
    message = r"the partitioner must return an int from 0 to 1; got 2\n  in operator 'Source: Coll"
    with pytest.raises(UserFunctionError, match=message):
        run_locally(env)


def test_key_that_cannot_be_a_key(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).key_by(lambda _: [1]).sum()
    with pytest.raises(UserFunctionError, match="list"):
        run_locally(env)


class Element:
    """A record whose ``repr`` raises."""

    def __repr__(self) -> str:
        raise ValueError


def test_long_and_broken_records_are_shortened() -> None:
    assert shorten("x" * 1000) == "'" + "x" * 299 + "…"
    assert shorten(Element()) == "<Element whose repr raises ValueError>"
    assert shorten((1, "a")) == "(1, 'a')"


def test_record_in_the_message_is_shortened(env: StreamExecutionEnvironment) -> None:
    env.from_collection(["x" * 1000]).map(broken_quietly)
    with pytest.raises(UserFunctionError) as caught:
        run_locally(env)
    assert len(caught.value.record or "") == 301


def broken_quietly(value: Any) -> Any:
    raise Broken


def test_misuse_of_state_names_the_operator(env: StreamExecutionEnvironment) -> None:
    class AddsNone(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.list = runtime_context.get_list_state(ListStateDescriptor("l", Types.INT()))

        def map(self, value: Any) -> Any:
            self.list.add(None)

    env.from_collection([1]).key_by(abs).map(AddsNone()).name("adder")
    with pytest.raises(UserFunctionError, match="a ListState cannot hold None") as caught:
        run_locally(env)
    assert caught.value.operator == "adder"


def test_an_epoch_that_failed_can_be_run_again(env: StreamExecutionEnvironment) -> None:
    FailsOnce.failed.clear()
    stream = env.set_parallelism(1).from_collection([1, 2, 3, 4]).map(FailsOnce())
    with LocalExecutor(stream.key_by(lambda _: 0).sum(), quota=2) as run:
        run.epoch()
        with pytest.raises(UserFunctionError, match="once"):
            run.epoch()
        assert run.records == [1, 3]
        run.run_to_end()
    assert run.records == [1, 3, 6, 10]


class FailsOnce(MapFunction):
    failed: list[int] = []  # noqa: RUF012

    def map(self, value: int) -> int:
        if value == 4 and not self.failed:
            self.failed.append(value)
            raise Broken("once")
        return value


def test_a_record_that_cannot_be_pickled(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).map(lambda x: lambda: x).name("maker").rebalance().map(lambda f: f())
    with pytest.raises(UserFunctionError, match="this record cannot be pickled") as caught:
        run_locally(env)
    assert caught.value.operator == "maker"
    assert "<lambda>" in (caught.value.record or "")


def test_a_result_that_cannot_be_pickled(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1, 2]).map(lambda x: (lambda: x) if x == 2 else x)
    with pytest.raises(UserFunctionError, match="this record cannot be pickled") as caught:
        run_locally(stream)
    assert caught.value.operator == "Collect"


def test_a_record_that_cannot_be_printed(env: StreamExecutionEnvironment) -> None:
    env.from_collection([Element()]).print().name("printer")
    with pytest.raises(UserFunctionError, match="Element whose repr raises") as caught:
        run_locally(env)
    assert caught.value.operator == "printer"


@pytest.mark.spark
def test_on_spark(env: StreamExecutionEnvironment, spark: Any, engine: str) -> None:
    env.from_collection([7]).map(broken).name("guilty").print()
    with pytest.raises(UserFunctionError) as caught:
        env.execute()
    error = caught.value
    assert (error.operator, error.record) == ("guilty", "7")
    assert isinstance(error.original, Broken)
    assert_first_frame_is_ours(error)
    assert len("".join(traceback.format_exception_only(error)).splitlines()) < 12


@pytest.mark.spark
def test_definition_errors_come_before_spark_starts_anything(
    env: StreamExecutionEnvironment, spark: Any
) -> None:
    env.from_collection([1]).map(abs).uid("x").map(abs).uid("x")
    with pytest.raises(JobDefinitionError, match="two operators have the uid"):
        env.execute()
