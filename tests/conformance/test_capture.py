"""State that is captured at a barrier, and written while the subtask goes on."""

from __future__ import annotations

import copy
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.common.typeinfo import Types
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.datastream.streams.window_operation import WindowOperation
from holdfast.datastream.window import EventTimeTrigger, TimeWindow, TumblingEventTimeWindows
from holdfast.errors import InternalError
from holdfast.runtime.operators.windows.contents import CONTENTS, Contents, make_contents
from holdfast.runtime.operators.windows.contexts import Surroundings
from holdfast.state.backend import Head, KeyContext, KeyedStateBackend
from holdfast.state.backends import heap
from holdfast.state.backends.capture import Capture
from holdfast.state.backends.rocksdb import backend as rocksdb
from holdfast.state.backends.rocksdb import entries as rocksdb_entries
from holdfast.state.backends.rocksdb import states as rocksdb_state
from holdfast.state.errors import StateStorageError, StateTypeError
from holdfast.state.live import sections, tables
from holdfast.state.live.mutations import MutationWatch, WatchedKeyContext
from holdfast.testing import ManualClock
from tests.conformance import test_keyed_state as keyed
from tests.conformance.test_keyed_state import (
    BACKENDS,
    KEYS,
    NAMESPACES,
    Average,
    MemoryStorage,
    Model,
    Subject,
    make_heap,
    make_rocksdb,
)
from tests.conformance.test_state_ttl import expiring

LONG = StateTtlConfig.new_builder(10**12).build()
DESCRIPTORS: dict[str, StateDescriptor] = {
    **keyed.DESCRIPTORS,
    "ttl_list": expiring(ListStateDescriptor("ttl_list", Types.LONG()), LONG),
    "ttl_map": expiring(MapStateDescriptor("ttl_map", Types.STRING(), Types.LONG()), LONG),
    "ttl_average": expiring(AggregatingStateDescriptor("ttl_average", Average()), LONG),
}
#: states of lists of numbers, which functions change in place and save then
CHANGED: dict[str, StateDescriptor] = {
    "box": ValueStateDescriptor("box"),
    "window_box": ValueStateDescriptor("window_box"),
    "boxes": ListStateDescriptor("boxes"),
    "crate": MapStateDescriptor("crate"),
    "ttl_box": expiring(ValueStateDescriptor("ttl_box"), LONG),
    "ttl_boxes": expiring(ListStateDescriptor("ttl_boxes"), LONG),
    "ttl_crate": expiring(MapStateDescriptor("ttl_crate"), LONG),
}
DESCRIPTORS |= CHANGED
#: the names of timers and of a blob in a model
TIMER = "timer"
BLOB = "blob"
NAMES = [*DESCRIPTORS, TIMER, BLOB]


@pytest.fixture(params=sorted(BACKENDS))
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    subject = Subject(BACKENDS[request.param])
    yield subject
    subject.backend.close()


