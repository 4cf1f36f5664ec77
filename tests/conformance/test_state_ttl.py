"""What time-to-live does, on every kind of state and every backend.

The settings one by one, then a model of all of them together: a dict in which every value has
the time of its last access.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast.common import Time, Types
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.state.backend import Head, HeapKeyedStateBackend, KeyContext, KeyedStateBackend
from holdfast.state.backends import heap
from holdfast.state.backends.rocksdb.database import Database
from holdfast.state.errors import StateMigrationError, StateRegistrationError, StateTypeError
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import Section, decode_file
from holdfast.state.key_groups import key_group, key_group_range, subtask_of
from holdfast.state.types.schema_of import schema_of
from holdfast.testing import ManualClock
from tests.conformance.test_keyed_state import BACKENDS, Average, MemoryStorage

TTL = 10
Config = Callable[[Any], Any]


def ttl(*settings: Config, time: int = TTL) -> StateTtlConfig:
    builder = StateTtlConfig.new_builder(Time.milliseconds(time))
    for setting in settings:
        builder = setting(builder)
    return builder.build()


def on_read(builder: Any) -> Any:
    return builder.update_ttl_on_read_and_write()


def lenient(builder: Any) -> Any:
    return builder.return_expired_if_not_cleaned_up()


def in_foreground(builder: Any) -> Any:
    return builder.disable_cleanup_in_background()


def in_snapshots(builder: Any) -> Any:
    return in_foreground(builder).cleanup_full_snapshot()


def in_compaction(builder: Any) -> Any:
    return in_foreground(builder).cleanup_in_rocksdb_compact_filter(2)


def by_access(builder: Any) -> Any:
    return in_foreground(builder).cleanup_incrementally(2, False)


def by_record(builder: Any) -> Any:
    return in_foreground(builder).cleanup_incrementally(2, True)


def expiring(descriptor: StateDescriptor, config: StateTtlConfig) -> Any:
    descriptor.enable_time_to_live(config)
    return descriptor


def folding(name: str) -> FoldingStateDescriptor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return FoldingStateDescriptor(name, [], lambda folded, value: [*folded, value])


#: by kind: a descriptor, how to write a number, how to read all, and what is then there
KINDS: dict[str, tuple[Callable[[], StateDescriptor], Any, Any, Any]] = {
    "value": (
        lambda: ValueStateDescriptor("s", Types.LONG()),
        lambda s, n: s.update(n),
        lambda s: s.value(),
        lambda n: n,
    ),
    "untyped": (
        lambda: ValueStateDescriptor("s"),
        lambda s, n: s.update({n}),
        lambda s: s.value(),
        lambda n: {n},
    ),
    "list": (
        lambda: ListStateDescriptor("s", Types.LONG()),
        lambda s, n: s.update([n]),
        lambda s: s.get() or None,
        lambda n: [n],
    ),
    "map": (
        lambda: MapStateDescriptor("s", Types.STRING(), Types.LONG()),
        lambda s, n: s.put("m", n),
        lambda s: s.get("m"),
        lambda n: n,
    ),
    "reducing": (
        lambda: ReducingStateDescriptor("s", max, Types.LONG()),
        lambda s, n: s.add(n),
        lambda s: s.get(),
        lambda n: n,
    ),
    "aggregating": (
        lambda: AggregatingStateDescriptor("s", Average(), Types.LIST(Types.LONG())),
        lambda s, n: s.add(n),
        lambda s: s.get(),
        float,
    ),
    "folding": (lambda: folding("s"), lambda s, n: s.add(n), lambda s: s.get(), lambda n: [n]),
}


class Subject:
    """A backend with a clock, and a way to write it down and read it with another one."""

    def __init__(self, make: Callable[[range, int], KeyedStateBackend]) -> None:
        self._make = make
        self.clock = ManualClock(1_000_000)
        self.storage = MemoryStorage()
        self.context = KeyContext("key")
        self.head = Head()
        self._epoch = 0
        self.renew()

    def renew(self) -> None:
        """Go on in another worker, with what was written last."""
        self.backend = self._make(range(128), 128)
        self.backend.use_clock(self.clock)
        self.backend.restore(self.storage, self.head)

    def state(self, descriptor: StateDescriptor, namespaced: bool = False) -> Any:
        return self.backend.keyed_state("op", descriptor, self.context, namespaced)

    def at(self, key: Any) -> None:
        self.context.key = key

    def write(self, barrier: bool = False) -> Head:
        self._epoch += 1
        stamp = f"s{self._epoch}"
        self.head = self.backend.persist(self.storage, stamp, self._epoch, barrier)
        return self.head

    def sections(self) -> Iterator[Section]:
        for file in self.head.files:
            yield from decode_file(self.storage.files[file.name], file.name).sections

    def bytes(self) -> bytes:
        """All that is saved of keys and values."""
        chunks = (chunk for section in self.sections() for chunk in section.chunks)
        return b"".join(bytes(column.data) for chunk in chunks for column in chunk.columns)

    def count(self, name: str = "s") -> int:
        """How many keys the state has, be they over or not."""
        scans = (self.backend._scan("op", name, namespaced) for namespaced in (False, True))
        return sum(1 for scan in scans for _ in scan or ())


@pytest.fixture(params=sorted(BACKENDS))
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject(BACKENDS[request.param])


@pytest.fixture
def in_memory() -> Subject:
    """For what is about the files that this backend writes."""
    return Subject(HeapKeyedStateBackend)


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# B1: what prolongs a life.


@pytest.mark.parametrize("saved", [False, True])
def test_everything_lives_so_long_after_it_was_written(
    subject: Subject, kind: str, saved: bool
) -> None:
    make, write, read, held = KINDS[kind]
    descriptor = expiring(make(), ttl())
    write(subject.state(descriptor), 7)
    if saved:
        subject.write()
        subject.renew()
    subject.clock.advance(TTL - 1)
    assert read(subject.state(descriptor)) == held(7)
    subject.clock.advance(1)
    assert read(subject.state(descriptor)) is None
    assert subject.count() == 0


def test_a_write_prolongs_a_life_and_a_read_does_not(subject: Subject, kind: str) -> None:
    make, write, read, held = KINDS[kind]
    state = subject.state(expiring(make(), ttl()))
    write(state, 7)
    subject.clock.advance(TTL - 1)
    state.clear()
    write(state, 8)
    subject.clock.advance(TTL - 1)
    assert read(state) == held(8)
    subject.clock.advance(1)
    assert read(state) is None


def test_a_read_prolongs_a_life_if_told_so(subject: Subject, kind: str) -> None:
    make, write, read, held = KINDS[kind]
    descriptor = expiring(make(), ttl(on_read))
    write(subject.state(descriptor), 7)
    subject.write()
    for _ in range(3):
        subject.clock.advance(TTL - 1)
        assert read(subject.state(descriptor)) == held(7)
        subject.write()
        subject.renew()  # that it was read is saved
    subject.clock.advance(TTL)
    assert read(subject.state(descriptor)) is None


def test_a_read_in_the_same_millisecond_changes_nothing(subject: Subject, kind: str) -> None:
    make, write, read, _ = KINDS[kind]
    state = subject.state(expiring(make(), ttl(on_read)))
    write(state, 7)
    head = subject.write()
    read(state)
    assert subject.write() is head


def test_disabled_is_a_state_without_time_to_live(subject: Subject, kind: str) -> None:
    make, write, read, held = KINDS[kind]
    off = StateTtlConfig.UpdateType.Disabled
    write(subject.state(expiring(make(), ttl(lambda b: b.set_update_type(off)))), 7)
    subject.clock.advance(1000 * TTL)
    subject.write()
    subject.renew()
    assert read(subject.state(make())) == held(7)


def test_a_clock_that_is_behind_the_last_one_ends_no_life(subject: Subject, kind: str) -> None:
    make, write, read, held = KINDS[kind]
    descriptor = expiring(make(), ttl())
    write(subject.state(descriptor), 7)
    subject.write()
    subject.clock = ManualClock(1000)
    subject.renew()
    assert read(subject.state(descriptor)) == held(7)


# B2: what is seen of what is over.


def test_what_is_over_is_seen_once_if_told_so(subject: Subject, kind: str) -> None:
    make, write, read, held = KINDS[kind]
    state = subject.state(expiring(make(), ttl(lenient, in_foreground)))
    write(state, 7)
    subject.clock.advance(TTL)
    assert [entry for _, _, entry in subject.backend.entries("op", "s")] != []
    assert read(state) == held(7)
    assert read(state) is None


def test_what_is_over_and_cleaned_up_is_never_seen(subject: Subject, kind: str) -> None:
    make, write, read, _ = KINDS[kind]
    state = subject.state(expiring(make(), ttl(lenient, in_compaction)))
    write(state, 7)
    subject.clock.advance(TTL)
    subject.write()
    assert read(state) is None


def test_entries_are_what_functions_see(subject: Subject) -> None:
    values = subject.state(expiring(ValueStateDescriptor("v"), ttl()))
    lists = subject.state(expiring(ListStateDescriptor("l"), ttl()))
    maps = subject.state(expiring(MapStateDescriptor("m"), ttl()), namespaced=True)
    values.update(1)
    lists.add(1)
    maps.put("one", 1)
    subject.clock.advance(TTL)
    assert list(subject.backend.entries("op", "v")) == []
    lists.add(2)
    maps.put("two", None)
    assert list(subject.backend.entries("op", "l")) == [("key", None, [2])]
    assert list(subject.backend.entries("op", "m")) == [("key", None, {"two": None})]
    with pytest.raises(StateRegistrationError, match="'op' has declared no state 'x'"):
        next(subject.backend.entries("op", "x"))


# Each kind by itself.


def test_a_default_is_what_is_left(subject: Subject) -> None:
    state = subject.state(expiring(ValueStateDescriptor("s", default_value=[]), ttl()))
    state.update([1])
    subject.clock.advance(TTL)
    state.value().append(2)
    assert state.value() == []
    state.update([1])
    state.update(None)
    assert subject.count() == 0


def test_each_list_element_expires_by_itself(subject: Subject) -> None:
    state = subject.state(expiring(ListStateDescriptor("s", Types.STRING()), ttl()))
    state.add("a")
    subject.clock.advance(4)
    state.add_all(["b", "c"])
    subject.write()
    subject.clock.advance(6)
    assert state.get() == list(state) == ["b", "c"]
    state.add("d")
    subject.write()
    subject.renew()
    state = subject.state(expiring(ListStateDescriptor("s", Types.STRING()), ttl()))
    assert state.get() == ["b", "c", "d"]
    subject.clock.advance(4)
    assert state.get() == ["d"]
    subject.clock.advance(6)
    assert state.get() == []
    assert subject.count() == 0


def test_a_list_refuses_none_with_time_to_live_too(subject: Subject) -> None:
    state = subject.state(expiring(ListStateDescriptor("s"), ttl()))
    for method, argument in [("add", None), ("add_all", [1, None]), ("update", None)]:
        with pytest.raises(TypeError, match="a ListState cannot hold None"):
            getattr(state, method)(argument)
    state.add(1)
    state.update([])
    assert subject.count() == 0


def test_each_map_entry_expires_by_itself(subject: Subject) -> None:
    state = subject.state(expiring(MapStateDescriptor("s", Types.STRING(), Types.LONG()), ttl()))
    state.put("a", 1)
    subject.clock.advance(4)
    state.put_all({"b": 2, "c": 3})
    subject.write()
    subject.clock.advance(6)
    assert len(state) == 2
    assert "a" not in state
    assert (list(state.keys()), list(state.values())) == (["b", "c"], [2, 3])
    state["b"] = 4
    subject.clock.advance(4)
    assert dict(state) == {"b": 4}
    state.remove("b")
    assert state.is_empty()
    assert subject.count() == 0


def test_reading_all_of_a_map_prolongs_all_and_counting_none(subject: Subject) -> None:
    state = subject.state(expiring(MapStateDescriptor("s"), ttl(on_read)))
    state.put_all({"a": 1, "b": 2})
    subject.clock.advance(9)
    assert list(state) == ["a", "b"]
    subject.clock.advance(9)
    assert len(state) == 2
    assert not state.is_empty()
    subject.clock.advance(1)
    assert state.is_empty()
    assert dict(state) == {}


def test_what_a_map_says_is_there_can_be_read(subject: Subject) -> None:
    """As with any mapping: also what is over, where that is returned until it is cleaned up."""
    state = subject.state(expiring(MapStateDescriptor("s"), ttl(lenient, in_foreground)))
    state.update(a=1, b=2, c=3)
    subject.clock.advance(TTL)
    assert "a" in state
    assert state["a"] == 1
    assert "a" not in state, "it was read, and so it was cleaned up"
    assert dict(state) == {"b": 2, "c": 3}
    assert not state


def test_only_what_is_not_over_is_popped(subject: Subject) -> None:
    state = subject.state(expiring(MapStateDescriptor("s"), ttl(in_foreground)))
    state.put("live", 1)
    subject.clock.advance(1)
    state.update(a=1, b=2)
    subject.clock.advance(TTL - 1)
    assert state.pop("live", None) is None
    assert sorted([state.popitem(), state.popitem()]) == [("a", 1), ("b", 2)]
    state.put("over", 1)
    subject.clock.advance(TTL)
    with pytest.raises(KeyError, match="the map is empty"):
        state.popitem()
    assert subject.count() == 0


def test_map_values_may_be_none(subject: Subject) -> None:
    for types in [(), (Types.STRING(), Types.LONG())]:
        descriptor = expiring(MapStateDescriptor(f"s{len(types)}", *types), ttl())
        subject.state(descriptor).put("a", None)
        subject.write()
        subject.renew()
        state = subject.state(descriptor)
        assert (state.get("a", 5), state.contains("a"), "b" in state) == (None, True, False)
        assert dict(state) == {"a": None}
        subject.clock.advance(TTL)
        assert (state.get("a", 5), state.contains("a")) == (5, False)


def test_an_add_after_the_end_begins_anew(subject: Subject) -> None:
    for kind in ("reducing", "aggregating", "folding"):
        make, add, read, held = KINDS[kind]
        descriptor = expiring(make(), ttl(lenient))
        descriptor.name = kind
        state = subject.state(descriptor)
        add(state, 9)
        subject.clock.advance(TTL)
        add(state, None)  # changes nothing
        add(state, 5)
        assert read(state) == held(5)


def test_an_accumulator_that_is_forgotten_is_an_error(subject: Subject) -> None:
    class Forgetful(Average):
        def add(self, value: int, accumulator: list[int]) -> Any:
            super().add(value, accumulator)

    state = subject.state(expiring(AggregatingStateDescriptor("s", Forgetful()), ttl()))
    with pytest.raises(TypeError, match=r"add of .*Forgetful.* returned None"):
        state.add(1)


def test_merging_namespaces_leaves_out_what_is_over(subject: Subject) -> None:
    for kind, expected in (("reducing", 8), ("aggregating", 7.5), ("list", [7, 8])):
        make, write, read, _ = KINDS[kind]
        descriptor = expiring(make(), ttl())
        descriptor.name = kind
        state = subject.state(descriptor, namespaced=True)
        for namespace, number in (("old", 9), ("target", 7), ("new", 8)):
            subject.context.namespace = namespace
            write(state, number)
            subject.clock.advance(4)
        state.merge_namespaces("key", "target", ["old", "new"])
        assert subject.context.namespace == "new"
        assert read(state) is None
        subject.context.namespace = "target"
        assert read(state) == expected
        assert subject.count(kind) == 1


def test_a_value_that_does_not_fit_its_type_is_told_as_without_time_to_live(
    subject: Subject,
) -> None:
    subject.state(expiring(ValueStateDescriptor("s", Types.LONG()), ttl())).update("text")
    with pytest.raises(StateTypeError, match=r"'op', key 'key': value is declared .*got str"):
        subject.write()


# B4: clean-up. The bytes of what is over are gone when the clean-up says so.


def fill(subject: Subject, kind: str, config: StateTtlConfig, keys: int = 20) -> Any:
    """A state in which one key is young, ``keys`` are over, and nobody has looked at them."""
    make, write, _, _ = KINDS[kind]
    state = subject.state(expiring(make(), config))
    for number in range(keys):
        subject.at(f"secret-{number}")
        write(state, number)
    subject.write()
    subject.clock.advance(TTL)
    subject.at("young")
    write(state, 1)
    return state


def test_nothing_in_the_background_if_told_so(in_memory: Subject, kind: str) -> None:
    fill(in_memory, kind, ttl(in_foreground))
    in_memory.write(barrier=True)
    assert in_memory.count() == 21
    assert in_memory.bytes().count(b"secret-") == 20


def test_a_read_removes_what_it_finds(in_memory: Subject, kind: str) -> None:
    read = KINDS[kind][2]
    state = fill(in_memory, kind, ttl(in_foreground))
    in_memory.at("secret-3")
    assert read(state) is None
    in_memory.write()
    assert in_memory.count() == 20
    deleted = [s for s in in_memory.sections() if any(c.op is Op.DELETE for c in s.chunks)]
    assert len(deleted) == 1
    in_memory.renew()
    in_memory.state(expiring(KINDS[kind][0](), ttl(in_foreground)))
    assert in_memory.count() == 20


def test_full_snapshot(in_memory: Subject, kind: str) -> None:
    fill(in_memory, kind, ttl(in_snapshots))
    in_memory.write()
    assert in_memory.bytes().count(b"secret-") == 20
    head = in_memory.write(barrier=True)
    assert in_memory.bytes().count(b"secret-") == 0
    assert in_memory.bytes().count(b"young") == 1
    assert in_memory.count() == 1
    assert in_memory.write(barrier=True) is head  # there is nothing to be left out
    in_memory.clock.advance(TTL)
    in_memory.write(barrier=True)
    assert b"young" not in in_memory.bytes()


@pytest.mark.parametrize("cleans", [False, True])
def test_full_snapshot_in_the_tables_of_a_database(kind: str, cleans: bool) -> None:
    """The tables are looked at as RocksDB wrote them."""
    in_database = Subject(BACKENDS["rocksdb"])
    fill(in_database, kind, ttl(in_snapshots if cleans else in_foreground))
    tables = in_database.write(barrier=True).tables
    files = [in_database.storage.files[table.name] for table in tables]
    assert any(b"secret-" in file for file in files) is not cleans
    assert any(b"young" in file for file in files) is cleans  # else it is in a delta


def test_full_snapshot_without_what_was_removed_before(
    in_memory: Subject, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = KINDS[kind][2]
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: 0)
    state = fill(in_memory, kind, ttl(in_snapshots))
    for number in range(20):
        in_memory.at(f"secret-{number}")
        assert read(state) is None
    in_memory.write()
    assert in_memory.count() == 1
    assert b"secret-" in in_memory.bytes()  # a base, and a delta that says that it is gone
    in_memory.renew()
    in_memory.state(expiring(KINDS[kind][0](), ttl(in_snapshots)))
    in_memory.write(barrier=True)
    assert b"secret-" not in in_memory.bytes()


def test_compaction(in_memory: Subject, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(in_memory, kind, ttl(in_compaction))
    in_memory.write()
    assert b"secret-" in in_memory.bytes()
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: len(sizes))
    in_memory.write()  # without a change there is nothing to compact
    in_memory.state(ValueStateDescriptor("other")).update(1)
    in_memory.write()
    assert b"secret-" not in in_memory.bytes()
    assert in_memory.count() == 1


def test_compaction_is_on_by_default(in_memory: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(in_memory, "value", ttl(), keys=200)
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: len(sizes))
    in_memory.write()
    assert b"secret-" not in in_memory.bytes()


def test_compaction_reads_the_clock_after_so_many_entries(
    in_memory: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(in_memory, "value", ttl(in_compaction), keys=9)
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: len(sizes))
    reads = 0
    life = in_memory.backend._ttl._states["op", "s", False].life
    clock = life.clock

    def counting() -> int:
        nonlocal reads
        reads += 1
        return clock()

    life.clock = counting
    in_memory.write()
    assert 5 <= reads <= 10  # ten entries, two at a time, and a few by the way


def test_nothing_is_looked_at_while_nothing_can_be_over(subject: Subject, kind: str) -> None:
    make, write, _, _ = KINDS[kind]
    state = subject.state(expiring(make(), ttl(by_access)))
    looked = 0
    sweeper = subject.backend._ttl._states["op", "s", False]._sweeper
    scan = sweeper._scan

    def counting() -> Iterator[Any]:
        nonlocal looked
        for entry in scan():
            looked += 1
            yield entry

    sweeper._scan = counting
    for number in range(5):
        subject.at(f"key-{number}")
        write(state, number)
        subject.write()  # two for each access: the first round is soon over
    seen = looked
    assert 1 <= seen <= 6
    for _ in range(5):
        write(state, 1)
        subject.write()
    assert looked == seen
    subject.clock.advance(TTL)
    for _ in range(5):
        write(state, 2)
        subject.write()
    assert looked > seen
    assert subject.count() == 1


def test_everything_is_looked_at_after_the_period(subject: Subject, kind: str) -> None:
    def monthly(builder: Any) -> Any:
        return in_foreground(builder).cleanup_in_rocksdb_compact_filter(1000, 30 * TTL)

    fill(subject, kind, ttl(monthly))
    subject.write()
    subject.clock.advance(28 * TTL)
    subject.write()
    assert subject.count() == 21
    subject.clock.advance(TTL)
    subject.write()
    assert subject.count() == 0


#: by kind: a descriptor, and how to write a text
TEXTS: dict[str, tuple[Callable[[], StateDescriptor], Any]] = {
    "value": (lambda: ValueStateDescriptor("s", Types.STRING()), lambda s, text: s.update(text)),
    "list": (lambda: ListStateDescriptor("s", Types.STRING()), lambda s, text: s.add(text)),
    "map": (
        lambda: MapStateDescriptor("s", Types.STRING(), Types.STRING()),
        lambda s, text: s.put(text, text),
    ),
}


class SmallState:
    """A state that RocksDB never compacts by itself: 20 keys, of which two live on.

    One of these is written once per epoch, which is all that happens. The other one is a list or a
    map of which one part has expired.
    """

    def __init__(self, backend: str, kind: str, home: Path, *settings: Config) -> None:
        self.home = home
        self.subject = Subject(lambda *share: BACKENDS[backend](*share, home))
        make, self.write = TEXTS[kind]
        self.descriptor = expiring(make(), ttl(*settings))
        self.declare()
        for number in range(20):
            self.put(f"key-{number}", f"secret-{number}")
        self.next_epoch()
        self.subject.clock.advance(TTL)
        self.put("key-19", "old-and-young")

    def declare(self) -> None:
        self.state = self.subject.state(self.descriptor)

    def put(self, key: str, text: str) -> None:
        self.subject.at(key)
        self.write(self.state, text)

    def next_epoch(self) -> None:
        """Go on as the runtime does."""
        self.put("young", f"text-{self.subject.clock()}")
        self.subject.write()
        self.subject.backend.restore(self.subject.storage, self.subject.head)

    def move(self) -> None:
        """Go on in another process of the host."""
        self.subject.backend.close()
        self.subject.renew()
        self.declare()

    def has_secrets(self) -> set[str]:
        """Where the bytes of expired entries are."""
        files = self.subject.storage.files
        saved = {f"saved {ref.name}": files[ref.name] for ref in self.subject.head.all_files}
        local = {p.name: p.read_bytes() for p in self.home.rglob("*") if p.is_file()}
        return {name for name, data in (saved | local).items() if b"secret-" in data}


#: RocksDB takes a base after so many deltas; see
#: `holdfast.state.backends.rocksdb.backend.needs_base`
EPOCHS = 65


@pytest.fixture(params=sorted(TEXTS))
def small(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> SmallState:
    return SmallState(backend, request.param, tmp_path, in_compaction)


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("moves", [False, True])
def test_compaction_of_a_small_state(small: SmallState, moves: bool) -> None:
    """When as much was written as there is, expired entries are gone from all bytes."""
    assert small.has_secrets()
    for epoch in range(EPOCHS):
        small.next_epoch()
        if moves and epoch % 20 == 19:
            small.move()
    assert small.has_secrets() == set()
    assert small.subject.count() == 2
    seen = {key: value for key, _, value in small.subject.backend.entries("op", "s")}
    assert "old-and-young" in seen["key-19"]
    assert len(seen["young"]) > 0


def test_compaction_of_a_small_state_whose_entries_expire_later(small: SmallState) -> None:
    """What was compacted once is compacted again when more has expired."""
    for _ in range(EPOCHS):
        small.next_epoch()
    small.put("key-1", "secret-again")
    small.next_epoch()
    small.subject.clock.advance(TTL)
    for _ in range(EPOCHS - 1):
        small.next_epoch()
        small.subject.clock.advance(1)
    assert small.has_secrets() == set()
    assert small.subject.count() == 1


def test_no_compaction_while_nothing_expires(tmp_path: Path) -> None:
    """It writes all tables anew, which nobody should pay for who has nothing to remove."""
    small = SmallState("rocksdb", "value", tmp_path, in_compaction)
    compactions = 0
    compact = Database.compact

    def counting(database: Database) -> None:
        nonlocal compactions
        compactions += 1
        compact(database)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "compact", counting)
        for _ in range(4 * EPOCHS):
            small.next_epoch()
    assert compactions == 1


def test_the_period_of_compaction_goes_on_in_another_process(backend: str, tmp_path: Path) -> None:
    def monthly(builder: Any) -> Any:
        return in_foreground(builder).cleanup_in_rocksdb_compact_filter(1000, 30 * TTL)

    small = SmallState(backend, "value", tmp_path, monthly)
    for _ in range(3):
        small.subject.clock.advance(9 * TTL)
        small.next_epoch()
        small.move()
    assert small.has_secrets()
    small.subject.clock.advance(3 * TTL)
    small.next_epoch()
    assert small.has_secrets() == set()
    assert small.subject.count() == 1


def test_incrementally_with_each_access(subject: Subject, kind: str) -> None:
    fill(subject, kind, ttl(by_access))  # one access since the last write
    subject.backend.processed("op", 100)
    subject.write()
    assert subject.count() == 21 - 2
    state = subject.state(expiring(KINDS[kind][0](), ttl(by_access)))
    for _ in range(3):
        KINDS[kind][2](state)
    subject.write()
    assert subject.count() == 21 - 8
    subject.write()
    assert subject.count() == 21 - 8
    for _ in range(100):
        KINDS[kind][2](state)
    subject.write()
    assert subject.count() == 1
    subject.renew()
    subject.state(expiring(KINDS[kind][0](), ttl(by_access)))
    assert subject.count() == 1


def test_incrementally_with_each_record(subject: Subject, kind: str) -> None:
    fill(subject, kind, ttl(by_record))
    subject.backend.processed("op", 4)
    subject.backend.processed("another", 100)
    subject.write()
    assert subject.count() == 21 - 10


def test_a_map_is_cleaned_up_entry_by_entry(subject: Subject) -> None:
    maps = subject.state(expiring(MapStateDescriptor("m"), ttl(by_access)))
    lists = subject.state(expiring(ListStateDescriptor("l"), ttl(by_access)))
    maps.put_all({n: n for n in range(100)})
    lists.add_all(range(100))
    subject.clock.advance(TTL)
    subject.write()
    ((_, _, stored),) = subject.backend._scan("op", "m", False) or ()
    assert len(stored) == 100 - 2
    assert subject.count("l") == 0  # a list is looked at as a whole, which counts as 100


def test_incremental_clean_up_goes_on_while_state_changes(subject: Subject) -> None:
    state = fill(subject, "map", ttl(by_access), keys=50)
    for number in range(0, 50, 2):  # written again, or cleared, while the walk is under way
        subject.at(f"secret-{number}")
        state.put("m", number)
        if number % 10 == 0:
            subject.at(f"secret-{number + 1}")
            state.clear()
            subject.write()
    subject.at("nobody")
    for _ in range(100):
        assert state.get("m") is None
        subject.write()
    assert subject.count() == 26
    subject.at("secret-48")
    assert state.get("m") == 48


# B5, B6: what of it is saved.


@pytest.mark.parametrize("saved_with", [False, True])
def test_time_to_live_cannot_be_added_or_taken_away(
    subject: Subject, kind: str, saved_with: bool
) -> None:
    make, write, _, _ = KINDS[kind]
    plain, limited = make(), expiring(make(), ttl())
    before, after = (limited, plain) if saved_with else (plain, limited)
    write(subject.state(before), 7)
    subject.write()
    subject.renew()
    names = ("with time-to-live; this job declares", "State; rename")
    expected = names if saved_with else ("State; this job declares", "with time-to-live; rename")
    with pytest.raises(StateMigrationError) as error:
        subject.state(after)
    assert str(error.value).startswith("state 's' of operator 'op' was saved as ")
    assert all(part in str(error.value) for part in expected)
    assert subject.state(before) is not None  # what was saved is still there


def test_one_state_cannot_have_both(subject: Subject) -> None:
    subject.state(ValueStateDescriptor("s"))
    with pytest.raises(StateRegistrationError, match="as ValueState and as ValueState with time"):
        subject.state(expiring(ValueStateDescriptor("s"), ttl()))


def test_all_settings_may_change_between_runs(subject: Subject, kind: str) -> None:
    make, write, read, held = KINDS[kind]
    write(subject.state(expiring(make(), ttl(on_read, time=10))), 7)
    subject.write()
    subject.clock.advance(50)
    subject.renew()
    longer = subject.state(expiring(make(), ttl(in_snapshots, time=100)))
    assert read(longer) == held(7)
    subject.renew()
    shorter = subject.state(expiring(make(), ttl(lenient, by_record, time=20)))
    assert read(shorter) == held(7)
    assert read(shorter) is None


def test_values_are_saved_as_pairs_under_their_own_type(in_memory: Subject) -> None:
    in_memory.state(expiring(ValueStateDescriptor("s", Types.LONG()), ttl())).update(7)
    in_memory.write()
    (section,) = in_memory.sections()
    pairs = schema_of(Types.TUPLE([Types.LONG(), Types.LONG()]))
    assert (section.kind, section.types, section.expires) == ("value", (pairs,), True)
    in_memory.renew()
    with pytest.raises(StateMigrationError, match="'s' of operator 'op' was saved as"):
        in_memory.state(expiring(ValueStateDescriptor("s", Types.STRING()), ttl()))


@dataclass
class Visit:
    page: str


@dataclass
class LongerVisit:
    page: str
    seconds: int = 0


def test_types_evolve_with_time_to_live_as_without(subject: Subject) -> None:
    def descriptors(number: Any, visit: Any) -> list[Any]:
        return [
            expiring(ValueStateDescriptor("v", number), ttl()),
            expiring(ListStateDescriptor("l", visit), ttl()),
            expiring(MapStateDescriptor("m", Types.STRING(), number), ttl()),
        ]

    value, visits, counts = map(subject.state, descriptors(Types.INT(), Visit))
    value.update(7)
    visits.add(Visit("home"))
    counts.put("a", None)
    subject.write()
    subject.clock.advance(TTL - 1)
    subject.renew()
    value, visits, counts = map(subject.state, descriptors(Types.LONG(), LongerVisit))
    assert (value.value(), visits.get()) == (7, [LongerVisit("home", 0)])
    assert dict(counts) == {"a": None}
    subject.clock.advance(1)
    assert (value.value(), visits.get(), dict(counts)) == (None, [], {})


# Everything at once, against a dict.

KEYS = list(range(8))
MAX_PARALLELISM = 16
STRATEGIES = [in_foreground, in_snapshots, in_compaction, by_access, by_record, lambda b: b]
#: (state, key, map key or index) -> (value, last access)
Cells = dict[tuple[str, int, Any], tuple[Any, int]]


class Model:
    """What is in the states; nothing is ever cleaned up here."""

    def __init__(self, renews: bool) -> None:
        self.cells: Cells = {}
        self.renews = renews

    def alive(self, state: str, key: int, now: int) -> dict[Any, Any]:
        return {
            name: value
            for (s, k, name), (value, stamp) in self.cells.items()
            if (s, k) == (state, key) and stamp + TTL > now
        }

    def read(self, state: str, key: int, now: int) -> dict[Any, Any]:
        found = self.alive(state, key, now)
        if self.renews:
            self.cells.update({(state, key, n): (v, now) for n, v in found.items()})
        return found

    def write(self, state: str, key: int, name: Any, value: Any, now: int) -> None:
        self.cells.pop((state, key, name), None)  # lists are in the order of their writes
        self.cells[state, key, name] = (value, now)

    def clear(self, state: str, key: int) -> None:
        for cell in [cell for cell in self.cells if cell[:2] == (state, key)]:
            del self.cells[cell]


class Cluster:
    """Subtasks with their workers, which are replaced, rescaled, and fail."""

    def __init__(self, backend: str, seed: int, config: StateTtlConfig) -> None:
        self.random = random.Random(seed)
        self.make = BACKENDS[backend]
        self.clock = ManualClock(1_000)
        self.storage = MemoryStorage()
        self.renews = config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
        self.descriptors = {
            "value": expiring(ValueStateDescriptor("value", Types.LONG()), config),
            "sum": expiring(ReducingStateDescriptor("sum", lambda a, b: a + b), config),
            "list": expiring(ListStateDescriptor("list", Types.LONG()), config),
            "map": expiring(MapStateDescriptor("map", Types.LONG(), Types.LONG()), config),
        }
        self.model = Model(self.renews)
        self.stamps = self.epoch = 0
        self.numbers = iter(range(1 << 60))
        self.heads = [Head()]
        self.workers = [self.hire(0)]

    def hire(self, subtask: int) -> tuple[KeyedStateBackend, KeyContext, dict[str, Any]]:
        groups = key_group_range(subtask, len(self.heads), MAX_PARALLELISM)
        backend, context = self.make(groups, MAX_PARALLELISM), KeyContext()
        backend.use_clock(self.clock)
        states = {
            name: backend.keyed_state("op", descriptor, context)
            for name, descriptor in self.descriptors.items()
        }
        return backend, context, states

    def run_epoch(self) -> None:
        """Some accesses; a crash undoes them all."""
        before, crash = copy.deepcopy(self.model), self.random.random() < 0.2
        for _ in range(self.random.randrange(20)):
            self.access()
        self.epoch += 1
        barrier = self.random.random() < 0.3
        heads = []
        for subtask, (backend, _, _) in enumerate(self.workers):
            self.stamps += 1
            head = backend.persist(self.storage, f"s{self.stamps}", self.epoch, barrier)
            heads.append(self.heads[subtask] if crash else head)
        self.heads = heads
        if crash:
            self.model = before
        for subtask in range(len(self.heads)):
            if self.random.random() < 0.3:
                self.workers[subtask] = self.hire(subtask)
            self.workers[subtask][0].restore(self.storage, self.heads[subtask])

    def rescale(self, parallelism: int) -> None:
        old, self.heads = self.heads, [Head()] * parallelism
        self.workers = [self.hire(subtask) for subtask in range(parallelism)]
        self.epoch += 1
        for subtask, (backend, _, _) in enumerate(self.workers):
            backend.import_key_groups(self.storage, old)
            self.stamps += 1
            head = backend.persist(self.storage, f"s{self.stamps}", self.epoch)
            self.heads[subtask] = head

    def access(self) -> None:
        key, name = self.random.choice(KEYS), self.random.choice(list(self.descriptors))
        group = key_group(key, MAX_PARALLELISM)
        backend, context, states = self.workers[subtask_of(group, len(self.heads), 16)]
        context.key = key
        backend.processed("op", 1)
        if self.random.random() < 0.3:
            self.clock.advance(self.random.randrange(4))
        if self.random.random() < 0.1:
            states[name].clear()
            return self.model.clear(name, key)
        getattr(self, f"use_{name}")(states[name], key, self.clock())

    def use_value(self, state: Any, key: int, now: int) -> None:
        if self.random.random() < 0.5:
            state.update(next_value := next(self.numbers))
            self.model.write("value", key, 0, next_value, now)
        else:
            assert state.value() == self.model.read("value", key, now).get(0)

    def use_sum(self, state: Any, key: int, now: int) -> None:
        if self.random.random() < 0.5:
            state.add(1)
            so_far = self.model.alive("sum", key, now).get(0, 0)
            self.model.write("sum", key, 0, so_far + 1, now)
        else:
            assert state.get() == self.model.read("sum", key, now).get(0)

    def use_list(self, state: Any, key: int, now: int) -> None:
        number = next(self.numbers)
        if self.random.random() < 0.5:
            state.add(number)
            self.model.write("list", key, number, number, now)
        else:
            assert state.get() == list(self.model.read("list", key, now).values())

    def use_map(self, state: Any, key: int, now: int) -> None:
        name, kind = self.random.randrange(4), self.random.random()
        if kind < 0.4:
            value = self.random.choice([None, next(self.numbers)])
            state.put(name, value)
            self.model.write("map", key, name, value, now)
        elif kind < 0.6:
            state.remove(name)
            self.model.cells.pop(("map", key, name), None)
        elif kind < 0.8:
            assert len(state) == len(self.model.alive("map", key, now))
        else:
            assert dict(state.items()) == self.model.read("map", key, now)

    def check(self) -> None:
        now = self.clock()
        for subtask, (backend, _, _) in enumerate(self.workers):
            for name in self.descriptors:
                found = {key: value for key, _, value in backend.entries("op", name)}
                assert found == self.expected(name, subtask, now)

    def expected(self, name: str, subtask: int, now: int) -> dict[int, Any]:
        groups = key_group_range(subtask, len(self.heads), MAX_PARALLELISM)
        keys = [key for key in KEYS if key_group(key, MAX_PARALLELISM) in groups]
        alive = {key: self.model.alive(name, key, now) for key in keys}
        shape: Callable[[dict[Any, Any]], Any] = lambda cells: cells[0]  # noqa: E731
        if name == "list":
            shape = lambda cells: list(cells.values())  # noqa: E731
        elif name == "map":
            shape = dict
        return {key: shape(cells) for key, cells in alive.items() if cells}


histories = given(
    seed=st.integers(0, 1 << 30),
    renews=st.booleans(),
    strategy=st.sampled_from(STRATEGIES),
    steps=st.lists(st.integers(0, 3), min_size=5, max_size=25),
)


@settings(max_examples=40, deadline=None)
@histories
def test_states_are_what_a_dict_with_times_would_be(
    seed: int, renews: bool, strategy: Config, steps: list[int]
) -> None:
    live_through("heap", seed, renews, strategy, steps)


@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@histories
def test_and_so_they_are_in_rocksdb(
    seed: int, renews: bool, strategy: Config, steps: list[int]
) -> None:
    live_through("rocksdb", seed, renews, strategy, steps)


def live_through(backend: str, seed: int, renews: bool, strategy: Config, steps: list[int]) -> None:
    config = ttl(strategy, on_read) if renews else ttl(strategy)
    cluster = Cluster(backend, seed, config)
    for step in steps:
        if step == 0:
            cluster.rescale(cluster.random.randrange(1, 4))
        else:
            cluster.run_epoch()
        cluster.check()
