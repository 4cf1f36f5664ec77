"""Jobs whose types have changed since their savepoint: what they go on with, what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from holdfast.checkpoint.metadata import encode
from holdfast.checkpoint.savepoints import read_savepoint
from holdfast.common import Configuration, Types, WatermarkStrategy
from holdfast.common.options.recovery import PICKLED_STATE
from holdfast.common.time import Time
from holdfast.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    MapFunction,
    RuntimeContext,
)
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.datastream.window import TumblingEventTimeWindows
from holdfast.driver.job.restart_policy import is_permanent
from holdfast.state.errors import PickledStateError, StateMigrationError
from holdfast.state.format.catalog import SavedState
from holdfast.state.types.schema import describe
from holdfast.testing import LocalExecutor, ScriptedSource

Build = Callable[[StreamExecutionEnvironment], DataStream]


@dataclass
class Account:
    owner: str
    cents: int
    notes: list[str] = field(default_factory=list)


@dataclass
class RicherAccount:
    """Notes are gone, cents are wider, and there is a currency."""

    owner: str
    cents: float
    currency: str = "EUR"


@dataclass
class RenotedAccount:
    """Notes are back, as something else."""

    cents: float
    notes: int = 0


@dataclass
class TextAccount:
    cents: str


class Keeps(KeyedProcessFunction):
    """Keeps what the first record of a key makes, and tells it with each record."""

    def __init__(self, state_type: Any, make: Callable[[int], Any] = lambda n: None) -> None:
        self._type = state_type
        self._make = make

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(self.describe())

    def describe(self) -> StateDescriptor:
        return ValueStateDescriptor("account", self._type)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        if self._state.value() is None:
            self._state.update(self._make(value))
        yield self._state.value()


class Declares(Keeps):
    """Says in an attribute what it keeps."""

    def __init__(self, state_type: Any, make: Callable[[int], Any] = lambda n: None) -> None:
        super().__init__(state_type, make)
        self._descriptor = super().describe()

    def describe(self) -> StateDescriptor:
        return self._descriptor


def account(number: int) -> Account:
    return Account(f"owner {number}", number, ["first"])


def keeping(function: Keeps, key_type: Any = None) -> Build:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        numbers = env.from_source(ScriptedSource(list(range(6))))
        return numbers.key_by(lambda n: n % 2, key_type).process(function).uid("keeps")

    return build


def environment(directory: Path, savepoint: str | None, **more: str) -> StreamExecutionEnvironment:
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        **({} if savepoint is None else {"execution.state-recovery.path": savepoint}),
        **more,
    }
    return StreamExecutionEnvironment(Configuration(settings)).set_parallelism(2)


def stopped(build: Build, directory: Path, quota: int = 2, **settings: str) -> str:
    """The savepoint of a job that has read some records."""
    directory.mkdir(exist_ok=True)
    with LocalExecutor(build(environment(directory, None, **settings)), quota=quota) as run:
        return run.savepoint(directory, stop=True)


def rest(build: Build, directory: Path, savepoint: str, **settings: str) -> list[Any]:
    """What a job gives that goes on from there."""
    with LocalExecutor(build(environment(directory, savepoint, **settings))) as run:
        run.run_to_end()
        return run.records


def test_old_values_are_read_as_the_new_class(tmp_path: Path) -> None:
    savepoint = stopped(keeping(Keeps(Account, account)), tmp_path / "old")
    records = rest(keeping(Keeps(RicherAccount)), tmp_path / "new", savepoint)
    expected = [RicherAccount("owner 0", 0.0), RicherAccount("owner 1", 1.0)]
    assert sorted(set(map(repr, records))) == sorted(map(repr, expected))


def test_the_savepoint_says_what_is_in_it(tmp_path: Path) -> None:
    savepoint = stopped(keeping(Keeps(Account, account), Types.LONG()), tmp_path)
    image = read_savepoint(savepoint).metadata.operators["keeps"]
    assert describe(image.key_type) == "long"
    saved = {state.name: state for state in image.states}
    assert saved["account"].kind == "value"
    assert [describe(t) for t in saved["account"].types] == [
        "Account(owner: string, cents: long, notes: list[string])"
    ]
    assert not any(state.pickled for state in image.states)


def test_what_was_read_once_is_not_there_any_more(tmp_path: Path) -> None:
    """A field may come back as another type, since the savepoint between has it no more."""
    first = stopped(keeping(Keeps(Account, account)), tmp_path / "first")
    with LocalExecutor(
        keeping(Keeps(RicherAccount))(environment(tmp_path / "second", first)), quota=1
    ) as run:
        second = run.savepoint(tmp_path / "second", stop=True)
    records = rest(keeping(Keeps(RenotedAccount)), tmp_path / "third", second)
    assert RenotedAccount(1.0, 0) in records
    with pytest.raises(StateMigrationError, match=r"notes: list\[string\] cannot be read as long"):
        rest(keeping(Keeps(RenotedAccount)), tmp_path / "fourth", first)


def test_a_class_that_cannot_be_read_is_refused_before_its_first_record(tmp_path: Path) -> None:
    savepoint = stopped(keeping(Keeps(Account, account)), tmp_path / "old")
    with LocalExecutor(
        keeping(Keeps(TextAccount))(environment(tmp_path / "new", savepoint))
    ) as run:
        with pytest.raises(
            StateMigrationError,
            match=r"state 'account' of operator 'keeps' was saved as Account\(owner: string, cents:"
            r" long, notes: list\[string\]\); this job declares TextAccount\(cents: string\): "
            "cents: long cannot be read as string",
        ) as refused:
            run.epoch()
        assert run.records == []
        assert is_permanent(refused.value)
    assert len(rest(keeping(Keeps(Account)), tmp_path / "again", savepoint)) == 4


# What is known before the job runs. A refusal comes when the executor is made.


def start(build: Build, directory: Path, savepoint: str) -> None:
    LocalExecutor(build(environment(directory, savepoint))).close()


def test_a_descriptor_that_is_an_attribute_is_known(tmp_path: Path) -> None:
    savepoint = stopped(keeping(Keeps(Account, account)), tmp_path / "old")
    start(keeping(Declares(RicherAccount)), tmp_path, savepoint)
    with pytest.raises(StateMigrationError, match="cents: long cannot be read as string"):
        start(keeping(Declares(TextAccount)), tmp_path, savepoint)


class OfTheClass(Keeps):
    described: ClassVar[StateDescriptor] = ListStateDescriptor("account", str)


def test_a_descriptor_of_the_class_is_known(tmp_path: Path) -> None:
    savepoint = stopped(keeping(Keeps(Account, account)), tmp_path / "old")
    with pytest.raises(StateMigrationError, match="saved as ValueState; this job declares ListS"):
        start(keeping(OfTheClass(None)), tmp_path, savepoint)


def test_keys_are_known(tmp_path: Path) -> None:
    savepoint = stopped(keeping(Keeps(Account, account), Types.INT()), tmp_path / "old")
    start(keeping(Keeps(Account), int), tmp_path, savepoint)
    start(keeping(Keeps(Account)), tmp_path, savepoint)
    with pytest.raises(
        StateMigrationError,
        match="the keys of operator 'Process' were saved as int; this job declares string: ",
    ):
        start(keeping(Keeps(Account), str), tmp_path, savepoint)


def windowing(record_type: Any, shape: Callable[[int], Any]) -> Build:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamps())
        return (
            env.from_source(ScriptedSource([1, 2, 3, 20_000]))
            .assign_timestamps_and_watermarks(strategy)
            .map(shape, record_type)
            .key_by(lambda n: 0)
            .window(TumblingEventTimeWindows.of(Time.seconds(10)))
            .reduce(lambda a, b: a)
            .uid("windows")
        )

    return build


class _Stamps:
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def test_the_contents_of_windows_are_known(tmp_path: Path) -> None:
    savepoint = stopped(windowing(Types.TUPLE([int]), lambda n: (n,)), tmp_path / "old")
    wider = windowing(Types.TUPLE([float]), lambda n: (n + 0.5,))
    assert sorted(rest(wider, tmp_path / "new", savepoint)) == [(1.0,), (20_000.5,)]
    with pytest.raises(StateMigrationError, match=r"\[0\]: long cannot be read as string"):
        start(windowing(Types.TUPLE([str]), lambda n: (str(n),)), tmp_path, savepoint)


class Rules(BroadcastProcessFunction):
    def __init__(self, descriptor: MapStateDescriptor) -> None:
        self._rules = descriptor

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(self._rules).put("rule", value)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield ctx.get_broadcast_state(self._rules).get("rule")


def broadcasting(value_type: Any, rule: Any) -> Build:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        descriptor = MapStateDescriptor("rules", Types.STRING(), value_type)
        rules = env.from_source(ScriptedSource([rule])).broadcast(descriptor)
        records = env.from_source(ScriptedSource(list(range(6)))).uid("records")
        return records.connect(rules).process(Rules(descriptor)).uid("rules")

    return build


def test_broadcast_state_is_known(tmp_path: Path) -> None:
    savepoint = stopped(broadcasting(Account, account(1)), tmp_path / "old")
    richer = broadcasting(RicherAccount, account(1))
    assert RicherAccount("owner 1", 1.0) in rest(richer, tmp_path / "new", savepoint)
    with pytest.raises(StateMigrationError, match=r"'rules'.*\[1\].cents: long cannot be read as"):
        start(broadcasting(TextAccount, account(1)), tmp_path, savepoint)


class Listed(MapFunction, CheckpointedFunction):
    """Keeps its records as operator state."""

    def __init__(self, element_type: Any, make: Callable[[int], Any]) -> None:
        self._descriptor = ListStateDescriptor("seen", element_type)
        self._make = make
        self._seen: list[Any] = []

    def map(self, value: int) -> Any:
        self._seen.append(self._make(value))
        return list(self._seen)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._state.update(self._seen)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._state = context.get_operator_state_store().get_list_state(self._descriptor)
        self._seen = list(self._state.get())


def listing(element_type: Any, make: Callable[[int], Any]) -> Build:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        numbers = env.from_source(ScriptedSource([1, 2, 3])).uid("numbers")
        return numbers.map(Listed(element_type, make)).uid("listed").set_parallelism(1)

    return build


def test_operator_state_is_known(tmp_path: Path) -> None:
    savepoint = stopped(listing(Account, account), tmp_path / "old", quota=1)
    rich = RicherAccount("x", 0.5, "USD")
    records = rest(listing(RicherAccount, lambda n: rich), tmp_path / "new", savepoint)
    assert records[0] == [RicherAccount("owner 1", 1.0), rich]
    with pytest.raises(StateMigrationError, match=r"operator 'Map'.*cents: long cannot be read as"):
        start(listing(TextAccount, lambda n: TextAccount("")), tmp_path, savepoint)


# Pickled state.


class Anything:
    """No class that MessagePack could hold."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anything)

    __hash__ = object.__hash__


