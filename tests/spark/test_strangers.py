"""Strangers at every socket of a running job: other users do not get there, and nobody stops it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast.common import Configuration
from holdfast.datastream import RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import KeyedProcessFunction
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.driver.slots import Slots
from holdfast.runtime.addresses import Address, read_address
from tests.endless import Endless
from tests.strangers import STRANGERS, is_closed_to_others, knock

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("engine")]


class Counts(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        count = self.count.value() or 0
        self.count.update(count + 1)
        yield value, count


class KnownSlots(Slots):
    """The slots of an attempt, whose sockets the test wants to know."""

    made: ClassVar[list[Slots]] = []

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.made.append(self)


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> list[Slots]:
    """Those of the attempts of this test; empty on the engine of epochs."""
    monkeypatch.setattr("holdfast.spark.resident.Slots", KnownSlots)
    monkeypatch.setattr(KnownSlots, "made", [])
    return KnownSlots.made


def slot_addresses(slots: list[Slots]) -> set[Address]:
    """Where the driver and the slots listen."""
    found = {attempt.address for attempt in slots}
    hellos = [slot.hello for attempt in slots for slot in attempt._slots.values()]
    return found | {Address("", host=hello.host, port=hello.port) for hello in hellos}


def addresses(parent: Path) -> dict[Path, Address]:
    """Where the workers and the source of the job are, by the files that say so."""
    found = {path: read_address(path) for path in parent.glob("*/homes/[!.]*")}
    found |= {path: read_address(path) for path in parent.glob("*/sources/[!.]*")}
    return {path: address for path, address in found.items() if address is not None}


def test_strangers_at_every_socket_do_not_stop_a_job(
    spark: Any, tmp_path: Path, slots: list[Slots]
) -> None:
    settings = {"holdfast.epoch.max-records": "50", "holdfast.directory": str(tmp_path)}
    environment = StreamExecutionEnvironment(Configuration(settings))
    environment.set_parallelism(2).set_buffer_timeout(0)
    numbers = environment.add_source(Endless()).key_by(lambda n: n % 10)
    records = numbers.process(Counts()).execute_and_collect("with strangers")
    seen = [next(records) for _ in range(50)]
    known: set[Address] = set()
    with ExitStack() as open_ones:
        while len(seen) < 1000:
            # NB: a subtask may have moved to another process since
            for address in ({*addresses(tmp_path).values()} | slot_addresses(slots)) - known:
                known.add(address)
                assert address.host or os.getuid() != 0 or is_closed_to_others(address)
                for behave in STRANGERS:
                    behave(open_ones.enter_context(knock(address)))
            seen.extend(next(records) for _ in range(50))
    records.close()
    assert len(known) >= (3 if slots else 2), "the driver and two slots; a worker and the source"
    for key in range(10):
        mine = [(value, count) for value, count in seen if value % 10 == key]
        assert mine == [(key + 10 * count, count) for count in range(len(mine))]
