"""What every keyed state backend must do; a new backend is one line in `BACKENDS`."""

from __future__ import annotations

import copy
import random
import tempfile
import warnings
from collections.abc import Callable, Iterable
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.common.typeinfo import Types
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.state.backend import (
    Head,
    HeapKeyedStateBackend,
    KeyContext,
    KeyedStateBackend,
)
from holdfast.state.backends import heap
from holdfast.state.backends.rocksdb import backend as rocksdb
from holdfast.state.backends.rocksdb import entries as rocksdb_entries
from holdfast.state.backends.rocksdb.backend import RocksDBKeyedStateBackend
from holdfast.state.backends.rocksdb.home import LocalHome
from holdfast.state.errors import StateRegistrationError, StateStorageError
from holdfast.state.key_groups import key_group as key_group_of
from holdfast.state.key_groups import key_group_range, subtask_of
from holdfast.state.live import sections


def make_rocksdb(
    key_groups: range, max_parallelism: int, home: Path | None = None
) -> KeyedStateBackend:
    """Keep state in that directory; otherwise in a new one, which goes with the process."""
    home = home or Path(_homes.name) / str(next(_count))
    return RocksDBKeyedStateBackend(key_groups, max_parallelism, LocalHome(home, b"key"), 16 << 20)


_homes = tempfile.TemporaryDirectory(prefix="holdfast-conformance-")
_count = count()


def make_heap(
    key_groups: range, max_parallelism: int, home: Path | None = None
) -> KeyedStateBackend:
    """Keep state in memory."""
    return HeapKeyedStateBackend(key_groups, max_parallelism)


BACKENDS: dict[str, Callable[..., KeyedStateBackend]] = {
    "heap": make_heap,
    "rocksdb": make_rocksdb,
}


class MemoryStorage:
    """Files in a dict; the next write fails on request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.fail = False

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        assert name not in self.files, "a stamp was used twice"
        if self.fail:
            self.fail = False
            message = "the disk is full"
            raise StateStorageError(message)
        self.files[name] = data

    def sync(self, names: Iterable[str]) -> None:
        pass

    def read(self, name: str) -> bytes:
        return self.files[name]

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def exists(self, name: str) -> bool:
        return name in self.files


class Average:
    """The average of numbers: an accumulator that is neither input nor output, changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [a[0] + b[0], a[1] + b[1]]


class Subject:
    """One backend, its context, and a way to write it down and read it with another one."""

    def __init__(self, make: Callable[[range, int], KeyedStateBackend]) -> None:
        self.make = make
        self.backend = make(range(128), 128)
        self.context = KeyContext("key")
        self.storage = MemoryStorage()

    def state(self, descriptor: StateDescriptor, namespaced: bool = False) -> Any:
        return self.backend.keyed_state("op", descriptor, self.context, namespaced)

    def reload(self) -> None:
        written = len(self.storage.files)
        saved = self.backend.persist(self.storage, f"s{written}", 10 + written)
        self.backend.close()
        self.backend = self.make(range(128), 128)
        self.backend.restore(self.storage, saved)


@pytest.fixture(params=sorted(BACKENDS))
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject(BACKENDS[request.param])


def test_what_could_not_be_written_before_the_first_epoch_is_gone(subject: Subject) -> None:
    """The same instance begins once more, with nothing."""
    state = subject.state(ValueStateDescriptor("v", Types.LONG()))
    state.update(3)
    subject.storage.fail = True
    with pytest.raises(StateStorageError, match="the disk is full"):
        subject.backend.persist(subject.storage, "lost", 1)
    subject.backend.restore(subject.storage, Head())
    assert state.value() is None
    subject.context.key = "another"
    state.update(4)
    subject.reload()
    subject.state(ValueStateDescriptor("v", Types.LONG()))
    assert [key for key, _, _ in subject.backend.entries("op", "v")] == ["another"]


# ValueState.


def test_a_value_is_none_then_what_was_set_then_none_again(subject: Subject) -> None:
    state = subject.state(ValueStateDescriptor("v", Types.LONG()))
    assert state.value() is None
    state.update(3)
    assert state.value() == 3
    state.clear()
    state.clear()
    assert state.value() is None


