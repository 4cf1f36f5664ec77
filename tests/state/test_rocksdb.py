"""What the RocksDB backend does besides what every backend must do."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import rocksdict
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Types
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor
from holdfast.state.backend import (
    Head,
    HeapKeyedStateBackend,
    KeyContext,
    KeyedStateBackend,
    StateSettings,
    StateStorage,
    make_backend,
)
from holdfast.state.backends.rocksdb import backend as rocksdb
from holdfast.state.backends.rocksdb import database as rocksdb_database
from holdfast.state.backends.rocksdb import states as rocksdb_state
from holdfast.state.backends.rocksdb.backend import RocksDBKeyedStateBackend
from holdfast.state.backends.rocksdb.database import Changes, Database, budget_of
from holdfast.state.backends.rocksdb.entries import CachedEntries
from holdfast.state.backends.rocksdb.home import LocalHome
from holdfast.state.backends.rocksdb.states import DeclaredState
from holdfast.state.errors import (
    StateCorruptionError,
    StateError,
    StateMigrationError,
    StateStorageError,
)
from holdfast.state.format.table_files import TABLE
from holdfast.state.key_groups import key_group
from holdfast.testing.storage import MemoryStateStorage

MEMORY = 16 << 20
KEY = b"only the job has it"
COUNT = ValueStateDescriptor("count", Types.LONG())


class Watched(MemoryStateStorage):
    """Knows what was read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read: list[str] = []

    def read(self, name: str) -> bytes:
        self.was_read.append(name)
        return super().read(name)


class Worker:
    """A process that runs the subtask, as far as its state can tell."""

    def __init__(self, home: Path, storage: StateStorage, memory: int = MEMORY) -> None:
        self.backend = RocksDBKeyedStateBackend(range(128), 128, LocalHome(home, KEY), memory)
        self.context = KeyContext()
        self.storage = storage
        self.counts: Any = self.backend.keyed_state("op", COUNT, self.context)

    def put(self, entries: dict[Any, int]) -> None:
        for self.context.key, value in entries.items():
            self.counts.update(value)

    def epoch(self, number: int, entries: dict[Any, int], stamp: str = "") -> Head:
        self.put(entries)
        return self.backend.persist(self.storage, stamp or f"e{number}", number)

    def contents(self) -> dict[Any, int]:
        return {key: value for key, _, value in self.backend.entries("op", "count")}


@pytest.fixture
def storage() -> Watched:
    return Watched()


@pytest.fixture
def hire(tmp_path: Path, storage: Watched) -> Callable[[], Worker]:
    return lambda: Worker(tmp_path / "home", storage)


@pytest.fixture
def base_when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], bool]], None]:
    """Say after how many files of a head there is a base."""

    def set_when(when: Callable[[int], bool]) -> None:
        monkeypatch.setattr(rocksdb, "needs_base", lambda sizes: not sizes or when(len(sizes)))

    return set_when


def numbers(*ranges: range) -> dict[str, int]:
    return {f"key {n}": n for numbers in ranges for n in numbers}


# What a host has of a subtask's state.


def test_a_database_that_stands_for_the_head_is_used_as_it_is(
    hire: Callable[[], Worker], storage: Watched
) -> None:
    first = hire()
    first.backend.set_blob("op", "fields", b"carried")
    first.epoch(0, {"a": 1})
    head = first.epoch(1, {"b": 2})
    first.backend.close()
    second = hire()
    assert second.backend.restore(storage, head) == 0
    assert storage.was_read == []
    assert second.contents() == {"a": 1, "b": 2}
    assert second.backend.get_blob("op", "fields") == b"carried"


def test_a_database_that_missed_epochs_reads_only_those(
    hire: Callable[[], Worker], storage: Watched
) -> None:
    first, second = hire(), hire()
    head = first.epoch(0, {"a": 1, "b": 1})
    second.backend.restore(storage, head)
    storage.was_read.clear()
    first.backend.restore(storage, second.epoch(1, {"a": 2}))
    assert storage.was_read == ["e1.state"]
    assert first.contents() == {"a": 2, "b": 1}