def test_pickled_state_from_elsewhere_asks_for_a_flag(tmp_path: Path) -> None:
    job = keeping(Keeps(None, lambda n: Anything()))
    savepoint = stopped(job, tmp_path / "old")
    with pytest.raises(
        PickledStateError,
        match=f"the state 'account' of operator 'Process' is pickled .*{savepoint}/state', "
        f"which is not the job's own.* set '{PICKLED_STATE}' to true",
    ):
        start(job, tmp_path / "new", savepoint)
    allowed = rest(job, tmp_path / "new", savepoint, **{str(PICKLED_STATE): "true"})
    assert allowed == [Anything()] * 4
    own = {"execution.checkpointing.savepoint-dir": str(tmp_path / "old")}
    assert rest(job, tmp_path / "own", savepoint, **own) == [Anything()] * 4


def test_a_savepoint_that_hides_its_pickles_is_not_unpickled(tmp_path: Path) -> None:
    job = keeping(Keeps(None, lambda n: Anything()))
    savepoint = stopped(job, tmp_path / "old")
    metadata = read_savepoint(savepoint).metadata
    operators = {
        uid: msgspec.structs.replace(image, states=tuple(map(_honest, image.states)))
        for uid, image in metadata.operators.items()
    }
    lie = msgspec.structs.replace(metadata, operators=operators)
    (Path(savepoint) / "_metadata").write_bytes(encode(lie))
    with (
        LocalExecutor(job(environment(tmp_path / "new", savepoint))) as run,
        pytest.raises(PickledStateError, match="state 'account' of operator 'keeps' is pickled in"),
    ):
        run.epoch()


