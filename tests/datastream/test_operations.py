"""What each operation of a stream does to its records."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Row, Types
from holdfast.datastream import (
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    SinkFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.base import Sink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import ListCheckpointed
from holdfast.testing import CollectingSink, Harness, LocalExecutor, collect
from tests.lives import Life, live, lives

if TYPE_CHECKING:
    from tests.conftest import Executor


# Records of the user's own.


@dataclass(frozen=True)
class Reading:
    sensor: str
    value: float


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    def __hash__(self) -> int:
        return hash(self.x)


class Named(NamedTuple):
    key: str
    total: int


# Functions of each form.


class Double(MapFunction):
    def map(self, value: int) -> int:
        return 2 * value


class Words(FlatMapFunction):
    def flat_map(self, value: str) -> Iterable[str]:
        yield from value.split()


class IsEven(FilterFunction):
    def filter(self, value: int) -> bool:
        return value % 2 == 0


class Remainder(KeySelector):
    def __init__(self, divisor: int) -> None:
        self.divisor = divisor

    def get_key(self, value: int) -> int:
        return value % self.divisor


class Add(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class Modulo(Partitioner):
    def partition(self, key: int, num_partitions: int) -> int:
        return key % num_partitions


class Twice(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        assert ctx.timestamp() is None
        yield value
        yield value


class WithSubtask(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> tuple[int, Any]:
        return self.subtask, value


def double(value: int) -> int:
    return 2 * value


def up_to(count: int) -> Iterator[int]:
    yield from range(count)


def none_or_list(value: int) -> list[int] | None:
    return None if value % 2 else [value, value]


def test_record_by_record(env: StreamExecutionEnvironment, executor: Executor) -> None:
    """Functions as classes, lambdas, generators and plain functions, in one graph."""
    numbers = env.from_collection(range(4))
    results = [
        ("map by class", numbers.map(Double()), [0, 2, 4, 6]),
        ("map by lambda", numbers.map(lambda x: x + 1), [1, 2, 3, 4]),
        ("map by function", numbers.map(double), [0, 2, 4, 6]),
        ("map by builtin", numbers.map(float), [0.0, 1.0, 2.0, 3.0]),
        ("flat_map by generator", numbers.flat_map(up_to), [0, 0, 0, 1, 1, 2]),
        ("flat_map by list or None", numbers.flat_map(none_or_list), [0, 0, 2, 2]),
        ("flat_map by class", numbers.map(str).flat_map(Words()), ["0", "1", "2", "3"]),
        ("filter by class", numbers.filter(IsEven()), [0, 2]),
        ("filter by truth", numbers.filter(lambda x: x), [1, 2, 3]),
        ("process", numbers.process(Twice()), [0, 0, 1, 1, 2, 2, 3, 3]),
        ("project", numbers.map(lambda x: (x, "b", -x)).project(2, 0), None),
        ("union", numbers.union(numbers.map(double)), [0, 0, 1, 2, 2, 3, 4, 6]),
    ]
    all_streams = [stream.map(_tagged(name)) for name, stream, _ in results]
    got: dict[str, list[Any]] = {}
    for name, record in executor.collect(all_streams[0].union(*all_streams[1:])):
        got.setdefault(name, []).append(record)
    assert sorted(got.pop("project")) == [(-3, 3), (-2, 2), (-1, 1), (0, 0)]
    assert {name: sorted(records) for name, records in got.items()} == {
        name: expected for name, _, expected in results if expected is not None
    }


def _tagged(name: str) -> Callable[[Any], tuple[str, Any]]:
    return lambda record: (name, record)


def test_reductions(env: StreamExecutionEnvironment, executor: Executor) -> None:
    """One source subtask, so that the order within a key is known."""
    pairs = env.from_collection([("a", 3, "x"), ("b", 1, "y"), ("a", 1, "z"), ("a", 2, "w")])
    keyed = pairs.key_by(lambda record: record[0])
    results = {
        "reduce": keyed.reduce(lambda a, b: (a[0], a[1] + b[1], b[2])),
        "sum": keyed.sum(1),
        "min": keyed.min(1),
        "max": keyed.max(1),
        "min_by": keyed.min_by(1),
        "max_by": keyed.max_by(1),
    }
    streams = [stream.map(_tagged(name)) for name, stream in results.items()]
    got: dict[tuple[str, str], list[Any]] = {}
    for name, record in executor.collect(streams[0].union(*streams[1:])):
        got.setdefault((name, record[0]), []).append(record[1:])
    assert {name: records for (name, key), records in got.items() if key == "a"} == {
        "reduce": [(3, "x"), (4, "z"), (6, "w")],
        "sum": [(3, "x"), (4, "x"), (6, "x")],
        "min": [(3, "x"), (1, "x"), (1, "x")],
        "max": [(3, "x"), (3, "x"), (3, "x")],
        "min_by": [(3, "x"), (1, "z"), (1, "z")],
        "max_by": [(3, "x"), (3, "x"), (3, "x")],
    }
    assert all(got[name, "b"] == [(1, "y")] for name in results)


@pytest.mark.parametrize(
    ("records", "field", "expected"),
    [
        pytest.param([1, 2, 3], 0, [1, 3, 6], id="basic values"),
        pytest.param([(0, 1), (0, 2)], 1, [(0, 1), (0, 3)], id="tuples"),
        pytest.param([[0, 1], [0, 2]], 1, [[0, 1], [0, 3]], id="lists"),
        pytest.param(
            [Named("k", 1), Named("k", 2)], 1, [Named("k", 1), Named("k", 3)], id="named tuples"
        ),
        pytest.param([Row(0, 1), Row(0, 2)], 1, [Row(0, 1), Row(0, 3)], id="rows"),
        pytest.param(
            [Row(k=0, n=1), Row(k=0, n=2)], "n", [Row(k=0, n=1), Row(k=0, n=3)], id="named rows"
        ),
        pytest.param(["a", "b"], 0, ["a", "ab"], id="strings"),
    ],
)
def test_sum_over_each_kind_of_record(
    env: StreamExecutionEnvironment, records: list[Any], field: int | str, expected: list[Any]
) -> None:
    assert collect(env.from_collection(records).key_by(lambda _: 0).sum(field)) == expected


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("min", [Row(n=2, s="b"), Row(n=1, s="b"), Row(n=1, s="b"), Row(n=1, s="b")]),
        ("max", [Row(n=2, s="b"), Row(n=2, s="b"), Row(n=3, s="b"), Row(n=3, s="b")]),
        ("min_by", [Row(n=2, s="b"), Row(n=1, s="a"), Row(n=1, s="a"), Row(n=1, s="a")]),
        ("max_by", [Row(n=2, s="b"), Row(n=2, s="b"), Row(n=3, s="c"), Row(n=3, s="c")]),
    ],
)
def test_extremes_over_named_rows(
    env: StreamExecutionEnvironment, method: str, expected: list[Row]
) -> None:
    fields = [(2, "b"), (1, "a"), (3, "c"), (3, "d")]
    rows = env.from_collection([Row(n=n, s=s) for n, s in fields])
    keyed = rows.key_by(lambda row: 0)
    assert collect(getattr(keyed, method)("n")) == expected


def test_sum_does_not_change_the_records_themselves(env: StreamExecutionEnvironment) -> None:
    rows = env.from_collection([Row(1), Row(2), Row(3)]).set_parallelism(1)
    keyed = rows.key_by(lambda row: 0).sum(0).union(rows)
    assert Counter(row[0] for row in collect(keyed)) == Counter([1, 3, 6, 1, 2, 3])


def test_field_of_a_basic_value(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([1, 2]).key_by(lambda _: 0)
    with pytest.raises(Exception, match="field 1 was selected, but the records are basic values"):
        collect(keyed.max(1))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=20), lives(st.integers(1, 6)))
def test_in_batch_mode_every_key_gives_its_last_value(numbers: list[int], life: Life) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        keyed = env.from_collection(numbers).key_by(lambda number: number % 3)
        return keyed.reduce(lambda a, b: a + b).union(keyed.max())

    by_key = [[number for number in numbers if number % 3 == key] for key in range(3)]
    expected = [result for key in by_key if key for result in (sum(key), max(key))]
    assert sorted(live(build, life)) == sorted(expected)


def test_functions_that_return_none(env: StreamExecutionEnvironment, executor: Executor) -> None:
    """PyFlink's rules: None is a record of `map` and `reduce`; elsewhere it is no result."""
    numbers = env.from_collection([1, 2])
    keyed = numbers.key_by(lambda n: 0)
    results = [
        ("map", numbers.map(lambda n: None if n == 1 else n), [None, 2]),
        ("keyed map", keyed.map(lambda n: None if n == 1 else n), [None, 2]),
        ("flat_map", numbers.flat_map(lambda n: None if n == 1 else [n, None]), [2, None]),
        ("filter", numbers.filter(lambda n: [] if n == 1 else "kept"), [2]),
        ("reduce", keyed.reduce(lambda a, b: None), [1, None]),
    ]
    named = [stream.map(lambda n, name=name: (name, n)) for name, stream, _ in results]
    got = executor.collect(named[0].union(*named[1:]))
    expected = [(name, value) for name, _, values in results for value in values]
    assert sorted(map(repr, got)) == sorted(map(repr, expected))


