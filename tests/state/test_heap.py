"""What only the heap backend does: how it reads and writes files."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Row
from holdfast.common.typeinfo import Types
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.errors import InternalError
from holdfast.state.backend import (
    DirectoryStateStorage,
    Head,
    HeapKeyedStateBackend,
    KeyContext,
    read_blobs,
)
from holdfast.state.backends import heap
from holdfast.state.errors import (
    StateCorruptionError,
    StateMigrationError,
    StateStorageError,
    StateTypeError,
)
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import decode_file
from holdfast.state.key_groups import key_group
from holdfast.state.live.overlaid import OverlaidTable
from holdfast.testing.storage import MemoryStateStorage

COUNT = ValueStateDescriptor("count", Types.LONG())
EVENTS = ListStateDescriptor("events", Types.STRING())
SEEN = MapStateDescriptor("seen", Types.STRING(), Types.LONG())


class Worker:
    """A backend with a context, as one worker process has it."""

    def __init__(
        self,
        storage: DirectoryStateStorage | MemoryStateStorage,
        key_groups: range = range(128),
    ) -> None:
        self.storage = storage
        self.backend = HeapKeyedStateBackend(key_groups, 128)
        self.context = KeyContext()

    def state(self, descriptor: StateDescriptor, key: Any) -> Any:
        self.context.key = key
        return self.backend.keyed_state("op", descriptor, self.context)

    def persist(self, stamp: str, epoch: int) -> Head:
        return self.backend.persist(self.storage, stamp, epoch)

    def restore(self, head: Head) -> int:
        """Return how many bytes of files had to be read."""
        return self.backend.restore(self.storage, head)

    def ops(self, head: Head) -> list[tuple[Op, int]]:
        """Return the operations in the newest file, and on how many keys."""
        name = head.files[-1].name
        file = decode_file(self.storage.read(name), name)
        return [(c.op, c.count) for s in file.sections for c in s.chunks]


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStateStorage:
    return DirectoryStateStorage(tmp_path)


@pytest.fixture
def worker(storage: DirectoryStateStorage) -> Worker:
    return Worker(storage)


@pytest.fixture
def deltas_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: 0)


def test_nothing_changed_nothing_written(worker: Worker) -> None:
    assert worker.persist("a", 0) == Head()
    worker.state(COUNT, "k").update(1)
    head = worker.persist("b", 1)
    worker.state(COUNT, "k").value()
    worker.state(COUNT, "other").clear()
    assert worker.persist("c", 2) is head
    assert not worker.storage.exists("c.state")


@pytest.mark.usefixtures("deltas_only")
def test_a_delta_holds_only_what_changed(worker: Worker) -> None:
    for i in range(50):
        worker.state(COUNT, f"k{i}").update(i)
        worker.state(EVENTS, f"k{i}").add_all(["a"] * 100)
        worker.state(SEEN, f"k{i}").put_all({f"m{j}": j for j in range(100)})
    worker.persist("a", 0)
    worker.state(COUNT, "k1").update(7)
    worker.state(COUNT, "k2").clear()
    worker.state(EVENTS, "k1").add("b")
    worker.state(EVENTS, "k2").update(["only"])
    worker.state(SEEN, "k1").put("m1", 0)
    worker.state(SEEN, "k1").remove("m2")
    worker.state(SEEN, "k2").clear()
    head = worker.persist("b", 1)
    assert worker.ops(head) == [
        (Op.PUT, 1),
        (Op.DELETE, 1),
        (Op.LIST_APPEND, 1),
        (Op.LIST_REPLACE, 1),
        (Op.MAP_PUT, 1),
        (Op.MAP_REMOVE, 1),
        (Op.DELETE, 1),
    ]
    assert head.files[1].size < 400
    other = Worker(worker.storage)
    assert other.restore(head) == head.size
    assert other.state(EVENTS, "k1").get() == ["a"] * 100 + ["b"]
    assert other.state(EVENTS, "k2").get() == ["only"]
    assert len(other.state(SEEN, "k1")) == 99
    assert other.state(SEEN, "k2").is_empty()


@pytest.mark.usefixtures("deltas_only")
def test_of_what_came_and_went_nothing_is_written(worker: Worker) -> None:
    timers = worker.backend.marks("op", "timers", lambda marks: None)
    old, new = ("k1", (1, None)), ("k2", (2, None))
    timers.add(old)
    worker.state(EVENTS, "k1").add("a")
    first = worker.persist("a", 0)
    timers.add(new)
    timers.remove(new)
    worker.state(EVENTS, "k2").add_all(["b", "c"])
    worker.state(EVENTS, "k2").clear()
    assert worker.persist("b", 1) is first
    timers.remove(old)
    timers.add(old)
    timers.remove(old)
    worker.state(EVENTS, "k1").clear()
    worker.state(EVENTS, "k1").add("d")
    worker.state(EVENTS, "k1").clear()
    assert worker.ops(worker.persist("c", 2)) == [(Op.DELETE, 1), (Op.DELETE, 1)]


@pytest.mark.usefixtures("deltas_only")
def test_workers_take_turns(storage: DirectoryStateStorage) -> None:
    one, two = Worker(storage), Worker(storage)
    one.state(EVENTS, "k").add("a")
    head = one.persist("a", 0)
    assert one.restore(head) == 0
    assert two.restore(head) == head.size
    two.state(EVENTS, "k").add("b")
    head = two.persist("b", 1)
    assert one.restore(head) == head.files[1].size
    assert one.state(EVENTS, "k").get() == ["a", "b"]


def sizes_after(
    storage: DirectoryStateStorage, first_key: Callable[[int], int]
) -> tuple[list[int], int]:
    """Write a thousand values in each epoch: the files of the last head, and all bytes written."""
    worker, head, written = Worker(storage), Head(), 0
    for epoch in range(60):
        if epoch == 30:
            worker = Worker(storage)
            worker.restore(head)
        for key in range(first_key(epoch), first_key(epoch) + 1000):
            worker.state(COUNT, f"key {key}").update(epoch)
        before, head = head, worker.persist(f"{epoch}", epoch)
        written += sum(file.size for file in head.files if file not in before.files)
    return [file.size for file in head.files], written


def test_state_that_only_grows_is_hardly_written_again(storage: DirectoryStateStorage) -> None:
    sizes, written = sizes_after(storage, lambda epoch: 1000 * epoch)
    assert written < 2.3 * sum(sizes), "once, and once more with seven others of its size"
    assert len(sizes) < 20


def test_state_that_changes_stays_small_on_disk(storage: DirectoryStateStorage) -> None:
    sizes, _ = sizes_after(storage, lambda epoch: 0)
    assert sum(sizes) < 3 * sizes[0]


def test_a_folded_file_may_cover_more_than_what_is_missing(
    storage: DirectoryStateStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = iter([0, 0, 0, 2])
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: next(folds))
    one, two = Worker(storage), Worker(storage)
    for epoch in range(2):
        one.state(EVENTS, "k").add(f"e{epoch}")
        one.state(COUNT, f"k{epoch}").update(epoch)
        head = one.persist(f"s{epoch}", epoch)
    two.restore(head)
    two.state(EVENTS, "k")  # one of the two states is decoded, the other not
    for epoch in range(2, 4):
        one.state(EVENTS, "k").add(f"e{epoch}")
        one.state(COUNT, "k1").clear()
        head = one.persist(f"s{epoch}", epoch)
    assert [(f.since, f.until) for f in head.files] == [(-1, 0), (0, 3)]
    assert two.restore(head) == head.files[1].size
    assert two.state(EVENTS, "k").get() == ["e0", "e1", "e2", "e3"]
    assert two.state(COUNT, "k0").value() == 0
    assert two.state(COUNT, "k1").value() is None


def test_a_state_nobody_asks_for_is_carried_along(storage: DirectoryStateStorage) -> None:
    one = Worker(storage)
    one.state(COUNT, "k").update(1)
    one.state(EVENTS, "k").add("a")
    head = one.persist("a", 0)
    for epoch in range(1, 6):
        two = Worker(storage)
        two.restore(head)
        two.state(COUNT, "k").update(epoch)
        head = two.persist(f"s{epoch}", epoch)
    for name in ("a", "s1", "s2"):
        if f"{name}.state" not in [f.name for f in head.files]:
            storage.delete(f"{name}.state")
    three = Worker(storage)
    three.restore(head)
    assert three.state(EVENTS, "k").get() == ["a"]
    assert three.state(COUNT, "k").value() == 5


def test_a_state_that_is_asked_for_after_its_file_was_folded(
    storage: DirectoryStateStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = iter([0, 0, 1, 1])
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: next(folds))
    one, two = Worker(storage), Worker(storage)
    one.state(COUNT, "k").update(1)
    head = one.persist("a", 0)
    one.state(EVENTS, "k").add("a")
    head = one.persist("b", 1)
    two.restore(head)
    two.state(COUNT, "k").update(2)
    two.persist("c", 2)
    two.state(EVENTS, "k")
    two.state(COUNT, "k").update(3)
    head = two.persist("d", 3)
    three = Worker(storage)
    three.restore(head)
    assert three.state(EVENTS, "k").get() == ["a"]


@pytest.mark.usefixtures("deltas_only")
def test_a_state_that_is_declared_wrongly_at_first(
    storage: DirectoryStateStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the files have changed of it is known by the kind that it has, and is folded."""
    one, two = Worker(storage), Worker(storage)
    one.state(EVENTS, "k").add("a")
    one.persist("s0", 0)
    one.state(COUNT, "key 1").update(1)
    head = one.persist("s1", 1)
    two.restore(head)
    with pytest.raises(StateMigrationError, match="was saved as ValueState"):
        two.state(ListStateDescriptor("count"), "key 1")
    two.state(COUNT, "key 2").update(2)
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: 1)
    head = two.persist("s2", 2)
    three = Worker(storage)
    three.restore(head)
    assert [three.state(COUNT, f"key {number}").value() for number in (1, 2)] == [1, 2]