@pytest.mark.parametrize("with_base", [False, True])
def test_a_database_with_an_epoch_that_was_not_accepted_is_thrown_away(
    hire: Callable[[], Worker],
    storage: Watched,
    base_when: Callable[[Callable[[int], bool]], None],
    with_base: bool,
) -> None:
    first = hire()
    base_when(lambda files: with_base and files > 1)
    first.epoch(0, {"a": 1})
    accepted = first.epoch(1, {"b": 1})
    first.epoch(2, {"a": 99, "c": 99}, stamp="zombie")
    first.backend.close()
    second = hire()
    assert second.backend.restore(storage, accepted) == sum(f.size for f in accepted.files)
    assert second.contents() == {"a": 1, "b": 1}
    # the tables of the base were still there
    assert storage.was_read == ["e0.state", "e1.state"]


KILLED = """
import os, signal, sys
from pathlib import Path
import msgspec
from holdfast.state.storage.directory import DirectoryStateStorage
from tests.state.test_rocksdb import Worker

directory = Path(sys.argv[1])
worker = Worker(directory / "home", DirectoryStateStorage(directory))
worker.epoch(0, {"a": 1})
head = worker.epoch(1, {"b": 2})
worker.put({"a": 99})
(directory / "head").write_bytes(msgspec.msgpack.encode(head))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_was_killed_leaves_its_database(tmp_path: Path, storage: Watched) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    head = msgspec.msgpack.decode((tmp_path / "head").read_bytes(), type=Head)
    worker = Worker(tmp_path / "home", storage)
    assert worker.backend.restore(storage, head) == 0
    assert worker.contents() == {"a": 1, "b": 2}


def test_two_processes_of_a_host_have_a_database_each(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched
) -> None:
    first, second = hire(), hire()
    head = first.epoch(0, {"a": 1})
    second.backend.restore(storage, head)
    assert (tmp_path / "home" / "0").is_dir()
    assert (tmp_path / "home" / "1").is_dir()
    first.backend.close()
    third = hire()
    third.backend.restore(storage, head)
    assert not (tmp_path / "home" / "2").exists()


def test_tables_that_are_gone_from_the_host_are_read_again(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched
) -> None:
    head = hire().epoch(0, {"a": 1})
    for table in (tmp_path / "home" / "tables").iterdir():
        table.unlink()
    worker = hire()
    worker.backend.restore(storage, head)
    assert worker.contents() == {"a": 1}
    assert storage.was_read == ["e0.state", head.tables[0].name]


def test_a_damaged_database_is_made_anew(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched
) -> None:
    first = hire()
    head = first.epoch(0, {"a": 1})
    first.backend.close()
    (tmp_path / "home" / "0" / "CURRENT").write_text("nothing of the kind\n")
    worker = hire()
    assert worker.backend.restore(storage, head) == head.files[0].size
    assert worker.contents() == {"a": 1}


def test_what_a_job_left_is_removed_when_no_process_uses_it(
    tmp_path: Path, storage: Watched
) -> None:
    local = StateSettings(True, (str(tmp_path),))

    def use(key: bytes) -> KeyedStateBackend:
        backend = make_backend(local, key, 1, 0)
        backend.set_blob("op", "fields", b"something")
        backend.persist(storage, key.decode(), 0)
        assert local.home(key, 1, 0).is_dir()
        return backend

    left, used = use(b"left"), use(b"used")
    left.close()
    assert local.home(b"left", 1, 0).is_dir(), "another process of the job may use it"
    use(b"next").close(ended=True)
    assert not local.home(b"left", 1, 0).parent.exists()
    assert [path.parent.parent for path in tmp_path.glob("*/*/tables")] == [
        local.home(b"used", 1, 0).parent
    ]
    used.close(ended=True)
    assert list(tmp_path.iterdir()) == []


def test_what_a_host_has_of_a_job_goes_when_the_job_has_ended(
    tmp_path: Path, storage: Watched
) -> None:
    local = StateSettings(True, (str(tmp_path),))
    backend = make_backend(local, KEY, 1, 0)
    backend.set_blob("op", "fields", b"something")
    backend.persist(storage, "e0", 0)
    local.forget(KEY)
    assert list(tmp_path.iterdir()) == []


# Another user.


def test_a_database_of_another_job_is_made_anew(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched
) -> None:
    """Who can write the files, and does not have the key, cannot say what they stand for."""
    first = hire()
    head = first.epoch(0, {"a": 1})
    first.backend.close()
    forged = RocksDBKeyedStateBackend(
        range(128), 128, LocalHome(tmp_path / "home", b"guess"), MEMORY
    )
    forged.restore(storage, head)
    forged.set_blob("op", "fields", b"forged")
    forged.persist(MemoryStateStorage(), "e1", 1)
    forged.restore(storage, head)
    forged.close()
    worker = hire()
    assert worker.backend.restore(storage, head) == head.files[0].size
    assert worker.contents() == {"a": 1}
    assert worker.backend.get_blob("op", "fields") is None


@pytest.mark.parametrize("change", ["mode", "link"])
def test_a_database_that_others_could_have_changed_is_made_anew(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched, change: str
) -> None:
    first = hire()
    head = first.epoch(0, {"a": 1})
    first.backend.close()
    slot = tmp_path / "home" / "0"
    if change == "mode":
        (slot / "CURRENT").chmod(0o666)
    else:
        (slot / "CURRENT").rename(tmp_path / "elsewhere")
        (slot / "CURRENT").symlink_to(tmp_path / "elsewhere")
    worker = hire()
    assert worker.backend.restore(storage, head) == head.files[0].size
    assert worker.contents() == {"a": 1}


def test_a_table_that_others_could_have_changed_is_read_again(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched
) -> None:
    head = hire().epoch(0, {"a": 1})
    for table in (tmp_path / "home" / "tables").iterdir():
        table.chmod(0o666)
    storage.was_read.clear()
    worker = hire()
    worker.backend.restore(storage, head)
    assert worker.contents() == {"a": 1}
    assert storage.was_read == ["e0.state", head.tables[0].name]


def test_databases_are_for_this_user_alone(hire: Callable[[], Worker], tmp_path: Path) -> None:
    hire().epoch(0, {"a": 1})
    for path in (tmp_path / "home", tmp_path / "home" / "0", tmp_path / "home" / "tables"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_home_that_others_can_write_to_is_refused(
    hire: Callable[[], Worker], tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    with pytest.raises(StateStorageError, match=r"has mode 0777.*rocksdb.localdir"):
        hire().epoch(0, {"a": 1})


def test_a_pipe_in_the_place_of_a_lock_does_not_block(
    hire: Callable[[], Worker], tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "home" / "0.lock")
    with pytest.raises(StateStorageError, match=r"0.lock' is not a regular file"):
        hire().epoch(0, {"a": 1})


# Bases on tables.


def test_a_base_copies_only_new_tables(
    hire: Callable[[], Worker],
    storage: Watched,
    base_when: Callable[[Callable[[int], bool]], None],
) -> None:
    base_when(lambda files: files > 2)
    worker = hire()
    first = worker.epoch(0, numbers(range(50_000)))
    for epoch in (1, 2):
        worker.backend.restore(storage, worker.epoch(epoch, numbers(range(500))))
    before = set(storage.files)
    second = worker.epoch(3, numbers(range(500)))
    assert len(second.files) == 1
    assert set(first.tables) < set(second.tables)
    written = {name: len(data) for name, data in storage.files.items() if name not in before}
    assert sum(written.values()) < first.size / 10
    assert {ref.name for ref in second.all_files} - before == set(written)


def test_a_table_that_is_damaged_is_told_by_its_name(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched
) -> None:
    head = hire().epoch(0, {"a": 1})
    name = head.tables[0].name
    damaged = bytearray(storage.files[name])
    damaged[len(damaged) // 2] ^= 1
    storage.files[name] = bytes(damaged)
    elsewhere = Worker(tmp_path / "another host", storage)
    with pytest.raises(StateCorruptionError, match=f"'{name}' cannot be used: expected checksum"):
        elsewhere.backend.restore(storage, head)
    assert elsewhere.contents() == {}


def test_pickles_in_tables_are_refused_unread(hire: Callable[[], Worker], tmp_path: Path) -> None:
    class Suspicious(Watched):
        def refuse(self, what: str) -> None:
            raise StateError(what)

    storage = Suspicious()
    worker = Worker(tmp_path / "home", storage)
    untyped: Any = worker.backend.keyed_state("op", ValueStateDescriptor("any"), worker.context)
    worker.context.key = "a"
    untyped.update({1, 2})
    head = worker.epoch(0, {"a": 1})
    for backend in (HeapKeyedStateBackend(range(128), 128), hire().backend):
        with pytest.raises(StateError, match="state 'any' of operator 'op'"):
            backend.import_key_groups(storage, [head])


@pytest.mark.parametrize("beside", [False, True])
def test_changes_that_are_too_many_for_a_delta_are_in_a_base(
    hire: Callable[[], Worker],
    tmp_path: Path,
    storage: Watched,
    monkeypatch: pytest.MonkeyPatch,
    beside: bool,
) -> None:
    worker = hire()
    worker.epoch(0, numbers(range(1000)))
    worker.epoch(1, numbers(range(10)))
    monkeypatch.setattr(rocksdb, "_DELTA_BYTES", 100)
    changed = {f"key {n}": -n for n in range(500)}
    worker.put(changed)
    # NB: no epoch has ended since, so what changed is in memory only
    if beside:
        head = worker.backend.capture("e2", 2).write(storage)
    else:
        head = worker.backend.persist(storage, "e2", 2)
    elsewhere = Worker(tmp_path / "another host", storage)
    elsewhere.backend.restore(storage, head)
    assert elsewhere.contents() == numbers(range(1000)) | changed
    assert len(head.files) == 1


def test_large_values_are_no_large_delta(
    tmp_path: Path, storage: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "_DELTA_BYTES", 100_000)
    worker = Worker(tmp_path / "home", storage)
    text = ValueStateDescriptor("text", Types.STRING())
    view: Any = worker.backend.keyed_state("op", text, worker.context)
    worker.epoch(0, {"a": 1})  # there is no delta yet to learn from how large a change is
    for worker.context.key in range(500):
        view.update(os.urandom(500).hex())
    head = worker.epoch(1, {})
    assert max(file.size for file in head.files) < 100_000
    assert sum(table.size for table in head.tables) > 250_000


def test_memory_is_bounded_within_an_epoch(
    hire: Callable[[], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_state, "_MOST_CHANGED", 50)
    worker = hire()
    unsaved = 0
    for part in range(20):
        worker.backend.processed("op", 10)
        worker.put(numbers(range(10 * part, 10 * part + 10)))
        unsaved = max(unsaved, sum(len(t.dirty) for t in worker.backend._tables.values()))
    assert unsaved <= 60
    head = worker.backend.persist(worker.storage, "e0", 0)
    worker.backend.discard()
    worker.backend.restore(worker.storage, head)
    assert worker.contents() == numbers(range(200))


def test_much_is_written_in_several_steps(
    tmp_path: Path, storage: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    write = Database.write

    def noted(self: Database, changes: Changes) -> None:
        steps.append(sum(len(row or b"") for row in changes.values()))
        write(self, changes)

    monkeypatch.setattr(Database, "write", noted)
    text = ValueStateDescriptor("text", Types.STRING())
    worker = Worker(tmp_path / "home", storage)
    view: Any = worker.backend.keyed_state("op", text, worker.context)
    for worker.context.key in range(1000):
        view.update(os.urandom(5000).hex())
    head = worker.epoch(0, {})
    # RocksDB makes one table, which is then held in memory as a whole, of what it gets in one step
    assert max(steps) < 2 << 20 < sum(steps)
    elsewhere = Worker(tmp_path / "another host", storage)
    elsewhere.backend.restore(storage, head)
    elsewhere.backend.keyed_state("op", text, elsewhere.context)
    assert len(list(elsewhere.backend.entries("op", "text"))) == 1000


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let databases have many small tables, one behind another."""
    save = Database.save_to

    def save_compacted(self: Database, directory: Path) -> None:
        options = rocksdict.CompactOptions()
        options.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        self._db.flush()
        self._db.compact_range(None, None, compact_opt=options)
        save(self, directory)

    monkeypatch.setattr(rocksdb_database, "_TABLE_BYTES", 64 << 10)
    monkeypatch.setattr(Database, "save_to", save_compacted)


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("parts", [2, 3])
def test_a_rescale_reads_a_table_for_whom_it_has_rows(
    tmp_path: Path, storage: Watched, parts: int
) -> None:
    text = ValueStateDescriptor("text", Types.STRING())
    worker = Worker(tmp_path / "home", storage)
    view: Any = worker.backend.keyed_state("op", text, worker.context)
    expected = {}
    for key in range(2000):
        worker.context.key = key
        expected[key] = os.urandom(500).hex()
        view.update(expected[key])
    worker.backend.set_blob("op", "position", b"here")
    head = worker.epoch(0, {})
    assert len(head.tables) > 10
    found: dict[int, str] = {}
    storage.was_read.clear()
    for part in range(parts):
        groups = range(128 * part // parts, 128 * (part + 1) // parts)
        home = LocalHome(tmp_path / f"home {part}", KEY)
        backend = RocksDBKeyedStateBackend(groups, 128, home, MEMORY)
        assert backend.import_key_groups(storage, [head]) == [{("op", "position"): b"here"}]
        backend.keyed_state("op", text, KeyContext())
        own = {key: value for key, _, value in backend.entries("op", "text")}
        assert {key_group(key, 128) for key in own} <= set(groups)
        found |= own
    assert found == expected
    tables = [name for name in storage.was_read if name.endswith(TABLE)]
    # two subtasks read the table that has rows of both, and the one behind it; of two states
    assert len(tables) <= len(head.tables) + 2 * 2 * (parts - 1)
    assert storage.was_read.count(head.files[0].name) == parts


@pytest.mark.usefixtures("small_tables")
def test_a_scan_that_comes_to_a_missing_table_is_an_error(tmp_path: Path) -> None:
    database = Database(tmp_path / "all", budget_of(MEMORY))
    rows = {b"%04d" % number: os.urandom(1000) for number in range(1000)}
    database.write(dict(rows))
    database.save_to(tmp_path / "part")
    assert dict(database.scan(b"", b"a")) == rows
    tables = sorted(database.tables(), key=lambda table: table.first)
    database.close()
    missing = tables[len(tables) // 2]
    (tmp_path / "part" / missing.name).unlink()
    part = Database(tmp_path / "part", budget_of(MEMORY), partial=True)
    before = {key: row for key, row in rows.items() if key < missing.first}
    assert dict(part.scan(b"", max(before))) == {k: before[k] for k in sorted(before)[:-1]}
    for start in (b"", missing.first, missing.last):
        with pytest.raises(StateStorageError, match=f"cannot read the RocksDB .*{missing.name}"):
            list(part.scan(start, b"a"))
    part.close()


def test_keys_that_are_kept_in_their_rows_are_no_pickles(tmp_path: Path) -> None:
    class Suspicious(Watched):
        def refuse(self, what: str) -> None:
            raise StateError(what)

    storage = Suspicious()
    worker = Worker(tmp_path / "home", storage)
    head = worker.epoch(0, {True: 1, 2.0: 2, (False, "a"): 3})
    other = HeapKeyedStateBackend(range(128), 128)
    other.import_key_groups(storage, [head])
    other.keyed_state("op", COUNT, KeyContext())
    found = {repr(key): value for key, _, value in other.entries("op", "count")}
    assert found == {"True": 1, "2.0": 2, "(False, 'a')": 3}


def test_rows_of_an_older_type_are_written_anew(
    hire: Callable[[], Worker], tmp_path: Path, storage: Watched
) -> None:
    first = hire()
    head = first.epoch(0, numbers(range(3000)))
    for descriptor in (ValueStateDescriptor("count", Types.STRING()), ListStateDescriptor("count")):
        worker = RocksDBKeyedStateBackend(
            range(128), 128, LocalHome(tmp_path / "home", KEY), MEMORY
        )
        worker.restore(storage, head)
        with pytest.raises(StateMigrationError, match="'count' of operator 'op' was saved as"):
            worker.keyed_state("op", descriptor, KeyContext())
        worker.close()
    widened = RocksDBKeyedStateBackend(range(128), 128, LocalHome(tmp_path / "home", KEY), MEMORY)
    widened.restore(storage, head)
    widened.keyed_state("op", ValueStateDescriptor("count", Types.BIG_INT()), KeyContext())
    found = {key: value for key, _, value in widened.entries("op", "count")}
    assert found == numbers(range(3000))
    assert len(widened.persist(storage, "e1", 1).files) == 1  # a base, all of the new type


# Keys.


class Colour(StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


plain_keys = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, Decimal(1), Decimal("2.5"), Colour.RED, "red", "\ud800"]),
    st.text(max_size=2),
    st.binary(max_size=2),
    st.frozensets(st.integers(0, 3)),
)
keys = st.one_of(plain_keys, st.tuples(plain_keys, plain_keys), st.builds(Point, *[st.just(1)] * 2))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(keys, st.integers(0, 9)), min_size=1), min_size=1, max_size=4))
def test_keys_are_the_keys_of_a_dict(epochs: list[list[tuple[Any, int]]]) -> None:
    model: dict[Any, int] = {}
    backend = _fresh()
    context = KeyContext()
    state: Any = backend.keyed_state("op", COUNT, context)
    for number, epoch in enumerate(epochs):
        for key, value in epoch:
            context.key = key
            assert state.value() == model.get(key)
            if value:
                state.update(value)
                model[key] = value
            else:
                state.clear()
                model.pop(key, None)
        backend.persist(MemoryStateStorage(), f"e{number}", number)
        _entries(backend).forget()
    found = [(key, value) for key, _, value in backend.entries("op", "count")]
    assert len(found) == len(model)
    assert dict(found) == model
    backend.close(ended=True)