class Forgetful(MapFunction, ListCheckpointed):
    """Has nothing to keep, and says so with None; passes on what it was given."""

    def __init__(self) -> None:
        self.given: list[Any] = ["nothing yet"]

    def map(self, value: int) -> Any:
        return value, self.given

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> None:
        return None

    def restore_state(self, state: list[Any]) -> None:
        self.given = state


def test_a_snapshot_of_none_is_an_empty_list(env: StreamExecutionEnvironment) -> None:
    env.enable_checkpointing(3_600_000)
    with LocalExecutor(env.from_collection([1, 2]).map(Forgetful()), quota=1) as run:
        run.epoch(checkpoint=True)
        assert run.recover() == 1
        run.epoch()
        assert run.records == [(1, ["nothing yet"]), (2, [])]


def test_in_batch_mode_what_was_reduced_to_none_gives_nothing(
    env: StreamExecutionEnvironment,
) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    keyed = env.from_collection([1, 2, 3]).key_by(lambda n: n % 2)
    assert collect(keyed.reduce(lambda a, b: None)) == [2]


def test_reduce_by_class_with_a_key_selector_class(
    env: StreamExecutionEnvironment, in_process: Executor
) -> None:
    keyed = env.from_collection(range(7)).key_by(Remainder(3))
    got = in_process.collect(keyed.reduce(Add()).key_by(Remainder(3)).max())
    assert max(got) == 0 + 3 + 6
    assert len(got) == 7


