"""A job goes on with another parallelism: all its state is there, each piece of it once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream import DataStream, DataStreamUtils, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSource, StreamFormat
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.errors import JobDefinitionError
from holdfast.testing import LocalExecutor, ScriptedSource
from tests.recovery.programs import (
    BOARD,
    EVERYTHING,
    NUMBERS,
    Alarms,
    BufferingSink,
    Counter,
    Keeper,
    Ledger,
    ListKeeper,
    Program,
    Slices,
    key_of,
    keyed_model,
    keyed_states,
    read_to,
)

PARALLELISMS = (1, 2, 3, 5, 8)
PAIRS = list(product(PARALLELISMS, PARALLELISMS))
THRESHOLD = 7

every_pair = pytest.mark.parametrize(("before", "after"), PAIRS)
both_origins = pytest.mark.parametrize("origin", ["savepoint", "checkpoint"])


class Story:
    """A program that is cut off and goes on, again and again."""

    def __init__(
        self, build: Callable[[StreamExecutionEnvironment], DataStream], directory: Path
    ) -> None:
        self._build = build
        self._directory = directory
        self._program = Program(build, directory / "0")
        self._savepoint: str | None = None
        self._cuts = 0
        #: the records of all runs, each up to where it was cut off
        self.records: list[Any] = []
        BOARD.flushed.clear()

    def started(
        self, parallelism: int, quota: int = 10, backend: str = "hashmap"
    ) -> AbstractContextManager[LocalExecutor]:
        """The next run."""
        settings = {
            "state.backend.type": backend,
            "state.backend.rocksdb.localdir": str(self._directory / "local"),
        }
        return self._program.started(parallelism, self._savepoint, settings, quota)

    def cut(self, run: LocalExecutor, origin: str) -> None:
        """End a run: with a savepoint; or by a kill, some records after its last checkpoint."""
        self._cuts += 1
        if origin == "savepoint":
            self._savepoint = run.savepoint(self._directory / "savepoints", stop=True)
            self.records += run.records
            # a savepoint needs nothing of the job that took it
            shutil.rmtree(self._program.directory, ignore_errors=True)
            self._program = Program(self._build, self._directory / str(self._cuts))
        else:
            run.epoch(checkpoint=True)
            self._savepoint = None
            self.records += run.records
            written = len(BOARD.flushed)
            read_to(run, len(run.records) + 10)
            run.close()
            del BOARD.flushed[written:]


# Keyed state


def ledger(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1))
    return numbers.key_by(key_of).process(Ledger()).uid("ledger")


@every_pair
@both_origins
def test_keyed_state(tmp_path: Path, before: int, after: int, origin: str) -> None:
    story = Story(ledger, tmp_path)
    with story.started(before) as run:
        read_to(run, 80)
        story.cut(run, origin)
    with story.started(after) as run:
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(story.records)
        read_to(run, NUMBERS - len(story.records))
        assert sorted(story.records + run.records) == list(range(NUMBERS))
        assert keyed_states(run, "ledger") == keyed_model(list(range(NUMBERS)))
        run.run_to_end()


@both_origins
@pytest.mark.parametrize(
    "backends",
    [("rocksdb", "rocksdb"), ("rocksdb", "hashmap"), ("hashmap", "rocksdb")],
    ids=" to ".join,
)
def test_keyed_state_and_timers_with_another_backend(
    tmp_path: Path, backends: tuple[str, str], origin: str
) -> None:
    story = Story(ledger_and_alarms, tmp_path)
    with story.started(2, backend=backends[0]) as run:
        read_to(run, 80)
        story.cut(run, origin)
    with story.started(3, backend=backends[1]) as run:
        run.epoch(quota=0)
        before = [record for record in story.records if isinstance(record, int)]
        assert keyed_states(run, "ledger") == keyed_model(before)
        run.run_to_end()
        after = [record for record in run.records if isinstance(record, int)]
        assert sorted(before + after) == list(range(NUMBERS))
        last = [record for record in run.records if record not in after]
        timed = sorted((record for record in last if record[0] == "event time"), key=str)
        assert timed == sorted(fired("event time", range(NUMBERS)), key=str)


def ledger_and_alarms(env: StreamExecutionEnvironment) -> DataStream:
    return ledger(env).key_by(key_of).process(Alarms()).uid("alarms")


def alarms(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1))
    return numbers.key_by(key_of).process(Alarms())


def fired(kind: str, numbers: Iterable[int]) -> list[tuple[str, Any, int]]:
    return [(kind, key_of(number), number) for number in sorted(numbers)]


@every_pair
@both_origins
def test_timers(tmp_path: Path, before: int, after: int, origin: str) -> None:
    story = Story(alarms, tmp_path)
    with story.started(before) as run:
        read_to(run, 80)
        story.cut(run, origin)
    with story.started(after) as run:
        run.epoch(quota=0)
        assert run.records == []
        run.clock.advance("1 min")
        run.epoch(quota=0)
        assert sorted(run.records, key=lambda r: r[2]) == fired("processing time", story.records)
        run.records.clear()
        run.run_to_end()
        read = [record for record in run.records if isinstance(record, int)]
        assert sorted(story.records + read) == list(range(NUMBERS))
        last = sorted((r for r in run.records if r not in read), key=lambda r: (r[0], r[2]))
        assert last == fired("event time", range(NUMBERS)) + fired("processing time", read)


# Operator state


def keepers(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1))
    kept = numbers.process(Keeper()).process(ListKeeper())
    kept.add_sink(BufferingSink(THRESHOLD))
    return kept


def check_dealt(before: list[list[Any]], after: list[list[Any]]) -> None:
    """All elements in their order, in shares as even as can be; as they were if nothing changed."""
    assert list(chain(*after)) == list(chain(*before))
    if len(after) == len(before):
        assert after == before
    else:
        sizes = {len(share) for share in after}
        assert max(sizes) - min(sizes) <= 1


def check_operator_state(saved: dict[tuple[str, int], Any], after: int) -> None:
    """What was given to the new subtasks is what the old ones had saved."""

    def old(kind: str) -> list[Any]:
        return BOARD.by_subtask(saved, kind)

    def new(kind: str) -> list[Any]:
        return BOARD.by_subtask(BOARD.restored, kind)

    assert new("is restored") == [True] * after
    for kind in ("split", "raw", "list checkpointed", "buffered"):
        assert len(new(kind)) == after
        check_dealt(old(kind), new(kind))
    assert new("union") == [list(chain(*old("union")))] * after
    assert new("broadcast") == [old("broadcast")[0]] * after


@every_pair
@both_origins
def test_operator_state(tmp_path: Path, before: int, after: int, origin: str) -> None:
    story = Story(keepers, tmp_path)
    with story.started(before) as run:
        read_to(run, 80)
        story.cut(run, origin)
        saved = dict(BOARD.saved)
    with story.started(after) as run:
        run.epoch(quota=0)
        check_operator_state(saved, after)
        run.run_to_end()
        assert sorted(story.records + run.records) == list(range(NUMBERS))
    for kind in ("split", "list checkpointed"):
        last = BOARD.by_subtask(BOARD.saved, kind)
        assert sorted(chain(*last)) == list(range(NUMBERS))
    waiting = chain(*BOARD.by_subtask(BOARD.saved, "buffered"))
    assert sorted([*BOARD.flushed, *waiting]) == list(range(NUMBERS))


# Positions of sources


def sequence(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    return env.from_source(NumberSequenceSource(0, NUMBERS - 1))


def collection(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    return env.from_collection(range(NUMBERS)).set_parallelism(env.get_parallelism())


def files(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    for number in range(9):
        lines = [f"{line}\n" for line in range(number * 20, number * 20 + 20)]
        (folder / f"{number}.txt").write_text("".join(lines))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
    return env.from_source(source.build()).map(int)


def function(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    return env.add_source(Counter(NUMBERS)).map(abs)


def parallel_function(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    return env.add_source(Slices(NUMBERS))


def parallel_function_with_union(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    return env.add_source(Slices(NUMBERS, union=True))


SOURCES = [
    sequence,
    collection,
    files,
    function,
    parallel_function,
    parallel_function_with_union,
]


@pytest.mark.parametrize("source", SOURCES)
@every_pair
@both_origins
def test_sources(tmp_path: Path, source: Any, before: int, after: int, origin: str) -> None:
    (tmp_path / "in").mkdir()
    story = Story(lambda env: source(env, tmp_path / "in"), tmp_path)
    with story.started(before) as run:
        read_to(run, 80)
        story.cut(run, origin)
        assert len(story.records) < NUMBERS, "it was cut off in the middle"
    with story.started(after) as run:
        read_to(run, EVERYTHING)
    assert sorted(story.records + run.records) == list(range(NUMBERS))


@pytest.mark.parametrize("source", SOURCES)
def test_sources_that_have_ended_stay_so(tmp_path: Path, source: Any) -> None:
    (tmp_path / "in").mkdir()
    program = Program(lambda env: source(env, tmp_path / "in"), tmp_path / "0")
    with program.started(3) as run:
        read_to(run, NUMBERS)
        savepoint = run.savepoint(tmp_path)
    for parallelism in PARALLELISMS:
        again = Program(program.build, tmp_path / str(parallelism))
        with again.started(parallelism, savepoint) as run:
            read_to(run, EVERYTHING)
            assert run.records == []


def test_state_of_a_source_subtask_that_has_ended_outlives_two_restarts(tmp_path: Path) -> None:
    """Its loop does not run again, and so cannot say again what is in its state."""
    story = Story(lambda env: env.add_source(Slices(33, union=True)), tmp_path)
    with story.started(2) as run:
        # the subtask of the slices 0 and 22 has one to go, or that of 11 has ended
        read_to(run, 32)
        story.cut(run, "savepoint")
    with story.started(2) as run:
        story.cut(run, "savepoint")
    with story.started(3) as run:
        read_to(run, EVERYTHING)
        assert sorted(story.records + run.records) == list(range(33))


# Again and again


def everything(env: StreamExecutionEnvironment, folder: Path) -> DataStream:
    """All kinds of state in one job; three sources of 180 numbers each."""
    numbers = env.from_source(NumberSequenceSource(NUMBERS, 2 * NUMBERS - 1))
    more = env.add_source(Slices(NUMBERS, first=2 * NUMBERS))
    all_numbers = files(env, folder).union(numbers, more)
    kept = all_numbers.key_by(key_of).process(Ledger()).uid("ledger").process(Keeper())
    kept.process(ListKeeper()).add_sink(BufferingSink(THRESHOLD))
    return kept


@settings(max_examples=10, deadline=None)
@given(
    runs=st.lists(
        st.tuples(
            st.sampled_from(PARALLELISMS),
            st.integers(0, 30),
            st.sampled_from(["savepoint", "checkpoint"]),
        ),
        min_size=2,
        max_size=4,
    ),
    last=st.sampled_from(PARALLELISMS),
)
def test_again_and_again(runs: list[tuple[int, int, str]], last: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "in")
        folder.mkdir()
        story = Story(lambda env: everything(env, folder), Path(name))
        saved: dict[tuple[str, int], Any] = {}
        for parallelism, count, origin in runs:
            with story.started(parallelism, quota=2) as run:
                if saved:
                    run.epoch(quota=0)
                    assert keyed_states(run, "ledger") == keyed_model(story.records)
                    check_operator_state(saved, parallelism)
                read_to(run, count)
                story.cut(run, origin)
                saved = dict(BOARD.saved)
        with story.started(last) as run:
            read_to(run, 3 * NUMBERS - len(story.records))
            assert keyed_states(run, "ledger") == keyed_model(list(range(3 * NUMBERS)))
            read_to(run, EVERYTHING)
        assert sorted(story.records + run.records) == list(range(3 * NUMBERS))
        waiting = chain(*BOARD.by_subtask(BOARD.saved, "buffered"))
        assert sorted([*BOARD.flushed, *waiting]) == list(range(3 * NUMBERS))


# Parallelism and max parallelism of single operators


@pytest.mark.parametrize(
    ("before", "after"), [((2, 5), (3, 1)), ((5, 2), (1, 8)), ((8, 1), (8, 3)), ((1, 1), (2, 7))]
)
@both_origins
def test_two_operators_of_one_level(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int], origin: str
) -> None:
    widths = before

    def build(env: StreamExecutionEnvironment) -> DataStream:
        numbers = env.from_source(NumberSequenceSource(0, NUMBERS - 1)).set_parallelism(2)
        keyed = numbers.key_by(key_of)
        one = keyed.process(Ledger()).uid("one").set_parallelism(widths[0])
        other = keyed.process(Ledger()).uid("other").set_parallelism(widths[1])
        other.set_max_parallelism(16)
        return one.union(other)

    story = Story(build, tmp_path)
    with story.started(2) as run:
        read_to(run, 160)
        story.cut(run, origin)
    widths = after
    with story.started(2) as run:
        assert run.plan.levels[1].parallelism == max(after)
        run.epoch(quota=0)
        counted = [number for number in range(NUMBERS) if story.records.count(number) == 2]
        assert len(story.records) == 2 * len(counted)
        for operator in ("one", "other"):
            assert keyed_states(run, operator) == keyed_model(counted)
        read_to(run, 2 * NUMBERS - len(story.records))
        for operator in ("one", "other"):
            assert keyed_states(run, operator) == keyed_model(list(range(NUMBERS)))


def limited(limit: int | None) -> Callable[[StreamExecutionEnvironment], DataStream]:
    """The ledger with a max parallelism, if one is given."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        stream = ledger(env)
        return stream if limit is None else stream.set_max_parallelism(limit)

    return build


