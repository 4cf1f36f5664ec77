"""Savepoints, and where a job begins: from which checkpoint, with which operators."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.errors import CheckpointError, DirectoryInUseError
from holdfast.checkpoint.events import CheckpointStatus
from holdfast.checkpoint.savepoints import dispose_savepoint, read_savepoint
from holdfast.checkpoint.store import CheckpointStore
from holdfast.datastream import DataStream, MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.errors import (
    HoldfastError,
    JobDefinitionError,
    JobExecutionError,
    UserFunctionError,
)
from holdfast.filesystem import arrow, file_system_of
from holdfast.filesystem.lease import Lease, LeaseTimes
from holdfast.testing import LocalExecutor
from tests.conftest import S3, Store
from tests.recovery.programs import (
    BOARD,
    NUMBERS,
    Alarms,
    Keeper,
    Ledger,
    Program,
    key_of,
    keyed_model,
    keyed_states,
    read_to,
)

Build = Callable[[StreamExecutionEnvironment], DataStream]
ALL = list(range(NUMBERS))


class Listener(MapFunction, CheckpointListener):
    """Writes down what it is told."""

    def __init__(self, told: Path) -> None:
        self._told = told

    def map(self, value: Any) -> Any:
        return value

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        with self._told.open("a") as file:
            file.write(f"{checkpoint_id} ")


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_source(NumberSequenceSource(0, NUMBERS - 1)).uid("numbers")


def ledger(env: StreamExecutionEnvironment) -> DataStream:
    return numbers(env).key_by(key_of).process(Ledger()).uid("ledger")


def go_on(program: Program, savepoint: str | None, records: list[int], **settings: Any) -> None:
    """Start a program again, with exactly these records behind it, and see it to its end."""
    with program.started(3, savepoint, **settings) as run:
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(records)
        read_to(run, NUMBERS - len(records))
        assert sorted([*records, *run.records]) == ALL
        assert keyed_states(run, "ledger") == keyed_model(ALL)
        run.run_to_end()


def stopped(build: Build, directory: Path, count: int = 80) -> tuple[list[Any], str]:
    """Records and savepoint of a job that was stopped in the middle."""
    with Program(build, directory / "stopped").started(2) as run:
        read_to(run, count)
        savepoint = run.savepoint(directory, stop=True)
    return run.records, savepoint


def listed(run: LocalExecutor) -> list[tuple[int, bool, CheckpointStatus]]:
    return [(record.id, record.savepoint, record.status) for record in run.checkpoints]


# Taking them


def test_a_job_goes_on_after_its_savepoint(tmp_path: Path) -> None:
    program = Program(ledger, tmp_path / "job")
    with program.started(2) as run:
        read_to(run, 40)
        savepoint = run.savepoint(tmp_path)
        assert not run.finished
        before = list(run.records)
        read_to(run, NUMBERS)
        assert keyed_states(run, "ledger") == keyed_model(ALL)
        run.run_to_end()
        assert sorted(run.records) == ALL
    go_on(Program(ledger, tmp_path / "other"), savepoint, before)


def test_recovery_goes_back_to_a_checkpoint_and_not_to_a_savepoint(tmp_path: Path) -> None:
    with Program(ledger, tmp_path).started(2) as run:
        run.epoch(checkpoint=True)
        before = list(run.records)
        run.epoch()
        run.savepoint(tmp_path)
        assert run.recover() == 1
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(before)


def test_listeners_do_not_hear_of_a_savepoint_that_nobody_goes_back_to(tmp_path: Path) -> None:
    told = tmp_path / "told"

    def build(env: StreamExecutionEnvironment) -> DataStream:
        return numbers(env).map(Listener(told)).set_parallelism(1)

    with Program(build, tmp_path).started(1) as run:
        run.savepoint(tmp_path)
        run.epoch(checkpoint=True)
        run.savepoint(tmp_path, stop=True)
    assert told.read_text().split() == ["2", "3"]


def test_a_savepoint_with_the_last_record_is_not_the_last_checkpoint(tmp_path: Path) -> None:
    """Nothing is committed for a savepoint, so there must be a checkpoint after it."""
    told = tmp_path / "told"

    def build(env: StreamExecutionEnvironment) -> DataStream:
        return numbers(env).map(Listener(told)).set_parallelism(1)

    with Program(build, tmp_path).started(1) as run:
        read_to(run, NUMBERS - 10)
        run.savepoint(tmp_path)
        assert len(run.records) == NUMBERS
        run.run_to_end()
        assert listed(run)[-1] == (2, False, CheckpointStatus.COMPLETED)
    assert told.read_text().split() == ["2"]


def test_stopping_leaves_the_rest_for_later(tmp_path: Path) -> None:
    records, savepoint = stopped(ledger, tmp_path)
    assert len(records) < NUMBERS
    go_on(Program(ledger, tmp_path / "again"), savepoint, records)


def test_draining_leaves_nothing_for_later(tmp_path: Path) -> None:
    with Program(ledger, tmp_path / "job").started(2) as run:
        read_to(run, 40)
        read = list(run.records)
        savepoint = run.savepoint(tmp_path, stop=True, drain=True)
        assert run.finished
        assert run.records == read
    for parallelism in (1, 2, 3):
        with Program(ledger, tmp_path / str(parallelism)).started(parallelism, savepoint) as run:
            run.epoch()
            assert keyed_states(run, "ledger") == keyed_model(read)
            run.run_to_end()
            assert run.records == []


@pytest.mark.parametrize("drain", [True, False])
def test_timers_fire_when_a_job_is_drained(tmp_path: Path, drain: bool) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        return numbers(env).key_by(key_of).process(Alarms())

    with Program(build, tmp_path / "job").started(2) as run:
        read_to(run, 20)
        savepoint = run.savepoint(tmp_path, stop=True, drain=drain)
    read = [record for record in run.records if isinstance(record, int)]
    alarms = [record for record in run.records if record not in read]
    assert sorted(number for _, _, number in alarms) == (sorted(read) if drain else [])
    with Program(build, tmp_path / "again").started(3, savepoint) as run:
        run.run_to_end()
    rest = [number for number in ALL if number not in read]
    assert [r for r in run.records if r in read] == []
    assert len(run.records) == (0 if drain else len(rest) + NUMBERS)


def test_without_checkpoints_there_are_savepoints(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        return ledger(StreamExecutionEnvironment().set_parallelism(env.get_parallelism()))

    records, savepoint = stopped(build, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [Path(savepoint).name]
    go_on(Program(ledger, tmp_path / "again"), savepoint, records)


def test_the_configured_directory(tmp_path: Path) -> None:
    settings = {"execution.checkpointing.savepoint-dir": (tmp_path / "points").as_uri()}
    with Program(ledger, tmp_path / "job").started(2, settings=settings) as run:
        savepoint = Path(run.savepoint())
    assert savepoint.parent == tmp_path / "points"
    assert (savepoint / "_metadata").is_file()


# When there is none


def test_no_directory(tmp_path: Path) -> None:
    with Program(ledger, tmp_path).started(2) as run:
        message = (
            "a savepoint needs a directory: name one, or set "
            "'execution.checkpointing.savepoint-dir'"
        )
        with pytest.raises(CheckpointError, match=message):
            run.savepoint()
        run.run_to_end()
        assert sorted(run.records) == ALL


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Program(ledger, tmp_path / "job").started(2) as run:
        with pytest.raises(CheckpointError, match=r"there is no savepoint: cannot write .*file"):
            run.savepoint(tmp_path / "file", stop=True)
        # the job does not stop without its savepoint
        assert not run.finished
        run.run_to_end()
        assert sorted(run.records) == ALL


def test_an_ended_job(tmp_path: Path) -> None:
    with Program(ledger, tmp_path / "job").started(2) as run:
        run.run_to_end()
        with pytest.raises(JobExecutionError, match="has finished; it has no more epochs"):
            run.savepoint(tmp_path)
    assert not list(tmp_path.glob("savepoint*"))


class Stubborn(MapFunction, CheckpointedFunction):
    """Cannot be saved with its first checkpoint; fails at a number."""

    def map(self, value: int) -> int:
        if value == 17:
            msg = "cannot stand it"
            raise ValueError(msg)
        return value

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if context.get_checkpoint_id() == 1:
            msg = "not now"
            raise RuntimeError(msg)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass


def test_a_snapshot_that_fails(tmp_path: Path) -> None:
    with Program(lambda env: numbers(env).map(Stubborn()), tmp_path / "job").started(1) as run:
        with pytest.raises(CheckpointError, match=r"there is no savepoint: .*'Map': .*not now"):
            run.savepoint(tmp_path, stop=True)
        assert listed(run) == [(1, True, CheckpointStatus.FAILED)]
        assert run.records == list(range(10)), "its epoch is kept"
        with pytest.raises(UserFunctionError, match="cannot stand it"):
            run.savepoint(tmp_path, stop=True)
    assert not list(tmp_path.glob("savepoint*"))


def test_a_drained_job_cannot_go_on_without_its_savepoint(tmp_path: Path) -> None:
    with Program(lambda env: numbers(env).map(Stubborn()), tmp_path / "job").started(1) as run:
        with pytest.raises(JobExecutionError, match=r"drained for a savepoint that failed: .*now"):
            run.savepoint(tmp_path, stop=True, drain=True)
        assert run.recover() is None
        run.epoch()
        assert run.records == list(range(10)), "its sources read on"


# Keeping them


def test_a_savepoint_can_be_moved(tmp_path: Path) -> None:
    records, savepoint = stopped(ledger, tmp_path / "here")
    place = tmp_path / "elsewhere" / "under another name"
    place.parent.mkdir()
    shutil.move(savepoint, place)
    shutil.rmtree(tmp_path / "here")
    go_on(Program(ledger, tmp_path / "a"), str(place), records)
    go_on(Program(ledger, tmp_path / "b"), str(place / "_metadata"), records)
    go_on(Program(ledger, tmp_path / "c"), place.as_uri().replace("%20", " "), records)


def test_dispose(tmp_path: Path) -> None:
    _, savepoint = stopped(ledger, tmp_path)
    dispose_savepoint(savepoint)
    assert not Path(savepoint).exists()
    with pytest.raises(CheckpointError, match=r"there is no savepoint or checkpoint in .*no file"):
        Program(ledger, tmp_path / "again").started(2, savepoint).__enter__()
    # the job that it was of has its own checkpoint, which is nothing to dispose of
    checkpoint = tmp_path / "stopped" / "Holdfast-Streaming-Job" / "chk-1"
    with pytest.raises(CheckpointError, match="is a checkpoint of a job, not a savepoint"):
        dispose_savepoint(checkpoint)
    assert (checkpoint / "_metadata").exists()


def test_a_claimed_savepoint_goes_with_the_first_checkpoint(tmp_path: Path) -> None:
    records, savepoint = stopped(ledger, tmp_path)
    claims = {"execution.state-recovery.claim-mode": "CLAIM"}
    with Program(ledger, tmp_path / "again").started(2, savepoint, claims) as run:
        run.epoch()
        assert run.recover() == 1
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(records)
        assert Path(savepoint).exists(), "it was needed until now"
        run.epoch(checkpoint=True)
        assert not Path(savepoint).exists()
        assert run.recover() == 2
        run.run_to_end()


@pytest.mark.parametrize("mode", ["NO_CLAIM", "LEGACY", None])
def test_a_savepoint_that_is_not_claimed_stays(tmp_path: Path, mode: str | None) -> None:
    records, savepoint = stopped(ledger, tmp_path)
    settings = {} if mode is None else {"execution.state-recovery.claim-mode": mode}
    for start in ("first", "second"):
        go_on(Program(ledger, tmp_path / start), savepoint, records, settings=settings)
    assert read_savepoint(savepoint).metadata.savepoint


# Changed jobs


def with_keeper(env: StreamExecutionEnvironment) -> DataStream:
    kept = numbers(env).process(Keeper()).uid("keeper").name("Keeper")
    return kept.key_by(key_of).process(Ledger()).uid("ledger")


def test_an_operator_is_added(tmp_path: Path) -> None:
    records, savepoint = stopped(ledger, tmp_path)
    go_on(Program(with_keeper, tmp_path / "more"), savepoint, records)
    kept = chain(*BOARD.by_subtask(BOARD.saved, "split"))
    assert sorted([*records, *kept]) == ALL, "it began empty"


def test_an_operator_with_state_is_missing(tmp_path: Path) -> None:
    _, savepoint = stopped(with_keeper, tmp_path)
    program = Program(ledger, tmp_path / "less")
    message = (
        r"savepoint 1 of job '.*' has state of 'Keeper' \(uid keeper\), and this job has no such "
        r"operator; give the operator that should have the state this uid with uid\(...\), or set "
        "'execution.state-recovery.ignore-unclaimed-state' to drop the state"
    )
    with pytest.raises(JobDefinitionError, match=message):
        program.started(2, savepoint).__enter__()


def test_an_operator_with_state_is_left_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records, savepoint = stopped(with_keeper, tmp_path)
    program = Program(ledger, tmp_path / "less")
    settings = {"execution.state-recovery.ignore-unclaimed-state": "true"}
    with program.started(2, savepoint, settings) as run:
        run.epoch()
        again = run.savepoint(tmp_path, stop=True)
        records += run.records
    assert "the state of 'Keeper' (uid keeper) is dropped" in caplog.text
    assert set(read_savepoint(again).metadata.operators) >= {"ledger", "numbers"}
    # what was left behind is not there any more, and not missed either
    go_on(Program(ledger, tmp_path / "later"), again, records)


def test_an_operator_without_state_may_go(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        doubled = numbers(env).map(lambda n: n).uid("for nothing")
        return doubled.key_by(key_of).process(Ledger()).uid("ledger")

    records, savepoint = stopped(build, tmp_path)
    go_on(Program(ledger, tmp_path / "less"), savepoint, records)


def earlier(env: StreamExecutionEnvironment) -> DataStream:
    """The keeper is in the head of the source."""
    return with_keeper(env)


def apart(env: StreamExecutionEnvironment) -> DataStream:
    """It is in no head, but on the same level."""
    kept = numbers(env).process(Keeper()).uid("keeper").disable_chaining()
    return kept.key_by(key_of).process(Ledger()).uid("ledger")


def later(env: StreamExecutionEnvironment) -> DataStream:
    """It is on another level, and so is the ledger."""
    moved = numbers(env).rebalance().map(abs).rebalance()
    kept = moved.process(Keeper()).uid("keeper")
    return kept.key_by(key_of).process(Ledger()).uid("ledger")


def behind(env: StreamExecutionEnvironment) -> DataStream:
    """It is in the head of the ledger, behind it."""
    return ledger(env).process(Keeper()).uid("keeper")


def beside(env: StreamExecutionEnvironment) -> DataStream:
    """It is on the level of the ledger, with another parallelism."""
    source = numbers(env)
    source.process(Keeper()).uid("keeper").set_parallelism(5)
    return source.key_by(key_of).process(Ledger()).uid("ledger")


PLACES = [earlier, apart, later, behind, beside]


@pytest.mark.parametrize("after", PLACES)
@pytest.mark.parametrize("before", PLACES)
def test_operators_are_found_by_uid_wherever_they_are(
    tmp_path: Path, before: Build, after: Build
) -> None:
    records, savepoint = stopped(before, tmp_path)
    go_on(Program(after, tmp_path / "moved"), savepoint, records)
    kept = chain(*BOARD.by_subtask(BOARD.saved, "split"))
    assert sorted(kept) == ALL
    # and in the job's own directory, without a savepoint
    go_on(Program(after, tmp_path / "stopped"), None, records)
    kept = chain(*BOARD.by_subtask(BOARD.saved, "split"))
    assert sorted(kept) == ALL


def test_an_operator_without_uid_is_found_by_its_place(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        return numbers(env).key_by(key_of).process(Ledger()).name("ledger")

    def longer(env: StreamExecutionEnvironment) -> DataStream:
        longer = numbers(env).map(abs).key_by(key_of)
        return longer.process(Ledger()).name("ledger")

    records, savepoint = stopped(build, tmp_path)
    go_on(Program(build, tmp_path / "same"), savepoint, records)
    with pytest.raises(JobDefinitionError, match=r"has state of 'ledger' \(uid .*\), and this job"):
        Program(longer, tmp_path / "longer").started(2, savepoint).__enter__()


# Where a job begins


def ids(run: LocalExecutor) -> list[int]:
    return [record.id for record in run.checkpoints]


def test_ids_go_on_over_restarts_and_savepoints(tmp_path: Path) -> None:
    program = Program(ledger, tmp_path / "job")
    with program.started(2) as run:
        run.epoch(checkpoint=True)
        run.savepoint(tmp_path)
        run.epoch(checkpoint=True)
        run.recover()
        run.epoch(checkpoint=True)
        assert ids(run) == [1, 2, 3, 4]
    with program.started(3) as run:
        savepoint = run.savepoint(tmp_path, stop=True)
        assert ids(run) == [5]
    # in a directory of its own
    with Program(ledger, tmp_path / "other").started(2, savepoint) as run:
        run.epoch(checkpoint=True)
        assert ids(run) == [6]
    # in a directory that has later ones
    with program.started(2) as run:
        run.epoch(checkpoint=True)
        run.epoch(checkpoint=True)
        assert ids(run) == [6, 7]
    with program.started(2, savepoint) as run:
        run.epoch(checkpoint=True)
        assert ids(run) == [8]


def test_an_id_that_was_given_is_not_given_again(tmp_path: Path) -> None:
    """A checkpoint that was begun and killed may have left its id in places outside the job."""
    program = Program(lambda env: ledger(env).map(Stubborn()), tmp_path / "job")
    tolerant = {"execution.checkpointing.tolerable-failed-checkpoints": "5"}
    with program.started(2, settings=tolerant) as run:
        run.epoch(checkpoint=True)
        assert listed(run) == [(1, False, CheckpointStatus.FAILED)]
    with program.started(2, settings=tolerant) as run:
        run.epoch(checkpoint=True)
        assert listed(run) == [(2, False, CheckpointStatus.COMPLETED)]


def test_a_start_from_a_savepoint_is_not_mixed_with_older_checkpoints(tmp_path: Path) -> None:
    records, savepoint = stopped(ledger, tmp_path)
    program = Program(ledger, tmp_path / "job")
    with program.started(2) as run:
        run.epoch(checkpoint=True)
    with program.started(2, savepoint) as run:
        run.epoch()
        assert run.recover() == 1, "the savepoint, not the checkpoint of the same directory"
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(records)
        run.epoch(checkpoint=True)
        records += run.records[-20:]
    go_on(program, None, records)


def test_start_afresh(tmp_path: Path) -> None:
    program = Program(ledger, tmp_path)
    with program.started(2) as run:
        run.epoch(checkpoint=True)
    with program.started(2, settings={"holdfast.start-afresh": "true"}) as run:
        assert keyed_states(run, "ledger") == keyed_model([])
        run.epoch()
        assert run.recover() is None, "not the checkpoint that was not wanted"
        run.records.clear()
        run.epoch(checkpoint=True)
        assert ids(run) == [2]
        assert sorted(run.records) == [*range(10), *range(90, 100)]
        records = list(run.records)
    go_on(program, None, records)


@pytest.mark.parametrize("claim", ["CLAIM", "NO_CLAIM"])
def test_a_job_that_died_goes_on_though_it_is_told_again_where_to_begin(
    tmp_path: Path, claim: str
) -> None:
    records, savepoint = stopped(ledger, tmp_path)
    program = Program(ledger, tmp_path / "job")
    settings = {"execution.state-recovery.claim-mode": claim}
    with program.started(2, savepoint, settings) as run:
        run.epoch()
    with program.started(2, savepoint, settings) as run:  # there is no checkpoint since
        run.epoch(checkpoint=True)
        records += run.records
    with program.started(2, savepoint, settings) as run:
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(records)
        run.epoch(checkpoint=True)
        records += run.records
    go_on(program, savepoint, records, settings=settings)


def test_a_job_that_died_after_a_fresh_start_goes_on(tmp_path: Path) -> None:
    program, afresh = Program(ledger, tmp_path), {"holdfast.start-afresh": "true"}
    with program.started(2) as run:
        run.epoch(checkpoint=True)
    with program.started(2, settings=afresh) as run:
        run.epoch(checkpoint=True)
        records = list(run.records)
    go_on(program, None, records, settings=afresh)


@pytest.mark.parametrize("end", ["cancelled", "told nothing", "told otherwise"])
def test_whoever_tells_a_job_again_where_to_begin_is_obeyed(tmp_path: Path, end: str) -> None:
    """If the job has not died meanwhile, but was ended, or run in another way."""
    records, savepoint = stopped(ledger, tmp_path)
    program = Program(ledger, tmp_path / "job")
    keep = {
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    with program.started(2, savepoint, keep) as run:
        run.epoch(checkpoint=True)
        if end == "cancelled":
            run.cancel()
    if end == "told nothing":
        with program.started(2) as run:
            run.epoch(checkpoint=True)
    elif end == "told otherwise":
        with program.started(2, settings={"holdfast.start-afresh": "true"}) as run:
            run.epoch(checkpoint=True)
    go_on(program, savepoint, records)


def test_a_savepoint_of_one_file_system_is_restored_on_another(
    tmp_path: Path, store: Store
) -> None:
    with Program(ledger, f"{store.uri}/job").started(2, settings=store.options) as run:
        read_to(run, 60)
        savepoint = run.savepoint(f"{store.uri}/savepoints")
        records = list(run.records)
        assert savepoint.startswith(f"{store.uri}/savepoints/savepoint-")
    other = Program(ledger, tmp_path / "job")
    with other.started(3, savepoint, settings=store.options) as run:
        run.epoch(checkpoint=True)
        records += run.records
        local = run.savepoint(tmp_path / "savepoints")
        records += run.records[len(run.records) - 30 :]
    moved = shutil.move(local, tmp_path / "moved")
    go_on(
        Program(ledger, f"{store.uri}/again"), Path(moved).as_uri(), records, settings=store.options
    )


def test_a_savepoint_that_cannot_go_where_it_should_leaves_the_job_alone(tmp_path: Path) -> None:
    with Program(ledger, tmp_path).started(2) as run:
        with pytest.raises(CheckpointError, match="no savepoint: there is no file system for 'ftp"):
            run.savepoint("ftp://host/x")
        with pytest.raises(CheckpointError, match="no savepoint: cannot connect to 'webhdfs://127"):
            run.savepoint("webhdfs://127.0.0.1:1/x")
        run.run_to_end()
        assert sorted(run.records) == ALL


def test_a_job_whose_directory_another_one_has_taken_fails_and_touches_nothing(s3: S3) -> None:
    settings = {"execution.checkpointing.tolerable-failed-checkpoints": "5", **s3.options}
    home = f"{s3.uri}/job/Holdfast-Streaming-Job"
    with Program(ledger, f"{s3.uri}/job").started(2, settings=settings) as run:
        run.epoch(checkpoint=True)
        store = CheckpointStore(file_system_of(home)[1], file_system_of(home)[0])
        store.state.files.delete(str(store.directory / "lock"))
        other = store.state.files.lock(str(store.directory / "lock"), b"")
        store.state.write("of the other", b"")
        with pytest.raises(DirectoryInUseError, match=f"taken the checkpoint directory '{home}"):
            run.epoch(checkpoint=True)
        with pytest.raises(DirectoryInUseError):
            run.recover()
        assert store.completed() == [1]
        assert other.is_held()
        assert store.state.exists("of the other")
        other.release()


def test_a_job_whose_lock_nobody_renews_fails_with_its_next_epoch(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = LeaseTimes(renewal=0.001, lease=0.01)
    monkeypatch.setattr(arrow, "Lease", partial(Lease, times=quick))
    before = leases()
    with Program(ledger, f"{s3.uri}/job").started(2, settings=s3.options) as run:
        run.epoch()
        (renewing,) = leases() - before
        monkeypatch.setattr(Lease, "renew", _refuse)
        renewing.join(60)
        with pytest.raises(DirectoryInUseError, match="has lost its lock of the checkpoint"):
            run.epoch()


def leases() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "holdfast-lease"}


def _refuse(lease: Lease) -> None:
    raise SystemExit("ended")


@pytest.mark.parametrize(
    ("directory", "problem"),
    [
        ("s3a://no-such-bucket/x", "cannot make checkpoint directory 's3a://no-such-bucket/x/H"),
        ("ftp://host/x", "no file system for 'ftp://host/x'; a path begins with"),
        ("hdfs://nowhere/x", "cannot connect to 'hdfs://nowhere'.*No NameNode hosts"),
    ],
)
def test_a_place_that_is_not_to_be_had_is_told_before_anything_runs(
    s3: S3, directory: str, problem: str
) -> None:
    program = Program(ledger, directory)
    with (
        pytest.raises((HoldfastError, ValueError), match=problem),
        program.started(2, settings=s3.options),
    ):
        pass


def test_a_retained_checkpoint_is_named(tmp_path: Path) -> None:
    settings = {"execution.checkpointing.num-retained": "3"}
    program = Program(ledger, tmp_path / "job")
    records: list[list[int]] = []
    with program.started(2, settings=settings) as run:
        for _ in range(3):
            run.epoch(checkpoint=True)
            records.append(list(run.records))
    folder = tmp_path / "job" / "Holdfast-Streaming-Job"
    # in another directory
    other = Program(ledger, tmp_path / "other")
    go_on(other, str(folder / "chk-2"), records[1], settings=settings)
    assert (folder / "chk-2" / "_metadata").exists(), "it belongs to the other job"
    # in its own: those after it are passed over, and go when there is a new one
    with program.started(2, str(folder / "chk-1"), settings) as run:
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(records[0])
        assert run.recover() == 1
        run.epoch(checkpoint=True)
        assert ids(run) == [4]
        newest = [*records[0], *run.records]
    assert {path.name for path in folder.glob("chk-*")} == {"chk-1", "chk-4"}
    go_on(program, None, newest, settings=settings)


def test_a_stopped_job_goes_on(tmp_path: Path) -> None:
    records, _ = stopped(ledger, tmp_path)
    go_on(Program(ledger, tmp_path / "stopped"), None, records)


def test_a_finished_job_begins_anew(tmp_path: Path) -> None:
    program = Program(ledger, tmp_path)
    for first in (1, 2):
        with program.started(2) as run:
            run.run_to_end()
            assert sorted(run.records) == ALL
            assert ids(run) == [first]
    assert not list(tmp_path.glob("*/state/*")), "and leaves nothing behind"


@pytest.mark.parametrize("retained", [True, False])
def test_a_cancelled_job_goes_on_if_its_checkpoints_are_retained(
    tmp_path: Path, retained: bool
) -> None:
    kind = "RETAIN_ON_CANCELLATION" if retained else "DELETE_ON_CANCELLATION"
    settings = {"execution.checkpointing.externalized-checkpoint-retention": kind}
    program = Program(ledger, tmp_path)
    with program.started(2, settings=settings) as run:
        run.epoch(checkpoint=True)
        saved = list(run.records)
        run.epoch()
        run.cancel()
        assert run.finished
    assert bool(list(tmp_path.glob("*/chk-*/_metadata"))) == retained
    go_on(program, None, saved if retained else [], settings=settings)


def test_a_savepoint_outlives_a_cancelled_job(tmp_path: Path) -> None:
    with Program(ledger, tmp_path / "job").started(2) as run:
        run.epoch()
        savepoint = run.savepoint(tmp_path)
        records = list(run.records)
        run.epoch(checkpoint=True)
        run.cancel()
    go_on(Program(ledger, tmp_path / "job"), savepoint, records)


def test_a_job_that_is_not_there(tmp_path: Path) -> None:
    program = Program(ledger, tmp_path / "job")
    with pytest.raises(CheckpointError, match=r"there is no savepoint or checkpoint in .*nowhere"):
        program.started(2, str(tmp_path / "nowhere")).__enter__()
    # the failed start has left no lock behind
    go_on(program, None, [])
