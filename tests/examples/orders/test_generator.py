"""The generator: the same events for the same seed, however they are read."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from examples.orders.events import OrderEvent
from examples.orders.files import write
from examples.orders.generator import GeneratorSource
from examples.orders.job import JobSettings, environment, events
from examples.orders.shop import Shop, all_deliveries, deliveries
from holdfast.testing import collect
from tests.examples.orders.running import SMALL

event_id = attrgetter("event_id")


def everything(shop: Shop) -> list[OrderEvent]:
    return list(all_deliveries(shop))


def drain(readers: list[Any], limit: int) -> list[OrderEvent]:
    return [
        event
        for reader in readers
        for batch in iter(lambda r=reader: read(r, limit), [])
        for event in batch
    ]


def read(reader: Any, limit: int) -> list[OrderEvent]:
    return [event for batch in reader.read(limit) for event in batch]


def test_a_slice_is_a_function_of_its_number() -> None:
    again = replace(SMALL)
    assert deliveries(SMALL, 2, 40) == deliveries(again, 2, 40)
    assert deliveries(SMALL, 2, 40) != deliveries(replace(SMALL, seed=6), 2, 40)
    assert deliveries(SMALL, 2, 40) != deliveries(SMALL, 3, 40)


@settings(max_examples=30, deadline=None)
@given(
    first=st.integers(1, 5),
    second=st.integers(1, 5),
    limits=st.lists(st.integers(1, 9), max_size=9),
)
def test_reading_goes_on_where_it_was_whoever_reads(
    first: int, second: int, limits: list[int]
) -> None:
    """A job that is cut at any record and goes on with another number of subtasks."""
    shop = replace(SMALL, slices=12)
    source = GeneratorSource(shop)
    readers = [source.create_reader(subtask, first) for subtask in range(first)]
    found = [
        event for place, limit in enumerate(limits) for event in read(readers[place % first], limit)
    ]
    positions = [reader.position() for reader in readers]
    readers = [source.create_reader(subtask, second) for subtask in range(second)]
    for reader, position in zip(readers, source.redistribute(positions, second), strict=True):
        reader.restore(position)
    found += drain(readers, 7)
    assert sorted(found, key=event_id) == sorted(everything(shop), key=event_id)
    assert all(reader.finished for reader in readers)


def test_what_is_in_time_is_never_more_than_five_seconds_behind() -> None:
    """So it is not late, whatever the epochs and the number of readers."""
    shop = replace(SMALL, lateness=0.0, duplicates=0.0)
    for subtasks in (1, 2, 3):
        for subtask in range(subtasks):
            reader = GeneratorSource(shop).create_reader(subtask, subtasks)
            newest = 0
            for event in read(reader, 10_000):
                assert event.timestamp > newest - 5000
                newest = max(newest, event.timestamp)


def test_events_come_with_all_that_was_asked_for() -> None:
    found = everything(replace(SMALL, slices=200))
    names = [event.event_id for event in found]
    assert 1.1 < len(names) / len(set(names)) < 1.3
    times = [event.timestamp for event in found]
    assert times != sorted(times)
    late = {
        e.order_id
        for e, newest in zip(found, running_max(times), strict=True)
        if e.timestamp < newest - 3_600_000
    }
    assert 0.02 < len(late) / len({event.order_id for event in found}) < 0.1
    arrived: dict[str, list[str]] = {}
    for event in found:
        arrived.setdefault(event.order_id, []).append(event.step)
    assert any(
        steps.index("paid") < steps.index("created")
        for steps in arrived.values()
        if {"paid", "created"} <= {*steps}
    )


def running_max(times: list[int]) -> list[int]:
    newest, found = 0, []
    for time in times:
        newest = max(newest, time)
        found.append(newest)
    return found


def test_a_shop_without_any_of_it_is_tidy() -> None:
    found = everything(Shop(slices=50))
    assert len({event.event_id for event in found}) == len(found)


def test_events_come_at_their_rate(monkeypatch: Any) -> None:
    now = 1000.0
    monkeypatch.setattr("examples.orders.generator.time.time", lambda: now)
    shop = Shop(rate=100.0)
    reader = GeneratorSource(shop).create_reader(0, 1)
    assert read(reader, 1000) == []
    now += 20
    assert 1600 < len(read(reader, 10_000)) < 2100
    assert read(reader, 1000) == []
    assert not reader.finished
    # while nobody reads, events pile up; the time at which all began is part of the position
    other = GeneratorSource(shop).create_reader(0, 1)
    other.restore(reader.position())
    now += 10
    assert read(other, 10_000) == []
    # they are then read at twice the rate, until all have come
    now += 4
    assert 600 < len(read(other, 10_000)) < 900
    now += 100
    assert 10_000 < len(read(other, 100_000)) < 11_000
    now += 10
    assert 900 < len(read(other, 10_000)) < 1100


def test_files_have_the_same_events(tmp_path: Any) -> None:
    shop = replace(SMALL, slices=30)
    assert write(shop, tmp_path / "events") == len(everything(shop))
    chosen = JobSettings(tmp_path, files=tmp_path / "events", backend="hashmap", parallelism=2)
    found = collect(events(environment(chosen), chosen))
    assert sorted(found, key=event_id) == sorted(everything(shop), key=event_id)