class Task:
    """A subtask with its state, and what that should be."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.context = KeyContext()
        self.model: Model = {}
        self.timers: set[Any] = set()
        self._marks = backend.marks("op", "timers", self._loaded)

    def _loaded(self, marks: Any) -> None:
        if marks is None:
            self.timers.clear()
        else:
            self.timers.update(marks)

    def state(self, name: str) -> Any:
        namespaced = name.startswith("window")
        return self.backend.keyed_state("op", DESCRIPTORS[name], self.context, namespaced)

    def change(self, rng: random.Random, keys: list[Any], count: int, names: int) -> None:
        """Change so many times one of some states, timers and blobs."""
        chosen = rng.sample(rng.choice([NAMES, sorted(CHANGED)]), names)
        for _ in range(count):
            key, namespace = rng.choice(keys), rng.choice(NAMESPACES)
            name = rng.choice(chosen)
            if name == TIMER:
                self._change_timer((key, namespace))
                continue
            if name == BLOB:
                self.model[BLOB, "", None] = blob = rng.randbytes(4)
                self.backend.set_blob("op", "blob", blob)
                continue
            kind = name.removeprefix("ttl_")
            if name in CHANGED:
                self.context.key, self.context.namespace = key, namespace
                scope = namespace if name.startswith("window") else None
                self._change_in_place(rng, name, (name, key, scope))
                continue
            method, *args = keyed.random_operation(kind, rng)
            scope = namespace if name.startswith("window") else None
            keyed.expect(self.model, kind, (name, key, scope), (method, *copy.deepcopy(args)))
            self.context.key, self.context.namespace = key, namespace
            getattr(self.state(name), method)(*args)

    def _change_in_place(self, rng: random.Random, name: str, place: tuple[Any, ...]) -> None:
        """Read, change what was read, and save it; or only read, or remove."""
        state, number, map_key = self.state(name), rng.randrange(100), rng.choice("ab")
        saved = copy.deepcopy(self.model.get(place))
        saves = rng.random() < 0.8
        if rng.random() < 0.1:
            state.clear()
            self.model.pop(place, None)
            return
        if isinstance(state, ListState):
            boxes = state.get()
            assert boxes == (saved or [])
            if not boxes or rng.random() < 0.3:
                state.add([number])
                self.model[place] = [*(saved or []), [number]]
            elif saves:
                index = rng.randrange(len(boxes))
                boxes[index].append(number)
                state.update(boxes)
                saved[index].append(number)
                self.model[place] = saved
            return
        is_map = isinstance(state, MapState)
        box = state.get(map_key) if is_map else state.value()
        before = (saved or {}).get(map_key) if is_map else saved
        assert box == before
        if not saves:
            return
        box = [] if box is None else box
        box.append(number)
        after = [*(before or []), number]
        if is_map:
            state.put(map_key, box)
            self.model[place] = {**(saved or {}), map_key: after}
        else:
            state.update(box)
            self.model[place] = after

    def _change_timer(self, timer: tuple[Any, Any]) -> None:
        if self._marks.add(timer):
            self.timers.add(timer)
            self.model[TIMER, *timer] = True
        else:
            self._marks.remove(timer)
            self.timers.discard(timer)
            del self.model[TIMER, *timer]

    def contents(self) -> Model:
        found: Model = {(TIMER, *t): True for t in self.timers if t in self._marks}
        blob = self.backend.get_blob("op", "blob")
        if blob is not None:
            found[BLOB, "", None] = blob
        for name in DESCRIPTORS:
            self.state(name)
            for key, namespace, value in self.backend.entries("op", name):
                is_average = name.endswith("average")
                found[name, key, namespace] = tuple(value) if is_average else value
        return found


class Taken:
    """A capture, and what it should hold."""

    def __init__(self, capture: Capture, model: Model) -> None:
        self.capture = capture
        self.model = copy.deepcopy(model)
        #: whether one before it failed after it was taken
        self.doomed = False


class Beside(RuleBasedStateMachine):
    """A subtask that changes its state, while captures wait to be written, or cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(0)
        self.storage = MemoryStorage()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sections, "_CHUNK", 3)
        self.patch.setattr(heap, "files_to_fold", self.files_to_fold)
        self.patch.setattr(rocksdb, "needs_base", self.needs_base)
        self.patch.setattr(rocksdb_entries, "_LEAST", 2)
        self.patch.setattr(rocksdb_state, "_MOST_CHANGED", 2)
        self.patch.setattr(rocksdb_state, "_ENTRY_BYTES", 1 << 40)

    def files_to_fold(self, sizes: list[int], new: int, live: int) -> int:
        if not sizes or self.random.random() < 0.15:
            return len(sizes)
        return min(self.random.choice([0, 0, 1, 2, 3]), len(sizes) - 1)

    def needs_base(self, sizes: list[int], *more: int) -> bool:
        return not sizes or self.random.random() < 0.2

    def make(self) -> KeyedStateBackend:
        return make_heap(range(128), 128)

    @initialize(copies=st.sampled_from([0, 16]))
    def start(self, copies: int) -> None:
        self.patch.setattr(tables, "_COPIES", copies)
        self.epoch = 0
        self.waiting: list[Taken] = []
        self.written = [(Head(), Model())]
        self.task = Task(self.make())
        #: one that follows the heads that are written
        self.follower = Task(self.make())

    def teardown(self) -> None:
        for task in (self.task, self.follower):
            task.backend.close()
        self.patch.undo()

    @rule(seed=st.integers(0, 1 << 30), count=st.integers(1, 15))
    def change(self, seed: int, count: int) -> None:
        self.random.seed(seed)
        self.task.change(self.random, KEYS[:2], count, self.random.randint(1, 3))

    @rule()
    def end_epoch(self) -> None:
        self.epoch += 1
        self.task.backend.end_epoch()

    @rule(durable=st.booleans())
    def take(self, durable: bool) -> None:
        self.epoch += 1
        capture = self.task.backend.capture(f"s{self.epoch}", self.epoch, durable)
        self.waiting.append(Taken(capture, self.task.model))

    @rule(fails=st.sampled_from([False, False, False, True]))
    def write(self, fails: bool) -> None:
        if not self.waiting:
            return
        taken = self.waiting.pop(0)
        self.storage.fail = fails
        try:
            head = taken.capture.write(self.storage)
        except StateStorageError:
            assert fails or taken.doomed
            for other in [] if taken.doomed else self.waiting:
                other.doomed = True
        else:
            assert not taken.doomed
            self.written.append((head, taken.model))
            self.check(self.follower, head, taken.model)
        self.storage.fail = False

    @rule(durable=st.booleans())
    def persist(self, durable: bool) -> None:
        while self.waiting:
            self.write(False)
        self.epoch += 1
        head = self.task.backend.persist(self.storage, f"s{self.epoch}", self.epoch, durable)
        self.written.append((head, copy.deepcopy(self.task.model)))

    @rule(back=st.integers(1, 3))
    def go_back(self, back: int) -> None:
        del self.written[max(1, len(self.written) - back + 1) :]
        self.waiting.clear()
        head, model = self.written[-1]
        self.task.backend.restore(self.storage, head)
        self.task.model = copy.deepcopy(model)

    @rule()
    def go_on_in_another_process(self) -> None:
        """With what the one before it has left on the host."""
        self.waiting.clear()
        self.task.backend.close()
        head, model = self.written[-1]
        self.task = Task(self.make())
        self.task.model = copy.deepcopy(model)
        self.task.backend.restore(self.storage, head)

    @rule()
    def start_in_another_process(self) -> None:
        task = Task(self.make())
        self.check(task, *self.written[-1])
        task.backend.close()

    @invariant()
    def the_state_is_what_it_should_be(self) -> None:
        if hasattr(self, "task"):
            assert self.task.contents() == self.task.model

    def check(self, task: Task, head: Head, model: Model) -> None:
        task.backend.restore(self.storage, head)
        assert task.contents() == model