def savepoint_of(build: Any, directory: Path) -> tuple[list[int], str]:
    """Records and savepoint of a job that was stopped in the middle."""
    with Program(build, directory / "before").started(2) as run:
        read_to(run, 80)
        savepoint = run.savepoint(directory, stop=True)
    return run.records, savepoint


@pytest.mark.parametrize("saved", [16, 200])
def test_max_parallelism_is_that_of_the_state(tmp_path: Path, saved: int) -> None:
    records, savepoint = savepoint_of(limited(saved), tmp_path)
    with Program(limited(None), tmp_path / "after").started(3, savepoint) as run:
        limits = {op.uid: op.max_parallelism for op in run.plan.operators.values()}
        assert limits["ledger"] == saved
        run.epoch(quota=0)
        assert keyed_states(run, "ledger") == keyed_model(records)
        read_to(run, NUMBERS - len(records))
        assert keyed_states(run, "ledger") == keyed_model(list(range(NUMBERS)))
        # and so in what it saves itself
        again = run.savepoint(tmp_path, stop=True)
    with pytest.raises(JobDefinitionError, match=f"has {saved}, and keys cannot be moved"):
        Program(limited(128), tmp_path / "third").started(1, again).__enter__()


def followed(env: StreamExecutionEnvironment) -> DataStream:
    """The ledger, and a new one behind it that takes the same keys without a shuffle."""
    keyed = DataStreamUtils.reinterpret_as_keyed_stream(ledger(env), key_of)
    return keyed.process(Ledger()).uid("second")