def test_updating_with_none_clears(subject: Subject) -> None:
    state = subject.state(ValueStateDescriptor("v", default_value=7))
    state.update(3)
    state.update(None)
    assert state.value() == 7
    assert list(subject.backend.entries("op", "v")) == []


@pytest.mark.parametrize("falsy", [0, "", False, (), 0.0])
def test_falsy_values_are_values(subject: Subject, falsy: Any) -> None:
    state = subject.state(ValueStateDescriptor("v", default_value="default"))
    state.update(falsy)
    assert state.value() == falsy


def test_a_default_that_can_change_belongs_to_one_key(subject: Subject) -> None:
    state = subject.state(ValueStateDescriptor("v", default_value=[]))
    value = state.value()
    value.append(1)
    assert state.value() == []
    state.update(value)
    subject.context.key = "other"
    assert state.value() == []
    subject.context.key = "key"
    assert state.value() == [1]


def test_keys_do_not_see_each_other(subject: Subject) -> None:
    state = subject.state(ValueStateDescriptor("v"))
    keys = ["a", "b", 1, 2.5, None, ("a", 1), b"a", frozenset({1})]
    for i, key in enumerate(keys):
        subject.context.key = key
        state.update(i)
    subject.reload()
    state = subject.state(ValueStateDescriptor("v"))
    for i, key in enumerate(keys):
        subject.context.key = key
        assert state.value() == i


# ListState.


def test_a_list_keeps_its_order(subject: Subject) -> None:
    state = subject.state(ListStateDescriptor("l", Types.LONG()))
    assert list(state.get()) == []
    state.add(1)
    state.add_all([2, 3])
    state.add_all([])
    assert list(state.get()) == [1, 2, 3]
    assert list(state) == [1, 2, 3]
    state.update([9])
    assert list(state.get()) == [9]
    state.update([])
    assert list(state.get()) == []
    state.add_all(i for i in range(3))
    state.clear()
    assert list(subject.backend.entries("op", "l")) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.add(None),
        lambda s: s.add_all([1, None]),
        lambda s: s.update([None]),
        lambda s: s.update(None),
        lambda s: s.add_all(None),
    ],
)
def test_a_list_holds_no_none(subject: Subject, call: Callable[[Any], None]) -> None:
    state = subject.state(ListStateDescriptor("l"))
    state.add(0)
    with pytest.raises(TypeError, match="a ListState cannot hold None"):
        call(state)
    assert list(state) == state.get() == [0]


def test_a_list_may_change_while_it_is_read(subject: Subject) -> None:
    state = subject.state(ListStateDescriptor("l"))
    state.add_all([1, 2])
    for value in state.get():
        state.add(value + 10)
    state.get().append("not in the state")
    assert state.get() == [1, 2, 11, 12]


def test_a_list_that_was_handed_over_may_change(subject: Subject) -> None:
    state = subject.state(ListStateDescriptor("l"))
    values = [1]
    state.update(values)
    values.append(2)
    state.add_all(values)
    values.append(3)
    assert state.get() == [1, 1, 2]


# MapState.


def test_a_map_by_flinks_names(subject: Subject) -> None:
    state = subject.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    assert state.is_empty()
    assert state.get("a") is None
    state.remove("a")
    state.put("a", 1)
    state.put_all({"b": 2, "c": None})
    state.put_all([("d", 4)])
    assert not state.is_empty()
    assert state.contains("c")
    assert state.get("c") is None
    assert not state.contains("x")
    state.remove("a")
    assert sorted(state.keys()) == ["b", "c", "d"]
    assert dict(state.items()) == {"b": 2, "c": None, "d": 4}
    assert list(state.values()) == [2, None, 4]
    state.clear()
    assert state.is_empty()


def test_a_map_may_change_while_it_is_read(subject: Subject) -> None:
    state = subject.state(MapStateDescriptor("m"))
    state.put_all({1: "a", 2: "b"})
    for key in state:
        state.put(key + 10, "c")
    for key, _ in state.items():
        state.remove(key)
    assert state.is_empty()