class BesideOnRocksDB(Beside):
    """The same, with subtasks that share the disk of one host."""

    def __init__(self) -> None:
        super().__init__()
        self.host = tempfile.TemporaryDirectory(prefix="holdfast-host-")

    def teardown(self) -> None:
        super().teardown()
        self.host.cleanup()

    def make(self) -> KeyedStateBackend:
        return make_rocksdb(range(128), 128, Path(self.host.name) / "home")


TestBeside = Beside.TestCase
TestBeside.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestBesideOnRocksDB = BesideOnRocksDB.TestCase
TestBesideOnRocksDB.settings = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    # each step opens databases: to shrink a failure would take minutes
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_a_thread_writes_while_state_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every head is what the state was when it was captured."""
    monkeypatch.setattr(rocksdb_state, "_MOST_CHANGED", 20)
    monkeypatch.setattr(rocksdb_state, "_ENTRY_BYTES", 1 << 40)
    monkeypatch.setattr(rocksdb_entries, "_LEAST", 5)
    rng = random.Random(7)
    task, storage = Task(BACKENDS[name](range(128), 128)), MemoryStorage()
    keys = list(range(100))
    taken: list[tuple[Future[Head], Model]] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as writer:
            for epoch in range(1, 15):
                task.change(rng, keys, 300, len(CHANGED))
                capture = task.backend.capture(f"s{epoch}", epoch)
                taken.append((writer.submit(capture.write, storage), copy.deepcopy(task.model)))
                task.change(rng, keys, 200, len(CHANGED))
                task.backend.end_epoch()
    finally:
        sys.setswitchinterval(before)
    for written, model in taken:
        other = Task(BACKENDS[name](range(128), 128))
        other.backend.restore(storage, written.result())
        assert other.contents() == model
        other.backend.close()
    task.backend.close()


def test_captures_are_written_in_their_order(subject: Subject) -> None:
    state = subject.state(ValueStateDescriptor("v"))
    state.update(1)
    subject.backend.capture("a", 1)
    state.update(2)
    second = subject.backend.capture("b", 2)
    with pytest.raises(InternalError, match="epoch 2 is written before that of epoch 1"):
        second.write(subject.storage)


def test_a_capture_is_written_once(subject: Subject) -> None:
    subject.state(ValueStateDescriptor("v")).update(1)
    capture = subject.backend.capture("a", 1)
    capture.write(subject.storage)
    with pytest.raises(InternalError, match="epoch 1 is written a second time"):
        capture.write(subject.storage)


def test_what_builds_on_a_failed_capture_fails(subject: Subject) -> None:
    """The capture after that has the changes of all."""
    state = subject.state(ValueStateDescriptor("v"))
    state.update(1)
    subject.backend.capture("a", 1).write(subject.storage)
    subject.context.key = "second"
    state.update(2)
    second = subject.backend.capture("b", 2)
    subject.context.key = "third"
    state.update(3)
    third, empty = subject.backend.capture("c", 3), subject.backend.capture("d", 4)
    subject.storage.fail = True
    with pytest.raises(StateStorageError, match="the disk is full"):
        second.write(subject.storage)
    for capture in (third, empty):
        with pytest.raises(StateStorageError, match=r"builds on that of epoch [23], which could"):
            capture.write(subject.storage)
    head = subject.backend.capture("e", 5).write(subject.storage)
    other = Subject(subject.make)
    other.state(ValueStateDescriptor("v"))
    other.backend.restore(subject.storage, head)
    found = {key: value for key, _, value in other.backend.entries("op", "v")}
    assert found == {"key": 1, "second": 2, "third": 3}
    other.backend.close()


def test_a_capture_fails_after_the_one_before_it_was_written(subject: Subject) -> None:
    """What comes next builds on that one, as it was written."""
    state = subject.state(ValueStateDescriptor("v"))
    state.update(1)
    first = subject.backend.capture("a", 1)
    state.update(2)
    second = subject.backend.capture("b", 2)
    first.write(subject.storage)
    subject.storage.fail = True
    with pytest.raises(StateStorageError):
        second.write(subject.storage)
    head = subject.backend.capture("c", 3).write(subject.storage)
    sizes = {name: len(data) for name, data in subject.storage.files.items()}
    assert {file.name: file.size for file in head.all_files}.items() <= sizes.items()


def test_a_capture_that_cannot_be_uploaded_is_in_the_next_one(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody keeps its file, so nothing may build on that."""

    def upload(names: Iterable[str]) -> None:
        raise StateStorageError(f"the other machine is away: {list(names)}")

    state = subject.state(ValueStateDescriptor("v"))
    state.update(1)
    monkeypatch.setattr(subject.storage, "upload", upload, raising=False)
    with pytest.raises(StateStorageError, match="the other machine is away"):
        subject.backend.capture("a", 1).write(subject.storage, uploads=True)
    subject.storage.files.clear()
    monkeypatch.setattr(subject.storage, "upload", list)
    head = subject.backend.capture("b", 2).write(subject.storage, uploads=True)
    assert _values(subject, head) == {"key": 1}