def test_with_state(env: StreamExecutionEnvironment, executor: Executor) -> None:
    keyed = env.from_collection([("a", 1), ("b", 5), ("a", 2), ("a", 3)]).key_by(lambda r: r[0])
    running = keyed.map_with_state(lambda r, s: ((r[0], (s or 0) + r[1]), (s or 0) + r[1]))
    repeats = keyed.flat_map_with_state(lambda r, s: ([r] * (s or 0), (s or 0) + 1))
    second = keyed.filter_with_state(lambda r, s: (s is not None, None if s else True))
    tagged = [
        stream.map(_tagged(name))
        for name, stream in [("map", running), ("flat_map", repeats), ("filter", second)]
    ]
    got: dict[str, list[Any]] = {}
    for name, record in executor.collect(tagged[0].union(*tagged[1:])):
        got.setdefault(name, []).append(record)
    assert sorted(got["map"]) == [("a", 1), ("a", 3), ("a", 6), ("b", 5)]
    assert sorted(got["flat_map"]) == [("a", 2), ("a", 3), ("a", 3)]
    # the second record of a key passes, and clears the state, so that the third is a first again
    assert got["filter"] == [("a", 2)]


def test_union_of_many_and_with_itself(env: StreamExecutionEnvironment) -> None:
    one, two = env.from_collection([1]), env.from_collection([2])
    assert sorted(collect(one.union(two, one, one))) == [1, 1, 1, 2]


