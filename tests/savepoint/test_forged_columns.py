"""Columns, rows and blobs that are not what their file says, with right checksums everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.errors import HoldfastError
from holdfast.savepoint import KeyedState, OperatorState, Savepoint, SavepointWriter
from holdfast.state.errors import StateCorruptionError
from holdfast.testing import LocalExecutor
from tests.forging import forge_state_file, state_file_of
from tests.savepoint.jobs import BACKENDS, configuration

PLAIN, TUPLES, TYPED = 1, 2, 3
STATES: dict[str, tuple[StateDescriptor, Any]] = {
    "value": (ValueStateDescriptor("value"), {"a": 1, "b": 2}),
    "list": (ListStateDescriptor("list"), {"a": [1], "b": [2, 3]}),
    "map": (MapStateDescriptor("map"), {"a": {"x": 1}, "b": {"x": 2, "y": 3}}),
}

#: by what is wrong: the state, and its columns behind one another, each with how it is written
FORGED: dict[str, tuple[str, list[tuple[int, Any]]]] = {
    "fewer values than keys": ("value", [(PLAIN, ["a", "b"]), (PLAIN, [1])]),
    "more values than keys": ("value", [(PLAIN, ["a", "b"]), (PLAIN, [1, 2, 3])]),
    "fewer keys": ("value", [(PLAIN, ["a"]), (PLAIN, [1])]),
    "keys that are lists": ("value", [(PLAIN, [["a"], ["b"]]), (PLAIN, [1, 2])]),
    "keys that are dicts": ("value", [(PLAIN, [{"a": 1}, {}]), (PLAIN, [1, 2])]),
    "keys that hold lists": ("value", [(TUPLES, [[["a"]], [["b"]]]), (PLAIN, [1, 2])]),
    "keys that are no array": ("value", [(PLAIN, 5), (PLAIN, [1, 2])]),
    "tuples that are none": ("value", [(PLAIN, ["a", "b"]), (TUPLES, [1, 2])]),
    "lengths that are texts": ("list", [(PLAIN, ["a", "b"]), (PLAIN, ["1", "2"]), (PLAIN, [1])]),
    "lengths below zero": ("list", [(PLAIN, ["a", "b"]), (PLAIN, [-1, 4]), (PLAIN, [1, 2, 3])]),
    "lengths beyond the end": ("list", [(PLAIN, ["a", "b"]), (PLAIN, [1, 9]), (PLAIN, [1, 2, 3])]),
    "huge lengths": ("list", [(PLAIN, ["a", "b"]), (PLAIN, [1, 1 << 60]), (PLAIN, [1])]),
    "elements left over": ("list", [(PLAIN, ["a", "b"]), (PLAIN, [1, 1]), (PLAIN, [1, 2, 3])]),
    "map keys without values": (
        "map",
        [(PLAIN, ["a", "b"]), (PLAIN, [1, 1]), (PLAIN, ["x", "y"]), (PLAIN, [1])],
    ),
}
#: bytes that are no column at all
BROKEN = {
    "nothing": b"",
    "no MessagePack": b"\xc1\xc1",
    "cut short": b"\x92\xa1a",
    "a huge array": b"\xdd\xff\xff\xff\xff",
    "nested too deep": b"\x91" * 100_000,
    "a text that is none": b"\x92\xa1\xff\xa1\xfe",
}


class Keep(KeyedProcessFunction, CheckpointedFunction):
    """Asks for all states of a key."""

    def open(self, context: RuntimeContext) -> None:
        self.value = context.get_state(ValueStateDescriptor("value"))
        self.list = context.get_list_state(ListStateDescriptor("list"))
        self.map = context.get_map_state(MapStateDescriptor("map"))

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.seen = store.get_list_state(ListStateDescriptor("seen"))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def process_element(self, value: str, ctx: Any) -> Iterator[Any]:
        yield value, self.value.value(), list(self.list.get()), dict(self.map.items())


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    states = [KeyedState(descriptor, data) for descriptor, data in STATES.values()]
    seen = OperatorState(ListStateDescriptor("seen"), [1, 2])
    writer = SavepointWriter().with_operator("keep", *states, seen)
    return Path(writer.write(tmp_path / "made"))


def run_from(path: Path, tmp_path: Path, backend: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        configuration(tmp_path / backend, backend, start=str(path))
    )
    env.set_parallelism(1)
    keyed = env.from_collection(["a", "b"]).key_by(lambda record: record)
    with LocalExecutor(keyed.process(Keep()).uid("keep")) as job:
        job.run_to_end()


def read(path: Path) -> None:
    found = Savepoint.read(path)
    for state in STATES:
        found.keyed_state("keep", state).to_pylist()
    found.operator_state("keep", "seen").to_pylist()


def refused(path: Path, tmp_path: Path, place: str) -> None:
    """Check that no way to read it gives anything but an error that says where."""
    with pytest.raises(StateCorruptionError, match=place):
        read(path)
    for backend in BACKENDS:
        with pytest.raises(HoldfastError, match=place):
            run_from(path, tmp_path, backend)


def forge(path: Path, state: str, columns: list[tuple[int, bytes]]) -> None:
    """Give the only chunk of a state other columns."""

    def change(header: list[Any], body: bytes) -> bytes:
        (section,) = header[0]
        section[6][0][5] = [[codec, len(data)] for codec, data in columns]
        return b"".join(data for _, data in columns)

    for file in (path / "state").iterdir():
        header = msgspec.msgpack.decode(file.read_bytes()[28:][: _header_size(file)])
        if header[0] and header[0][0][1] == state:
            forge_state_file(file, change)


def _header_size(file: Path) -> int:
    return int.from_bytes(file.read_bytes()[8:12], "little")


def test_the_savepoint_is_right_before_it_is_forged(savepoint: Path, tmp_path: Path) -> None:
    encoded = [(PLAIN, msgspec.msgpack.encode(column)) for column in (["a", "b"], [1, 2])]
    forge(savepoint, "value", encoded)
    read(savepoint)
    for backend in BACKENDS:
        run_from(savepoint, tmp_path, backend)


@pytest.mark.parametrize("name", FORGED)
def test_columns_that_do_not_belong_together(savepoint: Path, tmp_path: Path, name: str) -> None:
    state, columns = FORGED[name]
    forge(savepoint, state, [(codec, msgspec.msgpack.encode(c)) for codec, c in columns])
    refused(savepoint, tmp_path, f"state '{state}' of operator 'keep' cannot be used")


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("place", [0, 1])
def test_columns_that_are_none(savepoint: Path, tmp_path: Path, name: str, place: int) -> None:
    columns = [(PLAIN, msgspec.msgpack.encode(column)) for column in (["a", "b"], [1, 2])]
    columns[place] = (PLAIN, BROKEN[name])
    forge(savepoint, "value", columns)
    refused(savepoint, tmp_path, "state 'value' of operator 'keep' cannot be used")


IMAGES: dict[str, Callable[[], bytes]] = {
    "no image": lambda: b"\xc1",
    "another mode": lambda: msgspec.msgpack.encode({"seen": ["heap", [], []]}),
    "another codec": lambda: msgspec.msgpack.encode({"seen": ["split", [[9, b"", 0]], [None]]}),
    "another schema": lambda: msgspec.msgpack.encode({"seen": ["split", [[1, b"", 3]], [None]]}),
    "an element of nothing": lambda: msgspec.msgpack.encode(
        {"seen": ["split", [[PLAIN, b"\x90", 0]], [None]]}
    ),
    "a broken element": lambda: msgspec.msgpack.encode(
        {"seen": ["split", [[PLAIN, b"\xc1", 0]], [None]]}
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_operator_state_that_is_none(savepoint: Path, tmp_path: Path, name: str) -> None:
    def change(header: list[Any], body: bytes) -> bytes:
        image = IMAGES[name]()
        header[1][0][2] = len(image)
        return image

    for file in (savepoint / "state").iterdir():
        if b"operator-state" in file.read_bytes():
            forge_state_file(file, change)
    refused(savepoint, tmp_path, "operator state .*of operator '.*' cannot be used")


def test_a_state_file_that_is_only_a_header(savepoint: Path) -> None:
    for file in (savepoint / "state").iterdir():
        size = file.stat().st_size
        data = state_file_of(b"\xc1", bytes(size - 33))
        assert len(data) == size
        file.write_bytes(data)
    with pytest.raises(StateCorruptionError, match="contents are not in Holdfast's format"):
        read(savepoint)
