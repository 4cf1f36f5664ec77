"""Strangers at every socket of a running job: other users do not get there, and nobody stops it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import KeyedProcessFunction
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.runtime.network.addresses import Address
from tests.endless import Endless
from tests.strangers import STRANGERS, Sockets, is_closed_to_others, knock

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("engine")]


class Counts(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        count = self.count.value() or 0
        self.count.update(count + 1)
        yield value, count


def test_strangers_at_every_socket_do_not_stop_a_job(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = Sockets(monkeypatch)
    settings = Configuration({"holdfast.epoch.max-records": "50"})
    environment = StreamExecutionEnvironment(settings)
    environment.set_parallelism(2).set_buffer_timeout(0)
    numbers = environment.add_source(Endless()).key_by(lambda n: n % 10)
    records = numbers.process(Counts()).execute_and_collect("with strangers")
    seen = [next(records) for _ in range(50)]
    known: set[Address] = set()
    with ExitStack() as open_ones:
        while len(seen) < 1000:
            # NB: a subtask may have moved to another process since
            for address in sockets.addresses() - known:
                known.add(address)
                assert address.host or os.getuid() != 0 or is_closed_to_others(address)
                for behave in STRANGERS:
                    behave(open_ones.enter_context(knock(address)))
            seen.extend(next(records) for _ in range(50))
    records.close()
    assert len(known) >= (4 if sockets.slots else 3), (
        "the driver's two and two slots; the driver, a worker and the source"
    )
    for key in range(10):
        mine = [(value, count) for value, count in seen if value % 10 == key]
        assert mine == [(key + 10 * count, count) for count in range(len(mine))]