def test_a_map_without_entries_is_gone(subject: Subject) -> None:
    state = subject.state(MapStateDescriptor("m"))
    state.put("a", 1)
    subject.reload()
    state = subject.state(MapStateDescriptor("m"))
    state.remove("a")
    assert list(subject.backend.entries("op", "m")) == []
    subject.backend.persist(subject.storage, "next", 11)
    assert state.is_empty()


# ReducingState, AggregatingState, FoldingState.


def test_reducing(subject: Subject) -> None:
    state = subject.state(ReducingStateDescriptor("r", max, Types.LONG()))
    assert state.get() is None
    state.add(3)
    state.add(5)
    state.add(4)
    state.add(None)
    assert state.get() == 5
    state.clear()
    assert state.get() is None


def test_aggregating(subject: Subject) -> None:
    descriptor = AggregatingStateDescriptor("a", Average(), Types.LIST(Types.LONG()))
    state = subject.state(descriptor)
    assert state.get() is None
    state.add(1)
    state.add(2)
    state.add(None)
    assert state.get() == 1.5
    subject.reload()
    state = subject.state(descriptor)
    state.add(6)
    assert state.get() == 3.0
    state.clear()
    assert state.get() is None


def test_an_accumulator_must_be_returned(subject: Subject) -> None:
    function = Average()
    function.add = lambda value, accumulator: None  # type: ignore[method-assign,assignment,return-value]
    state = subject.state(AggregatingStateDescriptor("a", function))
    with pytest.raises(TypeError, match="returned None; it must return the accumulator"):
        state.add(1)


def test_folding(subject: Subject) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        descriptor = FoldingStateDescriptor("f", ["start"], lambda a, v: [*a, str(v)])
    state = subject.state(descriptor)
    assert state.get() is None
    state.add(1)
    state.add(None)
    state.add(2)
    assert state.get() == ["start", "1", "2"]
    state.clear()
    assert state.get() is None


# Names, namespaces, views.


@pytest.mark.parametrize("other", [ListStateDescriptor("s"), ValueStateDescriptor("s", str)])
def test_one_name_one_state(subject: Subject, other: StateDescriptor) -> None:
    subject.state(ValueStateDescriptor("s"))
    subject.state(ValueStateDescriptor("s"))
    message = r"operator 'op' declares the state 's' twice: as ValueState and as (List|Value)State"
    with pytest.raises(StateRegistrationError, match=message):
        subject.state(other)


def test_operators_do_not_see_each_other(subject: Subject) -> None:
    one = subject.backend.keyed_state("one", ValueStateDescriptor("s"), subject.context)
    two = subject.backend.keyed_state("two", ListStateDescriptor("s"), subject.context)
    one.update(1)  # type: ignore[attr-defined]
    assert two.get() == []  # type: ignore[attr-defined]


def test_entries_of_an_unknown_state(subject: Subject) -> None:
    with pytest.raises(StateRegistrationError, match="'op' has declared no state 'x'"):
        list(subject.backend.entries("op", "x"))


def test_namespaces_do_not_see_each_other(subject: Subject) -> None:
    descriptor = ValueStateDescriptor("s")
    scoped, plain = subject.state(descriptor, namespaced=True), subject.state(descriptor)
    for namespace in ((0, 10), (10, 20)):
        subject.context.namespace = namespace
        scoped.update(namespace[0])
    plain.update("plain")
    subject.reload()
    scoped, plain = subject.state(descriptor, namespaced=True), subject.state(descriptor)
    assert plain.value() == "plain"
    assert scoped.value() == 10
    subject.context.namespace = (0, 10)
    assert scoped.value() == 0
    subject.context.namespace = "none"
    assert scoped.value() is None
    found = sorted(subject.backend.entries("op", "s"), key=repr)
    assert found == [
        ("key", (0, 10), 0),
        ("key", (10, 20), 10),
        ("key", None, "plain"),
    ]