def test_operators_with_other_key_groups_are_set_apart(tmp_path: Path) -> None:
    """The second has no state yet, so it has the key groups of a new operator."""
    records, savepoint = savepoint_of(limited(7), tmp_path)
    with Program(followed, tmp_path / "after").started(2, savepoint) as run:
        places = {op.uid: (op.level, op.max_parallelism) for op in run.plan.operators.values()}
        level, groups = places["ledger"]
        assert (groups, places["second"]) == (7, (level + 1, 128))
        read_to(run, NUMBERS - len(records))
        assert keyed_states(run, "ledger") == keyed_model(list(range(NUMBERS)))
        rest = [number for number in range(NUMBERS) if number not in records]
        assert keyed_states(run, "second") == keyed_model(rest)


def test_another_max_parallelism_is_an_error(tmp_path: Path) -> None:
    _, savepoint = savepoint_of(limited(None), tmp_path)
    message = (
        r"operator 'Process' has max parallelism 64; its state in savepoint 1 of job '.*' has 128, "
        r"and keys cannot be moved between key groups; call set_max_parallelism\(128\)"
    )
    program = Program(limited(64), tmp_path / "after")
    with pytest.raises(JobDefinitionError, match=message):
        program.started(2, savepoint).__enter__()
    # the failed start has left no lock behind
    with Program(limited(128), tmp_path / "after").started(2, savepoint) as run:
        run.run_to_end()