@pytest.mark.parametrize("ttl", [None, LONG])
@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_a_value_that_is_changed_and_saved_again_is_in_the_capture_as_it_was(
    subject: Subject, kind: str, ttl: StateTtlConfig | None
) -> None:
    """Functions read a value, change it, and save the same object."""
    for epoch in range(1, 4):  # a base, and deltas
        state = subject.state(_boxes(kind, ttl))
        before = _change_box(state, epoch)
        capture = subject.backend.capture(f"s{epoch}", epoch)
        _change_box(state, 10)
        other = Subject(subject.make)
        other.backend.restore(subject.storage, capture.write(subject.storage))
        assert _read_box(other.state(_boxes(kind, ttl))) == before
        other.backend.close()


class Sorted(Average):
    """Its accumulator is a list, and its result is that list, sorted in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        accumulator.sort()
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


ACCUMULATING: dict[str, tuple[StateDescriptor, Any]] = {
    "reducing": (ReducingStateDescriptor("sorted", lambda a, b: [*a, *b]), [1]),
    "aggregating": (AggregatingStateDescriptor("sorted", Sorted()), 1),
}


@pytest.mark.parametrize("ttl", [None, LONG])
@pytest.mark.parametrize("kind", ACCUMULATING)
def test_what_a_function_does_with_a_result_is_not_in_the_capture(
    subject: Subject, kind: str, ttl: StateTtlConfig | None
) -> None:
    """The result may be the accumulator itself, and a function may change it and add it again."""
    given, one = copy.deepcopy(ACCUMULATING[kind])
    descriptor = given if ttl is None else expiring(given, ttl)
    for epoch in range(1, 4):  # a base, and deltas
        state = subject.state(descriptor)
        state.add(one)
        before = copy.deepcopy(state.get())
        capture = subject.backend.capture(f"s{epoch}", epoch)
        state.get().append(0)
        other = Subject(subject.make)
        other.backend.restore(subject.storage, capture.write(subject.storage))
        assert other.state(descriptor).get() == before
        other.backend.close()
        subject.backend.end_epoch()


def _boxes(kind: str, ttl: StateTtlConfig | None) -> StateDescriptor:
    made: dict[str, type[Any]] = {
        "value": ValueStateDescriptor,
        "list": ListStateDescriptor,
        "map": MapStateDescriptor,
    }
    descriptor: StateDescriptor = made[kind]("boxes")
    return descriptor if ttl is None else expiring(descriptor, ttl)


def _read_box(state: Any) -> Any:
    if isinstance(state, MapState):
        return state.get("box")
    return next(iter(state.get()), None) if isinstance(state, ListState) else state.value()


def _change_box(state: Any, number: int) -> list[int]:
    """Add a number to the list in the state; return a copy of the list."""
    box: list[int] = _read_box(state) or []
    box.append(number)
    if isinstance(state, MapState):
        state.put("box", box)
    else:
        state.update([box] if isinstance(state, ListState) else box)
    return list(box)


def test_a_capture_that_was_given_up_is_not_written(subject: Subject) -> None:
    subject.state(ValueStateDescriptor("v")).update(1)
    head = subject.backend.capture("a", 1).write(subject.storage)
    subject.state(ValueStateDescriptor("v")).update(2)
    capture = subject.backend.capture("b", 2)
    subject.backend.restore(subject.storage, head)
    with pytest.raises(StateStorageError, match="given up meanwhile"):
        capture.write(subject.storage)


def test_nothing_changed_nothing_is_written(subject: Subject) -> None:
    assert subject.backend.capture("a", 1).write(subject.storage) == Head()
    subject.state(ValueStateDescriptor("v")).update(1)
    first, second = subject.backend.capture("b", 2), subject.backend.capture("c", 3)
    head = first.write(subject.storage)
    assert second.write(subject.storage) == head
    assert list(subject.storage.files) == [file.name for file in head.tables + head.files]


def test_what_does_not_fit_its_type_is_said_when_it_is_written(subject: Subject) -> None:
    state = subject.state(ValueStateDescriptor("v", Types.LONG()))
    state.update("text")
    with pytest.raises(StateTypeError, match="state 'v' of operator 'op', key 'key'"):
        subject.backend.capture("a", 1).write(subject.storage)
    state.update(5)
    subject.backend.capture("b", 2).write(subject.storage)


def test_a_timer_that_a_failed_capture_removed_can_be_removed_again(subject: Subject) -> None:
    """The head still has it."""
    timers = subject.backend.marks("op", "timers", lambda marks: None)
    timers.add(("key", 1))
    subject.backend.capture("a", 1).write(subject.storage)
    timers.remove(("key", 1))
    removed = subject.backend.capture("b", 2)
    timers.add(("key", 1))
    subject.storage.fail = True
    with pytest.raises(StateStorageError):
        removed.write(subject.storage)
    with pytest.raises(ValueError, match="cannot follow"):
        subject.backend.capture("late", 1)
    timers.remove(("key", 1))
    head = subject.backend.capture("c", 3).write(subject.storage)
    other = subject.make(range(128), 128)
    timers = other.marks("op", "timers", lambda marks: None)
    other.restore(subject.storage, head)
    assert ("key", 1) not in timers
    other.close()


@pytest.mark.parametrize("base", [False, True])
def test_lists_and_maps_stay_as_they_were(subject: Subject, base: bool) -> None:
    """Whether all of them is written, or one that is new since it was cleared."""
    names = subject.state(ListStateDescriptor("l"))
    counts = subject.state(MapStateDescriptor("m"))
    names.add("old")
    counts.put("old", 0)
    if not base:
        subject.backend.capture("a", 1).write(subject.storage)
    names.clear()
    counts.clear()
    names.add("a")
    counts.put("a", 1)
    capture = subject.backend.capture("b", 2)
    names.add("b")
    counts.put("b", 2)
    head = capture.write(subject.storage)
    other = Subject(subject.make)
    names = other.state(ListStateDescriptor("l"))
    counts = other.state(MapStateDescriptor("m"))
    other.backend.restore(subject.storage, head)
    assert (names.get(), dict(counts.items())) == (["a"], {"a": 1})
    other.backend.close()


class Joined:
    """Joins texts, in place."""

    def create_accumulator(self) -> dict[str, list[str]]:
        return {"texts": []}

    def add(self, value: str, accumulator: dict[str, list[str]]) -> dict[str, list[str]]:
        accumulator["texts"].append(value)
        return accumulator

    def get_result(self, accumulator: dict[str, list[str]]) -> str:
        return "".join(accumulator["texts"])

    def merge(self, a: dict[str, list[str]], b: dict[str, list[str]]) -> dict[str, list[str]]:
        a["texts"] += b["texts"]
        return a


def _extend(a: list[str], b: list[str]) -> list[str]:
    a += b
    return a


IN_PLACE: dict[str, tuple[StateDescriptor, Any, Any]] = {
    "aggregating": (AggregatingStateDescriptor("s", Joined()), "a", {"texts": ["a"]}),
    "reducing": (ReducingStateDescriptor("s", _extend), ["a"], ["a"]),
}


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("how", ["add", "merge"])
@pytest.mark.parametrize("kind", sorted(IN_PLACE))
def test_an_accumulator_may_be_changed_in_place(
    subject: Subject, kind: str, how: str, expires: bool
) -> None:
    descriptor, value, expected = copy.deepcopy(IN_PLACE[kind])
    if expires:
        expiring(descriptor, LONG)
    state = subject.state(descriptor, namespaced=True)
    for namespace in (1, 2):
        subject.context.namespace = namespace
        state.add(copy.deepcopy(value))
    capture = subject.backend.capture("a", 1)
    if how == "add":
        for namespace in (1, 2):
            subject.context.namespace = namespace
            state.add(copy.deepcopy(value))
    else:
        state.merge_namespaces("key", 3, [1, 2])
    head = capture.write(subject.storage)
    other = Subject(subject.make)
    other.state(descriptor, namespaced=True)
    other.backend.restore(subject.storage, head)
    found = {namespace: entry for _, namespace, entry in other.backend.entries("op", "s")}
    assert found == {1: expected, 2: expected}
    other.backend.close()


def _contents(subject: Subject, kind: str) -> Contents:
    """The contents of windows of the subject's backend."""
    functions: dict[str, Any] = {
        "aggregating": {"aggregator": Joined()},
        "reducing": {"reducer": _extend},
    }
    assigner = TumblingEventTimeWindows.of(10)
    operation = WindowOperation(assigner, EventTimeTrigger(), **functions[kind])
    around = Surroundings("op", subject.backend, subject.context, Mock(), Mock())
    return make_contents(operation, around, Mock())


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("how", ["add", "add with the general function", "merge", "fire"])
@pytest.mark.parametrize("kind", sorted(IN_PLACE))
def test_contents_of_windows_may_be_changed_in_place(
    subject: Subject, kind: str, how: str, checked: bool
) -> None:
    _, value, expected = IN_PLACE[kind]
    if checked:
        subject.context = WatchedKeyContext(MutationWatch("op"))
        subject.context.key = "key"
    contents = _contents(subject, kind)
    add = contents.add if how.endswith("general function") else contents.adder()

    def add_to_both() -> None:
        for namespace in ((0, 10), (10, 20)):
            subject.context.namespace = namespace
            add(copy.deepcopy(value), 5)

    add_to_both()
    capture = subject.backend.capture("a", 1)
    if how == "merge":
        contents.merge((0, 20), [(0, 10), (10, 20)])
    elif how == "fire":
        for namespace in ((0, 10), (10, 20)):
            subject.context.namespace = namespace
            for result in contents.fire(TimeWindow(*namespace), last=True):
                if isinstance(result, list):  # the record itself, which the next function changes
                    result.append("changed")
            contents.clear()
    else:
        add_to_both()
        add_to_both()
    head = capture.write(subject.storage)
    other = Subject(subject.make)
    _contents(other, kind)
    other.backend.restore(subject.storage, head)
    found = {namespace: entry for _, namespace, entry in other.backend.entries("op", CONTENTS)}
    assert found == {(0, 10): expected, (10, 20): expected}
    other.backend.close()