def _fresh() -> KeyedStateBackend:
    home = LocalHome(Path(tempfile.mkdtemp(prefix="holdfast-keys-")) / "home", KEY)
    return RocksDBKeyedStateBackend(range(128), 128, home, MEMORY)


# Memory.


def _entries(backend: RocksDBKeyedStateBackend) -> CachedEntries:
    """Return the entries of the only state."""
    return _declared(backend).entries


def _declared(backend: RocksDBKeyedStateBackend) -> DeclaredState:
    (declared,) = backend._states.values()
    return declared


@pytest.mark.parametrize("seed", range(4))
def test_entries_that_are_read_ahead_are_those_of_a_dict(
    hire: Callable[[], Worker], seed: int
) -> None:
    worker, draw = hire(), random.Random(seed)
    model: dict[str, int] = {}
    for block in range(60):
        keys = [f"key {draw.randrange(3000)}" for _ in range(300)]
        worker.backend.read_ahead("op", keys)
        for key in keys:
            worker.context.key = key
            assert worker.counts.value() == model.get(key)
            model[key] = model.get(key, 0) + 1
            worker.counts.update(model[key] if draw.random() < 0.9 else None)
            if worker.counts.value() is None:
                del model[key]
        if block % 3 == 0:
            worker.backend.persist(worker.storage, f"e{block}", block)
            _entries(worker.backend).forget()
    assert worker.contents() == model
    assert _declared(worker.backend)._ahead


