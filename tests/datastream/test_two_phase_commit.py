"""Two-phase commit, with an outside world that remembers what was done to it."""

from __future__ import annotations

import itertools
import logging
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream import RuntimeContext, SinkFunction, TwoPhaseCommitSinkFunction
from holdfast.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from holdfast.datastream.functions import TwoPhaseCommitSinkFunction as FromFunctions
from holdfast.datastream.state import ListStateDescriptor
from holdfast.runtime.failures import OperatorFailed
from tests.datastream.sink_engine import Failed, Killed, Lost, SinkEngine


@dataclass
class World:
    """A system with transactions. What it is asked to do twice it does once, or complains."""

    open: dict[int, list[Any]] = field(default_factory=dict)
    prepared: dict[int, list[Any]] = field(default_factory=dict)
    committed: dict[int, list[Any]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    #: how often a commit fails from now on
    failures: int = 0

    def __post_init__(self) -> None:
        self.id = next(_ids)
        self.next = itertools.count()
        WORLDS[self.id] = self

    @property
    def visible(self) -> list[Any]:
        return sorted(record for records in self.committed.values() for record in records)


WORLDS: dict[int, World] = {}
_ids = itertools.count()


class Sink(TwoPhaseCommitSinkFunction):
    """Writes into a world. Has no call of ``super().__init__``, as users' functions do."""

    def __init__(self, world: World) -> None:
        self.id = world.id
        self.invoked = 0

    @property
    def world(self) -> World:
        return WORLDS[self.id]

    def open(self, runtime_context: RuntimeContext) -> None:
        self.world.calls.append("open")
        self.connection = iter([])  # cannot be pickled

    def begin_transaction(self) -> int:
        transaction = next(self.world.next)
        self.world.open[transaction] = []
        return transaction

    def invoke(self, transaction: int, value: Any, context: SinkFunction.Context) -> None:
        self.invoked += 1
        self.world.open[transaction].append(value)

    def pre_commit(self, transaction: int) -> None:
        assert self.connection is not None
        self.world.prepared[transaction] = self.world.open.pop(transaction)

    def commit(self, transaction: int) -> None:
        world = self.world
        world.calls.append(f"commit {transaction}")
        assert self.connection is not None
        assert transaction not in world.aborted
        if world.failures:
            world.failures -= 1
            msg = "the outside world is away"
            raise ConnectionError(msg)
        if transaction not in world.committed:
            world.committed[transaction] = world.prepared.pop(transaction)

    def abort(self, transaction: int) -> None:
        world = self.world
        world.calls.append(f"abort {transaction}")
        assert transaction not in world.committed
        world.open.pop(transaction, None)
        world.prepared.pop(transaction, None)
        world.aborted.add(transaction)


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_where_the_other_functions_are() -> None:
    assert FromFunctions is TwoPhaseCommitSinkFunction


def test_records_appear_with_their_checkpoint(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3)
    job.epoch(2, checkpoint=True)
    assert world.visible == []
    job.epoch(1)
    assert world.visible == [0, 1, 2, 3, 4]
    job.finish()
    assert world.visible == [0, 1, 2, 3, 4, 5]


def test_an_epoch_without_records_has_no_transaction(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch()
    job.epoch(checkpoint=True)
    job.finish()
    assert next(world.next) == 0


def test_a_checkpoint_does_not_show_what_came_after_it(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(2, checkpoint=True, complete=None)
    job.epoch(2)
    assert world.visible == []
    job.epoch(2)
    assert world.visible == [0, 1]
    job.finish()
    assert world.visible == list(range(6))


def test_an_aborted_checkpoint_is_covered_by_the_next(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(2, checkpoint=True, complete=False)
    job.epoch(2)
    assert world.visible == []
    job.epoch(2, checkpoint=True)
    job.epoch()
    assert world.visible == list(range(6))


@pytest.mark.parametrize("fate", [Killed(0), Killed(2), Failed(2), Lost()])
def test_an_epoch_that_is_run_again_counts_once(world: World, fate: Killed | Lost) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3, fates=[fate, fate], checkpoint=True)
    job.epoch(3, fates=[fate], checkpoint=True)
    job.finish()
    assert world.visible == list(range(6))


def test_a_failed_run_aborts_what_it_has_begun(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3, fates=[Failed(2)])
    assert world.aborted == {0}
    assert not world.open


def test_a_failing_abort_does_not_hide_the_failure_of_the_run(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(1)
    _, instance = job._living[0]
    instance.transactions.accept(7, None)
    world.committed[1] = []
    instance.abandon()
    assert "Sink could not abort the transaction 1" in caplog.text
    assert instance.transactions._open is None


def test_nothing_of_a_transaction_is_carried_between_epochs(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3)
    _, instance = job._living[0]
    assert instance.transactions._open is None
    assert pickle.loads(pickle.dumps(instance.function.pending_transactions())) == [0]


def test_a_crash_before_the_checkpoint_loses_nothing(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3, checkpoint=True)
    job.epoch(3)
    job.restart()
    assert job.position == 3
    job.epoch(3)
    job.finish()
    assert world.visible == list(range(6))


def test_a_crash_between_checkpoint_and_commit(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3, checkpoint=True)
    job.restart()
    assert world.visible == []
    job.epoch()
    assert world.visible == [0, 1, 2]


def test_a_crash_after_the_commit(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3, checkpoint=True)
    job.epoch(3)
    job.restart()
    job.epoch(fates=[Lost(), Killed()])
    assert world.visible == [0, 1, 2]
    assert world.calls.count("commit 0") == 4, "once, and in each run of the epoch"


def test_recovery_comes_after_open_and_once_per_attempt(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3, checkpoint=True)
    job.restart()
    world.calls.clear()
    job.epoch()
    job.epoch()
    assert world.calls == ["open", "commit 0", "open"]


def test_rescaling_recovers_each_transaction_once(world: World) -> None:
    job = SinkEngine(Sink(world), parallelism=2)
    for parallelism in (3, 1, 2):
        job.epoch(5)
        job.epoch(5, checkpoint=True)
        world.calls.clear()
        job.restart(parallelism)
        job.epoch()
        commits = [call for call in world.calls if call.startswith("commit")]
        assert len(commits) == len(set(commits)) > 0
        assert world.visible == list(range(job.position))


def test_a_zombie_of_an_earlier_attempt_does_no_harm(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(3, checkpoint=True)
    job.epoch(3)
    job.restart()
    job.epoch(2)
    for zombie in job.zombies:
        zombie()
    job.finish()
    assert world.visible == list(range(5))


def test_a_job_without_checkpoints_commits_accepted_epochs(world: World) -> None:
    job = SinkEngine(Sink(world), checkpoints=False)
    job.epoch(2, fates=[Lost()])
    assert world.visible == []
    job.epoch(2, fates=[Lost(), Killed(1)])
    assert world.visible == [0, 1]
    job.finish()
    assert world.visible == [0, 1, 2, 3]


def test_what_no_checkpoint_contains_is_aborted_at_the_end(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(2, checkpoint=True)
    job.epoch(2)
    job.epoch(2, checkpoint=True, complete=False)
    job.epoch(close=True)
    assert world.visible == [0, 1]
    assert world.aborted == {1, 2}
    assert not world.prepared


def test_a_failing_commit_fails_the_job_and_others_are_committed(world: World) -> None:
    job = SinkEngine(Sink(world))
    job.epoch(1)
    job.epoch(1, checkpoint=True)
    world.failures = 1
    with pytest.raises(OperatorFailed, match="the outside world is away"):
        job.epoch()
    assert world.visible == [1]
    job.restart()
    job.epoch()
    assert world.visible == [0, 1]


def test_a_failing_recovery_fails_the_job_each_time(world: World) -> None:
    sink = Sink(world).set_transaction_timeout(10)
    job = SinkEngine(sink)
    job.epoch(1, checkpoint=True)
    for _ in range(2):
        job.restart()
        world.failures = 1
        with pytest.raises(OperatorFailed, match=r"(?s)away.* in recover_and_commit\(\)") as raised:
            job.epoch()
        cause = raised.value.__cause__
        assert isinstance(cause, ConnectionError)
        assert cause.__notes__ == [
            "Sink could not commit the transaction 0 of the checkpoint that the job starts from"
        ]
    world.failures = 0
    job.epoch()
    assert world.visible == [0]


def test_failures_after_the_timeout_can_be_ignored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(world).set_transaction_timeout(1000).ignore_failures_after_transaction_timeout()
    job = SinkEngine(sink)
    job.epoch(1, checkpoint=True)
    job.restart()
    job.clock.advance(1000)
    world.failures = 1
    with pytest.raises(OperatorFailed):
        job.epoch()
    job.clock.advance(1)
    world.failures = 1
    job.epoch()
    assert "could not commit the transaction 0, begun 1001 ms ago with a timeout" in caplog.text
    assert world.visible == []
    job.epoch(1)
    job.finish()
    assert world.visible == [1]


def test_a_late_commit_is_warned_of(world: World, caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink(world).set_transaction_timeout(1000).enable_transaction_timeout_warnings(0.5)
    job = SinkEngine(sink)
    job.epoch(1, checkpoint=True)
    job.clock.advance(500)
    job.epoch(1, checkpoint=True)
    assert not caplog.records
    job.clock.advance(501)
    job.epoch()
    assert "the transaction 1 was committed 501 ms after it was begun" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING
    with pytest.raises(ValueError, match="warning_ratio must be from 0 to 1; got 2"):
        sink.enable_transaction_timeout_warnings(2)


def test_a_transaction_is_not_none(world: World) -> None:
    class Nothing(Sink):
        def begin_transaction(self) -> Any:
            return None

    with pytest.raises(TypeError, match=r"Nothing.begin_transaction returned None"):
        SinkEngine(Nothing(world)).epoch(1)


class Overriding(Sink):
    """Has its own part in everything that a sink is told."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.saved = store.get_list_state(ListStateDescriptor("seen", int))
        self.seen = sum(self.saved.get())

    def invoke(self, transaction: int, value: Any, context: SinkFunction.Context) -> None:
        super().invoke(transaction, value, context)
        self.seen += 1

    def end_epoch(self) -> None:
        self.world.calls.append(f"epoch {len(self.pending_transactions())}")

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.saved.update([self.seen])
        self.world.calls.append(f"snapshot {len(self.pending_transactions())}")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.world.calls.append(f"complete {len(self.pending_transactions())}")

    def close(self) -> None:
        self.world.calls.append(f"close {self.seen}")


class CallingSuper(Overriding):
    """As Flink asks for, and earlier versions did."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        TwoPhaseCommitSinkFunction.initialize_state(self, context)
        super().initialize_state(context)

    def end_epoch(self) -> None:
        TwoPhaseCommitSinkFunction.end_epoch(self)
        super().end_epoch()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        TwoPhaseCommitSinkFunction.snapshot_state(self, context)
        super().snapshot_state(context)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        TwoPhaseCommitSinkFunction.notify_checkpoint_complete(self, checkpoint_id)
        super().notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        TwoPhaseCommitSinkFunction.close(self)
        super().close()


@pytest.mark.parametrize("kind", [Overriding, CallingSuper])
@pytest.mark.parametrize("stays", [True, False])
def test_a_sink_may_have_its_own_part_in_everything(
    world: World, kind: type[Sink], stays: bool
) -> None:
    job = SinkEngine(kind(world), stays=stays)
    job.epoch(2, checkpoint=True)
    job.epoch(3, checkpoint=True)
    job.restart()
    job.epoch(1, checkpoint=True)
    job.epoch(close=True)
    assert world.visible == list(range(6))
    told = [call for call in world.calls if call != "open"]
    assert told == [
        *("epoch 0", "snapshot 1", "commit 0", "complete 0", "epoch 0", "snapshot 1"),
        *("commit 1", "epoch 0", "snapshot 1", "commit 2", "complete 0", "epoch 0", "close 6"),
    ]


def test_a_transaction_that_cannot_be_carried_fails_the_epoch(world: World) -> None:
    """Otherwise another process would go on without it."""

    class Attached(Sink):
        def begin_transaction(self) -> Any:
            transaction: Any = (number for number in ())
            self.world.open[transaction] = []
            return transaction

    job = SinkEngine(Attached(world), checkpoints=False)
    with pytest.raises(OperatorFailed, match="Attached: after pre_commit a transaction must be pi"):
        job.epoch(1)


class Contexts(Sink):
    """Notes what it is given at the beginning of an attempt."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        subtask = runtime_context.get_index_of_this_subtask()
        self.name = f"{runtime_context.get_attempt_number()}/{subtask}"

    def initialize_user_context(self) -> str:
        return self.name

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        self.world.calls.append(f"{self.name}: {contexts} {transactions}")

    def invoke(self, transaction: int, value: Any, context: SinkFunction.Context) -> None:
        assert self.get_user_context() == self.name
        super().invoke(transaction, value, context)


def test_every_subtask_learns_what_all_had(world: World) -> None:
    job = SinkEngine(Contexts(world), parallelism=2)
    job.epoch(4)
    job.epoch(4, checkpoint=True)
    job.epoch(2)
    job.restart(3)
    world.calls.clear()
    job.epoch(3)
    told = [call for call in world.calls if ":" in call]
    assert told == [f"1/{i}: ['0/0', '0/1'] [0, 2, 1, 3]" for i in range(3)]
    job.epoch(3)
    assert [call for call in world.calls if ":" in call] == told


def test_a_user_context_may_be_missing(world: World) -> None:
    class Nameless(Contexts):
        def initialize_user_context(self) -> Any:
            return None

        def invoke(self, transaction: int, value: Any, context: SinkFunction.Context) -> None:
            assert self.get_user_context() is None

    job = SinkEngine(Nameless(world))
    job.epoch(1, checkpoint=True)
    job.restart()
    world.calls.clear()
    job.epoch()
    assert "1/0: [] [0]" in world.calls


class Merging(Sink):
    """Makes one transaction out of several when they are given to a checkpoint."""

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        return [tuple(transactions)]

    def commit(self, transaction: Any) -> None:
        assert isinstance(transaction, tuple)
        for part in transaction:
            super().commit(part)

    def abort(self, transaction: Any) -> None:
        for part in transaction if isinstance(transaction, tuple) else (transaction,):
            super().abort(part)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_transactions_can_be_put_together(world: World, checkpoints: bool) -> None:
    job = SinkEngine(Merging(world), checkpoints=checkpoints)
    job.epoch(2)
    job.epoch(2, fates=[Lost()])
    job.epoch(2, checkpoint=checkpoints)
    _, instance = job._living[0]
    assert instance.function.pending_transactions() == ([(0, 2, 3)] if checkpoints else [3])
    job.epoch(1, checkpoint=checkpoints)
    if checkpoints:
        job.restart()
    job.finish()
    assert world.visible == list(range(7))


FATES = st.one_of(
    st.builds(Killed, st.integers(0, 3)), st.builds(Failed, st.integers(0, 3)), st.builds(Lost)
)
EPOCHS = st.fixed_dictionaries(
    {
        "records": st.integers(0, 5),
        "fates": st.lists(FATES, max_size=2),
        "checkpoint": st.booleans(),
        "complete": st.sampled_from([True, False, None]),
        "stay": st.booleans(),
    }
)
RESTARTS = st.builds(lambda parallelism: parallelism, st.integers(1, 3))
ZOMBIES = st.builds(lambda number: f"zombie {number}", st.integers(0, 20))
HISTORIES = st.lists(st.one_of(EPOCHS, EPOCHS, EPOCHS, RESTARTS, ZOMBIES), max_size=15)


@settings(max_examples=200, deadline=None)
@given(history=HISTORIES, parallelism=st.integers(1, 3), kind=st.sampled_from([Sink, Merging]))
def test_any_history_shows_each_record_once(
    history: list[Any], parallelism: int, kind: type[Sink]
) -> None:
    world = World()
    job = SinkEngine(kind(world), parallelism)
    for event in history:
        if isinstance(event, int):
            job.restart(event)
        elif isinstance(event, str):
            number = int(event.split()[1])
            for zombie in job.zombies[number : number + 1]:
                zombie()
        else:
            job.epoch(**event)
        shown = world.visible
        assert len(shown) == len(set(shown)), "nothing is seen twice"
        assert set(shown) <= set(range(job.completed.position)), "nothing is seen too early"
    job.finish()
    assert world.visible == list(range(job.position)), "nothing is lost"


@settings(max_examples=50, deadline=None)
@given(history=st.lists(EPOCHS, max_size=10), parallelism=st.integers(1, 3))
def test_any_history_without_checkpoints(history: list[Any], parallelism: int) -> None:
    world = World()
    job = SinkEngine(Sink(world), parallelism, checkpoints=False)
    for event in history:
        before = job.position
        job.epoch(**event | {"checkpoint": False})
        assert world.visible == list(range(before))
    job.finish()
    assert world.visible == list(range(job.position))
