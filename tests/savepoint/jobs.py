"""A job with every kind of keyed state, and its environment on both backends."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.common import Configuration, Time, Types
from holdfast.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

BACKENDS = ("hashmap", "rocksdb")


def configuration(directory: Path, backend: str = "hashmap", start: str | None = None) -> Any:
    """Checkpoints in a directory, which is also that of savepoints."""
    config = Configuration()
    config.set_string("state.backend.type", backend)
    config.set_string("state.backend.rocksdb.localdir", str(directory / "local"))
    config.set_string("execution.checkpointing.interval", "1 h")
    config.set_string("execution.checkpointing.dir", str(directory / "checkpoints"))
    config.set_string("execution.checkpointing.savepoint-dir", str(directory))
    if start is not None:
        config.set_string("execution.state-recovery.path", start)
    return config


@dataclasses.dataclass
class Last:
    """What was added last."""

    amount: int
    note: str | None = None


class Total(AggregateFunction):
    """Sum and count."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def expiring(descriptor: StateDescriptor) -> Any:
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1000)).build())
    return descriptor


PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def descriptors() -> dict[str, Any]:
    """Every kind of state, by name."""
    found = [
        ValueStateDescriptor("last", Last),
        ListStateDescriptor("all", Types.LONG()),
        MapStateDescriptor("by tens", Types.LONG(), Types.STRING()),
        ReducingStateDescriptor("largest", max, Types.LONG()),
        AggregatingStateDescriptor("total", Total(), PAIR),
        ValueStateDescriptor("untyped"),
        expiring(ListStateDescriptor("expiring", Types.LONG())),
    ]
    return {descriptor.name: descriptor for descriptor in found}


class Everything(KeyedProcessFunction):
    """Keeps (key, number) records in every kind of state; gives all of it with each record."""

    def open(self, context: RuntimeContext) -> None:
        known = descriptors()
        self.last = context.get_state(known["last"])
        self.all = context.get_list_state(known["all"])
        self.by_tens = context.get_map_state(known["by tens"])
        self.largest = context.get_reducing_state(known["largest"])
        self.total = context.get_aggregating_state(known["total"])
        self.untyped = context.get_state(known["untyped"])
        self.expiring = context.get_list_state(known["expiring"])

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[Any]:
        key, number = value
        self.last.update(Last(number, f"n{number}" if number % 2 else None))
        self.all.add(number)
        self.by_tens.put(number // 10, str(number))
        self.largest.add(number)
        self.total.add(number)
        self.untyped.update((number, key))
        self.expiring.add(number)
        if number % 7 == 0:
            ctx.timer_service().register_event_time_timer(number)
        yield key, number, dict(self.by_tens.items()), self.total.get(), self.largest.get()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", ctx.get_current_key(), timestamp


def model(records: Iterable[tuple[Any, int]]) -> dict[str, dict[Any, Any]]:
    """What the states hold after some records, as plain values, by state and key."""
    states: dict[str, dict[Any, Any]] = {name: {} for name in descriptors()}
    for key, number in records:
        note = f"n{number}" if number % 2 else None
        states["last"][key] = {"amount": number, "note": note}
        states["all"].setdefault(key, []).append(number)
        states["by tens"].setdefault(key, {})[number // 10] = str(number)
        states["largest"][key] = max(number, states["largest"].get(key, number))
        total, count = states["total"].get(key, (0, 0))
        states["total"][key] = (total + number, count + 1)
        states["untyped"][key] = (number, key)
        states["expiring"].setdefault(key, []).append(number)
    return states


def everything(config: Any, records: list[tuple[Any, int]]) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment(config)
    stream = env.from_collection(records).set_parallelism(1).uid("source")
    keyed = stream.key_by(lambda record: record[0])
    return keyed.process(Everything()).uid("everything").name("Everything")