def test_a_state_that_records_do_not_read_is_not_read_ahead(hire: Callable[[], Worker]) -> None:
    worker = hire()
    keys = list(numbers(range(1000)))
    worker.epoch(0, numbers(range(1000)))
    for block in range(40):
        _entries(worker.backend).forget()
        worker.backend.read_ahead("op", keys)
        assert len(_entries(worker.backend).in_memory) == 0, block
        worker.context.key = keys[0]
        assert worker.counts.value() == 0
    assert not _declared(worker.backend)._ahead


def test_a_key_without_a_row_is_found_after_its_row_was_written() -> None:
    rows: dict[str, int] = {}
    entries = CachedEntries(set(), rows.get, lambda: iter(rows.items()))
    entries.put_ahead(["a", "b"], [1, None])
    assert (entries.get("a"), entries.get("b")) == (1, None)
    rows["b"] = 2
    assert entries.get("b") is None
    entries.rows_written()
    assert entries.get("b") == 2
    assert entries.missing(["a", "b", "c", "c"]) == ["c"]


def test_what_is_in_memory_is_bounded(tmp_path: Path, storage: Watched) -> None:
    memory = 4 << 20  # of its own: no other test's database counts, and all rows do not fit
    worker = Worker(tmp_path / "home", storage, memory)
    entries = _entries(worker.backend)
    for epoch in range(8):
        worker.epoch(epoch, numbers(range(epoch * 20_000, (epoch + 1) * 20_000)))
    for number in range(0, 160_000, 3):
        worker.context.key = f"key {number}"
        assert worker.counts.value() == number
    assert len(entries.in_memory) + len(entries._older) < memory // 2 // 300
    kept = _evictable(worker.backend._host.budget.cache)
    assert 0 < kept <= memory // 2