@pytest.mark.parametrize(
    ("descriptor", "merged"),
    [
        (ListStateDescriptor("s"), [1, 2, 3]),
        (ReducingStateDescriptor("s", lambda a, b: a + b), 6),
        (AggregatingStateDescriptor("s", Average()), 2.0),
    ],
)
def test_namespaces_can_be_merged(
    subject: Subject, descriptor: StateDescriptor, merged: Any
) -> None:
    state = subject.state(descriptor, namespaced=True)
    for namespace in (1, 2, 3):
        subject.context.namespace = namespace
        state.add(namespace)
    state.merge_namespaces("key", 1, [2, 3, 4])
    subject.reload()
    state = subject.state(descriptor, namespaced=True)
    subject.context.namespace = 1
    assert state.get() == merged
    assert len(list(subject.backend.entries("op", "s"))) == 1


def test_views_survive_a_discard(subject: Subject) -> None:
    state = subject.state(ValueStateDescriptor("v"))
    state.update(1)
    saved = subject.backend.persist(subject.storage, "a", 0)
    state.update(2)
    subject.backend.discard()
    assert state.value() is None
    subject.backend.restore(subject.storage, saved)
    assert state.value() == 1


# Everything together, against a dict.

KEYS = ["a", "b", "c", 1, ("t", 1)]
NAMESPACES = ["w1", "w2"]
MAX_PARALLELISM = 8
DESCRIPTORS: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("value", Types.TUPLE([Types.LONG(), Types.STRING()])),
    "untyped": ValueStateDescriptor("untyped"),
    "list": ListStateDescriptor("list", Types.LONG()),
    "map": MapStateDescriptor("map", Types.STRING(), Types.LONG()),
    "sum": ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()),
    "average": AggregatingStateDescriptor("average", Average()),
    "window_list": ListStateDescriptor("window_list"),
    "window_map": MapStateDescriptor("window_map"),
}


def random_number(rng: random.Random) -> int:
    return rng.randrange(5)


def random_name(rng: random.Random) -> str:
    return rng.choice("abc")


def random_numbers(rng: random.Random) -> list[int]:
    return [rng.randrange(5) for _ in range(rng.randrange(3))]


def random_operation(name: str, rng: random.Random) -> tuple[Any, ...]:
    """Return the name of a method of a state, and arguments for it."""
    number, text = random_number(rng), random_name(rng)
    if rng.random() < 0.1:
        return ("clear",)
    if name == "value":
        return "update", (number, text)
    if name == "untyped":
        return "update", rng.choice([number, text, [number], (number, text), {text: number}])
    if name in ("sum", "average"):
        return "add", number
    if name.endswith("list"):
        method = rng.choice(["add", "add", "add_all", "update"])
        return method, number if method == "add" else random_numbers(rng)
    method = rng.choice(["put", "remove", "put_all"])
    arguments = {"put": (text, number), "remove": (text,), "put_all": ({text: number},)}
    return method, *arguments[method]


def random_changes(rng: random.Random) -> list[Any]:
    """Return a few changes to a few states: name, key, namespace, operation."""
    names = rng.sample(sorted(DESCRIPTORS), rng.randint(1, 3))
    changes = []
    for _ in range(rng.randrange(10)):
        name = rng.choice(names)
        at = rng.choice(KEYS), rng.choice(NAMESPACES)
        changes.append((name, *at, random_operation(name, rng)))
    return changes


#: what every state of every key should be: (state, key, namespace or None) -> value
Model = dict[tuple[str, Any, Any], Any]


def expect(model: Model, name: str, at: tuple[str, Any, Any], operation: tuple[Any, ...]) -> None:
    """Carry out an operation on the model."""
    method, *args = operation
    if method == "clear":
        model.pop(at, None)
    elif name in ("value", "untyped"):
        model[at] = args[0]
    elif name == "sum":
        model[at] = model.get(at, 0) + args[0]
    elif name == "average":
        total, count = model.get(at, (0, 0))
        model[at] = (total + args[0], count + 1)
    elif name.endswith("list"):
        before = [] if method == "update" else model.get(at, [])
        model[at] = before + (args[0] if isinstance(args[0], list) else args)
    else:
        _expect_map(model.setdefault(at, {}), method, args)
    if model.get(at) in ([], {}) and name != "untyped":
        del model[at]


