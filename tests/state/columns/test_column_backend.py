"""State in columns of a backend: captures, files, restores, rescales, time-to-live, evolution."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common.time import Time
from holdfast.datastream.state import (
    ColumnState,
    ColumnStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.state.backend import (
    DirectoryStateStorage,
    Head,
    HeapKeyedStateBackend,
    KeyContext,
)
from holdfast.state.backends import heap
from holdfast.state.backends.capture import FileCapture
from holdfast.state.backends.rocksdb.backend import RocksDBKeyedStateBackend
from holdfast.state.backends.rocksdb.home import LocalHome
from holdfast.state.columns import table as tables
from holdfast.state.errors import (
    StateCorruptionError,
    StateMigrationError,
    StateRegistrationError,
    StateStorageError,
)
from holdfast.state.format import files
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import decode_file, encode_file
from holdfast.state.key_groups import KeyGroupShare, key_group, key_group_range
from holdfast.state.names import StateId
from holdfast.state.saved_entries import count_entries, read_entries
from holdfast.state.types.arrow_columns import encode_arrow

TOTAL = ColumnStateDescriptor("total", pa.int64())
NAME = ColumnStateDescriptor("name", pa.string())
MOST = 8


class Worker:
    """A backend of one subtask, and its states by name."""

    def __init__(
        self,
        storage: DirectoryStateStorage,
        groups: range = range(MOST),
        descriptors: tuple[ColumnStateDescriptor, ...] = (TOTAL, NAME),
        clock: list[int] | None = None,
    ) -> None:
        self.storage = storage
        self.backend = HeapKeyedStateBackend(groups, MOST)
        self.backend.shares.assign("op", KeyGroupShare(groups, MOST))
        self.clock = clock or [0]
        self.backend.use_clock(lambda: self.clock[0])
        self.descriptors = descriptors
        self.states: dict[str, ColumnState] = {}

    def open(self) -> Worker:
        for descriptor in self.descriptors:
            self.states[descriptor.name] = self.backend.column_state("op", descriptor)
        return self

    @property
    def total(self) -> ColumnState:
        return self.states["total"]

    def keys(self, keys: list[Any]) -> Any:
        return self.backend.columns.of("op").keys(pa.array(keys))

    def add(self, rows: dict[Any, int]) -> None:
        self.total.add(self.keys(list(rows)), list(rows.values()))

    def entries(self, state: str = "total") -> dict[Any, Any]:
        return {key: value for key, _, value in self.backend.entries("op", state)}

    def ops(self, head: Head) -> list[tuple[Op, int]]:
        name = head.files[-1].name
        file = decode_file(self.storage.read(name), name)
        return [(c.op, c.count) for s in file.sections for c in s.chunks]


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStateStorage:
    return DirectoryStateStorage(tmp_path)


@pytest.fixture
def worker(storage: DirectoryStateStorage) -> Worker:
    return Worker(storage).open()


def saved(storage: DirectoryStateStorage, head: Head, state: str = "total") -> dict[Any, Any]:
    """Return the entries of a state as tools read them from the files."""
    found: dict[Any, Any] = {}
    for batch in read_entries(storage, head, StateId("op", state)):
        found.update(zip(batch.keys, batch.values, strict=True))
    return found


def test_a_checkpoint_has_only_the_rows_that_changed(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: 0)
    worker.add({f"k{n}": n for n in range(1000)})
    head = worker.backend.persist(worker.storage, "a", 1)
    assert worker.ops(head) == [(Op.PUT, 1000)]
    worker.add({"k7": 1})
    worker.total.clear(worker.keys(["k8", "new"]))
    worker.total.get(worker.keys(["k9"]))
    head = worker.backend.persist(worker.storage, "b", 2)
    assert worker.ops(head) == [(Op.PUT, 1), (Op.DELETE, 1)]
    assert worker.backend.persist(worker.storage, "c", 3) is head
    expected = {f"k{n}": n for n in range(1000)} | {"k7": 8}
    del expected["k8"]
    assert saved(worker.storage, head) == expected
    assert count_entries(worker.storage, head)[StateId("op", "total")].entries == 999
    other = Worker(worker.storage)
    other.backend.restore(worker.storage, head)
    assert other.open().entries() == expected


def test_a_capture_does_not_see_later_changes(worker: Worker) -> None:
    worker.add({"a": 1, "b": 2})
    first = worker.backend.capture("1", 1)
    worker.add({"a": 10, "c": 3})
    worker.total.clear(worker.keys(["b"]))
    second = worker.backend.capture("2", 2)
    worker.add({"a": 100})
    assert saved(worker.storage, first.write(worker.storage)) == {"a": 1, "b": 2}
    assert saved(worker.storage, second.write(worker.storage)) == {"a": 11, "c": 3}
    head = worker.backend.persist(worker.storage, "3", 3)
    assert saved(worker.storage, head) == {"a": 111, "c": 3}


ROW = st.tuples(st.integers(0, 40), st.none() | st.integers(-5, 5))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "put", "clear", "look"]), st.lists(ROW, max_size=12)),
        st.tuples(st.sampled_from(["capture", "write", "fail", "restore"]), st.just([])),
        st.tuples(st.just("rescale"), st.integers(1, 4)),
    ),
    max_size=25,
)


class Job:
    """Some subtasks, and the values that their keys should have: now, and as of each capture."""

    def __init__(self, storage: DirectoryStateStorage) -> None:
        self.storage = storage
        self.workers = [Worker(storage).open()]
        self.model: dict[int, int] = {}
        #: captures that are not written yet, each with the values that it has
        self.pending: list[tuple[list[Any], dict[int, int]]] = []
        #: the heads of the last checkpoint that was written
        self.heads, self.held = [Head()], dict(self.model)
        self.epoch = 0

    def change(self, name: str, rows: list[tuple[int, int | None]]) -> None:
        """Change the values of keys, or only look at them."""
        for key, value in rows if name != "look" else ():
            if name == "clear" or (name == "put" and value is None):
                self.model.pop(key, None)
            elif value is not None:
                self.model[key] = value + (self.model.get(key, 0) if name == "add" else 0)
        groups = [key_group(key, MOST) for key, _ in rows]
        for worker in self.workers:
            own = worker.backend.shares.of("op").key_groups
            mine = [row for row, group in zip(rows, groups, strict=True) if group in own]
            keys = worker.keys(pa.array([key for key, _ in mine], pa.int64()))
            if name == "clear":
                worker.total.clear(keys)
            elif name == "look":
                assert worker.total.get(keys).to_pylist() == [self.model.get(k) for k, _ in mine]
            else:
                getattr(worker.total, name)(keys, [value for _, value in mine])

    def capture(self) -> None:
        self.epoch += 1
        stamp = f"{self.epoch}-{id(self)}"
        captures = [
            worker.backend.capture(f"{stamp}-{number}", self.epoch)
            for number, worker in enumerate(self.workers)
        ]
        self.pending.append((captures, dict(self.model)))

    def write(self) -> None:
        if self.pending:
            captures, held = self.pending.pop(0)
            self.heads = [capture.write(self.storage) for capture in captures]
            self.held = held

    def fail(self) -> None:
        """The storage fails: nothing that is pending can be written."""
        for captures, _ in self.pending:
            for capture in captures:
                capture.drop()
                # NB: a capture without changes only fails if the one before it did
                with suppress(StateStorageError):
                    capture.write(self.storage)
                assert capture.failed or not isinstance(capture, FileCapture)
        self.pending.clear()

    def restore(self) -> None:
        self.pending.clear()
        for worker, head in zip(self.workers, self.heads, strict=True):
            worker.backend.discard()
            worker.backend.restore(self.storage, head)
        self.model = dict(self.held)

    def rescale(self, parallelism: int) -> None:
        self.pending.clear()
        self.workers = []
        for number in range(parallelism):
            worker = Worker(self.storage, key_group_range(number, parallelism, MOST))
            worker.backend.import_key_groups(self.storage, self.heads)
            self.workers.append(worker.open())
        self.model = dict(self.held)
        self.capture()
        self.write()

    def check(self) -> None:
        found: dict[int, int] = {}
        for worker in self.workers:
            found |= worker.entries()
        assert found == self.model
        assert _merged(self.storage, self.heads) == self.held


def _merged(storage: DirectoryStateStorage, heads: list[Head]) -> dict[Any, Any]:
    return {key: value for head in heads for key, value in saved(storage, head).items()}


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, few=st.sampled_from([0, 1 << 14]))
def test_any_order_of_changes_captures_failures_restores_and_rescales(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]], few: int
) -> None:
    storage = DirectoryStateStorage(tmp_path_factory.mktemp("state"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_FEW", few)  # 0: dead slots are removed with every base
        job = Job(storage)
        for name, argument in steps:
            if name in ("add", "put", "clear", "look"):
                job.change(name, argument)
            elif name == "rescale":
                job.rescale(argument)
            else:
                getattr(job, name)()
            job.check()


def test_keys_of_several_columns_and_namespaces_are_restored(
    storage: DirectoryStateStorage,
) -> None:
    backend = HeapKeyedStateBackend(range(MOST), MOST)
    state = backend.column_state("op", TOTAL, namespaced=True)
    names, numbers = pa.array(["a", "a", "b"]), pa.array([1, 2, 1], pa.int16())
    keys = pa.StructArray.from_arrays([names, numbers], ["name", "number"])
    state.count(backend.columns.of("op", namespaced=True).keys(keys, pa.array([0, 60, 0])))
    head = backend.persist(storage, "a", 1)
    expected = {(("a", 1), 0): 1, (("a", 2), 60): 1, (("b", 1), 0): 1}
    found = list(read_entries(storage, head, StateId("op", "total", namespaced=True)))
    assert dict(zip(found[0].keys, found[0].values, strict=True)) == expected
    for groups in (range(4), range(4, 8)):
        other = HeapKeyedStateBackend(groups, MOST)
        other.import_key_groups(storage, [head])
        other.column_state("op", TOTAL, namespaced=True)
        got = {(key, space): value for key, space, value in other.entries("op", "total")}
        mine = {k: v for k, v in expected.items() if key_group(k[0], MOST) in groups}
        assert got == mine
        for key, space in mine:
            section = other.section_of("op", "total", True, (key, space))
            assert section is not None
            assert [chunk.count for chunk in section.chunks] == [1]
            assert section.chunks[0].first == key_group(key, MOST)


def test_keys_of_an_operator_without_state_are_forgotten(storage: DirectoryStateStorage) -> None:
    backend = HeapKeyedStateBackend(range(MOST), MOST)
    for end in (backend.end_epoch, lambda: backend.persist(storage, "a", 1)):
        table = backend.columns.of("op")
        assert len(table.keys(pa.array([1, 2])).distinct) == 2
        end()
        assert len(table) == 0


class TestKeysWithoutState:
    """They take memory for a while, and no more than the others."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "_FEW", 100)

    def slots(self, worker: Worker) -> int:
        return len(worker.backend.columns.of("op"))

    def test_keys_that_are_only_looked_at_do_not_pile_up(self, worker: Worker) -> None:
        worker.add({n: n for n in range(50)})
        most, head = 0, Head()
        for epoch in range(1, 40):
            looked_at = worker.keys(list(range(1000 * epoch, 1000 * epoch + 60)))
            assert worker.total.get(looked_at).null_count == 60
            if epoch == 20:
                worker.add({epoch: 1})
            head = worker.backend.persist(worker.storage, f"{epoch}", epoch)
            most = max(most, self.slots(worker))
        assert most < 400
        expected = {n: n for n in range(50)} | {20: 21}
        assert worker.entries() == saved(worker.storage, head) == expected

    def test_a_base_is_written_when_most_keys_were_removed(self, worker: Worker) -> None:
        worker.add({n: n for n in range(1000)})
        worker.backend.persist(worker.storage, "a", 1)
        worker.total.clear(worker.keys(list(range(400, 1000))))
        assert self.slots(worker) == 1000
        head = worker.backend.persist(worker.storage, "b", 2)
        assert self.slots(worker) == 400
        assert len(head.files) == 1
        assert saved(worker.storage, head) == {n: n for n in range(400)}

    def test_another_large_state_is_not_written_again_for_them(self, worker: Worker) -> None:
        context = KeyContext()
        other: Any = worker.backend.keyed_state("op", ValueStateDescriptor("other"), context)
        for context.key in range(5000):
            other.update(1)
        worker.add({n: n for n in range(10)})
        worker.backend.persist(worker.storage, "a", 1)
        for epoch in range(2, 5):
            worker.keys(list(range(1000 * epoch, 1000 * epoch + 500)))
            worker.add({1: 1})
            head = worker.backend.persist(worker.storage, f"{epoch}", epoch)
        assert len(head.files) > 1

    def test_a_subtask_has_only_its_own_keys_after_a_rescale(self, worker: Worker) -> None:
        worker.add({n: n for n in range(1000)})
        head = worker.backend.persist(worker.storage, "a", 1)
        other = Worker(worker.storage, range(1, 2))
        other.backend.import_key_groups(worker.storage, [head])
        other.open()
        assert self.slots(other) == len(other.entries()) < 300