def test_an_undecoded_append_to_a_list_that_is_gone(
    storage: DirectoryStateStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = iter([0, 0, 0, 2])
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: next(folds))
    one, two = Worker(storage), Worker(storage)
    one.state(EVENTS, "k").add("a")
    one.persist("a", 0)
    one.state(EVENTS, "k").add("b")
    one.persist("b", 1)
    one.state(EVENTS, "k").clear()
    head = one.persist("c", 2)
    two.restore(head)
    two.state(COUNT, "k").update(1)
    head = two.persist("d", 3)  # carries both changes of the list, as they were written
    assert one.restore(head) == head.files[1].size
    assert one.state(EVENTS, "k").get() == []


def test_a_failed_write_loses_nothing(worker: Worker, tmp_path: Path) -> None:
    worker.state(COUNT, "k").update(1)
    missing = DirectoryStateStorage(tmp_path / "gone")
    with pytest.raises(StateStorageError, match="cannot write"):
        worker.backend.persist(missing, "a", 0)
    head = worker.persist("b", 0)
    other = Worker(worker.storage)
    other.restore(head)
    assert other.state(COUNT, "k").value() == 1


def test_a_failed_restore_leaves_nothing(worker: Worker) -> None:
    worker.state(COUNT, "k").update(1)
    head = worker.persist("a", 0)
    worker.storage.delete("a.state")
    other = Worker(worker.storage)
    state = other.state(COUNT, "k")
    state.update(5)
    with pytest.raises(StateStorageError, match="cannot read"):
        other.restore(head)
    assert state.value() is None
    assert other.persist("b", 1) == Head()