def _honest(state: SavedState) -> SavedState:
    return msgspec.structs.replace(state, pickled=False)


def test_pickled_operator_state_asks_for_it_too(tmp_path: Path) -> None:
    job = listing(None, lambda n: Anything())
    savepoint = stopped(job, tmp_path / "old", quota=1)
    with pytest.raises(PickledStateError, match="the state 'seen' of operator 'Map' is pickled"):
        start(job, tmp_path / "new", savepoint)


class Places(ScriptedSource):
    """A source whose position is an object."""

    def create_reader(self, subtask: int, parallelism: int) -> Any:
        reader = super().create_reader(subtask, parallelism)
        plain, restore = reader.position, reader.restore
        reader.position = lambda: (plain(), Anything())  # type: ignore[method-assign]
        reader.restore = lambda position: restore(position[0])  # type: ignore[method-assign]
        return reader


def test_a_position_that_is_an_object_asks_for_it_too(tmp_path: Path) -> None:
    def job(env: StreamExecutionEnvironment) -> DataStream:
        return env.from_source(Places([1, 2, 3])).uid("places").set_parallelism(1)

    savepoint = stopped(job, tmp_path / "old", quota=1)
    with (
        LocalExecutor(job(environment(tmp_path / "new", savepoint))) as run,
        pytest.raises(PickledStateError, match="the position of operator 'places' is pickled"),
    ):
        run.epoch()
    assert rest(job, tmp_path / "new", savepoint, **{str(PICKLED_STATE): "true"}) == [2, 3]