# What only state in memory has: files that are folded, and sections that nobody has read.


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many files each capture folds, if it need not write a base."""
    planned: list[int] = []
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: planned.pop(0))
    yield planned
    assert planned == []


def _fails(subject: Subject, capture: Capture) -> None:
    subject.storage.fail = True
    with pytest.raises(StateStorageError, match="the disk is full"):
        capture.write(subject.storage)


def _values(subject: Subject, head: Head, name: str = "v") -> dict[Any, Any]:
    other = Subject(subject.make)
    other.state(ValueStateDescriptor(name))
    other.backend.restore(subject.storage, head)
    return {key: value for key, _, value in other.backend.entries("op", name)}


@pytest.fixture
def in_memory() -> Subject:
    return Subject(make_heap)


def test_a_base_that_failed_leaves_the_files_before_it(
    in_memory: Subject, folds: list[int]
) -> None:
    """What they changed is still known, to be folded."""
    subject, state = in_memory, in_memory.state(ValueStateDescriptor("v"))
    folds += [0, 0, 0, 3, 2]
    for epoch, key in enumerate("abc"):
        subject.context.key = key
        state.update(epoch)
        head = subject.backend.capture(f"s{epoch}", epoch).write(subject.storage)
    subject.context.key = "a"
    state.clear()
    _fails(subject, subject.backend.capture("base", 3))
    head = subject.backend.capture("folded", 4).write(subject.storage)
    assert [(file.since, file.until) for file in head.files] == [(-1, 0), (0, 4)]
    assert _values(subject, head) == {"b": 1, "c": 2}


def test_a_state_is_declared_while_a_capture_waits(in_memory: Subject, folds: list[int]) -> None:
    """If that fails, nobody knows which file its entries came from: the next is a base."""
    first, subject = in_memory, Subject(make_heap)
    subject.storage = first.storage
    folds += [0, 0, 1]
    state = first.state(ValueStateDescriptor("v"))
    for epoch, key in enumerate("ab"):
        first.context.key = key
        state.update(epoch)
        head = first.backend.capture(f"s{epoch}", epoch).write(first.storage)
    subject.backend.restore(subject.storage, head)
    subject.backend.set_blob("op", "blob", b"changed")
    capture = subject.backend.capture("folded", 2)
    subject.state(ValueStateDescriptor("v"))
    _fails(subject, capture)
    head = subject.backend.capture("base", 3).write(subject.storage)
    assert [(file.since, file.until) for file in head.files] == [(-1, 3)]
    assert _values(subject, head) == {"a": 0, "b": 1}


def test_sections_that_nobody_read_go_back_to_their_files(
    in_memory: Subject, folds: list[int]
) -> None:
    first, subject = in_memory, Subject(make_heap)
    subject.storage = first.storage
    folds += [0, 0, 0, 1, 1, 0]
    state = first.state(ValueStateDescriptor("v"))
    for epoch, key in enumerate("abc"):
        first.context.key = key
        state.update(epoch)
        head = first.backend.capture(f"s{epoch}", epoch).write(first.storage)
    subject.backend.restore(subject.storage, head)
    subject.backend.set_blob("op", "blob", b"changed")
    _fails(subject, subject.backend.capture("failed", 3))
    head = subject.backend.capture("folded", 4).write(subject.storage)
    assert [(file.since, file.until) for file in head.files] == [(-1, 0), (0, 1), (1, 4)]
    assert _values(subject, head) == {"a": 0, "b": 1, "c": 2}
    subject.backend.set_blob("op", "blob", b"changed again")
    subject.backend.capture("delta", 5).write(subject.storage)
    assert len(subject.storage.files["delta.state"]) < len(subject.storage.files["folded.state"])


def test_a_base_that_is_due_is_due_until_it_is_written(
    in_memory: Subject, folds: list[int]
) -> None:
    """Here since the state was written as another type."""
    subject = in_memory
    folds += [0]
    subject.state(ValueStateDescriptor("v", Types.INT())).update(1)
    head = subject.backend.capture("a", 0).write(subject.storage)
    subject.backend = make_heap(range(128), 128)
    subject.backend.restore(subject.storage, head)
    subject.state(ValueStateDescriptor("v", Types.LONG()))
    _fails(subject, subject.backend.capture("b", 1))
    head = subject.backend.capture("c", 2).write(subject.storage)
    assert [(file.since, file.until) for file in head.files] == [(-1, 2)]


def test_what_expired_is_in_the_files_until_a_base_is_written(
    in_memory: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base that could not be written does not count as compaction."""
    monkeypatch.setattr(heap, "files_to_fold", lambda sizes, new, live: 0)
    subject, clock = in_memory, ManualClock(1_000_000)
    subject.backend.use_clock(clock)
    compacting = StateTtlConfig.new_builder(10).cleanup_in_rocksdb_compact_filter(2, 100).build()
    state = subject.state(expiring(ValueStateDescriptor("v"), compacting))
    state.update("secret")
    subject.backend.capture("a", 1).write(subject.storage)
    clock.advance(200)
    _fails(subject, subject.backend.capture("b", 2))
    head = subject.backend.capture("c", 3).write(subject.storage)
    assert [file.name for file in head.files] == ["c.state"]