def test_back_to_nothing(worker: Worker) -> None:
    state = worker.state(COUNT, "k")
    state.update(1)
    worker.restore(Head())
    assert state.value() is None
    assert worker.persist("a", 0) == Head()


def test_a_file_of_another_size_is_refused(worker: Worker) -> None:
    worker.state(COUNT, "k").update(1)
    head = worker.persist("a", 0)
    worker.storage.write("a.state", worker.storage.read("a.state") + b"x")
    with pytest.raises(StateCorruptionError, match=r"'a\.state' .*expected \d+ bytes, found \d+"):
        Worker(worker.storage).restore(head)


def test_epochs_go_forward(worker: Worker) -> None:
    worker.state(COUNT, "k").update(1)
    worker.persist("a", 3)
    worker.state(COUNT, "k").update(2)
    with pytest.raises(ValueError, match="epoch 3 cannot follow epoch 3"):
        worker.persist("b", 3)


def test_another_max_parallelism_is_refused(worker: Worker) -> None:
    worker.state(COUNT, "k").update(1)
    head = worker.persist("a", 0)
    other = HeapKeyedStateBackend(range(64), 64)
    with pytest.raises(StateMigrationError, match=r"max parallelism 128; this job has 64"):
        other.restore(worker.storage, head)


def test_a_key_of_another_subtask_is_refused(storage: DirectoryStateStorage) -> None:
    worker = Worker(storage, range(0, 1))
    for i in range(50):
        worker.state(COUNT, f"k{i}").update(i)
    with pytest.raises(InternalError, match=r"owns 0 to 0, so a record came to the wrong subtask"):
        worker.persist("a", 0)