def _evictable(cache: rocksdict.Cache) -> int:
    """Return how many bytes a cache has of what nobody uses.

    Only that is never more than its capacity: what is in use at a moment (write buffers, the
    indexes of new tables, blocks of a flush or of a compaction) is never thrown out, and comes on
    top if there is no room left in its part of the cache. A thread of RocksDB may let go of
    something between the two questions; so they are asked several times.
    """
    return min(cache.get_usage() - cache.get_pinned_usage() for _ in range(20))


def test_entries_that_are_used_stay_in_memory() -> None:
    reads: list[str] = []

    def read(key: str) -> str:
        reads.append(key)
        return key

    entries = CachedEntries(set(), read, lambda: iter(()))
    for number in range(2_000):
        assert entries.get("often") == "often"
        assert entries.get(f"once {number}") is not None
    assert reads.count("often") == 1
    assert len(entries.in_memory) <= 256


def test_a_database_can_be_opened_again_whoever_still_has_a_snapshot(tmp_path: Path) -> None:
    database = Database(tmp_path, budget_of(16 << 20))
    database.write({b"key": b"before"})
    snapshot = database.snapshot()
    database.write({b"key": b"after"})
    assert snapshot.get_all([b"key", b"other"]) == [b"before", None]
    database.close()
    with pytest.raises(StateStorageError, match=r"cannot read the RocksDB .* it was closed"):
        snapshot.get_all([b"key"])
    database = Database(tmp_path, budget_of(16 << 20))
    assert database.get(b"key") == b"after"
    database.close()