# What only state in a database has.


@pytest.fixture
def in_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subject]:
    """State of which next to nothing stays in memory."""
    monkeypatch.setattr(rocksdb_state, "_MOST_CHANGED", 4)
    monkeypatch.setattr(rocksdb_state, "_ENTRY_BYTES", 1 << 40)
    monkeypatch.setattr(rocksdb_entries, "_LEAST", 2)
    home = tmp_path / "job" / "home"
    subject = Subject(lambda groups, count: make_rocksdb(groups, count, home))
    yield subject
    subject.backend.close()


def _update(subject: Subject, numbers: range) -> dict[str, int]:
    state = subject.state(ValueStateDescriptor("v"))
    for number in numbers:
        subject.context.key = f"k{number}"
        state.update(number)
    return {f"k{number}": number for number in numbers}


def _found(subject: Subject) -> dict[str, int]:
    subject.state(ValueStateDescriptor("v"))
    return {key: value for key, _, value in subject.backend.entries("op", "v")}


def test_an_epoch_without_a_checkpoint_leaves_little_in_memory(in_database: Subject) -> None:
    in_database.state(ValueStateDescriptor("v"))
    (table,) = in_database.backend._tables.values()
    assert isinstance(table.entries, rocksdb_entries.CachedEntries)
    for start in range(0, 1000, 10):
        _update(in_database, range(start, start + 10))
        in_database.backend.end_epoch()
        assert len(table.entries.in_memory) <= 10
    assert len(_found(in_database)) == 1000


