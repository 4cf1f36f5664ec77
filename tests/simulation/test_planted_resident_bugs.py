"""The simulation finds bugs of subtasks that stay: each is planted here, and soon found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.driver.checkpoints.storing import PendingCheckpoint, Storing
from holdfast.driver.epoch_book import EpochBook
from holdfast.driver.slots.rounds import Rounds
from holdfast.runtime.operators.sources.source_instance import SourceInstance
from holdfast.runtime.resident.carrier import Carrier
from holdfast.runtime.resident.channels import Inputs
from holdfast.runtime.resident.messages import Mark, Round
from holdfast.runtime.resident.states import StateWriter
from holdfast.runtime.resident.subtask import ResidentSubtask
from holdfast.runtime.wire.protocol import EpochTask, StoredState
from holdfast.state.backends.capture import Capture
from holdfast.state.backends.change_log import ChangeLog
from holdfast.state.backends.heap import HeapKeyedStateBackend
from holdfast.state.format.head import Head
from holdfast.state.live.overlaid import OverlaidTable
from holdfast.state.live.tables import Table
from tests.simulation.test_planted_bugs import assert_found


def test_marks_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what comes behind a mark is processed before the other marks have come."""
    hear = Inputs._hear

    def unaligned(self: Inputs, producer: Any, mark: Mark) -> Any:
        return hear(self, producer, Mark(mark.epoch, False, mark.ended, mark.watermarks))

    monkeypatch.setattr(Inputs, "_hear", unaligned)
    assert_found(among=20, resident=True)


def test_marks_overtake_the_records_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent before the routers are flushed."""
    flush, say = ResidentSubtask._flush, ResidentSubtask._say
    monkeypatch.setattr(ResidentSubtask, "_flush", lambda self: None)
    tidy = ResidentSubtask._tidy

    def lazy(self: ResidentSubtask, now: float, moves_time: bool = False) -> None:
        if not moves_time:
            tidy(self, now)

    def early(self: ResidentSubtask, mark: Mark) -> None:
        say(self, mark)
        flush(self)

    monkeypatch.setattr(ResidentSubtask, "_tidy", lazy)
    monkeypatch.setattr(ResidentSubtask, "_say", early)
    assert_found(among=100, resident=True)


def test_state_is_captured_after_more_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is on its way, and the subtask goes on before it captures its state."""
    store = ResidentSubtask._store

    def late(self: ResidentSubtask, task: EpochTask) -> None:
        if self._sources:
            self._read()
        else:
            self._take()
        store(self, task)

    monkeypatch.setattr(ResidentSubtask, "_store", late)
    assert_found(among=20, resident=True)


def test_state_is_captured_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Capture):
        def __init__(self, take: Callable[[], Capture]) -> None:
            self._take = take

        def write(self, storage: Any, uploads: bool = False) -> Head:
            return self._take().write(storage, uploads)

        _store = _release = None  # type: ignore[assignment]

    capture = HeapKeyedStateBackend.capture
    monkeypatch.setattr(
        HeapKeyedStateBackend,
        "capture",
        lambda self, *args, **kwargs: Late(lambda: capture(self, *args, **kwargs)),
    )
    monkeypatch.setattr(Late, "__abstractmethods__", frozenset())
    assert_found(among=20, resident=True)


def test_functions_get_the_objects_that_a_checkpoint_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """They change what they have read and save it, while the checkpoint is being written."""

    def share(self: Table[Any], keys: Iterable[Any]) -> None:
        if self.in_place:
            self.shared.update(keys)

    monkeypatch.setattr(Table, "share", share)
    monkeypatch.setattr(OverlaidTable, "_guard", unguarded)
    assert_found(among=20, resident=True)


