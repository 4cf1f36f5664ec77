"""Functions that cannot work are refused when the program is built; the message has the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from holdfast.common import Time
from holdfast.datastream import (
    AggregateFunction,
    FilterFunction,
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
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
)
from holdfast.datastream.window import TumblingEventTimeWindows
from holdfast.errors import JobTypeError
from holdfast.testing import run_locally

Build = Callable[[Any], Any]
HERE = r"\(test_wrong_functions\.py, line \d+\)"


def yields(value: Any) -> Iterator[Any]:
    yield value


def yields_pair(value: Any, other: Any) -> Iterator[Any]:
    yield value


async def waits(value: Any) -> Any:
    return value


async def waits_and_yields(value: Any) -> Any:
    yield value


def forgets(value: Any) -> Any:
    print(value)


def forgets_pair(value: Any, other: Any) -> Any:
    if value:
        print(value)
        return


class Calls:
    def __call__(self, value: Any) -> Iterator[Any]:
        yield value


class YieldingMap(MapFunction):
    def map(self, value: Any) -> Any:
        yield value


class YieldingSink(SinkFunction):
    def invoke(self, value: Any, context: SinkFunction.Context) -> Any:
        yield value


class YieldingSource(SourceFunction):
    def run(self, ctx: Any) -> Any:
        yield 1


class WaitingProcess(ProcessFunction):
    async def process_element(  # type: ignore[override]
        self, value: Any, ctx: ProcessFunction.Context
    ) -> Any:
        return [value]


class Totals(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


class NoContext(KeyedProcessFunction):
    def process_element(self, value: Any) -> Any:  # type: ignore[override]
        yield value


class OpensNothing(MapFunction):
    def open(self) -> None: ...  # type: ignore[override]

    def map(self, value: Any) -> Any:
        return value


class Forgetful(AggregateFunction):
    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


def windows(stream: Any) -> Any:
    return stream.key_by(abs).window(TumblingEventTimeWindows.of(Time.seconds(1)))


GENERATOR = "is a generator function, because it contains yield, so each result would be a gen"
NEVER = "is a generator function, because it contains yield, so a call runs nothing; remove the y"
ASYNC = "is declared with 'async def', so a call returns a coroutine and runs nothing; use a pl"

MISTAKES: dict[str, tuple[Build, str]] = {
    "generator": (lambda s: s.map(yields), f"map: 'yields' {HERE} {GENERATOR}.*use flat_map for"),
    "generator, partly": (
        lambda s: s.map(partial(yields_pair, 1)),
        f"map: 'yields_pair' {HERE} {GENERATOR}",
    ),
    "generator, called": (lambda s: s.map(Calls()), f"map: 'Calls' {GENERATOR}"),
    "generator method": (
        lambda s: s.map(YieldingMap()),
        f"map: 'YieldingMap.map' {HERE} {GENERATOR}",
    ),
    "generator in filter": (
        lambda s: s.filter(yields),
        f"filter: 'yields' {HERE} {GENERATOR}.*; return the result instead of",
    ),
    "generator in key_by": (lambda s: s.key_by(yields), f"key_by: 'yields' {HERE} {GENERATOR}"),
    "generator in reduce": (
        lambda s: s.key_by(abs).reduce(yields_pair),
        f"reduce: 'yields_pair' {HERE} {GENERATOR}",
    ),
    "generator in a state": (
        lambda s: s.key_by(abs).map_with_state(yields_pair),
        f"map_with_state: 'yields_pair' {HERE} {GENERATOR}",
    ),
    "generator in a window": (
        lambda s: windows(s).reduce(yields_pair),
        f"reduce: 'yields_pair' {HERE} {GENERATOR}",
    ),
    "generator in a join": (
        lambda s: (
            s.join(s)
            .where(abs)
            .equal_to(abs)
            .window(TumblingEventTimeWindows.of(Time.seconds(1)))
            .apply(yields_pair)
        ),
        f"apply: 'yields_pair' {HERE} {GENERATOR}",
    ),
    "generator as sink": (
        lambda s: s.add_sink(YieldingSink()),
        f"add_sink: 'YieldingSink.invoke' {HERE} {NEVER}",
    ),
    "generator as source": (
        lambda s: s.get_execution_environment().add_source(YieldingSource()),
        f"add_source: 'YieldingSource.run' {HERE} {NEVER}ield, and call ctx.collect",
    ),
    "async": (lambda s: s.map(waits), f"map: 'waits' {HERE} {ASYNC}"),
    "async flat_map": (lambda s: s.flat_map(waits), f"flat_map: 'waits' {HERE} {ASYNC}"),
    "async generator": (
        lambda s: s.flat_map(waits_and_yields),
        f"flat_map: 'waits_and_yields' {HERE} {ASYNC}",
    ),
    "async method": (
        lambda s: s.process(WaitingProcess()),
        f"process: 'WaitingProcess.process_element' {HERE} {ASYNC}",
    ),
    "no result of filter": (
        lambda s: s.filter(forgets),
        f"filter: 'forgets' {HERE} returns nothing; add a return statement",
    ),
    "no key": (lambda s: s.key_by(forgets), f"key_by: 'forgets' {HERE} returns nothing"),
    "no result of reduce": (
        lambda s: s.key_by(abs).reduce(forgets_pair),
        f"reduce: 'forgets_pair' {HERE} returns nothing",
    ),
    "no accumulator": (
        lambda s: windows(s).aggregate(Forgetful()),
        f"aggregate: 'Forgetful.add' {HERE} returns nothing",
    ),
    "two parameters": (
        lambda s: s.map(lambda a, b: a),
        rf"map: '<lambda>' {HERE} has the parameters \(a, b\), but is called with 1 arg",
    ),
    "one parameter": (
        lambda s: s.key_by(abs).reduce(lambda a: a),
        r"has the parameters \(a\), but is called with 2 arguments: value1, value2; change its par",
    ),
    "no context": (
        lambda s: s.key_by(abs).process(NoContext()),
        rf"process: 'NoContext.process_element' {HERE} has .*2 arguments: value, ctx",
    ),
    "open without parameter": (
        lambda s: s.map(OpensNothing()),
        rf"map: 'OpensNothing.open' {HERE} has the parameters \(\), but",
    ),
    "class": (
        lambda s: s.map(YieldingMap),
        r"map: got the class YieldingMap instead of an object of it; call it: map\(Yie",
    ),
    "class of process": (
        lambda s: s.key_by(abs).process(Totals),
        "process: got the class Totals instead of an object",
    ),
    "class of sink": (
        lambda s: s.add_sink(YieldingSink),
        "add_sink: got the class YieldingSink instead",
    ),
    "class of source": (
        lambda s: s.get_execution_environment().add_source(YieldingSource),
        "add_source: got the class YieldingSource",
    ),
    "class of aggregate": (
        lambda s: windows(s).aggregate(Forgetful),
        "aggregate: got the class Forgetful",
    ),
    "no key_by": (
        lambda s: s.process(Totals()),
        "process: Totals is a KeyedProcessFunction, and this stream has no keys; call key_by "
        r"before it: stream\.key_by\(\.\.\.\)\.process\(Totals\(\.\.\.\)\)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake(env: StreamExecutionEnvironment, mistake: str) -> None:
    build, message = MISTAKES[mistake]
    with pytest.raises(JobTypeError, match=message):
        build(env.from_collection([1]))


def test_classes_in_descriptors() -> None:
    class Sum(ReduceFunction):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return value1 + value2

    with pytest.raises(TypeError, match=r"got the class Sum instead of an object.* Sum\(\.\.\.\)"):
        ReducingStateDescriptor("sum", Sum)
    with pytest.raises(TypeError, match="got the class Forgetful instead of an object"):
        AggregatingStateDescriptor("all", Forgetful)


class Even(FilterFunction):
    def filter(self, value: Any) -> bool:
        return bool(value % 2 == 0)


class Parity(KeySelector):
    def open(self, runtime_context: RuntimeContext, extra: int = 0) -> None: ...

    def get_key(self, value: Any) -> Any:
        return value % 2


def maybe(value: Any) -> Any:
    if value > 1:
        return value


def fails(value: Any) -> Any:
    raise ValueError(value)


def test_what_is_unusual_and_works_is_not_refused(env: StreamExecutionEnvironment) -> None:
    """Builtin functions, classes as converters, default parameters, None where it has a meaning."""
    stream = env.from_collection([1, 2, 3])
    for accepted in (str, abs, "{}".format, {"a": 1}.get, maybe, forgets, lambda *a: a, fails):
        stream.map(accepted)
    for kept in (bool, maybe, {1: 2}.get, lambda _: None, fails, Even()):
        stream.filter(kept)
    for many in (yields, str, forgets, lambda x: [x]):
        stream.flat_map(many)
    stream.key_by(Parity()).reduce(max).print()
    stream.key_by(lambda _: None).sum().print()


def test_an_accepted_program_runs(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1, 2, 3]).filter(Even()).key_by(Parity()).reduce(max)
    assert run_locally(stream).records == [2]