def test_a_delta_has_what_is_not_in_memory_as_it_was(in_database: Subject) -> None:
    _update(in_database, range(2))
    in_database.backend.capture("a", 1).write(in_database.storage)
    expected = _update(in_database, range(50))
    in_database.backend.end_epoch()
    capture = in_database.backend.capture("b", 2)
    state = in_database.state(ValueStateDescriptor("v"))
    for number in range(50):
        in_database.context.key = f"k{number}"
        state.update(-1)
    in_database.backend.end_epoch()
    head = capture.write(in_database.storage)
    assert len(head.files) == 2
    in_database.backend.restore(in_database.storage, head)
    assert _found(in_database) == expected


def test_many_changes_are_a_base(in_database: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that their marks need not be in memory."""
    monkeypatch.setattr(rocksdb, "_DELTA_BYTES", 20 * 32)
    _update(in_database, range(2))
    in_database.backend.capture("a", 1).write(in_database.storage)
    expected = {}
    for start in range(0, 100, 10):
        expected |= _update(in_database, range(start, start + 10))
        in_database.backend.end_epoch()
        marks = in_database.backend._log.changed.tables.values()
        assert sum(map(len, marks)) <= 30
    head = in_database.backend.capture("b", 2).write(in_database.storage)
    assert [file.since for file in head.files] == [-1]
    in_database.backend.restore(in_database.storage, head)
    assert _found(in_database) == expected


@pytest.mark.parametrize("settles", [False, True])
def test_a_database_with_more_than_a_head_does_not_stand_for_it(
    in_database: Subject, settles: bool
) -> None:
    """Another process makes it anew."""
    expected = _update(in_database, range(2))
    capture = in_database.backend.capture("a", 1)
    _update(in_database, range(2, 10))
    in_database.backend.end_epoch()
    head = capture.write(in_database.storage)
    if settles:
        in_database.state(ValueStateDescriptor("declared later"))
        with pytest.raises(ValueError, match="cannot follow"):
            in_database.backend.capture("late", 1)
    in_database.backend.close()
    in_database.backend = in_database.make(range(128), 128)
    assert in_database.backend.restore(in_database.storage, head) == head.files[0].size
    assert _found(in_database) == expected


def test_a_database_with_what_could_not_be_written_stands_for_nothing(
    in_database: Subject, tmp_path: Path
) -> None:
    """Also if a state that no function had asked for is declared afterwards."""
    other = Subject(lambda groups, count: make_rocksdb(groups, count, tmp_path / "other"))
    other.storage = in_database.storage
    expected = _update(other, range(2))
    other.backend.persist(other.storage, "a", 1)
    pickled = ValueStateDescriptor("pickled")
    other.state(pickled).update({1, 2})
    head = other.backend.persist(other.storage, "b", 2)
    other.backend.close()
    in_database.backend.restore(in_database.storage, head)
    _update(in_database, range(2, 4))
    in_database.storage.fail = True
    with pytest.raises(StateStorageError, match="the disk is full"):
        in_database.backend.persist(in_database.storage, "c", 3)
    in_database.state(pickled)
    in_database.backend.close()
    in_database.backend = in_database.make(range(128), 128)
    in_database.backend.restore(in_database.storage, head)
    assert _found(in_database) == expected


def test_a_database_stands_for_the_head_that_was_written(in_database: Subject) -> None:
    expected = _update(in_database, range(10))
    head = in_database.backend.capture("a", 1).write(in_database.storage)
    assert in_database.backend.capture("b", 2).write(in_database.storage) is head
    in_database.backend.close()
    in_database.backend = in_database.make(range(128), 128)
    assert in_database.backend.restore(in_database.storage, head) == 0
    assert _found(in_database) == expected


def test_what_was_in_the_database_and_forgotten_is_no_change(in_database: Subject) -> None:
    _update(in_database, range(5))
    head = in_database.backend.capture("a", 1).write(in_database.storage)
    _update(in_database, range(5, 15))
    in_database.backend.end_epoch()
    in_database.backend.restore(in_database.storage, head)
    assert in_database.backend.capture("b", 2).write(in_database.storage) == head


def test_a_base_after_one_that_failed(
    in_database: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "needs_base", lambda sizes: True)
    _update(in_database, range(5))
    in_database.backend.capture("a", 1).write(in_database.storage)
    _update(in_database, range(5, 10))
    _fails(in_database, in_database.backend.capture("b", 2))
    _update(in_database, range(10, 15))
    head = in_database.backend.capture("c", 3).write(in_database.storage)
    in_database.backend.restore(in_database.storage, head)
    assert _found(in_database).keys() == {f"k{number}" for number in range(15)}


def test_what_is_given_up_is_not_written(in_database: Subject, tmp_path: Path) -> None:
    """Neither a base nor a delta; nothing of them stays on the host."""
    _update(in_database, range(5))
    head = in_database.backend.capture("a", 1).write(in_database.storage)
    for _ in range(2):
        _update(in_database, range(5, 15))
        in_database.backend.end_epoch()
        _update(in_database, range(15, 25))
        capture = in_database.backend.capture("b", 2)
        in_database.backend.restore(in_database.storage, head)
        with pytest.raises(StateStorageError, match="given up meanwhile"):
            capture.write(in_database.storage)
        head = Head()
    assert not list(tmp_path.glob("job/home/tables/.*"))
