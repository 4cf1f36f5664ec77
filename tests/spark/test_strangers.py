"""Strangers at every socket of a running job: other users do not get there, and nobody stops it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import KeyedProcessFunction
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.runtime.addresses import Address, read_address
from tests.endless import Endless
from tests.strangers import STRANGERS, is_closed_to_others, knock

pytestmark = pytest.mark.spark


class Counts(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        count = self.count.value() or 0
        self.count.update(count + 1)
        yield value, count


def addresses(parent: Path) -> dict[Path, Address]:
    """Where the workers and the source of the job are, by the files that say so."""
    found = {path: read_address(path) for path in parent.glob("*/homes/[!.]*")}
    found |= {path: read_address(path) for path in parent.glob("*/sources/[!.]*")}
    return {path: address for path, address in found.items() if address is not None}


def test_strangers_at_every_socket_do_not_stop_a_job(spark: Any, tmp_path: Path) -> None:
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
            for address in set(addresses(tmp_path).values()) - known:
                known.add(address)
                assert os.getuid() != 0 or is_closed_to_others(address)
                for behave in STRANGERS:
                    behave(open_ones.enter_context(knock(address)))
            seen.extend(next(records) for _ in range(50))
    records.close()
    assert len(known) >= 2, "a worker and the source"
    for key in range(10):
        mine = [(value, count) for value, count in seen if value % 10 == key]
        assert mine == [(key + 10 * count, count) for count in range(len(mine))]