def test_a_key_is_found_by_its_python_value(worker: Worker) -> None:
    worker.add({"a": 1})
    section = worker.backend.section_of("op", "total", False, "a")
    assert section is not None
    assert section.chunks[0].count == 1
    for missing in ("b", 7, None, ("a",)):
        section = worker.backend.section_of("op", "total", False, missing)
        assert section is not None
        assert section.chunks == ()
    assert worker.backend.section_of("op", "other", False, "a") is None


class TestEvolution:
    def restored(
        self, worker: Worker, *descriptors: ColumnStateDescriptor
    ) -> dict[str, dict[Any, Any]]:
        head = worker.backend.persist(worker.storage, "a", 1)
        other = Worker(worker.storage, descriptors=descriptors)
        other.backend.restore(worker.storage, head)
        other.open()
        again = other.backend.persist(worker.storage, "b", 2)
        other = Worker(worker.storage, descriptors=descriptors)
        other.backend.restore(worker.storage, again)
        other.open()
        return {descriptor.name: other.entries(descriptor.name) for descriptor in descriptors}

    def test_a_number_can_be_widened_and_a_state_added(
        self, storage: DirectoryStateStorage
    ) -> None:
        worker = Worker(storage, descriptors=(ColumnStateDescriptor("total", pa.int32()),)).open()
        worker.add({"a": 1, "b": -(2**31)})
        wide = ColumnStateDescriptor("total", pa.int64())
        added = ColumnStateDescriptor("added", pa.float64(), default=0.5)
        got = self.restored(worker, wide, added)
        assert got == {"total": {"a": 1, "b": -(2**31)}, "added": {}}

    @pytest.mark.parametrize(
        ("before", "after"),
        [(pa.int64(), pa.int32()), (pa.int64(), pa.float64()), (pa.int64(), pa.uint64())],
        ids=str,
    )
    def test_anything_else_is_an_error(
        self, storage: DirectoryStateStorage, before: pa.DataType, after: pa.DataType
    ) -> None:
        worker = Worker(storage, descriptors=(ColumnStateDescriptor("total", before),)).open()
        worker.add({"a": 1})
        message = f"'total' of operator 'op' was saved as {before}; this job declares {after}"
        with pytest.raises(StateMigrationError, match=message):
            self.restored(worker, ColumnStateDescriptor("total", after))

    def test_another_kind_of_state_is_an_error(self, worker: Worker) -> None:
        worker.add({"a": 1})
        head = worker.backend.persist(worker.storage, "a", 1)
        other = HeapKeyedStateBackend(range(MOST), MOST)
        other.restore(worker.storage, head)
        with pytest.raises(StateMigrationError, match="was saved as ColumnState; this job declar"):
            other.keyed_state("op", ValueStateDescriptor("total"), KeyContext())
        assert other.persist(worker.storage, "b", 2) == head  # carried along unread

    def test_another_type_of_keys_is_an_error(self, worker: Worker) -> None:
        worker.add({"a": 1})
        head = worker.backend.persist(worker.storage, "a", 1)
        other = Worker(worker.storage)
        other.backend.restore(worker.storage, head)
        other.open()
        with pytest.raises(StateMigrationError, match="operator 'op': its keys are string; got in"):
            other.keys([1])

    def test_a_state_is_declared_once(self, worker: Worker) -> None:
        with pytest.raises(StateRegistrationError, match="declares the state 'total' twice"):
            worker.backend.column_state("op", ColumnStateDescriptor("total", pa.int32()))