def test_a_keyed_stream_is_a_stream_of_its_values(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection(range(4))
    keyed = numbers.key_by(lambda x: x % 2)
    assert sorted(collect(keyed.map(double))) == [0, 2, 4, 6]
    assert sorted(collect(keyed.union(numbers))) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(collect(keyed.key_by(lambda x: -x).filter(bool))) == [1, 2, 3]
    assert sorted(collect(keyed)) == [0, 1, 2, 3]


# Partitionings.


PARTITIONINGS: dict[str, Callable[[DataStream], DataStream]] = {
    "rebalance": DataStream.rebalance,
    "rescale": DataStream.rescale,
    "shuffle": DataStream.shuffle,
    "broadcast": DataStream.broadcast,
    "global": DataStream.global_,
    "custom": lambda s: s.partition_custom(lambda key, count: key % count, lambda x: x),
    "custom by class": lambda s: s.partition_custom(Modulo(), Remainder(100)),
}


def test_partitionings(env: StreamExecutionEnvironment, executor: Executor) -> None:
    """Who gets what, and that every receiver reads in the order in which it was sent."""
    numbers = env.from_collection(range(40))
    streams = [
        partition(numbers).map(WithSubtask()).set_parallelism(3).map(_tagged(name))
        for name, partition in PARTITIONINGS.items()
    ]
    streams = [stream.set_parallelism(3) for stream in streams]
    got: dict[str, dict[int, list[int]]] = {}
    for name, (subtask, number) in executor.collect(streams[0].union(*streams[1:])):
        got.setdefault(name, {}).setdefault(subtask, []).append(number)
    for name, by_subtask in got.items():
        assert all(part == sorted(part) for part in by_subtask.values()), name
    for name in ("rebalance", "rescale", "custom", "custom by class"):
        assert got[name] == {i: list(range(i, 40, 3)) for i in range(3)}, name
    assert got["broadcast"] == {i: list(range(40)) for i in range(3)}
    assert got["global"] == {0: list(range(40))}
    assert set(got["shuffle"]) == {0, 1, 2}
    assert sorted(n for part in got["shuffle"].values() for n in part) == list(range(40))


def test_forward_stays_in_its_subtask(env: StreamExecutionEnvironment) -> None:
    before = env.from_collection(range(6)).map(WithSubtask())
    after = before.forward().map(WithSubtask())
    assert all(outer == inner for outer, (inner, _) in collect(after))


@pytest.mark.parametrize("senders", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("receivers", [1, 2, 3, 4, 6])
def test_rescale_serves_every_receiver(
    env: StreamExecutionEnvironment, senders: int, receivers: int
) -> None:
    numbers = env.from_source(NumberSequenceSource(1, 240)).set_parallelism(senders)
    sent = numbers.map(WithSubtask()).set_parallelism(senders)
    received = sent.rescale().map(WithSubtask()).set_parallelism(receivers)
    got = collect(received)
    assert sorted(number for _, (_, number) in got) == list(range(1, 241))
    assert {receiver for receiver, _ in got} == set(range(receivers))
    targets = {sender: {r for r, (s, _) in got if s == sender} for sender in range(senders)}
    assert all(len(reached) <= -(-receivers // senders) for reached in targets.values())


def test_same_key_same_subtask(env: StreamExecutionEnvironment, in_process: Executor) -> None:
    numbers = env.from_source(NumberSequenceSource(0, 199)).set_parallelism(3)
    subtasks = numbers.key_by(lambda x: x % 97).map(WithSubtask()).set_parallelism(4)
    owners: dict[int, set[int]] = {}
    for subtask, number in in_process.collect(subtasks):
        owners.setdefault(number % 97, set()).add(subtask)
    assert all(len(subtasks) == 1 for subtasks in owners.values())
    assert len(set.union(*owners.values())) == 4


def test_order_of_a_key_through_two_shuffles(
    env: StreamExecutionEnvironment, in_process: Executor
) -> None:
    numbers = env.from_collection(range(60))
    keyed = numbers.key_by(lambda x: x % 5).map(double).set_parallelism(3)
    again = keyed.key_by(lambda x: x // 2 % 5).filter(lambda x: True).set_parallelism(4)
    by_key: dict[int, list[int]] = {}
    for number in in_process.collect(again):
        by_key.setdefault(number // 2 % 5, []).append(number)
    assert by_key == {key: [2 * n for n in range(key, 60, 5)] for key in range(5)}


# Types and records.


def test_records_of_the_users_own_classes(
    env: StreamExecutionEnvironment, executor: Executor
) -> None:
    readings = env.from_collection([Reading("a", 1.0), Reading("b", 2.0), Reading("a", 3.0)])
    total = readings.key_by(lambda r: r.sensor).reduce(
        lambda a, b: Reading(a.sensor, a.value + b.value)
    )
    points = readings.map(lambda r: Point(int(r.value))).key_by(lambda p: p.x % 2)
    got = executor.collect(total.union(points.filter(lambda p: p.x > 1)))
    assert set(got) == {
        Reading("a", 1.0),
        Reading("b", 2.0),
        Reading("a", 4.0),
        Point(2),
        Point(3),
    }


def test_outputs_take_the_declared_shape(
    env: StreamExecutionEnvironment, executor: Executor
) -> None:
    named = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
    rows = env.from_collection([("a", 1), ("b", 2)], type_info=named)
    summed = rows.key_by(lambda row: row.word).sum("count")
    tuples = summed.map(
        lambda row: [row.word, row["count"]], Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    got = executor.collect(summed.union(tuples))
    assert sorted(repr(record) for record in got) == [
        "('a', 1)",
        "('b', 2)",
        "Row(word='a', count=1)",
        "Row(word='b', count=2)",
    ]


def test_an_output_that_does_not_fit_its_type(env: StreamExecutionEnvironment) -> None:
    wrong = env.from_collection(["x"]).map(lambda x: (x,), Types.ROW([Types.INT(), Types.INT()]))
    with pytest.raises(Exception, match=r"in operator 'Map', subtask \d\n  record: \('x',\)"):
        collect(wrong)


def test_types_go_on_where_records_stay_the_same(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1], type_info=Types.INT())
    assert numbers.filter(bool).get_type() == Types.INT()
    assert numbers.key_by(abs).sum().get_type() == Types.INT()
    assert numbers.union(numbers).get_type() == Types.INT()
    assert numbers.union(env.from_collection(["a"])).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert numbers.map(str).get_type() == Types.PICKLED_BYTE_ARRAY()


def test_a_class_of_the_test_itself(env: StreamExecutionEnvironment) -> None:
    local = namedtuple("local", "x")
    got = collect(env.from_collection([1, 2]).map(lambda x: local(x).x))
    assert sorted(got) == [1, 2]


@pytest.mark.parametrize("record", [None, "", 0, b"\x00", float("inf"), [1, [2]], {"a": {1}}, ()])
def test_any_value_is_a_record(env: StreamExecutionEnvironment, record: Any) -> None:
    assert collect(env.from_collection([record]).rebalance().map(lambda x: x)) == [record]


def test_empty_collection(env: StreamExecutionEnvironment) -> None:
    assert collect(env.from_collection([]).map(double).key_by(abs).sum()) == []


# Sinks.


class Appender(SinkFunction):
    """A sink of the user's own: appends lines to a file of its subtask."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        name = f"part-{runtime_context.get_index_of_this_subtask()}"
        self.file = Path(self.folder) / name

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        assert context.timestamp() is None
        assert context.current_processing_time() >= 0
        with self.file.open("a") as file:
            file.write(f"{value}\n")


class AppenderSink(Sink):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def create_function(self) -> SinkFunction:
        return Appender(self.folder)


def test_sinks(env: StreamExecutionEnvironment, executor: Executor, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("add_sink", "sink_to", "collecting")}
    for folder in folders.values():
        folder.mkdir()
    numbers = env.from_collection(range(10)).map(double)
    numbers.add_sink(Appender(str(folders["add_sink"]))).name("appender")
    numbers.sink_to(AppenderSink(str(folders["sink_to"]))).uid("appender").set_parallelism(1)
    kept = CollectingSink(folders["collecting"])
    numbers.add_sink(kept)
    executor.run(env)
    expected = [str(2 * number) for number in range(10)]
    for name in ("add_sink", "sink_to"):
        lines = [line for file in folders[name].iterdir() for line in file.read_text().split()]
        assert sorted(lines, key=int) == expected
    assert len(list(folders["add_sink"].iterdir())) == 2
    assert len(list(folders["sink_to"].iterdir())) == 1
    assert sorted(kept.records) == [2 * number for number in range(10)]


def test_print_format(
    env: StreamExecutionEnvironment, executor: Executor, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = env.from_collection([7, Row(a=1), "text"])
    numbers.print().set_parallelism(1)
    numbers.print("label").set_parallelism(1)
    numbers.global_().print()
    numbers.global_().print("both")
    executor.run(env)
    lines = capsys.readouterr().out.splitlines()
    for label in ("", "label> ", "1> ", "both:1> "):
        printed = [
            line for line in lines if line in (f"{label}7", f"{label}{Row(a=1)}", f"{label}text")
        ]
        assert printed == [f"{label}7", f"{label}{Row(a=1)}", f"{label}text"]
    assert len(lines) == 12


def test_print_over_many_blocks_keeps_the_order(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    env.set_parallelism(1).from_collection(range(10_000)).print()
    with LocalExecutor(env, seed=3) as run:
        run.run_to_end()
    assert capsys.readouterr().out.split() == [str(n) for n in range(10_000)]


@pytest.mark.spark
def test_execute_and_collect(env: StreamExecutionEnvironment, spark: Any) -> None:
    numbers = env.from_source(NumberSequenceSource(1, 10_000)).map(double)
    with numbers.execute_and_collect("all") as records:  # type: ignore[union-attr]
        assert next(records) % 2 == 0
        assert len(list(records)) == 9_999
    assert numbers.execute_and_collect(limit=0) == []
    some = numbers.execute_and_collect(limit=5)
    assert isinstance(some, list)
    assert len(some) == 5


def test_two_executions_of_one_environment(env: StreamExecutionEnvironment) -> None:
    kept = CollectingSink()
    numbers = env.from_collection(range(3)).map(double)
    numbers.add_sink(kept)
    assert sorted(collect(numbers)) == [0, 2, 4]
    assert sorted(kept.records) == [0, 2, 4]
    assert sorted(collect(numbers.map(double))) == [0, 4, 8]
    assert sorted(kept.records) == [0, 2, 4]


def test_functions_also_work_by_themselves() -> None:
    assert Harness(Words()).process("to be") == ["to", "be"]
