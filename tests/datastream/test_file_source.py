"""Files are dealt out to subtasks by size, and each line is read once, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Duration
from holdfast.datastream import (
    DataStream,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.file_system import FileSource, StreamFormat
from holdfast.datastream.connectors.files.source import FileSourceBuilder, deal
from holdfast.testing import LocalExecutor

Sizes = dict[str, int]
sizes = st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(0, 1000), max_size=30)
parallelisms = st.integers(1, 8)


class WhoReads(MapFunction):
    """Each line with the subtask that has read it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: str) -> tuple[int, str]:
        return self._subtask, value


def builder(folder: Path) -> FileSourceBuilder:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))


def reading(source: FileSourceBuilder, parallelism: int) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    env.enable_checkpointing(1000)
    return env.from_source(source.build()).uid("files").map(WhoReads()).uid("who")


def write(folder: Path, **lines: int) -> list[str]:
    """Write files of so many lines, all of one length; returns all lines."""
    written = []
    for name, count in lines.items():
        texts = [f"{name}-{number:05}" for number in range(count)]
        (folder / name).write_text("".join(f"{text}\n" for text in texts))
        written += texts
    return written


def loads(dealing: Sizes, of: Sizes, parallelism: int) -> list[int]:
    found = Counter(dict.fromkeys(range(parallelism), 0))
    for file, subtask in dealing.items():
        found[subtask] += of.get(file, 0)
    return sorted(found.values())


@given(sizes, parallelisms)
def test_no_subtask_has_much_more_to_read_than_it_must(of: Sizes, parallelism: int) -> None:
    """The bound of dealing the largest first: 4/3 of the best that there is."""
    dealing = deal(list(of.items()), parallelism, {}, {})
    assert dealing.keys() == of.keys()
    best = max(max(of.values(), default=0), -(-sum(of.values()) // parallelism))
    if len(of) > parallelism:  # two of these have to share a subtask
        ordered = sorted(of.values(), reverse=True)
        best = max(best, ordered[parallelism - 1] + ordered[parallelism])
    assert loads(dealing, of, parallelism)[-1] <= best * 4 / 3


@given(sizes, sizes, parallelisms)
def test_what_comes_later_moves_nothing(first: Sizes, later: Sizes, parallelism: int) -> None:
    dealt = deal(list(first.items()), parallelism, {}, {})
    both = {**first, **later}
    again = deal(list(both.items()), parallelism, dealt, dict.fromkeys(first, 1))
    assert again.keys() == both.keys()
    assert again | dealt == again


@given(st.permutations([("a", 5), ("b", 5), ("c", 5), ("d", 5)]), parallelisms)
def test_the_order_of_the_list_does_not_matter(
    files: list[tuple[str, int]], parallelism: int
) -> None:
    assert deal(files, parallelism, {}, {}) == deal(sorted(files), parallelism, {}, {})


def test_what_was_read_before_does_not_count() -> None:
    files = [("long", 1000), ("short", 100), ("other", 100)]
    dealing = deal(files, 2, {}, {"long": 990})
    assert dealing["short"] != dealing["other"]


def test_as_many_files_as_subtasks_are_one_each(tmp_path: Path) -> None:
    lines = write(tmp_path, a=30, b=30, c=30, d=30)
    with LocalExecutor(reading(builder(tmp_path), 4)) as run:
        run.run_to_end()
    assert sorted(line for _, line in run.records) == sorted(lines)
    assert {(subtask, line[0]) for subtask, line in run.records} == {
        (0, "a"),
        (1, "b"),
        (2, "c"),
        (3, "d"),
    }


def test_a_large_file_has_a_subtask_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, large=90, a=30, b=30, c=29)
    with LocalExecutor(reading(builder(tmp_path), 2)) as run:
        run.run_to_end()
    assert Counter(subtask for subtask, _ in run.records) == {0: 90, 1: 89}


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_files_that_grow_are_read_on_with_another_parallelism(tmp_path: Path, after: int) -> None:
    """Sizes differ between two runs, and nothing is read twice or missed."""
    folder = tmp_path / "in"
    folder.mkdir()
    lines = write(folder, a=30, b=20, c=10, d=5)
    with LocalExecutor(reading(builder(folder), 2), quota=7) as run:
        run.epoch()
        path = run.savepoint(tmp_path / "savepoints", stop=True)
        first = list(run.records)
    with (folder / "d").open("a") as file:
        file.write("d-more\n" * 80)
    stream = reading(builder(folder), after)
    stream.get_execution_environment()._configuration.set_string(
        "execution.state-recovery.path", path
    )
    with LocalExecutor(stream) as run:
        run.run_to_end()
    assert sorted(line for _, line in first + run.records) == sorted(lines + ["d-more"] * 80)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, LocalExecutor]]:
    folder = tmp_path / "in"
    folder.mkdir()
    source = builder(folder).monitor_continuously(Duration.of_millis(0))
    with LocalExecutor(reading(source, 2)) as run:
        yield folder, run


def test_a_new_file_goes_to_who_has_least(watched: tuple[Path, LocalExecutor]) -> None:
    folder, run = watched
    write(folder, a=50)
    run.epoch()
    write(folder, b=20)
    run.epoch()
    write(folder, c=20)
    run.epoch()
    assert Counter(subtask for subtask, _ in run.records) == {0: 50, 1: 40}


def test_lines_that_are_written_later_are_read_by_the_same_subtask(
    watched: tuple[Path, LocalExecutor],
) -> None:
    folder, run = watched
    write(folder, a=5, b=50)
    run.epoch()
    readers = {line[0]: subtask for subtask, line in run.records}
    with (folder / "a").open("a") as file:
        file.write("a-half")
    run.epoch()
    assert (readers["a"], "a-half") not in run.records
    with (folder / "a").open("a") as file:
        file.write(" and half\n" + "a-x\n" * 200)
    run.epoch()
    run.epoch(checkpoint=True)
    run.recover()
    run.epoch()
    assert run.records.count((readers["a"], "a-half and half")) == 1
    assert run.records.count((readers["a"], "a-x")) == 200
    assert len(run.records) == 55 + 201


def test_an_epoch_that_is_run_again_reads_the_same(watched: tuple[Path, LocalExecutor]) -> None:
    """A file grows between the two runs: what was not there when it was listed has to wait."""
    folder, run = watched
    write(folder, a=5)
    plan = run._job.epochs._planners.plans

    def grow() -> dict[str, bytes]:
        told = plan()
        write(folder, a=9)
        return told

    run._job.epochs._planners.plans = grow  # type: ignore[method-assign]
    run.epoch(rerun=True)
    assert len(run.records) == 5
    run.epoch()
    assert len(run.records) == 9


def test_what_earlier_versions_saved_is_read_on() -> None:
    """They dealt files by a checksum of the name, and saved no dealing."""
    files = [(f"file-{number}", 100) for number in range(20)]
    source = FileSource(StreamFormat.text_line_format(), [], None)
    source.files = files
    seen: list[str] = []
    for subtask in range(3):
        own = [file for file, _ in files if crc32(file.encode()) % 3 == subtask]
        reader = source.create_reader(subtask, 3)
        reader.restore((dict.fromkeys(own, 100), True))
        assert reader.finished
        reader.restore((dict.fromkeys(own, 40), False))
        reader._take(files)  # type: ignore[attr-defined]
        assert reader.position()[0] == dict.fromkeys(own, 40)
        seen += own
    assert len(seen) == len(files)