@pytest.mark.parametrize("kind", ["value", "list", "map", "aggregating"])
def test_functions_get_the_objects_of_one_kind_of_state(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    share = Table.share

    def careless(self: Table[Any], keys: Iterable[Any]) -> None:
        if self.kind != kind:
            share(self, keys)
        elif self.in_place and kind != "aggregating":
            self.shared.update(keys)

    monkeypatch.setattr(Table, "share", careless)
    if kind == "value":
        monkeypatch.setattr(OverlaidTable, "_guard", unguarded)
    assert_found(among=40, resident=True)


def unguarded(self: OverlaidTable, guards: bool) -> None:
    """Nothing is copied."""
    self.overlay.__missing__ = self._look_up


def test_a_checkpoint_is_complete_without_one_of_its_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settled(self: Storing) -> Iterator[PendingCheckpoint]:
        for checkpoint, pending in list(self._pending.items()):
            if len(pending.missing) <= 1 or pending.failure is not None:
                yield self._pending.pop(checkpoint)

    monkeypatch.setattr(Storing, "settled", settled)
    write = PendingCheckpoint.metadata

    def whole(self: PendingCheckpoint) -> Any:
        self.missing.clear()
        return write(self)

    monkeypatch.setattr(PendingCheckpoint, "metadata", whole)
    monkeypatch.setattr(
        PendingCheckpoint,
        "failure",
        property(lambda self: self.missing.clear() if len(self.missing) <= 1 else None),
    )
    assert_found(among=40, resident=True)


def test_states_that_could_not_be_stored_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PendingCheckpoint, "failure", None)
    assert_found(among=300, resident=True)


def test_slots_of_earlier_attempts_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """So their states and acknowledgements count."""
    monkeypatch.setattr(Rounds, "admits", lambda self, hello: True)
    assert_found(among=200, resident=True)


def test_changes_of_a_failed_capture_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: ChangeLog, before: list[ChangeLog], *_: Any) -> None:
        self.head, self.steps = before[0].head, before[0].steps

    monkeypatch.setattr(ChangeLog, "_take_back", forget)
    assert_found(among=300, resident=True)


def test_sources_read_on_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = EpochBook.tasks

    def unhalted(self: EpochBook, *args: Any, **kwargs: Any) -> list[EpochTask]:
        return [replace(task, halts=False) for task in tasks(self, *args, **kwargs)]

    monkeypatch.setattr(EpochBook, "tasks", unhalted)
    assert_found(among=100, resident=True)


def test_a_position_is_saved_before_its_records_are_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch of a read waits for the next one."""
    read = SourceInstance.read
    kept: defaultdict[SourceInstance, list[Any]] = defaultdict(list)

    def behind(self: SourceInstance, request: Any) -> Iterator[Sequence[Any]]:
        batches = [*kept.pop(self, []), *read(self, request)]
        if not self.finished:
            kept[self] = batches[-1:]
            del batches[-1:]
        yield from batches

    monkeypatch.setattr(SourceInstance, "read", behind)
    assert_found(among=20, resident=True)


def test_credit_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the job comes to a standstill."""
    monkeypatch.setattr(Carrier, "put_back", lambda self, *args: None)
    assert_found(among=20, resident=True)


def test_room_for_results_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carrier, "grant_results", lambda self, size: None)
    assert_found(among=20, resident=True)


def test_acknowledgements_of_an_earlier_round_count(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Rounds.begin

    def forgetful(self: Rounds, tasks: Sequence[EpochTask]) -> Round:
        before = self._acknowledged
        told = begin(self, tasks)
        self._acknowledged = min(before, 1)
        return told

    monkeypatch.setattr(Rounds, "begin", forgetful)
    assert_found(among=20, resident=True)


def test_the_head_of_a_failed_write_is_built_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Capture, storage: Any, uploads: bool = False) -> Head:
        head = self._head if self._before is None else self._before.head or self._before._head
        self.head = self._head
        try:
            self.head = self._store(storage, head)
        finally:
            self._before = None
        return self.head

    monkeypatch.setattr(Capture, "write", careless)
    assert_found(among=300, resident=True)


def test_listeners_hear_nothing_between_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResidentSubtask, "_notify", lambda self, task: None)
    assert_found(among=20, resident=True)


def test_states_of_an_aborted_checkpoint_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though later states build on them."""
    monkeypatch.setattr(Storing, "since", None)
    assert_found(among=500, resident=True)


def test_a_state_counts_as_stored_whatever_became_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateWriter._store

    def careless(self: StateWriter, checkpoint: int, capture: Capture, began: float) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(self._post, "stored", lambda state: None)
            store(self, checkpoint, capture, began)
        if not self._closed:
            self._post.stored(StoredState(checkpoint, *self._place, self.head))

    monkeypatch.setattr(StateWriter, "_store", careless)
    assert_found(among=300, resident=True)