def expiring(seconds: int, **changes: bool) -> ColumnStateDescriptor:
    builder = StateTtlConfig.new_builder(Time.seconds(seconds))
    if changes.get("on_read"):
        builder = builder.update_ttl_on_read_and_write()
    if changes.get("returns"):
        builder = builder.return_expired_if_not_cleaned_up()
    if changes.get("incremental"):
        builder = builder.cleanup_incrementally(1000, False)
    descriptor = ColumnStateDescriptor("total", pa.int64())
    descriptor.enable_time_to_live(builder.build())
    return descriptor


class TestTimeToLive:
    def make(self, storage: DirectoryStateStorage, **changes: bool) -> Worker:
        return Worker(storage, descriptors=(expiring(10, **changes),), clock=[0]).open()

    def test_a_value_expires_after_its_last_write(self, storage: DirectoryStateStorage) -> None:
        worker = self.make(storage)
        worker.add({"a": 1, "b": 1})
        worker.clock[0] = 9_999
        worker.add({"b": 1})
        worker.clock[0] = 10_000
        assert worker.entries() == {"b": 2}
        assert worker.total.get(worker.keys(["a", "b"])).to_pylist() == [None, 2]
        worker.add({"a": 5, "b": 5})
        assert worker.total.get(worker.keys(["a", "b"])).to_pylist() == [5, 7]

    def test_a_sum_does_not_build_on_what_has_expired(self, storage: DirectoryStateStorage) -> None:
        worker = self.make(storage, returns=True)
        worker.add({"a": 1})
        worker.clock[0] = 10_000
        assert worker.total.running_add(worker.keys(["a", "a"]), [1, 1]).to_pylist() == [1, 2]
        worker.clock[0] = 20_000
        assert worker.total.get(worker.keys(["a"])).to_pylist() == [2]
        assert worker.total.get(worker.keys(["a"])).to_pylist() == [None]

    def test_reads_can_renew_it(self, storage: DirectoryStateStorage) -> None:
        worker = self.make(storage, on_read=True)
        worker.add({"a": 1})
        worker.clock[0] = 9_000
        assert worker.total.get(worker.keys(["a"])).to_pylist() == [1]
        head = worker.backend.persist(storage, "a", 1)
        worker.clock[0] = 18_000
        assert worker.total.get(worker.keys(["a"])).to_pylist() == [1]
        assert saved(storage, head) == {"a": (1, 9_000)}

    def test_it_is_saved_and_cleaned_up(self, storage: DirectoryStateStorage) -> None:
        worker = self.make(storage, incremental=True)
        worker.add({f"k{n}": n for n in range(200)})
        head = worker.backend.persist(storage, "a", 1)
        later = Worker(storage, descriptors=(expiring(10, incremental=True),), clock=[5_000])
        later.backend.restore(storage, head)
        later.open().add({"new": 1})
        later.clock[0] = 10_000
        later.total.get(later.keys(["new"]))
        head = later.backend.persist(storage, "b", 2)
        assert saved(storage, head) == {"new": (1, 5_000)}

    def test_one_with_and_one_without_are_not_the_same(self, worker: Worker) -> None:
        worker.add({"a": 1})
        head = worker.backend.persist(worker.storage, "a", 1)
        other = Worker(worker.storage, descriptors=(expiring(10),))
        other.backend.restore(worker.storage, head)
        with pytest.raises(StateMigrationError, match="declares ColumnState with time-to-live"):
            other.open()