def test_live_values_take_the_declared_shape_when_written(worker: Worker) -> None:
    value = ValueStateDescriptor("v", Types.DOUBLE())
    rows = ListStateDescriptor("l", Types.ROW_NAMED(["a"], [Types.LONG()]))
    totals = MapStateDescriptor("m", Types.STRING(), Types.DOUBLE())
    worker.state(value, "k").update(1)
    worker.state(rows, "k").add((1,))
    worker.state(totals, "k").put("x", 2)
    head = worker.persist("a", 0)
    for one in (worker, Worker(worker.storage)):
        one.restore(head)
        assert type(one.state(value, "k").value()) is float
        assert one.state(rows, "k").get() == [Row(a=1)]
        assert type(one.state(totals, "k")["x"]) is float
    worker.state(rows, "k").add((2,))
    worker.persist("b", 1)
    assert worker.state(rows, "k").get() == [Row(a=1), Row(a=2)]


def test_values_that_do_not_fit_are_named(worker: Worker) -> None:
    worker.state(COUNT, "good").update(1)
    worker.state(COUNT, "bad").update("one")
    message = r"state 'count' of operator 'op', key 'bad': value is declared Long; got str: 'one'"
    with pytest.raises(StateTypeError, match=message):
        worker.persist("a", 0)


def test_elements_that_do_not_fit_are_named(worker: Worker) -> None:
    worker.state(EVENTS, "good").add_all(["a", "b"])
    worker.state(EVENTS, "bad").add_all(["a", 3])
    with pytest.raises(StateTypeError, match=r"state 'events' of operator 'op', key 'bad': value"):
        worker.persist("a", 0)


def test_map_keys_that_would_become_others_are_named(worker: Worker) -> None:
    rows = MapStateDescriptor("m", Types.ROW([Types.LONG()]), Types.LONG())
    worker.state(rows, "k").put((1,), 1)
    with pytest.raises(StateTypeError, match=r"state 'm' .* the map key \(1,\) has the declared"):
        worker.persist("a", 0)


def test_values_that_cannot_be_pickled_are_named(worker: Worker) -> None:
    worker.state(ValueStateDescriptor("v"), "k").update(open)
    worker.persist("a", 0)
    worker.state(ValueStateDescriptor("v"), "k").update(i for i in range(3))
    with pytest.raises(StateTypeError, match=r"state 'v' of operator 'op' contains a value that"):
        worker.persist("b", 1)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (ListStateDescriptor("count"), r"was saved as ValueState; this job declares ListState; re"),
        (
            ValueStateDescriptor("count", Types.STRING()),
            r"state 'count' of operator 'op' was saved as long; this job declares string: long",
        ),
        (ValueStateDescriptor("count"), r"was saved as long; this job declares no type: it was"),
    ],
)
def test_saved_in_one_way_declared_in_another(
    worker: Worker, declared: StateDescriptor, message: str
) -> None:
    worker.state(COUNT, "k").update(1)
    head = worker.persist("a", 0)
    other = Worker(worker.storage)
    other.restore(head)
    with pytest.raises(StateMigrationError, match=message):
        other.state(declared, "k")
    assert other.state(COUNT, "k").value() == 1


@pytest.mark.usefixtures("deltas_only")
def test_blobs(worker: Worker) -> None:
    worker.backend.set_blob("op", "fields", b"one")
    worker.backend.set_blob("op", "gone", b"x")
    head = worker.persist("a", 0)
    worker.backend.set_blob("op", "fields", b"one")
    assert worker.persist("b", 1) is head
    worker.backend.set_blob("op", "fields", b"two")
    worker.backend.set_blob("op", "gone", None)
    head = worker.persist("c", 2)
    other = Worker(worker.storage)
    other.restore(head)
    assert other.backend.get_blob("op", "fields") == b"two"
    assert other.backend.get_blob("op", "gone") is None
    assert read_blobs(worker.storage, head) == {("op", "fields"): b"two"}


def test_many_keys_in_many_chunks(worker: Worker) -> None:
    for i in range(10_000):
        worker.state(COUNT, i).update(i)
    head = worker.persist("a", 0)
    assert [n for _, n in worker.ops(head)] == [4096, 4096, 1808]
    parts = [Worker(worker.storage, r) for r in (range(0, 40), range(40, 41), range(41, 128))]
    found: dict[Any, Any] = {}
    for part in parts:
        part.backend.import_key_groups(worker.storage, [head])
        part.state(COUNT, 0)
        own = {key: value for key, _, value in part.backend.entries("op", "count")}
        assert own.keys().isdisjoint(found)
        found |= own
    assert found == {i: i for i in range(10_000)}


