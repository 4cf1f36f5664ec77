"""Mistakes in a program are found before anything runs, and the message says what to do."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from holdfast.datastream import (
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.errors import JobDefinitionError, PickleError
from holdfast.graph.nodes import Edge, Node
from holdfast.graph.operations import MapOperation, SourceOperation
from holdfast.plan.model import Defaults
from holdfast.plan.planner import make_plan
from holdfast.testing import LocalExecutor

LOCK = threading.Lock()


def test_two_operators_of_one_uid(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).map(abs).uid("x").name("first").map(abs).uid("x").name("second")
    with pytest.raises(JobDefinitionError, match="two operators have the uid 'x': 'first' and"):
        env.explain()


def test_parallelism_above_max_parallelism(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).map(abs).name("wide")
    stream.set_parallelism(9).set_max_parallelism(8)
    message = "'wide' has parallelism 9, above its max parallelism 8; lower .*set_max_parallelism"
    with pytest.raises(JobDefinitionError, match=message):
        env.explain()


def test_parallelism_above_the_environments_limit(env: StreamExecutionEnvironment) -> None:
    env.set_max_parallelism(4)
    env.from_collection([1]).map(abs).set_parallelism(5)
    with pytest.raises(JobDefinitionError, match="parallelism 5, above its max parallelism 4"):
        env.explain()


def test_explicit_forward_between_different_parallelisms(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).name("one").forward().map(abs).name("two")
    message = r"forward\(\) from 'one' \(parallelism 1\) to 'two' \(parallelism 2\).*rebalance"
    with pytest.raises(JobDefinitionError, match=message):
        env.explain()


def test_nothing_to_execute(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(JobDefinitionError, match=r"nothing to execute.*add a source"):
        env.explain()


def test_nothing_new_to_execute(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).print()
    LocalExecutor(env)
    with pytest.raises(JobDefinitionError, match="since the last execution"):
        LocalExecutor(env)


def test_operator_without_an_input() -> None:
    node = Node(0, "map", "lonely", MapOperation(abs))
    with pytest.raises(JobDefinitionError, match="operator 'lonely' has no input"):
        make_plan([node], Defaults(1), "job")


def test_stream_of_another_environment(env: StreamExecutionEnvironment) -> None:
    other = StreamExecutionEnvironment.get_execution_environment()
    foreign = other.from_collection([1]).map(abs).name("foreign")
    with pytest.raises(JobDefinitionError, match="stream 'foreign' belongs to another environment"):
        env.from_collection([1]).union(foreign)


def test_edge_to_a_node_that_is_not_there() -> None:
    node = Node(1, "map", "lonely", MapOperation(abs), (Edge(0),))
    with pytest.raises(JobDefinitionError, match="'lonely' reads from a stream of another env"):
        make_plan([node], Defaults(1), "job")


@pytest.mark.parametrize("wrong", [3, None])
def test_key_selector_that_cannot_be_called(env: StreamExecutionEnvironment, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"key_by: expected a KeySelector or a callable; got"):
        env.from_collection([1]).key_by(wrong)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("map", "map: expected a MapFunction or a callable; got 1"),
        ("flat_map", "flat_map: expected a FlatMapFunction or a callable; got 1"),
        ("filter", "filter: expected a FilterFunction or a callable; got 1"),
        ("process", "process: a DataStream takes a ProcessFunction; got 1"),
        ("add_sink", "add_sink: expected a SinkFunction; got 1"),
        ("sink_to", "sink_to: expected a Sink.* got 1"),
        ("union", "union: expected streams; got 1"),
        ("project", r"project: expected field indexes; got \('1',\)"),
    ],
)
def test_wrong_kind_of_function(env: StreamExecutionEnvironment, method: str, message: str) -> None:
    argument: Any = "1" if method == "project" else 1
    with pytest.raises(TypeError, match=message):
        getattr(env.from_collection([1]), method)(argument)


def test_wrong_process_function_for_the_kind_of_stream(env: StreamExecutionEnvironment) -> None:
    class Plain(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None: ...

    with pytest.raises(TypeError, match="a KeyedStream takes a KeyedProcessFunction"):
        env.from_collection([1]).key_by(abs).process(Plain())  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["add_source", "from_source"])
def test_wrong_kind_of_source(env: StreamExecutionEnvironment, source: str) -> None:
    with pytest.raises(TypeError, match=f"{source}: expected a Source"):
        getattr(env, source)([1, 2])


def test_a_collection_that_is_none(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(
        TypeError, match=r"from_collection: expected a list of records; got 3 \(int"
    ):
        env.from_collection(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, True, "2"])
def test_wrong_parallelism(env: StreamExecutionEnvironment, wrong: Any) -> None:
    with pytest.raises(ValueError, match="parallelism must be a positive int"):
        env.from_collection([1]).map(abs).set_parallelism(wrong)


def test_settings_of_a_stream_that_is_no_operator(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    for partitioned in (stream.rebalance(), stream.union(stream)):
        with pytest.raises(TypeError, match="set them on the operator before or after it"):
            partitioned.name("x")


def test_field_to_aggregate(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match="sum: the field must be an int or a str; got float"):
        env.from_collection([1]).key_by(abs).sum(1.5)  # type: ignore[arg-type]


class HoldsASocket(MapFunction):
    def __init__(self) -> None:
        self.prefix = "fine"
        self.connection = socket.socket()

    def map(self, value: Any) -> Any:
        return value


class MakesItsLockInOpen(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.lock = threading.Lock()

    def map(self, value: Any) -> Any:
        with self.lock:
            return value


def test_function_with_a_field_that_cannot_be_pickled(env: StreamExecutionEnvironment) -> None:
    function = HoldsASocket()
    env.from_collection([1]).map(function).name("connect")
    message = (
        r"function of operator 'connect'.* its field 'connection' \(socket\.socket\).*open\(\)"
    )
    with function.connection, pytest.raises(PickleError, match=message):
        LocalExecutor(env)


def test_lambda_over_a_lock(env: StreamExecutionEnvironment) -> None:
    lock = threading.Lock()
    env.from_collection([1]).map(lambda x: lock.locked() or x).name("guarded")
    message = r"operator 'guarded'.* the variable 'lock' \(_thread\.lock\) cannot be pickled"
    with pytest.raises(PickleError, match=message):
        LocalExecutor(env)


def test_lambda_over_a_global_lock(env: StreamExecutionEnvironment) -> None:
    guarded = eval("lambda x: LOCK.locked() or x", {"LOCK": LOCK})
    env.from_collection([1]).map(guarded).name("guarded")
    with pytest.raises(PickleError, match=r"'guarded'.* the global 'LOCK' \(_thread\.lock\)"):
        LocalExecutor(env)


def test_key_selector_over_a_lock(env: StreamExecutionEnvironment) -> None:
    lock = threading.Lock()
    env.from_collection([1]).key_by(lambda x: lock.locked() or x).sum().name("total")
    message = r"the key selector of operator 'total' .* the variable 'lock' \(_thread\.lock\)"
    with pytest.raises(PickleError, match=message):
        LocalExecutor(env)


def test_partitioner_over_a_lock(env: StreamExecutionEnvironment) -> None:
    lock = threading.Lock()
    stream = env.from_collection([1]).name("numbers")
    stream.partition_custom(lambda key, n: int(lock.locked()), abs).map(abs)
    with pytest.raises(PickleError, match=r"the partitioner of operator 'Map' .* variable 'lock'"):
        LocalExecutor(env)


def test_source_that_cannot_be_pickled(env: StreamExecutionEnvironment) -> None:
    env.from_collection([threading.Lock()]).name("locks").print()
    message = r"the source of operator 'locks' .*: its field 'records' \(builtins\.list\) cannot be"
    with pytest.raises(PickleError, match=message):
        LocalExecutor(env)


def test_lambda_over_an_object_with_a_lock(env: StreamExecutionEnvironment) -> None:
    class Client:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    client = Client()
    env.from_collection([1]).map(lambda x: (client, x)).name("caller")
    message = r"its field 'lock' \(_thread\.lock\) of the variable 'client' cannot be pickled"
    with pytest.raises(PickleError, match=message):
        LocalExecutor(env)


def test_lock_made_in_open_is_fine(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(env.from_collection([1, 2]).map(MakesItsLockInOpen())) as run:
        run.run_to_end()
    assert sorted(run.records) == [1, 2]


def test_plan_of_a_dataframe_without_a_reader(env: StreamExecutionEnvironment) -> None:
    stream = env.from_dataframe(object())  # type: ignore[arg-type]
    stream.print()
    with pytest.raises(JobDefinitionError, match="'Source: DataFrame' reads or writes a Spark Da"):
        LocalExecutor(env)


def test_source_node_needs_no_input(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1])
    assert isinstance(env._graph[0].operation, SourceOperation)
    assert "1 level, 0 exchanges" in env.explain()