class TestFiles:
    def test_a_file_with_columns_has_a_version_of_its_own(self, worker: Worker) -> None:
        worker.add({"a": 1})
        name = worker.backend.persist(worker.storage, "a", 1).files[0].name
        data = worker.storage.read(name)
        assert data[4] == files.ARROW_VERSION
        assert encode_file(decode_file(data, name), name) == data
        assert encode_file(files.StateFile([]), name)[4] == files.VERSION

    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    def test_what_arrow_would_inflate_is_refused(self, worker: Worker, compression: str) -> None:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([pa.array([7] * 1000)], ["value"])
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        self.refused(worker, sink.getvalue().to_pybytes(), "not compressed")

    def test_types_that_columns_do_not_have_are_refused(self, worker: Worker) -> None:
        for array in (
            pa.nulls(1),
            pa.array(["a"]).dictionary_encode(),
            pa.RunEndEncodedArray.from_arrays([1], [1]),
        ):
            sink = pa.BufferOutputStream()
            batch = pa.record_batch([array], ["value"])
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            self.refused(worker, sink.getvalue().to_pybytes(), "cannot be the type of state in col")

    def test_offsets_out_of_range_are_refused(self, worker: Worker) -> None:
        right, wrong = (np.array([300, end], np.int32).tobytes() for end in (777, 1 << 30))
        data = encode_arrow(pa.array(["x" * 300, "x" * 477]))
        assert data.count(right) == 1
        self.refused(worker, data.replace(right, wrong), "out of bounds: 1073741824 > 777")

    def refused(self, worker: Worker, column: bytes, message: str) -> None:
        """A file whose keys are these bytes cannot be read, by a job or by tools."""
        worker.add({"a": 1})
        head = worker.backend.persist(worker.storage, "a", 1)
        name = head.files[0].name
        file = decode_file(worker.storage.read(name), name)
        chunk = file.sections[0].chunks[0]
        keys = chunk.columns[0]._replace(data=column)
        forged = replace(chunk, columns=(keys, *chunk.columns[1:]))
        section = replace(file.sections[0], chunks=(forged,))
        data = encode_file(replace(file, sections=[section]), name)
        size = len(data)
        worker.storage.write(name, data, durable=False)
        ref = msgspec.structs.replace(head.files[0], size=size)
        head = msgspec.structs.replace(head, files=(ref,))
        other = Worker(worker.storage)
        other.backend.restore(worker.storage, head)
        with pytest.raises(StateCorruptionError, match=message):
            other.open()
        with pytest.raises(StateCorruptionError, match=message):
            saved(worker.storage, head)
        worker.backend.discard()


def test_rocksdb_carries_it_along_and_refuses_to_declare_it(worker: Worker, tmp_path: Path) -> None:
    worker.add({"a": 1, "b": 2})
    head = worker.backend.persist(worker.storage, "a", 1)
    rocksdb = RocksDBKeyedStateBackend(
        range(MOST), MOST, LocalHome(tmp_path / "home", b"key"), 16 << 20
    )
    rocksdb.import_key_groups(worker.storage, [head])
    with pytest.raises(StateRegistrationError, match="operator 'op' is state in columns"):
        rocksdb.column_state("op", TOTAL)
    rocksdb.keyed_state("op", ValueStateDescriptor("other"), KeyContext())
    again = rocksdb.persist(worker.storage, "b", 2)
    rocksdb.close()
    assert saved(worker.storage, again) == {"a": 1, "b": 2}