class Counting(MemoryStateStorage):
    """Counts how often each file was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def read(self, name: str) -> bytes:
        self.reads[name] += 1
        return super().read(name)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3), (3, 2)])
def test_a_rescale_reads_each_file_once_per_new_subtask(before: int, after: int) -> None:
    """As a whole, for its checksum and for the bytes that belong to no key: those go to all."""
    storage, heads = Counting(), []
    for n, key_groups in enumerate(shares(before)):
        old = Worker(storage, key_groups)
        for key in keys_of(key_groups):
            old.state(COUNT, key).update(key)
        old.backend.set_blob("op", "position", b"%d" % n)
        old.persist(f"base-{n}", 0)
        old.state(COUNT, keys_of(key_groups)[0]).update(-1)
        heads.append(old.persist(f"delta-{n}", 1))
    storage.reads.clear()
    found: dict[int, int] = {}
    for key_groups in shares(after):
        new = Worker(storage, key_groups)
        blobs = new.backend.import_key_groups(storage, heads)
        assert blobs == [{("op", "position"): b"%d" % n} for n in range(before)]
        own = {key: value for key, _, value in _entries(new)}
        assert own.keys() == set(keys_of(key_groups))
        found |= own
    changed = {keys_of(key_groups)[0] for key_groups in shares(before)}
    assert found == {key: -1 if key in changed else key for key in range(500)}
    files = [file.name for head in heads for file in head.files]
    assert storage.reads == dict.fromkeys(files, after)


def shares(parts: int) -> list[range]:
    """The key groups of each of so many subtasks."""
    return [range(128 * n // parts, 128 * (n + 1) // parts) for n in range(parts)]


def keys_of(key_groups: range) -> list[int]:
    return [key for key in range(500) if key_group(key, 128) in key_groups]


def test_undecoded_state_of_others_is_not_taken_over_twice(storage: DirectoryStateStorage) -> None:
    """Two halves carry the same undecoded chunk; each may count for its own key groups only."""
    whole = Worker(storage)
    for i in range(100):
        whole.state(COUNT, i).update(i)
    head = whole.persist("a", 0)
    heads = []
    for n, key_groups in enumerate((range(0, 64), range(64, 128))):
        half = Worker(storage, key_groups)
        half.backend.import_key_groups(storage, [head])
        heads.append(half.persist(f"h{n}", 1))
    changed = Worker(storage, range(0, 64))
    changed.restore(heads[0])
    for key, _, value in copy.copy(list(_entries(changed))):
        changed.state(COUNT, key).update(value + 1000)
    heads[0] = changed.persist("h2", 2)
    again = Worker(storage)
    again.backend.import_key_groups(storage, heads)
    low = {key for key, _, _ in _entries(changed)}
    assert 20 < len(low) < 80
    assert {k: v for k, _, v in _entries(again)} == {
        i: i + 1000 if i in low else i for i in range(100)
    }


def _entries(worker: Worker) -> Any:
    worker.state(COUNT, 0)
    return worker.backend.entries("op", "count")


@pytest.mark.usefixtures("deltas_only")
class TestOverlay:
    """The values that changed are in a dict of their own, which a capture takes as it is."""

    def test_capture_looks_nothing_up(
        self, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count = worker.state(COUNT, "a")
        count.update(1)
        worker.backend.capture("s1", 1).write(worker.storage)
        worker.context.key = "b"
        count.update(2)

        with monkeypatch.context() as patch:
            asked = property(lambda _: pytest.fail("all entries were merged"))
            patch.setattr(OverlaidTable, "entries", asked)
            head = worker.backend.capture("s2", 2).write(worker.storage)
            assert worker.backend.states().keys() == {"op"}

        assert worker.ops(head) == [(Op.PUT, 1)]

    def test_views_made_at_any_time_agree(self, worker: Worker) -> None:
        first = worker.state(COUNT, "a")
        first.update(1)
        second = worker.state(COUNT, "a")
        assert second.value() == 1
        capture = worker.backend.capture("s1", 1)
        second.update(2)
        assert first.value() == 2
        first.clear()
        assert second.value() is None
        capture.write(worker.storage)
        assert list(worker.backend.entries("op", "count")) == []

    def test_change_after_a_look_at_the_entries_is_written(self, worker: Worker) -> None:
        """Who looks at all entries puts the overlay away, so the capture cannot use it."""
        count = worker.state(COUNT, "a")
        count.update(1)
        worker.context.key = "b"
        count.update(2)
        assert len(list(worker.backend.entries("op", "count"))) == 2
        count.update(3)
        worker.context.key = "a"
        count.clear()
        head = worker.backend.capture("s1", 1).write(worker.storage)

        other = Worker(worker.storage)
        other.restore(head)

        assert other.state(COUNT, "b").value() == 3
        assert other.state(COUNT, "a").value() is None

    def test_removed_and_set_again_before_a_capture(self, worker: Worker) -> None:
        count = worker.state(COUNT, "a")
        count.update(1)
        base = worker.backend.capture("s1", 1).write(worker.storage)
        count.clear()
        removed = worker.backend.capture("s2", 2).write(worker.storage)
        assert worker.ops(removed) == [(Op.DELETE, 1)]
        count.update(5)
        count.clear()
        count.update(7)
        head = worker.backend.capture("s3", 3).write(worker.storage)

        for at, value in ((base, 1), (removed, None), (head, 7)):
            other = Worker(worker.storage)
            other.restore(at)
            assert other.state(COUNT, "a").value() == value

    def test_changes_of_a_failed_capture_are_in_the_next(
        self, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count = worker.state(COUNT, "a")
        count.update(1)
        worker.backend.capture("s1", 1).write(worker.storage)
        count.update(2)
        failing = worker.backend.capture("s2", 2)
        with monkeypatch.context() as patch:
            patch.setattr(DirectoryStateStorage, "write", _full)
            with pytest.raises(OSError, match="full"):
                failing.write(worker.storage)
        worker.context.key = "b"
        count.update(3)
        head = worker.backend.capture("s3", 3).write(worker.storage)

        other = Worker(worker.storage)
        other.restore(head)

        assert other.state(COUNT, "a").value() == 2
        assert other.state(COUNT, "b").value() == 3

    def test_changes_of_an_epoch_that_is_refused_are_in_the_next(self, worker: Worker) -> None:
        count = worker.state(COUNT, "a")
        count.update(1)
        worker.backend.capture("s1", 1).write(worker.storage)
        count.update(2)
        with pytest.raises(ValueError, match="already written"):
            worker.backend.capture("s1", 1)
        count.update(3)
        assert list(worker.backend.entries("op", "count")) == [("a", None, 3)]
        head = worker.backend.capture("s2", 2).write(worker.storage)

        other = Worker(worker.storage)
        other.restore(head)

        assert other.state(COUNT, "a").value() == 3

    def test_query_of_a_key_leaves_later_changes_to_the_capture(self, worker: Worker) -> None:
        count = worker.state(COUNT, "a")
        count.update(1)
        assert worker.backend.section_of("op", "count", False, "a").chunks  # type: ignore[union-attr]
        count.update(2)
        head = worker.backend.capture("s1", 1).write(worker.storage)

        other = Worker(worker.storage)
        other.restore(head)

        assert other.state(COUNT, "a").value() == 2

    def test_what_a_capture_took_is_merged_little_by_little(self, worker: Worker) -> None:
        count = worker.state(COUNT, None)
        for key in range(10):
            worker.context.key = key
            count.update(key)
        worker.backend.capture("s1", 1).write(worker.storage)
        for key in range(5):
            worker.context.key = key
            count.clear()
        worker.backend.capture("s2", 2).write(worker.storage)
        worker.context.key = 4
        count.update(14)
        expected = {key: 14 if key == 4 else key for key in range(4, 10)}
        for _ in range(4):
            worker.backend.processed("op", 1)
            values = {}
            for key in range(10):
                worker.context.key = key
                values[key] = count.value()
            assert {key: value for key, value in values.items() if value is not None} == expected
            assert [state.name for state in worker.backend.states()["op"]] == ["count"]
        assert {key: value for key, _, value in worker.backend.entries("op", "count")} == expected

    def test_state_whose_entries_were_all_removed_is_empty(self, worker: Worker) -> None:
        count = worker.state(COUNT, "a")
        count.update(1)
        worker.backend.capture("s1", 1).write(worker.storage)
        count.clear()
        assert worker.backend.states() == {}
        worker.backend.capture("s2", 2).write(worker.storage)
        assert worker.backend.states() == {}


def _full(*_: Any, **__: Any) -> None:
    message = "the disk is full"
    raise OSError(message)
