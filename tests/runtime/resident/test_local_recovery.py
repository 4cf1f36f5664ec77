"""Local recovery: a restart reads from the storage only what the hosts do not have themselves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import Types
from holdfast.common.time import wall_clock
from holdfast.datastream import RuntimeContext
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import CheckpointedFunction, MapFunction
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor
from holdfast.driver.reports import attempts_of
from holdfast.history.events import StateLoaded
from holdfast.runtime.resident.states import StateWriter, needed_heads
from holdfast.runtime.wire.protocol import StoredState
from holdfast.state.backend import KeyContext, make_backend
from holdfast.state.format.head import FileRef, Head
from holdfast.state.key_groups import KeyGroupShare
from holdfast.state.local_copies import HostStorage, copies_of
from holdfast.state.settings import StateSettings
from holdfast.testing import MemoryStateStorage
from tests.runtime.resident.test_jobs import (
    EXACT,
    RECORDS,
    checkpointed,
    counted,
    last_counts,
)
from tests.runtime.resident.threads import PATIENCE, start

BACKENDS = ("hashmap", "rocksdb")


class FailWhenKept(MapFunction):
    """Fails once, as soon as two checkpoints are complete; goes slowly until then."""

    def __init__(self, place: Path) -> None:
        self.mark, self.checkpoints = place / "failed", place / "job" / "checkpoints"

    def map(self, value: int) -> int:
        if value % 10 == 0 and not self.mark.exists():
            if len(CheckpointStore(self.checkpoints).completed()) > 1:
                self.mark.touch()
                raise ValueError("simulated failure")
            time.sleep(0.02)  # of a minute, in which two checkpoints are complete
        return value


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "disk"
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(place))
    return place


def loaded_again(
    tmp_path: Path, backend: str, between: Callable[[], None], **settings: str
) -> StateLoaded:
    """Run a job that fails once; returns what its second attempt has loaded."""
    env = checkpointed(
        execution_checkpointing_num__retained="2", state_backend_type=backend, **settings
    )
    job = start(
        counted(env, FailWhenKept(tmp_path)),
        tmp_path / "job",
        copies=True,
        before=lambda attempt: between() if attempt else None,
    )
    assert last_counts(job.records) == EXACT
    first, second = attempts_of(job.runner.history)
    assert first.loaded is not None
    assert (first.loaded.stored, first.loaded.local) == (0, 0)
    assert second.checkpoint is not None
    assert second.loaded is not None
    assert [len(level) for level in second.loaded.subtasks] == [2, 2]
    return second.loaded


def nothing() -> None:
    """The disk stays as it is."""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restart_reads_nothing_from_the_storage(tmp_path: Path, disk: Path, backend: str) -> None:
    loaded = loaded_again(tmp_path, backend, nothing)
    assert loaded.stored == loaded.damaged == 0
    assert all(local > 0 for level in loaded.subtasks for _, local in level)


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_what_is_missing_is_read_from_the_storage(
    tmp_path: Path, disk: Path, backend: str
) -> None:
    def lose() -> None:
        """As if subtask 1 of the second level came to another host."""
        (home,) = disk.glob("holdfast-state-*/1-1")
        shutil.rmtree(home)

    loaded = loaded_again(tmp_path, backend, lose)
    source, (kept, lost) = loaded.subtasks
    assert [stored for stored, _ in (*source, kept)] == [0, 0, 0]
    assert lost[0] > 0
    assert lost[1] == loaded.damaged == 0


def test_a_damaged_copy_is_read_from_the_storage(tmp_path: Path, disk: Path) -> None:
    def damage() -> None:
        for path in disk.glob("holdfast-state-*/1-1/files/*"):
            path.write_bytes(path.read_bytes()[:-1])

    loaded = loaded_again(tmp_path, "hashmap", damage)
    stored = [stored > 0 for level in loaded.subtasks for stored, _ in level]
    assert stored == [False, False, False, True]
    assert loaded.damaged > 0


def test_without_copies_all_is_read_from_the_storage(tmp_path: Path, disk: Path) -> None:
    loaded = loaded_again(
        tmp_path, "hashmap", nothing, execution_state__recovery_from__local="false"
    )
    assert all(stored > 0 for level in loaded.subtasks for stored, _ in level)
    assert loaded.local == 0
    assert not list(disk.glob("holdfast-state-*"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_that_ends_leaves_nothing_on_its_hosts(
    tmp_path: Path, disk: Path, backend: str
) -> None:
    loaded_again(tmp_path, backend, nothing)
    assert list(disk.glob("holdfast-*")) == []


def test_a_damaged_file_costs_an_attempt_and_the_checkpoint_before_it_is_used(
    tmp_path: Path, disk: Path
) -> None:
    """The driver does not read all state at each restart; the subtask that reads it finds it."""
    store = CheckpointStore(tmp_path / "job" / "checkpoints")

    def damage(attempt: int) -> None:
        if attempt == 1:
            *_, before, newest = store.completed()
            for name in store.read(newest).files() - store.read(before).files():
                path = Path(store.state.directory / name)
                data = bytearray(path.read_bytes())
                data[-10] ^= 1
                path.write_bytes(data)

    env = checkpointed(execution_checkpointing_num__retained="2")
    failing = FailWhenKept(tmp_path)
    job = start(counted(env, failing), tmp_path / "job", before=damage)
    assert last_counts(job.records) == EXACT
    _, damaged, last = attempts_of(job.runner.history)
    assert "expected checksum" in str(damaged.failure)
    assert damaged.checkpoint is not None
    assert last.checkpoint is not None
    assert last.checkpoint < damaged.checkpoint


class Driver:
    """Takes what a writer says of states that were stored."""

    def __init__(self) -> None:
        self.states: SimpleQueue[StoredState] = SimpleQueue()

    def stored(self, state: StoredState) -> None:
        self.states.put(state)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_disk_holds_no_more_than_a_restart_may_need(
    tmp_path: Path, disk: Path, backend: str
) -> None:
    settings = StateSettings(rocksdb=backend == "rocksdb")
    key = b"k" * 32
    files = HostStorage(MemoryStateStorage(), copies_of(settings, key, 0, 0))
    state = make_backend(settings, key, 0, 0)
    state.shares.assign("op", KeyGroupShare(range(128), 128))
    driver: Any = Driver()

    def keep(names: set[str]) -> None:
        files.keep(names)
        state.keep_files(names)

    writer = StateWriter(files, driver, wall_clock, (0, 0), keep)
    writer.begin(Head())
    state.restore(files, Head())
    context = KeyContext()
    value: Any = state.keyed_state("op", ValueStateDescriptor("v", Types.LONG()), context)
    last = Head()
    for checkpoint in range(150):
        for number in range(20):
            context.key = number
            value.update(checkpoint)
        writer.write(checkpoint, state.capture(f"{checkpoint}-0-0-x", checkpoint, durable=True))
        stored = driver.states.get(timeout=PATIENCE)
        assert stored.failure is None
        before, last = last, stored.head
        writer.note_completed((checkpoint,))
    writer.close()
    assert writer._thread is not None
    writer._thread.join(PATIENCE)
    # when the last one was written, the one before it was complete
    needed = {file.name for each in (before, last) for file in each.all_files}
    home = settings.home(key, 0, 0)
    there = {path.name for part in ("files", "tables") for path in (home / part).glob("[!.]*")}
    assert {file.name for file in last.all_files} <= there
    assert there <= needed
    state.close(ended=True)
    files.close(ended=True)


def head(*names: str) -> Head:
    return Head(tuple(FileRef(name, 1, at - 1, at) for at, name in enumerate(names)))


def test_a_restart_goes_back_to_what_is_complete_or_may_become_so() -> None:
    heads = {-1: head("a"), 5: head("a", "b"), 6: head("a", "c"), 7: head("d")}

    def needed(completed: int) -> list[int]:
        return list(needed_heads(heads, completed))

    assert needed(-1) == [-1, 5, 6, 7]
    assert needed(4) == [-1, 5, 6, 7], "told of the one that the attempt began with"
    assert needed(5) == [5, 6, 7]
    assert needed(7) == needed(8) == [7]


class Remembers(MapFunction, CheckpointedFunction):
    """Tells which operator state it was restored with; each subtask saves its own number."""

    def __init__(self, unites: bool) -> None:
        self.unites = unites

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        descriptor = ListStateDescriptor("numbers", Types.INT())
        self.numbers = (
            store.get_union_list_state(descriptor)
            if self.unites
            else store.get_list_state(descriptor)
        )
        self.restored = tuple(self.numbers.get()) if context.is_restored() else None

    def snapshot_state(self, context: Any) -> None:
        self.numbers.update([self.index])

    def map(self, value: int) -> Any:
        return value, self.index, self.restored


@pytest.mark.parametrize("unites", [False, True])
def test_operator_state_is_read_from_the_files_of_others_only_if_it_is_united(
    tmp_path: Path, disk: Path, unites: bool
) -> None:
    env = checkpointed(execution_checkpointing_num__retained="2")
    numbers = env.from_source(NumberSequenceSource(0, RECORDS - 1), source_name="numbers")
    failing = numbers.map(FailWhenKept(tmp_path))
    job = start(failing.rebalance().map(Remembers(unites)), tmp_path / "job", copies=True)
    found = {(index, restored) for _, index, restored in job.records if restored is not None}
    assert found == {(index, (0, 1) if unites else (index,)) for index in (0, 1)}
    loaded = attempts_of(job.runner.history)[1].loaded
    assert loaded is not None
    assert loaded.local > 0
    assert (loaded.stored > 0) == unites