def _expect_map(entry: dict[str, int], method: str, args: list[Any]) -> None:
    if method == "put":
        entry[args[0]] = args[1]
    elif method == "put_all":
        entry.update(args[0])
    else:
        entry.pop(args[0], None)


class Worker:
    """The cache of one worker process for one subtask; asks for states as it needs them."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.context = KeyContext()

    def state(self, name: str) -> Any:
        namespaced = name.startswith("window")
        return self.backend.keyed_state("op", DESCRIPTORS[name], self.context, namespaced)

    def change(self, name: str, key: Any, namespace: Any, operation: tuple[Any, ...]) -> None:
        self.context.key, self.context.namespace = key, namespace
        method, *args = operation
        getattr(self.state(name), method)(*args)

    def contents(self) -> Model:
        found: Model = {}
        for name in DESCRIPTORS:
            self.state(name)
            for key, namespace, value in self.backend.entries("op", name):
                found[name, key, namespace] = tuple(value) if name == "average" else value
        return found


class Cluster(RuleBasedStateMachine):
    """Epochs of a job whose subtasks run anywhere, fail, are rescaled, and go back in time.

    Each epoch every subtask runs in one of three workers, which keep their caches. The driver is
    the fields `heads` and `model`: what was accepted last. How files are folded is left to chance,
    as it must not matter.
    """

    def __init__(self) -> None:
        super().__init__()
        self.workers: list[list[Worker]] = []
        self.storage = MemoryStorage()
        self.stamps = 0
        self.random = random.Random(0)
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sections, "_CHUNK", 3)
        self.patch.setattr(heap, "files_to_fold", self.files_to_fold)
        self.patch.setattr(rocksdb, "needs_base", self.needs_base)
        self.patch.setattr(rocksdb_entries, "_LEAST", 2)

    def teardown(self) -> None:
        self.fire()
        self.patch.undo()

    def needs_base(self, sizes: list[int]) -> bool:
        return not sizes or self.random.random() < 0.2

    def files_to_fold(self, sizes: list[int], new: int, live: int) -> int:
        if not sizes or self.random.random() < 0.1:
            return len(sizes)
        return min(self.random.choice([0, 0, 0, 1, 2, 3]), len(sizes) - 1)

    @initialize(parallelism=st.integers(1, 3))
    def start(self, parallelism: int) -> None:
        self.epoch = 0
        self.model: Model = {}
        self.heads = [Head()] * parallelism
        self.imported: list[Head] | None = None
        self.history = [(0, self.model, self.heads)]
        self.hire()

    def fire(self) -> None:
        for worker in chain.from_iterable(self.workers):
            worker.backend.close()

    def hire(self) -> None:
        self.fire()
        self.workers = [[self.worker(i) for _ in range(3)] for i in range(len(self.heads))]

    def worker(self, subtask: int) -> Worker:
        key_groups = key_group_range(subtask, len(self.heads), MAX_PARALLELISM)
        return Worker(self.make(key_groups))

    def make(self, key_groups: range) -> KeyedStateBackend:
        return HeapKeyedStateBackend(key_groups, MAX_PARALLELISM)

    @rule(seed=st.integers(0, 1 << 30), count=st.integers(1, 20))
    def run_epochs(self, seed: int, count: int) -> None:
        self.random.seed(seed)
        for _ in range(count):
            workers = [self.random.randrange(3) for _ in self.heads]
            accepted = self.random.random() < 0.75
            self.run_epoch(random_changes(self.random), workers, accepted)

    def run_epoch(self, changes: list[Any], workers: list[int], accepted: bool) -> None:
        model = copy.deepcopy(self.model)
        for name, key, namespace, operation in changes:
            scope = namespace if name.startswith("window") else None
            expect(model, name, (name, key, scope), operation)
        heads = [
            self.run_subtask(i, self.workers[i][workers[i]], changes, accepted)
            for i in range(len(self.heads))
        ]
        if accepted:
            self.model, self.heads, self.imported = model, heads, None
            self.epoch += 1
            self.history.append((self.epoch, self.model, self.heads))

    def run_subtask(self, i: int, worker: Worker, changes: list[Any], accepted: bool) -> Head:
        self.load(i, worker)
        if self.random.random() < 0.3:
            self.check(i, worker)
        for name, key, namespace, operation in changes:
            group = key_group_of(key, MAX_PARALLELISM)
            if subtask_of(group, len(self.heads), MAX_PARALLELISM) == i:
                worker.change(name, key, namespace, operation)
        return self.persist(worker, accepted)

    def load(self, i: int, worker: Worker) -> None:
        if self.imported is None:
            worker.backend.restore(self.storage, self.heads[i])
        else:
            worker.backend.import_key_groups(self.storage, self.imported)

    def persist(self, worker: Worker, accepted: bool) -> Head:
        end = "written" if accepted else self.random.choice(["crash", "discard", "written"])
        if end == "crash":
            return Head()  # changed, neither written nor told
        if end == "discard":
            worker.backend.discard()
            return Head()
        self.storage.fail = self.random.random() < 0.2
        self.stamps += 1
        try:
            return worker.backend.persist(self.storage, f"s{self.stamps}", self.epoch + 1)
        except StateStorageError:
            if not accepted and self.random.random() < 0.5:
                return Head()  # it gives up
            self.stamps += 1
            return worker.backend.persist(self.storage, f"s{self.stamps}", self.epoch + 1)
        finally:
            self.storage.fail = False

    @rule(subtask=st.integers(0, 2), worker=st.integers(0, 2))
    def replace_worker(self, subtask: int, worker: int) -> None:
        if subtask < len(self.heads):
            self.workers[subtask][worker].backend.close()
            self.workers[subtask][worker] = self.worker(subtask)

    @rule(back=st.integers(0, 4))
    def go_back(self, back: int) -> None:
        """Restart from an earlier checkpoint; the workers keep what they have."""
        parallelism = len(self.heads)
        del self.history[max(1, len(self.history) - back) :]
        self.epoch, self.model, self.heads = self.history[-1]
        self.imported = None
        if len(self.heads) != parallelism:
            self.hire()

    @rule(parallelism=st.integers(1, 4))
    def rescale(self, parallelism: int) -> None:
        if self.imported is None:
            self.imported = self.heads
        self.heads = [Head()] * parallelism
        self.hire()

    @rule()
    def collect_garbage(self) -> None:
        """Delete every file that no retained version names."""
        kept = [heads for _, _, heads in self.history] + [self.imported or []]
        names = {file.name for heads in kept for c in heads for file in c.all_files}
        for name in set(self.storage.files) - names:
            self.storage.delete(name)

    @invariant()
    def any_new_worker_finds_the_state(self) -> None:
        for i in range(len(getattr(self, "heads", []))):
            worker = self.worker(i)
            self.load(i, worker)
            self.check(i, worker)
            worker.backend.close()

    def check(self, i: int, worker: Worker) -> None:
        expected = {
            at: value
            for at, value in self.model.items()
            if subtask_of(key_group_of(at[1], MAX_PARALLELISM), len(self.heads), MAX_PARALLELISM)
            == i
        }
        assert worker.contents() == expected


class ClusterOnRocksDB(Cluster):
    """The same, with workers that share the disk of one host."""

    def __init__(self) -> None:
        super().__init__()
        self.host = tempfile.TemporaryDirectory(prefix="holdfast-host-")

    def teardown(self) -> None:
        super().teardown()
        self.host.cleanup()

    def make(self, key_groups: range) -> KeyedStateBackend:
        home = Path(self.host.name) / f"{key_groups.start}-{key_groups.stop}"
        return make_rocksdb(key_groups, MAX_PARALLELISM, home)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=50, stateful_step_count=10, deadline=None)
TestClusterOnRocksDB = ClusterOnRocksDB.TestCase
TestClusterOnRocksDB.settings = settings(
    max_examples=12,
    stateful_step_count=8,
    deadline=None,
    # each step opens databases: to shrink a failure would take minutes
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