def test_more_subtasks_than_key_groups_is_an_error(tmp_path: Path) -> None:
    _, savepoint = savepoint_of(limited(4), tmp_path)
    message = (
        "operator 'Process' has parallelism 5; its state in savepoint 1 of job '.*' has max "
        "parallelism 4, so it cannot have more subtasks than that; set a parallelism of 4 or less"
    )
    with pytest.raises(JobDefinitionError, match=message):
        Program(limited(None), tmp_path / "after").started(5, savepoint).__enter__()


def test_a_source_that_cannot_be_redistributed_is_an_error(tmp_path: Path) -> None:
    scripts: list[list[int]] = [[1, 2, 3], [4, 5, 6]]

    def build(env: StreamExecutionEnvironment) -> DataStream:
        return env.from_source(ScriptedSource(*scripts)).map(abs)

    with Program(build, tmp_path / "before").started(2) as run:
        run.epoch(quota=1)
        savepoint = run.savepoint(tmp_path, stop=True)
    scripts.append([7])
    message = (
        r"operator 'Source: Source' has parallelism 3; in savepoint 1 of job '.*' it has 2, and "
        r"ScriptedSource cannot continue with another number of subtasks; call set_parallelism\(2\)"
    )
    with pytest.raises(JobDefinitionError, match=message):
        Program(build, tmp_path / "after").started(2, savepoint).__enter__()
