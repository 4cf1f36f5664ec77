"""A job that a person would look at, with what can go wrong in it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.common import Configuration
from holdfast.datastream import (
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SinkFunction,
)
from holdfast.datastream.state import MapStateDescriptor, ValueStateDescriptor

LARGE: OutputTag = OutputTag("large")
log = logging.getLogger("shop.orders")


class Trouble:
    """What goes wrong, told to the functions of a job through files."""

    def __init__(self, directory: Path) -> None:
        self.locked = directory / "locked"
        self.unknown = directory / "unknown"


class Counts(KeyedProcessFunction, CheckpointedFunction):
    """How many orders each customer has."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.last = runtime_context.get_map_state(MapStateDescriptor("last", str, int))
        self.orders = runtime_context.get_metrics_group().counter("orders")
        self.numbers = runtime_context.get_metrics_group().distribution("numbers")

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if self._trouble.locked.exists():
            log.error("no <i>ledger</i>")
            raise RuntimeError("the ledger is locked")

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        if self._trouble.unknown.exists():
            self._trouble.unknown.unlink(missing_ok=True)
            raise ValueError(f"no such customer: {value[0]}<img src=x onerror=alert(1)>")
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.last.put("order", value[1])
        self.orders.inc()
        self.numbers.update(value[1])
        if value[1] % 5 == 0:
            yield LARGE, value
        yield value[0], count


class Nowhere(SinkFunction):
    """Takes everything."""

    def invoke(self, value: Any, context: Any) -> None:
        pass


def orders(
    source: Any, settings: Mapping[str, str], trouble: Trouble
) -> StreamExecutionEnvironment:
    """Counts orders, reports the counts, and checks the large ones in between."""
    env = StreamExecutionEnvironment(Configuration(dict(settings))).set_parallelism(2)
    stream = source(env).map(lambda order: order).name("parsed")
    counted = stream.key_by(lambda order: order[0]).process(Counts(trouble))
    counted = counted.uid("counts").name("Counts")
    counted.key_by(lambda pair: pair[1] % 3).reduce(max).name("Largest").add_sink(Nowhere())
    counted.get_side_output(LARGE).rebalance().map(str).name("Checked").add_sink(Nowhere())
    return env


def finite(env: StreamExecutionEnvironment) -> Any:
    """Ten customers who order in turn."""
    return env.from_collection([(f"customer-{n % 10}", n) for n in range(5000)]).name("orders")
