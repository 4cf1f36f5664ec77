"""The simulation finds the bugs that it is there for: each is planted here, and soon found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from holdfast.checkpoint.store import CheckpointStore
from holdfast.driver import epoch_book as book
from holdfast.driver.checkpoints import superseded
from holdfast.driver.checkpoints.job_checkpoints import Completion, JobCheckpoints
from holdfast.runtime.epochs.task import Subtask
from holdfast.runtime.function_fields import FunctionFields
from holdfast.runtime.operators.sources.source_instance import SourceInstance
from holdfast.state.backends.capture import Placement
from holdfast.state.backends.heap import HeapKeyedStateBackend
from holdfast.state.live import operator_state
from holdfast.state.live.operator_state import ListImage
from holdfast.state.storage.directory import DirectoryStateStorage
from holdfast.state.storage.staged import StagedStateStorage
from holdfast.testing import MemoryFileSystem
from tests.simulation.life import SeedFailed, simulate


def assert_found(among: int, resident: bool = False) -> None:
    """One of the first seeds fails, and says how to hear of it again."""
    with pytest.raises(SeedFailed, match=r"again: python -m tests\.simulation \d+") as failed:
        live_through(range(int(resident), 2 * among, 2))
    # a plant that does not fit the code any more would be "found" in every seed
    assert not re.search(r"positional argument|unexpected keyword", repr(failed.value.cause))


def live_through(seeds: range) -> None:
    for seed in seeds:
        simulate(seed)


def test_state_files_are_named_by_epoch_instead_of_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a zombie, or a run of a former driver, writes over what was acknowledged."""

    def by_epoch(self: Placement) -> str:
        epoch, level, subtask, _ = self.stamp.split("-")
        return f"{epoch}-{level}-{subtask}.state"

    monkeypatch.setattr(Placement, "name", property(by_epoch))
    assert_found(among=100)


def test_nobody_checks_that_all_have_read_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "_check_agreement", lambda acks: None)
    assert_found(among=100)


def test_metadata_is_written_before_the_state_files_are_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DirectoryStateStorage, "sync", lambda self, names: None)
    assert_found(among=500)


def test_state_files_stay_on_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a checkpoint is whole as long as the driver lives."""

    def keep(self: StagedStateStorage, name: str) -> None:
        self._kept.write(name, self._new.read(name))
        self._new.delete(name)

    monkeypatch.setattr(StagedStateStorage, "_upload", keep)
    assert_found(among=20)


def test_the_metadata_itself_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MemoryFileSystem.write

    def careless(self: Any, path: str, data: bytes, durable: bool = False) -> None:
        write(self, path, data, durable and not path.endswith("_metadata"))

    monkeypatch.setattr(MemoryFileSystem, "write", careless)
    assert_found(among=100)


def test_positions_are_not_restored_with_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceInstance, "restore", lambda self: None)
    assert_found(among=20)


def test_completion_is_told_before_the_metadata_is_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is written when the next checkpoint is due."""
    write = JobCheckpoints._write
    late: list[tuple[CheckpointStore, Any]] = []

    def told_first(self: JobCheckpoints, *args: Any) -> Completion:
        while late:
            CheckpointStore.write(*late.pop())
        with monkeypatch.context() as patch:
            patch.setattr(self.store, "write", lambda metadata: late.append((self.store, metadata)))
            return write(self, *args)

    monkeypatch.setattr(JobCheckpoints, "_write", told_first)
    assert_found(among=20)


def test_a_process_trusts_the_state_that_it_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if that is the state of a run that was never accepted."""
    restore = HeapKeyedStateBackend.restore

    def trusting(self: HeapKeyedStateBackend, *args: Any) -> int:
        if self._log.head.files:
            return 0
        return restore(self, *args)

    monkeypatch.setattr(HeapKeyedStateBackend, "restore", trusting)
    assert_found(among=20)


def test_function_objects_outlive_a_run_that_was_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgetful = property(lambda self: None, lambda self, stamp: None)
    monkeypatch.setattr(Subtask, "_stands_at", forgetful, raising=False)
    assert_found(among=100)


def test_fields_are_not_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FunctionFields, "restore", lambda self, data: None)
    assert_found(among=200)


def test_files_of_retained_checkpoints_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckpointStore, "_files_of", lambda self, checkpoint: frozenset())
    assert_found(among=50)


def test_a_file_that_cannot_be_deleted_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superseded, "_tolerated", lambda remedy: nullcontext())
    assert_found(among=100)


def test_ids_of_aborted_checkpoints_are_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_id(self: CheckpointStore) -> int:
        return max(self.completed(), default=0) + 1

    monkeypatch.setattr(CheckpointStore, "next_id", next_id)
    assert_found(among=50)


def test_everybody_gets_all_of_the_operator_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def shares(mode: str, parts: Sequence[ListImage], parallelism: int) -> Iterator[ListImage]:
        everything = tuple(element for part in parts for element in part.elements)
        return iter([ListImage(mode, everything)] * parallelism)

    monkeypatch.setattr(operator_state, "_shares", shares)
    assert_found(among=50)
