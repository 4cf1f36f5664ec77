"""What ``explain`` says of programs, compared with text files; see the option --rewrite-golden."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.datastream import DataStream, StreamExecutionEnvironment

GOLDEN = Path(__file__).with_name("golden")
Program = Callable[[StreamExecutionEnvironment], None]


def first(record: tuple[int, int]) -> int:
    return record[0]


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([(1, 2)])


def word_count(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(["to be"]).flat_map(str.split).map(lambda word: (word, 1))
    words.key_by(first).reduce(lambda a, b: (a[0], a[1] + b[1])).print()


def five_branches_three_sinks(env: StreamExecutionEnvironment) -> None:
    origin = numbers(env).map(first).name("origin")
    branches = [origin.map(abs).name(f"branch {i}") for i in range(5)]
    branches[0].print("first")
    branches[1].union(branches[2]).print("second and third")
    branches[3].union(branches[4]).key_by(abs).sum().name("total").print("fourth and fifth")


def union(env: StreamExecutionEnvironment) -> None:
    left, right = numbers(env).name("left"), numbers(env).name("right")
    left.union(right, left).map(first).print()


def diamond(env: StreamExecutionEnvironment) -> None:
    top = numbers(env).map(first).name("top")
    left, right = top.map(abs).name("left"), top.filter(bool).name("right")
    left.union(right).map(abs).name("bottom").print()


def diamond_with_a_shuffle(env: StreamExecutionEnvironment) -> None:
    top = numbers(env).map(first).name("top")
    left = top.map(abs).name("left")
    right = top.key_by(abs).sum().name("right")
    left.union(right).map(abs).name("bottom").print()


def different_parallelisms(env: StreamExecutionEnvironment) -> None:
    wide = numbers(env).map(first).name("wide").set_parallelism(4)
    wide.map(abs).name("narrow").set_parallelism(2).map(abs).name("same").print()


def chaining_off(env: StreamExecutionEnvironment) -> None:
    env.disable_operator_chaining()
    numbers(env).map(first).set_parallelism(1).filter(bool).set_parallelism(1).print()


def chains_by_hand(env: StreamExecutionEnvironment) -> None:
    one = env.set_parallelism(1).from_collection([1]).map(abs).name("one")
    two = one.map(abs).name("two").start_new_chain()
    two.map(abs).name("three").disable_chaining().map(abs).name("four").print()


def all_partitionings(env: StreamExecutionEnvironment) -> None:
    origin = numbers(env).map(first).name("origin")
    origin.rebalance().map(abs).name("rebalance")
    origin.rescale().map(abs).name("rescale")
    origin.shuffle().map(abs).name("shuffle")
    origin.forward().map(abs).name("forward")
    origin.broadcast().map(abs).name("broadcast")
    origin.global_().map(abs).name("global")
    origin.partition_custom(lambda key, count: key % count, abs).map(abs).name("custom")
    origin.key_by(abs).map(abs).name("hash")


def skipping_levels(env: StreamExecutionEnvironment) -> None:
    origin = numbers(env).map(first).name("origin")
    far = origin.key_by(abs).sum().name("near").key_by(abs).sum().name("far")
    origin.union(far).rebalance().map(abs).name("end").print()


def dataframe(env: StreamExecutionEnvironment) -> None:
    frame = object()  # stands for a pyspark DataFrame; planning does not look into it
    rows = env.from_dataframe(frame, "orders")  # type: ignore[arg-type]
    rows.map(str).name("text").union(env.from_collection(["x"])).key_by(len).sum().print()


def settings(env: StreamExecutionEnvironment) -> None:
    env.set_max_parallelism(64)
    stream = numbers(env).uid("numbers").name("Numbers")
    keyed = stream.key_by(first).sum(1).uid("sums").set_max_parallelism(256).set_parallelism(3)
    keyed.map(first).set_uid_hash("0123").set_description("the first field").force_non_parallel()


PROGRAMS: list[Program] = [
    word_count,
    five_branches_three_sinks,
    union,
    diamond,
    diamond_with_a_shuffle,
    different_parallelisms,
    chaining_off,
    chains_by_hand,
    all_partitionings,
    skipping_levels,
    dataframe,
    settings,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_explain(
    env: StreamExecutionEnvironment, program: Program, pytestconfig: pytest.Config
) -> None:
    program(env)
    file = GOLDEN / f"{program.__name__}.txt"
    text = env.explain(program.__name__)
    if pytestconfig.getoption("--rewrite-golden"):
        file.write_text(text)
    assert text == file.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {p.__name__ for p in PROGRAMS}


def test_explain_twice_is_the_same(env: StreamExecutionEnvironment) -> None:
    word_count(env)
    assert env.explain() == env.explain()


def test_json_plan(env: StreamExecutionEnvironment) -> None:
    word_count(env)
    nodes = {node["id"]: node for node in json.loads(env.get_execution_plan())["nodes"]}
    assert [node["type"] for node in nodes.values()] == [
        "Source: Collection",
        "Flat Map",
        "Map",
        "Reduce",
        "Sink: Print to Std. Out",
    ]
    reduce = nodes[3]
    assert reduce["parallelism"] == 2
    assert reduce["predecessors"] == [{"id": 2, "ship_strategy": "HASH", "side": "second"}]
    assert nodes[1]["predecessors"][0]["ship_strategy"] == "REBALANCE"
    assert nodes[2]["predecessors"][0]["ship_strategy"] == "FORWARD"
